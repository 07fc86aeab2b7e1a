"""Compiles the filters of other nodes on a thread of its own, so that `publish` never waits for it.

Until a pattern's filters are compiled, it counts as unfiltered: more is sent than wanted, and never
less. Patterns with little text go first. The thread rests four times as long as it has worked,
because it shares the interpreter with those who publish.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from infobus.errors import BadFilter

if TYPE_CHECKING:
    from infobus.bus.runtime.runtime import Runtime
    from infobus.filters.matching.matcher import Matcher

AT_ONCE_CHARS = 4096
"""Filters of a pattern with so much text are compiled when somebody publishes, within `SHARE`."""
SHARE = 0.02
"""How much of a publisher's time may go into that, over a few seconds."""
_SAVED_S_MAX = 0.1
_REST = 4.0


class FilterCompiler:
    """Sees to it that the filters of other nodes are compiled."""

    def __init__(self, runtime: Runtime, on_compiled: Callable[[], None]) -> None:
        self._runtime = runtime
        self._rows = runtime.node.rows
        self._now_s = runtime.clock.now_s
        self._on_compiled = on_compiled
        self._saved_s, self._saved_at_s = _SAVED_S_MAX, self._now_s()
        self._is_at_work = False

    def chars_at_once(self) -> int:
        """How much text may be compiled now. The caller holds the lock."""
        now_s = self._now_s()
        self._saved_s += SHARE * (now_s - self._saved_at_s)
        self._saved_s, self._saved_at_s = min(self._saved_s, _SAVED_S_MAX), now_s
        return AT_ONCE_CHARS if self._saved_s > 0 else 0

    def note_asked(self) -> None:
        """The rows were asked since `chars_at_once`. The caller holds the lock."""
        self._saved_s -= self._now_s() - self._saved_at_s
        if self._rows.uncompiled and not self._is_at_work:
            self._is_at_work = True
            worker = self._runtime.threads.worker(f"infobus-{self._runtime.name}-filters")
            worker.do(self._compile_all)
            worker.stop()

    def _compile_all(self) -> None:
        runtime = self._runtime
        while True:
            with runtime.lock:
                due = self._rows.next_uncompiled()
                if due is None or runtime.is_closed:
                    self._is_at_work = False
                    return
            pattern, filters = due
            matcher = self._compiled(filters)
            with runtime.lock:
                self._rows.compiled(pattern, filters, matcher)
                self._on_compiled()

    def _compiled(self, filters: list[str]) -> Matcher | None:
        """A matcher of all filters; None if one is not understood, or the node is closed."""
        from infobus.filters import compile  # late: a bus without filters needs none of it
        from infobus.filters.matching.matcher import Matcher

        matcher = Matcher()
        for where in filters:
            begun_s = self._now_s()
            try:
                matcher.add(where, compile(where))
            except BadFilter:
                return None
            rest_s = _REST * (self._now_s() - begun_s)
            if self._runtime.wait_until(lambda: self._runtime.is_closed, rest_s):
                return None
        return matcher
