"""A simulated daemon: a member of a group, by the code that ships, and a disk that survives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from infobus.bus.membership.host import MemberHost
from infobus.bus.membership.strand import MembersStrand
from infobus.bus.runtime.runtime import Runtime
from infobus.engines.memory.engine import Network
from infobus.patience import Patience
from infobus.protocols.frames.membership import Candidate, OperationRequest
from infobus.protocols.membership.effects import Answered
from infobus.protocols.membership.follower import ToldState, ToldView, ViewFollower
from infobus.protocols.membership.member import GroupMember
from infobus.protocols.membership.terms import MembershipTerms
from infobus.protocols.reliable.peer import Terms
from infobus.testing.simulation.world import VirtualThreads, WatchedEngine, clock_of

_CREATED, _EXISTS, _DELETED, _REFUSED = b"created", b"exists", b"deleted", b"refused"


_FOLLOW_S = 0.02


class NameTable:
    """A table of names and their creators: who creates first has it, and alone may delete it."""

    def __init__(self) -> None:
        self.creators: dict[str, str] = {}
        self.homes: dict[str, str] = {}  # creators that were members when they created

    def apply(self, slot: int, operation: bytes) -> bytes:
        """Create or delete a name."""
        verb, name, creator = msgspec.msgpack.decode(operation)
        if verb == "create":
            if name in self.creators:
                return _EXISTS
            self.creators[name] = creator
            return _CREATED
        if self.creators.get(name) != creator:
            return _REFUSED
        del self.creators[name]
        return _DELETED

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        """Note when a creator was last seen among the members."""
        there = {member.partition("#")[0] for member in members}
        for creator in set(self.creators.values()) & there:
            self.homes[creator] = str(slot)

    def snapshot(self) -> bytes:
        """Everything, in one order."""
        whole = [sorted(self.creators.items()), sorted(self.homes.items())]
        return msgspec.msgpack.encode(whole)

    def restore(self, state: bytes) -> None:
        """Become what a snapshot says."""
        creators, homes = msgspec.msgpack.decode(state) if state else ([], [])
        self.creators, self.homes = dict(creators), dict(homes)


class MemoryState:
    """A member's disk."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def load(self) -> dict[str, bytes]:
        """All of it."""
        return dict(self.values)

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Change it at once."""
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value


class MembershipWitness(Protocol):
    """Whoever wants to hear what members do."""

    def stepped(self, node: MembershipNode) -> None:
        """A member has promised or learned something, and it is on its disk."""

    def told(self, node: MembershipNode, news: Any) -> None:
        """A member has a new view, was excluded, or has an answer."""

    def viewed(self, program: FollowingNode, view: ToldView) -> None:
        """A program was told of a view."""

    def failed(self, error: Exception) -> None:
        """A node, or the witness itself, has raised within a callback."""


class _WatchedState:
    """Lets the witness look after each change of a disk."""

    def __init__(self, node: MembershipNode, disk: MemoryState) -> None:
        self._node, self._disk = node, disk
        self.load = disk.load

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        self._disk.save(changes)
        if self._node.is_started:
            self._node.witness.stepped(self._node)


class MembershipNode:
    """Joins the shipped host of a member to a simulated network and disk."""

    def __init__(
        self,
        network: Network,
        node: str,
        name: str,
        terms: MembershipTerms,
        disk: MemoryState,
        stamp: int,
        witness: MembershipWitness,
    ) -> None:
        self.network, self.node, self.name, self.witness = network, node, name, witness
        self.checked: tuple[object, int] = ("", -1)  # group and slot, for the witness
        self.last_told: tuple[object, int] = ("", 0)
        self.runtime = _runtime_of(network, node, witness)
        self._strand = MembersStrand(self.runtime)
        self._requests_count = 0
        self.is_started = False
        self.asked: dict[str, bytes | None] = {}
        tables = {"names": NameTable()}
        self._strand.call(lambda: self._start(terms, tables, disk, stamp), 0.0)

    def _start(
        self,
        terms: MembershipTerms,
        tables: dict[str, NameTable],
        disk: MemoryState,
        stamp: int,
    ) -> None:
        state = _WatchedState(self, disk)
        self.host = MemberHost(self._strand, self.name, terms, tables, state, stamp, self._on_news)
        self.is_started = True

    @property
    def member(self) -> GroupMember:
        """The machine."""
        return self.host.member

    def request(self, verb: str, name: str) -> None:
        """Have a name created or deleted."""
        self._requests_count += 1
        id = f"{self.node}.{self._requests_count}"
        operation = msgspec.msgpack.encode([verb, name, self.name])
        self.asked[id] = None
        request = OperationRequest(id, "names", operation)
        self.host.step(lambda now_s: self.member.request(request, now_s))

    def leave(self) -> None:
        """Have the others go on without this one."""
        self.host.step(self.member.leave)

    def crash(self) -> None:
        """Die at once."""
        self.network.crash(self.node)

    def _on_news(self, news: Any) -> None:
        if isinstance(news, Answered) and news.id in self.asked:
            self.asked[news.id] = news.result
        self.witness.told(self, news)


class FollowingNode:
    """A simulated program that follows the members, and wants to be the primary of a service."""

    def __init__(self, network: Network, node: str, witness: MembershipWitness) -> None:
        self.network, self.node, self.witness = network, node, witness
        self.state = ToldState("", float("-inf"), "", frozenset(), {})
        self.last = 0
        self.follower = ViewFollower(node, "")
        self.follower.candidates = {node: Candidate(node, "svc")}
        runtime = _runtime_of(network, node, witness)
        self._strand = MembersStrand(runtime)
        self._strand.call(self._start, 0.0)
        period_s = _FOLLOW_S
        self._stop = runtime.threads.every(period_s, self._tick, f"infobus-{node}-follow")

    @property
    def is_primary(self) -> bool:
        """Whether it takes itself for the primary now."""
        return self.node in self.state.primary_of and self.network.now_s < self.state.until_s

    def crash(self) -> None:
        """Die at once."""
        self.network.crash(self.node)

    def _start(self) -> None:
        self._part = self._strand.add("follower", self.follower, self._do)

    def _tick(self) -> None:
        self._strand.step(self._part, self.follower.tick)

    def _do(self, effect: Any) -> None:
        if isinstance(effect, ToldState):
            self.state = effect
        elif isinstance(effect, ToldView):
            self.witness.viewed(self, effect)


def _runtime_of(network: Network, node: str, witness: MembershipWitness) -> Runtime:
    engine = WatchedEngine(network, witness.failed)
    threads = VirtualThreads(network, node, witness.failed)
    patience = Patience(tick_s=1.0)  # no events here: only membership has to be in time
    runtime = Runtime(node, Terms(), engine, clock_of(network), threads, patience)
    runtime.join()
    return runtime
