"""Events of other sites that two ledgers keep, as after one router has taken over from another.

A router that dies may have kept events that it had not settled. Another one, which cannot see its
ledger, keeps them once more. A consumer that has got one of the two does not need the other.
"""

from __future__ import annotations

from msgspec import Struct, field

from infobus.protocols.frames.guaranteed import Entry

_COUNT_MAX = 20_000  # events remembered: far more than a router keeps without having settled them
_Name = tuple[str, int, str, int]


class Doubles(Struct):
    """The last events of other sites that have come, and the ledger that each came from."""

    came_from: dict[_Name, str] = field(default_factory=dict)  # the oldest first

    def is_double(self, ledger: str, entry: Entry) -> bool:
        """Note an event; whether it has come from another ledger before."""
        if entry.origin is None:
            return False
        first, number, _ = entry.origin
        # Two agreements may each keep a part of one transaction: these differ in what they hold.
        name = first, number, entry.subject, hash(entry.body)
        before = self.came_from.setdefault(name, ledger)
        if len(self.came_from) > _COUNT_MAX:
            del self.came_from[next(iter(self.came_from))]
        return before != ledger
