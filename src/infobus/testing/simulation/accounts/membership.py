"""The account of membership: one sequence for all, and never two stable views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from infobus.protocols.frames.membership import GroupLabel, NewView
from infobus.protocols.membership.effects import Excluded, Installed
from infobus.protocols.membership.follower import ToldView
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.membership import FollowingNode, MembershipNode

_encode = msgspec.msgpack.encode


class MembershipAccount:
    """Compares what members have decided, learned and claimed, after each step."""

    def __init__(self) -> None:
        self._decisions: dict[tuple[GroupLabel, int], bytes] = {}
        self._states: dict[tuple[GroupLabel, int], bytes] = {}
        self._results: dict[str, bytes] = {}
        self.views_count = self.operations_count = self.excluded_count = 0
        self.snapshots_count = self.primaries_count = 0
        self._primary = ""
        self.trace: list[tuple[object, ...]] = []
        self.told_s: dict[str, list[tuple[float, Installed | Excluded]]] = {}
        self._error: Exception | None = None

    def failed(self, error: Exception) -> None:
        """A node has raised."""
        self._error = self._error or error

    def check(self, nodes: Iterable[MembershipNode], now_s: float) -> None:
        """Raise what went wrong; of those who can act, no two may claim different views."""
        if self._error is not None:
            raise self._error
        stable: dict[str, tuple[GroupLabel, int, tuple[str, ...]]] = {}
        for node in nodes:
            if node.member.stable_left_s(now_s) <= 0:
                continue
            sequence = node.member.seat.sequence
            claim = (sequence.group, sequence.number, sequence.members)
            if node.member.id not in sequence.members:
                raise Uneven(f"{node.member.id} is stable in a view without it: {claim}")
            other = stable.setdefault(sequence.group.birth, claim)
            if other != claim:
                raise Uneven(f"stable at once: {other} and {claim} (of {node.member.id})")

    def check_primaries(self, programs: Iterable[FollowingNode]) -> None:
        """Of the programs that can act, at most one takes itself for the primary."""
        primaries = [program.node for program in programs if program.is_primary]
        if len(primaries) > 1:
            raise Uneven(f"primary at once: {primaries}")
        if primaries and primaries[0] != self._primary:
            self._primary = primaries[0]
            self.primaries_count += 1

    def viewed(self, program: FollowingNode, view: ToldView) -> None:
        """A program is told each view, in order, none left out, or that some may be missing."""
        if not view.is_anew and view.number != program.last + 1:
            raise Uneven(f"{program.node} was told view {view.number} after {program.last}")
        program.last = view.number
        self.trace.append(("told", program.node, view.number, view.members))

    def stepped(self, node: MembershipNode) -> None:
        """Compare what this member has decided with what all others have."""
        sequence = node.member.seat.sequence
        group, slot = node.checked
        if not sequence.members or (group, slot) == (sequence.group, sequence.slot):
            return
        first = slot + 1 if group == sequence.group else 0
        if group != sequence.group:
            self.snapshots_count += 1
        for one in range(first, sequence.slot + 1):
            if (decision := sequence.log.get(one)) is not None:
                self._compare_decision(node, one, decision)
        state = sequence.snapshot()
        known = self._states.setdefault((sequence.group, sequence.slot), state)
        if known != state:
            raise Uneven(f"slot {sequence.slot}: {node.member.id} has {state!r}, others {known!r}")
        node.checked = (sequence.group, sequence.slot)

    def told(self, node: MembershipNode, news: Any, now_s: float) -> None:
        """A member's application hears something: each view, in order, none left out."""
        group = node.member.seat.sequence.group
        if isinstance(news, Installed):
            self.told_s.setdefault(node.node, []).append((now_s, news))
            before, number = node.last_told
            if before == group and news.number != number + 1:
                raise Uneven(f"{node.member.id} was told view {news.number} after {number}")
            node.last_told = (group, news.number)
            self.trace.append(("view", node.node, news.number, news.members))
        elif isinstance(news, Excluded):
            self.told_s.setdefault(node.node, []).append((now_s, news))
            node.last_told = ("", 0)
            self.excluded_count += 1
            self.trace.append(("excluded", node.node, news.number))
        else:
            known = self._results.setdefault(news.id, news.result)
            if known != news.result:
                raise Uneven(f"request {news.id} has two results: {known!r}, {news.result!r}")

    def _compare_decision(self, node: MembershipNode, slot: int, decision: Any) -> None:
        key = (node.member.seat.sequence.group, slot)
        bytes_ = _encode(decision)
        if key not in self._decisions:
            self._decisions[key] = bytes_
            if isinstance(decision, NewView):
                self.views_count += 1
            else:
                self.operations_count += len(decision.requests)
        elif self._decisions[key] != bytes_:
            raise Uneven(
                f"slot {slot}: {node.member.id} has {decision}, others {self._decisions[key]!r}"
            )
