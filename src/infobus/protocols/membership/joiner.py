"""A node without a group: asks to join one, or begins one if there is none."""

from __future__ import annotations

from infobus.protocols.frames.membership import Join
from infobus.protocols.membership.seat import Seat

_RIVALS_COUNT_MAX = 1000


class Joiner:
    """Asks everyone it knows, twice in a heartbeat."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.begin(0.0)

    def begin(self, now_s: float) -> None:
        """From now on, belong to no group."""
        self._round = 0
        self._next_s = now_s
        self._silent_s = now_s  # since when no member has answered
        self._answers: dict[str, int] = {}
        self._rivals: dict[str, float] = {}  # others who may begin a group

    def tick(self, now_s: float) -> None:
        """Ask if it is time."""
        seat = self._seat
        if now_s < self._next_s:
            return
        self._next_s = now_s + seat.terms.heartbeat_s / 2
        self._round += 1
        for node in seat.daemons:
            seat.say_at(node, Join(self._round, self._answers.get(node, 0), self._can_found()))

    def answered(self, node: str, now_s: float) -> None:
        """A leader has heard it."""
        self._silent_s = now_s
        if len(self._answers) < _RIVALS_COUNT_MAX:
            self._answers[node] = self._answers.get(node, 0) + 1

    def met(self, member: str, may_found: bool, now_s: float) -> None:
        """Somebody else is without a group, too."""
        if may_found and len(self._rivals) < _RIVALS_COUNT_MAX:
            self._rivals[member] = now_s

    def heard_member(self, now_s: float) -> None:
        """There is a group somewhere."""
        self._silent_s = now_s

    def may_found(self, now_s: float) -> bool:
        """Whether to begin a group now: nobody is there, and this one is the first of its like."""
        terms = self._seat.terms
        alone_s = max(terms.alone_s, 3 * terms.heartbeat_s)
        if not self._can_found() or now_s - self._silent_s < alone_s:
            return False
        lately_s = now_s - alone_s
        rivals = [member for member, heard_s in self._rivals.items() if heard_s > lately_s]
        return self._seat.id < min(rivals, default=chr(0x10FFFF))

    def _can_found(self) -> bool:
        """A former member begins no group: the others may go on somewhere."""
        return not (self._seat.terms.founders or self._seat.has_been_member)
