"""Tells of tokens only while their node has shown who it is."""

from __future__ import annotations

import threading
from collections.abc import Callable

from infobus.engines.base import Guarded


class MetWatch:
    """One watch of a node. A token belongs to the node that is the last element of its key."""

    def __init__(
        self,
        on_change: Callable[[str, bool], None],
        is_met: Callable[[str], bool],
        guard: Guarded,
    ) -> None:
        self._on_change, self._is_met, self._guard = on_change, is_met, guard
        self._lock = threading.RLock()  # held while it tells
        self._seen: dict[str, set[str]] = {}  # by node
        self._told: set[str] = set()
        self._is_over = False

    def changed(self, token: str, is_alive: bool) -> None:
        """A token has appeared below, or disappeared."""
        node = token.rpartition("/")[2]
        with self._lock:
            if is_alive:
                self._seen.setdefault(node, set()).add(token)
            else:
                left = self._seen.get(node, set())
                left.discard(token)
                if not left:
                    self._seen.pop(node, None)
                self._tell(token, False)
            self.look_at(node)

    def look_at(self, node: str) -> None:
        """A node was met, or is not any more."""
        with self._lock:
            is_met = self._is_met(node)
            for token in sorted(self._seen.get(node, ())):
                self._tell(token, is_met)

    def untold(self) -> list[str]:
        """The nodes of tokens that were not told yet."""
        with self._lock:
            return [node for node, tokens in self._seen.items() if not tokens <= self._told]

    def end(self) -> None:
        """Tell nothing more."""
        self._is_over = True

    def _tell(self, token: str, is_alive: bool) -> None:
        if self._is_over or is_alive == (token in self._told):
            return
        (self._told.add if is_alive else self._told.discard)(token)
        try:
            self._on_change(token, is_alive)
        except Exception as error:
            self._guard.report(error)
