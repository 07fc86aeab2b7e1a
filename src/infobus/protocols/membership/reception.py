"""How a member serves programs: tells them views, takes their requests, notes which hang."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames.membership import (
    Candidate,
    Decide,
    Decided,
    Follow,
    NumberedView,
    OperationRequest,
    ProgramState,
    Roster,
    ViewsTold,
    WantRoster,
)
from infobus.protocols.membership.effects import Answered, Excluded, Installed
from infobus.protocols.membership.member import GroupMember
from infobus.protocols.membership.primaries import (
    TABLE,
    CandidateEntry,
    PrimaryTable,
    entering,
    withdrawing,
)

PROGRAMS_COUNT_MAX = 1000
"""Programs that one member tells of views; others go to another one."""
_WAITING_COUNT_MAX = 10_000  # requests of programs
_FORGET_S = 60.0  # programs that are hung or gone are shown for so long

Complaints = Callable[[], Sequence[tuple[str, str]]]


class KnownProgram(Struct):
    """A program that asks for views."""

    node: str
    name: str
    asked_s: float
    candidates: dict[str, Candidate] = field(default_factory=dict)
    for_s: float = 0.0
    is_hung: bool = False
    is_gone: bool = False
    granted_s: float = -math.inf  # until then it may take itself for a primary
    is_told_stable: bool = False


class Reception:
    """The machine of a member together with the programs that turn to it."""

    def __init__(
        self, member: GroupMember, primaries: PrimaryTable, complaints: Complaints
    ) -> None:
        self.member = member
        self._seat = member.seat
        self._primaries = primaries
        self._complaints = complaints
        self._programs: dict[str, KnownProgram] = {}
        self._waiting: dict[str, str] = {}  # requests of programs, and who waits
        # Candidates whose entering or withdrawing is not decided yet, by request: one at a time,
        # so that none is decided later than what follows it.
        self._asked: dict[str, str] = {}
        self._entered: set[str] = set()  # candidates for which this process answers
        self._looked_s = -math.inf
        self._begun_s: float | None = None
        self._requests_count = 0

    # The machine.

    def take(self, message: Any, now_s: float) -> list[Any]:
        """A message has come."""
        match message:
            case Follow():
                return self._on_follow(message, now_s)
            case Decide():
                if len(self._waiting) >= _WAITING_COUNT_MAX:
                    return []  # it asks again
                self._waiting[message.request.id] = message.sender
                return self.heard(self.member.request(message.request, now_s), now_s)
            case WantRoster():
                effects: list[Any] = self.member.force(now_s) if message.force else []
                roster = self._roster(message.request, now_s)
                return self.heard([*effects, ToPeer(message.sender, roster)], now_s)
            case _:
                return self.heard(self.member.take(message, now_s), now_s)

    def peer_up(self, name: str, now_s: float) -> list[Any]:
        """A node shows that it has a member."""
        return self.heard(self.member.peer_up(name, now_s), now_s)

    def peer_down(self, name: str, now_s: float) -> list[Any]:
        """A node shows no longer that it has one."""
        return self.heard(self.member.peer_down(name, now_s), now_s)

    def tick(self, now_s: float) -> list[Any]:
        """Time has passed."""
        effects = self.member.tick(now_s)
        for program in list(self._programs.values()):
            effects += self._look_at(program, now_s)
        if now_s >= self._looked_s + self._seat.terms.heartbeat_s:
            self._looked_s = now_s
            effects += self._withdraw_unclaimed(now_s)
        return self.heard(effects, now_s)

    def heard(self, effects: list[Any], now_s: float) -> list[Any]:
        """What the member wants done, and what programs are to be told of it."""
        told: list[Any] = []
        is_news = False
        for effect in effects:
            if isinstance(effect, Answered) and effect.id in self._waiting:
                node = self._waiting.pop(effect.id)
                told.append(ToPeer(node, Decided(self._seat.node, effect.id, effect.result)))
            elif isinstance(effect, Answered):
                self._asked.pop(effect.id, None)
            elif isinstance(effect, Installed | Excluded):
                is_news = True
        is_stable = self.member.stable_left_s(now_s) > 0
        for program in self._programs.values():
            if (is_news or program.is_told_stable != is_stable) and not program.is_gone:
                told.append(ToPeer(program.node, self._views(program, 0, None, now_s)))
        return effects + told

    # Programs.

    def _on_follow(self, asked: Follow, now_s: float) -> list[Any]:
        program = self._programs.get(asked.sender)
        if program is None:
            if len(self._programs) >= PROGRAMS_COUNT_MAX or asked.is_leaving:
                return []
            program = self._programs[asked.sender] = KnownProgram(
                asked.sender, asked.program, now_s
            )
        program.asked_s, program.for_s, program.is_gone = now_s, asked.for_s, False
        program.name = asked.program
        is_hung = asked.for_s > 0 and asked.heard_s > asked.for_s
        effects: list[Any] = []
        if is_hung and not program.is_hung:
            what = f"is hung: its check has not passed for {asked.heard_s:.1f} s"
            effects.append(Complain(program.node, what))
        program.is_hung = is_hung
        claimed = {one.id: one for one in asked.candidates}
        for id in program.candidates.keys() - claimed.keys():
            effects += self._withdraw(id, now_s)  # it does not claim it any more
        program.candidates = claimed
        if asked.is_leaving:
            del self._programs[asked.sender]
            return self.heard(effects, now_s)
        if not is_hung:
            for id, one in claimed.items():
                if id not in self._primaries.entries:
                    entry = CandidateEntry(id, one.service, one.rank, self.member.id)
                    self._entered.add(id)
                    effects += self._ask(id, entering(entry), now_s)
        answer = ToPeer(program.node, self._views(program, asked.number, asked, now_s))
        return self.heard([*effects, answer], now_s)

    def _withdraw(self, id: str, now_s: float) -> list[Any]:
        """A candidate that came this way is to be gone; from now on it is not told primary."""
        self._entered.discard(id)
        entry = self._primaries.entries.get(id)
        if entry is None or entry.member != self.member.id:
            return []  # it may have entered by way of another member since
        return self._ask(id, withdrawing(id, self.member.id), now_s)

    def _ask(self, id: str, operation: bytes, now_s: float) -> list[Any]:
        if id in self._asked.values() or not self._seat.is_member:
            return []
        self._requests_count += 1
        request_id = f"{self._seat.node}/{self._requests_count}"
        self._asked[request_id] = id
        return self.member.request(OperationRequest(request_id, TABLE, operation), now_s)

    def _look_at(self, program: KnownProgram, now_s: float) -> list[Any]:
        """Note a program that is silent; once its lease is over, others may be primary."""
        silent_s = now_s - program.asked_s
        effects: list[Any] = []
        if not program.is_gone and silent_s > self._seat.terms.suspect_s:
            program.is_gone = True
            if program.for_s > 0:
                program.is_hung = True
                what = f"is hung: it has not been heard for {silent_s:.1f} s"
                effects.append(Complain(program.node, what))
        if (program.is_gone or program.is_hung) and now_s >= program.granted_s:
            for id in program.candidates:
                effects += self._withdraw(id, now_s)
        if program.is_gone and silent_s > _FORGET_S:
            del self._programs[program.node]
        return effects

    def _withdraw_unclaimed(self, now_s: float) -> list[Any]:
        """Candidates that an earlier process of this member has entered are gone."""
        if self._begun_s is None:
            self._begun_s = now_s
        is_early = now_s < self._begun_s + self._seat.terms.suspect_s  # they may have leases
        if is_early or self.member.stable_left_s(now_s) <= 0:
            return []
        claimed = {id for program in self._programs.values() for id in program.candidates}
        effects: list[Any] = []
        for id, entry in list(self._primaries.entries.items()):
            if entry.member == self.member.id and id not in (self._entered & claimed):
                effects += self._withdraw(id, now_s)
        return effects

    def _views(
        self, program: KnownProgram, number: int, asked: Follow | None, now_s: float
    ) -> ViewsTold:
        sequence = self._seat.sequence
        left_s = self.member.stable_left_s(now_s)
        if asked is not None and asked.group == sequence.group:
            after, is_anew = asked.after, False
            if after < sequence.number and after + 1 not in sequence.views:
                after, is_anew = sequence.number - 1, True
        else:
            after, is_anew = sequence.number - 1, asked is not None
        views = [NumberedView(n, m) for n, m in sorted(sequence.views.items()) if n > after]
        if after > sequence.number:
            left_s = 0.0  # another member has told it more
        primary_of = []
        if left_s > 0 and not program.is_hung:
            primary_of = [id for id in program.candidates if self._is_primary(id)]
        if primary_of and number:
            program.granted_s = max(program.granted_s, now_s + left_s)
        program.is_told_stable = left_s > 0
        return ViewsTold(
            self._seat.node,
            number,
            self.member.id,
            sequence.group,
            max(0, after),
            views,
            is_anew,
            left_s,
            "" if left_s > 0 else self.member.why_unstable(now_s) or "this member is behind",
            self._seat.terms.heartbeat_s,
            primary_of,
            self._nodes(),
        )

    def _is_primary(self, id: str) -> bool:
        entry = self._primaries.entries.get(id)
        is_here = id in self._entered and entry is not None and entry.member == self.member.id
        return is_here and self._primaries.is_primary(id)

    def _nodes(self) -> dict[str, str]:
        return {**self._seat.nodes, self.member.id: self._seat.node}

    def _roster(self, request: int, now_s: float) -> Roster:
        seat, sequence = self._seat, self._seat.sequence
        programs = [
            ProgramState(
                one.node,
                one.name,
                one.is_hung,
                sorted(c.service for c in one.candidates.values() if self._is_primary(c.id)),
            )
            for one in self._programs.values()
            if one.is_hung or not one.is_gone
        ]
        return Roster(
            seat.node,
            request,
            self.member.id,
            sequence.group,
            sequence.slot,
            NumberedView(sequence.number, sequence.members),
            seat.leader,
            self.member.why_unstable(now_s),
            seat.terms.heartbeat_s,
            self._nodes(),
            programs,
            list(self._complaints()),
        )
