"""The leader of a slot: asks who is alive, and runs the ballot for the next decision."""

from __future__ import annotations

import math

from msgspec import Struct

from infobus.protocols.effects import Complain
from infobus.protocols.frames.membership import (
    BATCH_COUNT_MAX,
    MEMBERS_COUNT_MAX,
    Accepted,
    AreYouAlive,
    Ballot,
    Confirm,
    Decision,
    IAmAlive,
    Join,
    NameTaken,
    NewView,
    OperationRequest,
    Operations,
    Prepare,
    Propose,
    Said,
    Snapshot,
)
from infobus.protocols.membership.groups import is_founded
from infobus.protocols.membership.lease import Lease
from infobus.protocols.membership.rounds import HeartbeatRounds
from infobus.protocols.membership.seat import Seat
from infobus.protocols.membership.terms import name_of

PENDING_COUNT_MAX = 10_000
"""Operations that wait for the leader; it takes no more, and is asked again."""
_BATCH_BYTES_MAX = 512 * 1024
_MEETINGS_COUNT = 2  # rounds both ways, before somebody is let in


class Applicant(Struct):
    """Somebody who wants to be let in."""

    node: str
    asked_s: float
    heard: int
    told_s: float = -math.inf


class Succession(Struct):
    """A leader that still gathers the promises of a quorum."""

    promises: dict[str, Accepted | None]
    unheard_s: float

    def best(self) -> Decision | None:
        """What may have been decided already."""
        accepted = [one for one in self.promises.values() if one is not None]
        return max(accepted, key=lambda one: one[0])[1] if accepted else None


