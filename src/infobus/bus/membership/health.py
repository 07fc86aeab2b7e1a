"""Tells whether this program hangs, by checks of its own that must keep passing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from infobus.bus.runtime.runtime import Runtime
from infobus.errors import UsageError
from infobus.protocols.membership.follower import ViewFollower

log = logging.getLogger("infobus")


class AliveCheck:
    """One check, until it is closed."""

    def __init__(
        self, check: Callable[[], object], for_s: float, now_s: float, end: Callable[[], None]
    ) -> None:
        self.check = check
        self.for_s = for_s
        self.passed_s = now_s
        self._end = end
        self._is_logged = False

    def close(self) -> None:
        """Check no more. Idempotent."""
        self._end()

    def __enter__(self) -> AliveCheck:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def look(self, now_s: Callable[[], float]) -> None:
        """Ask the program; it passes if the answer is true and nothing was raised."""
        try:
            has_passed = self.check()
        except Exception:
            if not self._is_logged:
                self._is_logged = True
                log.exception("a check of alive_while raised (said once)")
            return
        if has_passed or has_passed is None:
            self.passed_s = now_s()


class Health:
    """The checks of a program, each on a thread of its own: one that hangs holds up no other."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._now_s = runtime.clock.now_s
        self._checks: dict[AliveCheck, None] = {}
        self._follower: ViewFollower | None = None
        self._lock = threading.Lock()

    def follow(self, follower: ViewFollower) -> None:
        """From now on, the members are told by way of this."""
        self._follower = follower

    def watch(self, check: Callable[[], object], every_s: float, for_s: float) -> AliveCheck:
        """See `Bus.alive_while`."""
        if not 0 < every_s < for_s:
            raise UsageError(
                f"every_s is {every_s} and for_s {for_s}; expected 0 < every_s < for_s"
            )
        is_over = threading.Event()

        def end() -> None:
            is_over.set()
            with self._lock:
                self._checks.pop(one, None)

        one = AliveCheck(check, for_s, self._now_s(), end)
        with self._lock:
            self._checks[one] = None

        def run() -> None:
            one.look(self._now_s)
            while not is_over.wait(every_s):
                one.look(self._now_s)

        name = f"infobus-{self._runtime.name}-alive"
        threading.Thread(target=run, name=name, daemon=True).start()
        self.note()
        return one

    def is_hung(self) -> bool:
        """Whether a check has not passed for too long."""
        worst = self._worst()
        return worst is not None and self._now_s() - worst.passed_s > worst.for_s

    def note(self) -> None:
        """Let the members know how it is."""
        worst, follower = self._worst(), self._follower
        if follower is not None:
            follower.passed_s = None if worst is None else worst.passed_s
            follower.for_s = 0.0 if worst is None else worst.for_s

    def close(self) -> None:
        """Check no more."""
        with self._lock:
            checks = list(self._checks)
        for one in checks:
            one.close()

    def _worst(self) -> AliveCheck | None:
        with self._lock:
            return min(self._checks, key=lambda one: one.passed_s + one.for_s, default=None)
