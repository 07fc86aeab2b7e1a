"""Decides which ledgers without an owner a node opens, and for how long.

A publisher owns a ledger, and leaves it behind when it ends. A node of the same home opens such a
ledger while a connected consumer lacks some of its events, or while it holds events that are too
old. Then it releases the ledger, so that the next publisher can take it over and need not create
another.

Open files are limited, so only a few ledgers are open at a time. While others wait, they take
turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class LedgerTurns:
    """The turns of a node's ledgers, its own left out."""

    open_count_max: int = 8  # each takes up to 8 file descriptors
    turn_s: float = 10.0  # long enough to tell a consumer that wants nothing of it
    _opened_at_s: dict[str, float] = field(default_factory=dict)
    _let_go_at_s: dict[str, float] = field(default_factory=dict)  # of those that wait
    _is_crowded: bool = False

    def choose(self, wanted: Sequence[str]) -> list[str]:
        """Return which of these ledgers may be opened now: those that have waited longest."""
        self._let_go_at_s = {id: self._let_go_at_s.get(id, float("-inf")) for id in wanted}
        room = max(self.open_count_max - len(self._opened_at_s), 0)
        self._is_crowded = len(wanted) > room
        return sorted(wanted, key=self._let_go_at_s.__getitem__)[:room]

    def opened(self, id: str, now_s: float) -> None:
        """A ledger was opened to deliver what others left in it."""
        self._opened_at_s[id] = now_s

    def closed(self, id: str, now_s: float) -> None:
        """It is closed again, or has become the node's own."""
        self._opened_at_s.pop(id, None)
        self._let_go_at_s[id] = now_s

    def is_over(self, id: str, now_s: float) -> bool:
        """Return whether it is the turn of another one."""
        return self._is_crowded and now_s - self._opened_at_s.get(id, now_s) >= self.turn_s