class Leader:
    """Leads while `ballot` is what its seat has promised.

    Methods that return a decision say that it was decided now.
    """

    def __init__(self, seat: Seat, lease: Lease) -> None:
        self._seat = seat
        self._lease = lease
        self.rounds = HeartbeatRounds(seat)
        self.ballot: Ballot | None = None
        self.succession: Succession | None = None
        self.proposal: Decision | None = None
        self.leavers: set[str] = set()
        self.pending: dict[str, OperationRequest] = {}
        self._accepts: set[str] = set()
        self._applicants: dict[str, Applicant] = {}
        self._begun_s = self._again_s = self._round_s = self._join_s = -math.inf

    @property
    def is_leading(self) -> bool:
        """Whether this member leads, or is about to."""
        return self.ballot is not None and self.ballot == self._seat.promised

    def step_down(self) -> None:
        """Somebody else leads."""
        self.ballot = self.succession = self.proposal = None

    def forget(self) -> None:
        """Belong to no group."""
        self.step_down()
        self.leavers.clear()
        self.pending.clear()
        self._applicants.clear()

    def begin_slot(self, before: tuple[str, ...], was_leading: bool, now_s: float) -> None:
        """The next slot begins; `before` are the members of the view before, if it is new."""
        self.succession = self.proposal = None
        seat = self._seat
        members = seat.sequence.members
        self.leavers.intersection_update(members)
        if seat.leader != seat.id:
            self.ballot = None
            return
        self.ballot = seat.promised
        if before:
            self.rounds.view_changed(before, was_leading, now_s)
            self._round_s = now_s
        elif not was_leading:
            self.rounds.begin(now_s)
        if not was_leading:
            self._begun_s = now_s

    def lease_until_s(self, now_s: float) -> float:
        """Until when nobody else can lead."""
        return -math.inf if self.succession else self.rounds.lease_until_s(now_s)

    # Succession.

    def stand(self, number: int, now_s: float) -> Decision | None:
        """Try to lead, with a ballot above `number`."""
        seat = self._seat
        self.ballot = Ballot(number + 1, seat.id)
        self.proposal = None
        unheard_s = self._lease.unheard_s(seat.id, now_s)
        seat.promise(self.ballot, seat.accepted)
        self.succession = Succession({seat.id: seat.accepted}, unheard_s)
        self._again_s = now_s + seat.terms.heartbeat_s / 2
        seat.tell(Prepare(self.ballot))
        return self._try_lead(now_s)

    def promised(
        self, member: str, accepted: Accepted | None, unheard_s: float, now_s: float
    ) -> Decision | None:
        """A member follows."""
        if self.succession is None:
            self.rounds.note(member, now_s)
            return None
        self.succession.promises[member] = accepted
        self.succession.unheard_s = min(self.succession.unheard_s, unheard_s)
        return self._try_lead(now_s)

    def _try_lead(self, now_s: float) -> Decision | None:
        seat, succession = self._seat, self.succession
        if succession is None or not seat.is_quorum(set(succession.promises)):
            return None
        self.succession = None
        terms, members = seat.terms, seat.sequence.members
        self.rounds.begin(now_s, now_s + terms.suspect_s - succession.unheard_s)
        self.rounds.met.update(succession.promises)
        for rank, member in enumerate(members):
            if member not in succession.promises:
                # A senior one would lead if it could; others may just be loyal a little longer.
                grace_s = 0.7 * terms.heartbeat_s if rank > members.index(seat.id) else 0.0
                self.rounds.heard[member] = now_s - terms.suspect_s + grace_s
        self._begun_s = self._round_s = now_s
        if (best := succession.best()) is not None:
            return self._propose(best, now_s)
        return self.tick(now_s)

    # Time.

    def tick(self, now_s: float) -> Decision | None:
        """Do what is due."""
        seat = self._seat
        if self.succession is not None:
            if now_s >= self._again_s and self.ballot is not None:
                self._again_s = now_s + seat.terms.heartbeat_s / 2
                for member in seat.others:
                    if member not in self.succession.promises:
                        seat.say(member, Prepare(self.ballot))
            return None
        if now_s >= self._round_s and self.ballot is not None:
            self._round_s = now_s + seat.terms.heartbeat_s
            seat.tell(AreYouAlive(self.ballot, self.rounds.next(now_s)))
        if self.proposal is not None and now_s >= self._again_s and self.ballot is not None:
            self._again_s = now_s + seat.terms.heartbeat_s / 2
            for member in seat.others:
                if member not in self._accepts:
                    seat.say(member, Propose(self.ballot, self.proposal))
        return self.look(now_s)

    def look(self, now_s: float) -> Decision | None:
        """Propose what is due, if nothing else is under way."""
        if self.proposal is not None or self.succession is not None:
            return None
        decision = self._next_view(now_s) or self._next_operations()
        return None if decision is None else self._propose(decision, now_s)

    def _next_view(self, now_s: float) -> NewView | None:
        seat, members = self._seat, self._seat.sequence.members
        if seat.sequence.slot == 0 and is_founded(seat.sequence.group):
            return self._first_view(now_s)
        silent = self.rounds.silent(now_s)
        new = self._admitted(silent, now_s)
        names = {name_of(member) for member in new}
        replaced = {member for member in members if name_of(member) in names}
        if not seat.is_quorum(set(members) - silent - replaced):
            return None  # those who stay must be able to decide
        gone = silent | replaced | self.leavers
        stay = tuple(member for member in members if member not in gone)
        new = new[: MEMBERS_COUNT_MAX - len(stay)]
        if not stay + tuple(new) or stay + tuple(new) == members:
            return None
        if new:
            self._join_s = now_s + seat.terms.heartbeat_s
        return NewView(stay + tuple(new))

    def _first_view(self, now_s: float) -> NewView | None:
        """Of the founders those who are there, once each has had time to answer."""
        seat, rounds = self._seat, self.rounds
        members = seat.sequence.members
        there = tuple(m for m in members if m == seat.id or m in rounds.met)
        is_over = now_s >= self._begun_s + seat.terms.suspect_s
        if len(there) == len(members) or (is_over and seat.is_quorum(set(there))):
            return NewView(there)
        return None

    def _next_operations(self) -> Operations | None:
        batch: list[OperationRequest] = []
        size = 0
        while self.pending and len(batch) < BATCH_COUNT_MAX and size < _BATCH_BYTES_MAX:
            request = self.pending.pop(next(iter(self.pending)))
            if request.id not in self._seat.sequence.results:
                batch.append(request)
                size += len(request.operation)
        return Operations(batch) if batch else None

    def _propose(self, decision: Decision, now_s: float) -> Decision | None:
        seat, ballot = self._seat, self.ballot
        assert ballot is not None
        self.proposal, self._accepts = decision, {seat.id}
        self._again_s = now_s + seat.terms.heartbeat_s / 2
        seat.promise(ballot, (ballot, decision))
        seat.tell(Propose(ballot, decision))
        return self._try_decide()

    def _try_decide(self) -> Decision | None:
        return self.proposal if self._seat.is_quorum(self._accepts) else None

    # What members say.

    def answered(self, member: str, number: int, now_s: float) -> None:
        """A member has answered a round, in this slot."""
        self.rounds.note(member, now_s)
        self.rounds.answered(member, number)
        for one, confirmed, left_s in self.rounds.to_confirm(now_s):
            self._seat.say(one, Confirm(confirmed, left_s))

    def accepted(self, member: str, ballot: Ballot, now_s: float) -> Decision | None:
        """A member has accepted what was proposed."""
        if ballot != self.ballot or self.proposal is None:
            return None
        self.rounds.heard[member] = now_s
        self._accepts.add(member)
        return self._try_decide()

    def forwarded(self, requests: list[OperationRequest]) -> None:
        """A member wants operations decided."""
        for request in requests:
            if len(self.pending) < PENDING_COUNT_MAX:
                self.pending.setdefault(request.id, request)

    # Those who want to be let in.

    def apply(self, said: Said, body: Join, now_s: float) -> None:
        """Somebody wants to be let in."""
        seat = self._seat
        if said.member in seat.sequence.members:
            self._welcome(said.member, said.sender, now_s)
            return
        if len(self._applicants) >= MEMBERS_COUNT_MAX and said.member not in self._applicants:
            return
        told = self._applicants.get(said.member)
        applicant = Applicant(said.sender, now_s, body.heard)
        if told is not None:
            applicant.told_s = told.told_s
        self._applicants[said.member] = applicant
        seat.say_at(said.sender, IAmAlive(body.round), said.member)

    def admit(self, members: tuple[str, ...], now_s: float) -> None:
        """These have just been let in: tell them so."""
        for member in members:
            applicant = self._applicants.get(member)
            node = applicant.node if applicant else self._seat.nodes.get(member)
            if node is not None:
                self._welcome(member, node, now_s)

    def _welcome(self, member: str, node: str, now_s: float) -> None:
        seat = self._seat
        applicant = self._applicants.setdefault(member, Applicant(node, now_s, 0))
        if now_s - applicant.told_s < seat.terms.heartbeat_s / 2:
            return  # it may be large
        applicant.told_s = now_s
        seat.nodes[member] = node
        state = seat.sequence.snapshot()
        nodes = {**seat.nodes, seat.id: seat.node}
        seat.say_at(node, Snapshot(seat.sequence.members, nodes, state), member)

    def _admitted(self, silent: set[str], now_s: float) -> list[str]:
        """Those who can be let in now."""
        seat = self._seat
        if now_s < self._join_s:
            return []
        stale_s = now_s - 2 * seat.terms.heartbeat_s
        for member in [m for m, one in self._applicants.items() if one.asked_s < stale_s]:
            del self._applicants[member]
        admitted = []
        for member, one in self._applicants.items():
            if one.heard < _MEETINGS_COUNT or member in seat.sequence.members:
                continue
            if (rival := self._rival(member, one.node, silent)) is None:
                admitted.append(member)
            else:
                seat.say_at(one.node, NameTaken(seat.nodes.get(rival, seat.node)), member)
                what = f"wants to join as {name_of(member)!r}; a live member has that name"
                seat.effects.append(Complain(one.node, what))
                one.heard = 0
        return admitted

    def _rival(self, applicant: str, node: str, silent: set[str]) -> str | None:
        """A live member of the same name at another node."""
        for member in self._seat.sequence.members:
            is_namesake = name_of(member) == name_of(applicant)
            if is_namesake and member not in silent and self._seat.nodes.get(member) != node:
                return member
        return None
