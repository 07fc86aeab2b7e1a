"""The members' side of heartbeats: whom they follow, and for how long their view is stable."""

from __future__ import annotations

import math

from infobus.protocols.membership.seat import Seat

_ANSWERS_COUNT = 8


class Lease:
    """What a member has from its leader.

    A lease counts from the moment at which the member answered the round, not from when the
    confirmation came: the leader sent that later, and nobody knows how long it took.
    """

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.until_s = -math.inf
        self.heard: dict[str, float] = {}  # leaders
        self._answers: dict[int, float] = {}
        self._rounds_of = ""

    def asked(self, leader: str, number: int, now_s: float) -> None:
        """The leader has asked, and is answered now."""
        if leader != self._rounds_of or number < max(self._answers, default=0) - _ANSWERS_COUNT:
            self._answers.clear()  # it is another leader, or it counts anew
            self._rounds_of = leader
        self.hear(leader, now_s)
        self._answers.setdefault(number, now_s)
        if len(self._answers) > _ANSWERS_COUNT:
            del self._answers[min(self._answers)]

    def hear(self, leader: str, now_s: float) -> None:
        """A leader has been heard, or begins."""
        suspect_s = self._seat.terms.suspect_s
        self.heard = {one: s for one, s in self.heard.items() if now_s - s < 2 * suspect_s}
        self.heard[leader] = now_s

    def confirmed(self, leader: str, number: int, left_s: float) -> None:
        """The leader has given a lease."""
        answered_s = self._answers.get(number)
        if answered_s is not None and leader == self._rounds_of:
            left_s = min(left_s, self._seat.terms.lease_s)
            self.until_s = max(self.until_s, answered_s + left_s)

    def end(self) -> None:
        """Have no lease."""
        self.until_s = -math.inf
        self._answers.clear()

    def leader_silent_from_s(self) -> float:
        """When the leader is given up, unless it is heard."""
        leader = self._seat.leader
        return self._seat.silent_from_s(leader, self.heard.get(leader, -math.inf))

    def is_loyal(self, other: str, now_s: float) -> bool:
        """Whether a leader was heard too lately to follow another one."""
        seat = self._seat
        if seat.leader in (other, seat.id):
            return False
        if now_s >= self.leader_silent_from_s():
            return False
        return now_s - self.heard.get(seat.leader, -math.inf) < seat.terms.loyal_s

    def unheard_s(self, other: str, now_s: float) -> float:
        """How long no leader but `other` was heard."""
        latest_s = max((s for one, s in self.heard.items() if one != other), default=-math.inf)
        return min(now_s - latest_s, self._seat.terms.suspect_s)

    def shift(self, seconds: float) -> None:
        """This process stood still: what leaders said meanwhile has not been read."""
        self.heard = {one: heard_s + seconds for one, heard_s in self.heard.items()}
