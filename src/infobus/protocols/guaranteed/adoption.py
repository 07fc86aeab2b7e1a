"""Ledgers that nobody owns: which of them a node opens, and for how long.

Whoever publishes owns a ledger, and leaves it behind when it ends. A node of the same home opens
such a ledger while a consumer in use lacks something of it, or something in it is too old, and
then lets it go, so that the next one that publishes has a ledger to take and need not make another.

Open files are limited, so only a few are open at a time. While others wait, each has its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class LedgerTurns:
    """The turns of a node's ledgers, its own left out."""

    open_count_max: int = 8  # each takes up to 8 file descriptors
    turn_s: float = 10.0  # long enough for a consumer that wants nothing of it to be told so
    _opened_at_s: dict[str, float] = field(default_factory=dict)
    _let_go_at_s: dict[str, float] = field(default_factory=dict)  # of those that wait
    _is_crowded: bool = False

    def choose(self, wanted: Sequence[str]) -> list[str]:
        """Which of those that have to be opened may be now: those that have waited longest."""
        self._let_go_at_s = {id: self._let_go_at_s.get(id, float("-inf")) for id in wanted}
        room = max(self.open_count_max - len(self._opened_at_s), 0)
        self._is_crowded = len(wanted) > room
        return sorted(wanted, key=self._let_go_at_s.__getitem__)[:room]

    def opened(self, id: str, now_s: float) -> None:
        """A ledger was opened for what others left in it."""
        self._opened_at_s[id] = now_s

    def closed(self, id: str, now_s: float) -> None:
        """It is closed again, or has become the node's own."""
        self._opened_at_s.pop(id, None)
        self._let_go_at_s[id] = now_s

    def is_over(self, id: str, now_s: float) -> bool:
        """Whether it is the turn of another one."""
        return self._is_crowded and now_s - self._opened_at_s.get(id, now_s) >= self.turn_s
