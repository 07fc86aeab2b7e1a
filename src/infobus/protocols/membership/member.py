"""A member: agrees with the others on views and on operations, one slot after the other.

The members of slot s decide slot s + 1 by ballots: with a majority, or with half of them if the
most senior member is among these. The most senior member leads without asking; if it is silent, the
next one first asks for promises. So all members see the same decisions in the same order, whatever
fails.

A member writes each promise to disk before it sends it. Time comes in as `now_s`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from infobus.protocols.effects import Complain
from infobus.protocols.frames.membership import (
    Accept,
    AreYouAlive,
    Body,
    Commit,
    Confirm,
    Decision,
    Forward,
    Here,
    IAmAlive,
    Join,
    LeaveGroup,
    NameTaken,
    NewView,
    OperationRequest,
    Outside,
    Prepare,
    Promised,
    Propose,
    Said,
    Snapshot,
)
from infobus.protocols.membership.effects import Answered, Excluded, Installed
from infobus.protocols.membership.groups import founded_group, goes_on, lone_group
from infobus.protocols.membership.joiner import Joiner
from infobus.protocols.membership.leader import Leader
from infobus.protocols.membership.lease import Lease
from infobus.protocols.membership.seat import Seat
from infobus.protocols.membership.table import AgreedTable
from infobus.protocols.membership.terms import MembershipTerms

REQUESTS_COUNT_MAX = 10_000
"""Requests of one member that are not decided yet; further ones are refused."""
_DAEMONS_COUNT_MAX = 1000
_FORWARD_COUNT = 64  # requests in one frame
_LATE = 0.5  # heartbeats without a tick: this process stood still


class GroupMember:
    """The machine of one member.

    `stamp` is a number that no earlier start of this name had: it names a group that this member
    begins, and its incarnation where nothing was saved. With `saved`, it goes on where it was.
    """

    def __init__(
        self,
        node: str,
        name: str,
        terms: MembershipTerms,
        tables: Mapping[str, AgreedTable],
        saved: Mapping[str, bytes],
        stamp: int,
        now_s: float,
    ) -> None:
        self._stamp = stamp
        self.seat = seat = Seat(node, name, stamp, terms, tables)
        self._lease = Lease(seat)
        self._leader = Leader(seat, self._lease)
        self._joiner = Joiner(seat)
        self._requests: dict[str, OperationRequest] = {}
        self._ticked_s = self._met_s = self._passed_s = self._steady_s = now_s
        self._is_leaving = False
        self._unaware: set[str] = set()  # of my leaving, although they agreed to it
        self._is_newborn_founder = False
        if is_known := "promises" in saved:
            seat.restore(saved)
        elif name in terms.founders:
            seat.incarnation = 0
            seat.begin(*founded_group(terms.founders))
            self._is_newborn_founder = True
        if seat.is_member:
            self._begin(now_s, has_promised=is_known)
        else:
            self._joiner.begin(now_s)
        self._heard: dict[type, Callable[[Said, Any, float], None]] = {
            AreYouAlive: self._on_are_you_alive,
            IAmAlive: self._on_i_am_alive,
            Prepare: self._on_prepare,
            Promised: self._on_promised,
            Propose: self._on_propose,
            Accept: self._on_accept,
            LeaveGroup: self._on_leave,
            Forward: self._on_forward,
        }

    # What it is asked.

    @property
    def id(self) -> str:
        """The member's id."""
        return self.seat.id

    @property
    def is_over(self) -> bool:
        """Whether it has left, and everyone who stays knows."""
        return self._is_leaving and not self.seat.is_member

    def stable_left_s(self, now_s: float) -> float:
        """For how much longer the view is stable; 0 if it is not."""
        seat = self.seat
        if not seat.is_member or self._is_leaving or self._is_deciding_view():
            return 0.0
        is_leading = self._leader.is_leading
        until_s = self._leader.lease_until_s(now_s) if is_leading else self._lease.until_s
        return max(0.0, until_s - now_s)

    def why_unstable(self, now_s: float) -> str:
        """Why the view is not stable, for people; empty if it is."""
        seat = self.seat
        if self.stable_left_s(now_s) > 0:
            return ""
        if self._is_leaving:
            return "leaving: this daemon leaves the group"
        if not seat.is_member:
            return "no group: this daemon asks to be let in, and nobody has done so yet"
        if self._is_deciding_view():
            return "deciding: a change of members is under way"
        if now_s - self._steady_s < 2 * seat.terms.suspect_s:
            return "deciding: the members are finding each other"
        count = len(seat.sequence.members)
        return (
            f"no quorum: most of the {count} members, or half of them with the most senior one, "
            f"{seat.sequence.members[0]}, are not within reach"
        )

    # What happens.

    def begin(self) -> list[Any]:
        """What is to be done at first."""
        return self.seat.flush()

    def take(self, message: Any, now_s: float) -> list[Any]:
        """A message has come."""
        if isinstance(message, Said) and message.sender != self.seat.node:
            self._hear(message, now_s)
        return self.seat.flush()

    def peer_up(self, name: str, now_s: float) -> list[Any]:
        """A node shows that it has a member."""
        seat = self.seat
        seat.gone.pop(name, None)
        if name != seat.node and len(seat.daemons) < _DAEMONS_COUNT_MAX:
            seat.daemons[name] = None
            if seat.is_member:
                seat.say_at(name, Here(self._size(now_s)))
        return seat.flush()

    def peer_down(self, name: str, now_s: float) -> list[Any]:
        """A node shows no longer that it has one: a hint, which alone removes nobody."""
        seat = self.seat
        seat.daemons.pop(name, None)
        if name in seat.nodes.values():
            seat.gone[name] = now_s
        return seat.flush()

    def request(self, request: OperationRequest, now_s: float) -> list[Any]:
        """Have an operation decided; `Answered` says when it is. Repeating it is harmless."""
        results = self.seat.sequence.results
        if request.id in results:
            return [Answered(request.id, results[request.id])]
        if len(self._requests) < REQUESTS_COUNT_MAX and request.id not in self._requests:
            self._requests[request.id] = request
            self._pass_on([request], now_s)
        return self.seat.flush()

    def withdraw(self, id: str) -> None:
        """Nobody waits for this request any more; it may be decided all the same."""
        self._requests.pop(id, None)

    def leave(self, now_s: float) -> list[Any]:
        """Have the others go on without this member; `is_over` says when they do."""
        seat = self.seat
        self._is_leaving = True
        self._lease.end()
        if not seat.others:
            return seat.flush()
        if self._leader.is_leading:
            self._leader.leavers.add(seat.id)
            self._decided(self._leader.look(now_s), now_s)
        else:
            seat.say(seat.leader, LeaveGroup())
        return seat.flush()

    def force(self, now_s: float) -> list[Any]:
        """Go on alone, whatever the others do: they join anew when they are met."""
        self._force(now_s)
        return self.seat.flush()

    def tick(self, now_s: float) -> list[Any]:
        """Time has passed."""
        seat = self.seat
        late_s = now_s - self._ticked_s
        self._ticked_s = now_s
        if late_s > _LATE * seat.terms.heartbeat_s:
            self._lease.shift(late_s)
            self._leader.rounds.shift(late_s)
        if seat.is_member:
            self._tick_as_member(now_s)
        elif not self._is_leaving:
            self._joiner.tick(now_s)
            if self._joiner.may_found(now_s):
                seat.begin(lone_group(self._stamp, seat.id), (seat.id,))
                self._begin(now_s)
                self._tell_view()
        return seat.flush()

    def _tick_as_member(self, now_s: float) -> None:
        seat, leader = self.seat, self._leader
        if self._unaware:
            self._tell_of_leaving(now_s)
            return
        if leader.is_leading:
            self._decided(leader.tick(now_s), now_s)
        elif seat.leader == seat.id or now_s >= self._stand_s():
            self._stand(now_s)  # the leader is silent, or was this one before it was started again
        if not seat.is_member:
            return
        if now_s >= self._passed_s + seat.terms.heartbeat_s:
            self._passed_s = now_s
            self._pass_on(list(self._requests.values())[:_FORWARD_COUNT], now_s)
            if self._is_leaving and seat.leader != seat.id:
                seat.say(seat.leader, LeaveGroup())
        self._look_for_others(now_s)
        if self.stable_left_s(now_s) > 0:
            self._steady_s = now_s
        elif seat.terms.mode == "any" and now_s >= self._force_s():
            self._force(now_s)

    def _stand_s(self) -> float:
        """When to stand, unless the leader is heard: one heartbeat after who is more senior."""
        seat = self.seat
        silent_s = self._lease.leader_silent_from_s()
        there = [m for m in seat.sequence.members if seat.nodes.get(m) not in seat.gone]
        rank = [m for m in there if m != seat.leader or m == seat.id].index(seat.id)
        return silent_s + rank * seat.terms.heartbeat_s

    def _force_s(self) -> float:
        """When to go on alone, if there is no quorum and that is allowed."""
        rank = self.seat.sequence.members.index(self.seat.id)
        terms = self.seat.terms
        return self._steady_s + 2 * terms.suspect_s + 3 * rank * terms.heartbeat_s

    def _look_for_others(self, now_s: float) -> None:
        """A leader looks for those outside; who hears no leader looks for everyone."""
        seat = self.seat
        heartbeat_s = seat.terms.heartbeat_s
        if now_s < self._met_s + heartbeat_s:
            return
        known = set()
        if self._leader.is_leading and self._leader.succession is None:
            known = {seat.nodes.get(member) for member in seat.others}
        elif now_s < self._lease.heard.get(seat.leader, -math.inf) + 1.5 * heartbeat_s:
            return
        self._met_s = now_s
        for node in seat.daemons:
            if node not in known:
                seat.say_at(node, Here(self._size(now_s)))

    # Coming and going.

    def _begin(self, now_s: float, has_promised: bool = False) -> None:
        """Be a member from now on. One that was started again does not know what it has said."""
        seat = self.seat
        self._steady_s = now_s
        self._lease.end()
        self._lease.hear(seat.leader, now_s)
        if seat.leader == seat.id and not has_promised:
            self._leader.begin_slot(seat.sequence.members, False, now_s)

    def _stand(self, now_s: float) -> None:
        promised = self.seat.promised
        number = promised.number if promised else 0
        self._decided(self._leader.stand(number, now_s), now_s)

    def _force(self, now_s: float) -> None:
        seat = self.seat
        sequence = seat.sequence
        self._lease.end()
        self._leader.forget()
        self._unaware.clear()
        if not seat.is_member:
            seat.begin(lone_group(self._stamp, seat.id), (seat.id,))
        else:
            group = sequence.group
            forced = msgspec.structs.replace(group, era=group.era + 1, maker=seat.id)
            sequence.group = forced
            seat.install(NewView((seat.id,)))
            seat.rebase()
        self._begin(now_s)
        self._tell_view()

    def _stand_up(self, number: int, now_s: float) -> None:
        """Belong to no group, and ask to be let in again."""
        seat = self.seat
        self._lease.end()
        self._leader.forget()
        self._unaware.clear()
        self._is_newborn_founder = False
        seat.stand_up(seat.incarnation + 1 if seat.incarnation else self._stamp)
        self._joiner.begin(now_s)
        seat.effects.append(Excluded(number))

    def _tell_view(self) -> None:
        sequence = self.seat.sequence
        self.seat.effects.append(Installed(sequence.number, sequence.members))

    def _tell_of_leaving(self, now_s: float) -> None:
        """Stay until those who stay know: without this one they might be no quorum."""
        seat = self.seat
        if now_s >= self._passed_s + seat.terms.heartbeat_s / 2:
            self._passed_s = now_s
            slot = seat.sequence.slot
            for member in self._unaware:
                seat.say(member, Commit(slot, [seat.sequence.log[slot]]))

    # Deciding.

    def _decided(self, decision: Decision | None, now_s: float) -> None:
        """What the leader has had decided takes effect, here first."""
        seat = self.seat
        while decision is not None:
            before = seat.sequence.members
            self._install(decision, now_s)
            if not seat.is_member:
                return
            members = seat.sequence.members
            for member in dict.fromkeys((*before, *members)):
                if member != seat.id and member in before:
                    seat.say(member, Commit(seat.sequence.slot, [decision]))
            new = tuple(member for member in members if member not in before)
            self._leader.admit(new, now_s)
            if seat.id not in members:
                self._leave_when_known(now_s)
                return
            decision = self._leader.look(now_s) if self._leader.is_leading else None

    def _install(self, decision: Decision, now_s: float) -> None:
        """The next slot was decided so."""
        seat, lease = self.seat, self._lease
        before, old, was_leading = seat.sequence.members, seat.leader, self._leader.is_leading
        was_silent = old != seat.id and now_s >= lease.leader_silent_from_s()
        seat.install(decision)
        self._answer_requests()
        members = seat.sequence.members
        if isinstance(decision, NewView):
            lease.end()
            self._steady_s = now_s
            if seat.id in members:
                self._tell_view()
            elif not (self._is_leaving and was_leading):
                self._stand_up(seat.sequence.number, now_s)
                return
        if members[0] != old or not was_silent:
            lease.hear(members[0], now_s)
        is_view = isinstance(decision, NewView)
        self._leader.begin_slot(before if is_view else (), was_leading, now_s)

    def _leave_when_known(self, now_s: float) -> None:
        seat = self.seat
        self._unaware = set(seat.sequence.members)
        self._passed_s = now_s
        if not self._unaware:
            self._stand_up(seat.sequence.number, now_s)

    def _answer_requests(self) -> None:
        results = self.seat.sequence.results
        for id in [id for id in self._requests if id in results]:
            del self._requests[id]
            self.seat.effects.append(Answered(id, results[id]))

    def _pass_on(self, requests: list[OperationRequest], now_s: float) -> None:
        if not requests or not self.seat.is_member:
            return
        if self._leader.is_leading:
            self._leader.forwarded(requests)
            self._decided(self._leader.look(now_s), now_s)
        else:
            self.seat.say(self.seat.leader, Forward(requests))

    def _is_deciding_view(self) -> bool:
        accepted = self.seat.accepted
        return accepted is not None and isinstance(accepted[1], NewView)

    # Hearing.

    def _hear(self, said: Said, now_s: float) -> None:
        seat, body = self.seat, said.body
        if said.whom and said.whom != seat.id:
            return  # it is for an older incarnation
        if isinstance(body, Join):
            self._on_join(said, body, now_s)
        elif not seat.is_member:
            self._hear_without_group(said, body, now_s)
        elif said.group != seat.sequence.group:
            self._meet(said, now_s)
        elif said.member in self._unaware and said.slot >= seat.sequence.slot:
            self._unaware.discard(said.member)
            if not self._unaware:
                self._stand_up(seat.sequence.number, now_s)
        else:
            self._hear_in_group(said, body, now_s)

    def _hear_without_group(self, said: Said, body: Body, now_s: float) -> None:
        joiner = self._joiner
        if isinstance(body, IAmAlive):
            joiner.answered(said.sender, now_s)
        elif isinstance(body, Here) and body.size:
            joiner.heard_member(now_s)  # who cannot decide is none to wait for
        elif isinstance(body, NameTaken):
            what = f"has the name {self.seat.name!r}, too: give this daemon another name"
            self.seat.effects.append(Complain(body.node, what))
        elif isinstance(body, Snapshot) and self.id in body.members and not self._is_leaving:
            self._be_let_in(said, body, now_s)

    def _be_let_in(self, said: Said, body: Snapshot, now_s: float) -> None:
        seat = self.seat
        try:
            seat.sequence.restore(said.group, said.slot, body.state)
        except (msgspec.DecodeError, KeyError) as error:
            seat.sequence.clear()
            seat.effects.append(Complain(said.sender, f"sent a snapshot that is none: {error}"))
            return
        seat.sit_down()
        seat.nodes = {m: node for m, node in body.nodes.items() if m in body.members}
        seat.nodes[said.member] = said.sender
        self._begin(now_s, has_promised=True)
        self._tell_view()
        self._answer_requests()
        for node in dict.fromkeys((*seat.daemons, said.sender)):
            seat.say_at(node, Here(self._size(now_s)))

    def _meet(self, said: Said, now_s: float) -> None:
        """Two groups have met: one of them dissolves."""
        seat, sequence = self.seat, self.seat.sequence
        size, body = self._size(now_s), said.body
        if not isinstance(body, Here) or goes_on(sequence.group, size, said.group, body.size):
            seat.say_at(said.sender, Here(size), said.member)
        else:
            self._stand_up(sequence.number, now_s)
            # Should the other one dissolve at the same time, somebody has to begin anew.
            seat.has_been_member = False

    def _size(self, now_s: float) -> int:
        """How large the group is, for others; one that cannot decide gives way to any."""
        is_steady = now_s - self._steady_s < 2 * self.seat.terms.suspect_s
        return len(self.seat.sequence.members) if is_steady else 0

    def _hear_in_group(self, said: Said, body: Body, now_s: float) -> None:
        seat, slot = self.seat, self.seat.sequence.slot
        if said.member in seat.sequence.members:
            seat.nodes[said.member] = said.sender
        if isinstance(body, Commit):
            self._on_commit(said, body, now_s)
        elif isinstance(body, Confirm):
            self._on_confirm(said, body, now_s)
        elif isinstance(body, Outside):
            if said.slot > slot and said.member != seat.id:
                self._stand_up(seat.sequence.number, now_s)
        elif said.slot < slot:
            self._help(said, now_s)
        elif said.slot > slot:
            self._lag(said, now_s)
        elif said.member in seat.sequence.members and (hear := self._heard.get(type(body))):
            hear(said, body, now_s)

    def _lag(self, said: Said, now_s: float) -> None:
        """Others are further on."""
        seat, body = self.seat, said.body
        if seat.sequence.slot == 0 and self._is_newborn_founder:
            self._stand_up(0, now_s)  # it may have been here, and forgotten what it said
        elif isinstance(body, AreYouAlive) and said.member == seat.leader:
            self._lease.asked(said.member, body.round, now_s)
            seat.say_at(said.sender, IAmAlive(body.round), said.member)
        else:
            seat.say_at(said.sender, Here(self._size(now_s)), said.member)

    def _help(self, said: Said, now_s: float) -> None:
        """Somebody is behind: it gets the decisions that it lacks, or is told that it is out."""
        seat, sequence = self.seat, self.seat.sequence
        is_member = said.member in sequence.members
        if is_member and self._leader.is_leading:
            self._leader.rounds.heard[said.member] = now_s
            if isinstance(said.body, IAmAlive) and said.slot >= sequence.view_slot:
                self._on_i_am_alive(said, said.body, now_s)  # it lacks operations only
        decisions = None
        if is_member or said.member in sequence.members_at(said.slot):
            decisions = sequence.after(said.slot)
        if decisions is not None:
            seat.say_at(said.sender, Commit(said.slot + 1, decisions), said.member)
        elif is_member:
            self._leader.leavers.add(said.member)  # it is too far behind, and joins anew
        else:
            seat.say_at(said.sender, Outside(), said.member)

    def _on_join(self, said: Said, body: Join, now_s: float) -> None:
        if not self.seat.is_member:
            self._joiner.met(said.member, body.may_found, now_s)
        elif not self._size(now_s):
            return  # it could let nobody in, and those who wait for it may begin a group
        elif self._leader.is_leading and self._leader.succession is None and not self._unaware:
            self._leader.apply(said, body, now_s)

    def _on_commit(self, said: Said, body: Commit, now_s: float) -> None:
        seat = self.seat
        for slot, decision in enumerate(body.decisions, body.first):
            if not seat.is_member:
                return
            if slot == seat.sequence.slot + 1:
                self._install(decision, now_s)
        if seat.is_member and said.slot > seat.sequence.slot:
            seat.say_at(said.sender, Here(self._size(now_s)), said.member)

    def _on_are_you_alive(self, said: Said, body: AreYouAlive, now_s: float) -> None:
        seat = self.seat
        if said.member != body.ballot.member or not self._follow(body.ballot):
            return
        self._lease.asked(said.member, body.round, now_s)
        seat.say_at(said.sender, IAmAlive(body.round), said.member)

    def _on_i_am_alive(self, said: Said, body: IAmAlive, now_s: float) -> None:
        if self._leader.is_leading and self._leader.succession is None:
            self._leader.answered(said.member, body.round, now_s)

    def _on_confirm(self, said: Said, body: Confirm, now_s: float) -> None:
        if said.member == self.seat.leader and not self._is_leaving:
            self._lease.confirmed(said.member, body.round, body.left_s)

    def _on_prepare(self, said: Said, body: Prepare, now_s: float) -> None:
        seat, leader, promised = self.seat, self._leader, self.seat.promised
        if said.member != body.ballot.member or promised is None or body.ballot < promised:
            return
        if body.ballot > promised:
            if leader.is_leading and now_s < leader.lease_until_s(now_s):
                # A follower had not heard this leader for a while: with a higher ballot it does.
                self._decided(leader.stand(body.ballot.number, now_s), now_s)
                return
            if self._lease.is_loyal(said.member, now_s):
                return
            unheard_s = self._lease.unheard_s(said.member, now_s)
            leader.step_down()
            self._lease.end()
            self._is_newborn_founder = False
            seat.promise(body.ballot, seat.accepted)
        else:
            unheard_s = self._lease.unheard_s(said.member, now_s)
        self._lease.hear(said.member, now_s)
        seat.say_at(said.sender, Promised(body.ballot, seat.accepted, unheard_s), said.member)

    def _on_promised(self, said: Said, body: Promised, now_s: float) -> None:
        leader = self._leader
        if leader.is_leading and body.ballot == leader.ballot:
            unheard_s = max(0.0, body.unheard_s)
            decided = leader.promised(said.member, body.accepted, unheard_s, now_s)
            self._decided(decided, now_s)

    def _on_propose(self, said: Said, body: Propose, now_s: float) -> None:
        seat = self.seat
        if said.member == body.ballot.member and self._follow(body.ballot):
            self._lease.hear(said.member, now_s)
            seat.promise(body.ballot, (body.ballot, body.decision))
            seat.say_at(said.sender, Accept(body.ballot), said.member)

    def _on_accept(self, said: Said, body: Accept, now_s: float) -> None:
        if self._leader.is_leading:
            decided = self._leader.accepted(said.member, body.ballot, now_s)
            self._decided(decided, now_s)

    def _on_leave(self, said: Said, body: LeaveGroup, now_s: float) -> None:
        if self._leader.is_leading:
            self._leader.leavers.add(said.member)
            self._decided(self._leader.look(now_s), now_s)

    def _on_forward(self, said: Said, body: Forward, now_s: float) -> None:
        if self._leader.is_leading:
            self._leader.forwarded(body.requests)
            self._decided(self._leader.look(now_s), now_s)

    def _follow(self, ballot: Any) -> bool:
        """Follow this ballot, unless a higher one was promised."""
        seat = self.seat
        if seat.promised is None or ballot < seat.promised:
            return False
        self._is_newborn_founder = False  # it takes part, and knows what it says
        if ballot > seat.promised:
            self._leader.step_down()
            seat.promise(ballot, seat.accepted)
        return True
