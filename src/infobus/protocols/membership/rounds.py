"""The leader's heartbeats: who has answered, who is silent, and how long its lease lasts."""

from __future__ import annotations

import math

from msgspec import Struct, field

from infobus.protocols.membership.seat import Seat

_ROUNDS_COUNT = 5  # whose answers still count


class HeartbeatRound(Struct):
    """One round, and who has answered it."""

    sent_s: float
    answered: set[str]
    confirmed: set[str] = field(default_factory=set)


class HeartbeatRounds:
    """What the leader knows from heartbeats.

    A round that a quorum has answered gives the leader a lease: for a while nobody in that quorum
    follows another leader. It passes the lease on to those who have answered. After a view the
    leader gives none, nor has one itself, until nobody can still have one from an older view: each
    old member has answered in the new view, or its lease has run out.
    """

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.number = 0
        self.heard: dict[str, float] = {}
        self.met: set[str] = set()  # members that have answered since this one leads
        self._rounds: dict[int, HeartbeatRound] = {}
        self._owed: dict[str, float] = {}  # who may have an older lease, and until when
        self._not_before_s = -math.inf  # older leases of others have run out by then

    def begin(self, now_s: float, not_before_s: float = -math.inf) -> None:
        """Lead from now on."""
        self._rounds.clear()
        self._owed.clear()
        self.met.clear()
        self._not_before_s = not_before_s
        self.heard = dict.fromkeys(self._seat.sequence.members, now_s)

    def view_changed(self, before: tuple[str, ...], is_continued: bool, now_s: float) -> None:
        """There is a new view; the leader of the old one goes on, or this one is new."""
        suspect_s = self._seat.terms.suspect_s
        heard = self.heard if is_continued else {}
        # Also who has left: its programs may still have leases.
        others = set(before) - {self._seat.id}
        self._owed = {member: heard.get(member, now_s) + suspect_s for member in others}
        members = self._seat.sequence.members
        self.heard = {m: heard.get(m, now_s) if m in before else now_s for m in members}
        self._rounds.clear()

    def next(self, now_s: float) -> int:
        """Begin a round; returns its number."""
        self.number += 1
        self._rounds[self.number] = HeartbeatRound(now_s, {self._seat.id})
        for old in [number for number in self._rounds if number <= self.number - _ROUNDS_COUNT]:
            del self._rounds[old]
        return self.number

    def note(self, member: str, now_s: float) -> None:
        """A member that is up to date has said something."""
        self.heard[member] = now_s
        self.met.add(member)
        self._owed.pop(member, None)

    def answered(self, member: str, number: int) -> None:
        """A member has answered a round."""
        if (one := self._rounds.get(number)) is not None:
            one.answered.add(member)

    def to_confirm(self, now_s: float) -> list[tuple[str, int, float]]:
        """Members to give a lease to, for which round, and how long it is."""
        if not self._is_alone(now_s):
            return []
        due = []
        for number, one in self._rounds.items():
            left_s = one.sent_s + self._seat.terms.lease_s - now_s
            if left_s > 0 and self._seat.is_quorum(one.answered):
                for member in one.answered - one.confirmed - {self._seat.id}:
                    one.confirmed.add(member)
                    due.append((member, number, left_s))
        return due

    def lease_until_s(self, now_s: float) -> float:
        """Until when nobody else can lead."""
        if not self._is_alone(now_s):
            return -math.inf
        sent = [one.sent_s for one in self._rounds.values() if self._seat.is_quorum(one.answered)]
        return max(sent, default=-math.inf) + self._seat.terms.lease_s

    def silent(self, now_s: float) -> set[str]:
        """Members that are given up."""
        return {
            member
            for member in self._seat.others
            if now_s >= self._seat.silent_from_s(member, self.heard.get(member, now_s))
        }

    def shift(self, seconds: float) -> None:
        """This process stood still: what the others said meanwhile has not been read."""
        self.heard = {member: heard_s + seconds for member, heard_s in self.heard.items()}

    def _is_alone(self, now_s: float) -> bool:
        """Whether nobody can have a lease from an older view or leader."""
        return now_s >= max(self._owed.values(), default=now_s) and now_s >= self._not_before_s
