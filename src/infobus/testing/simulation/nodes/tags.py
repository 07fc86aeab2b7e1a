"""Simulated daemons that hold the table of tags, and programs that ask them; the shipped code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from infobus.bus.membership.host import MemberHost
from infobus.bus.membership.role import SHARED_TABLE
from infobus.bus.membership.strand import MembersStrand
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.tags.driver import SERVER_KEY, TagDriver
from infobus.bus.tags.role import TagRole
from infobus.engines.memory.engine import Network
from infobus.patience import Patience
from infobus.protocols.frames.membership import OperationRequest
from infobus.protocols.frames.tags import TagOperation
from infobus.protocols.membership.terms import MembershipTerms
from infobus.protocols.reliable.peer import Terms
from infobus.protocols.tags.rules import TagRule, TagRules
from infobus.testing.simulation.nodes.membership import MemoryState
from infobus.testing.simulation.world import VirtualThreads, WatchedEngine, clock_of

TICK_S = 0.5
TERMS = Terms(freeze_s=2.0)  # events are not what this is about: it need not notice each freeze


class TagWitness(Protocol):
    """Whoever wants to hear what becomes of tables."""

    def applied(self, daemon: TagDaemonNode, operation: bytes, result: bytes) -> None:
        """A table has taken an operation."""

    def viewed(self, daemon: TagDaemonNode, slot: int, members: tuple[str, ...]) -> None:
        """A table was told a view."""

    def restored(self, daemon: TagDaemonNode, state: bytes) -> None:
        """A table has become another one."""

    def failed(self, error: Exception) -> None:
        """A node has raised within a callback."""


class _NoPublishing:
    """Nothing is published here, so nothing goes by tags."""

    rules: TagRules | None = None
    note_use: Callable[[str, TagRule | None], None]

    def forget(self) -> None:
        """Nothing to forget."""


class TagProgramNode:
    """A program: it holds tags and asks for changes."""

    def __init__(self, network: Network, node: str, application: str, witness: TagWitness) -> None:
        self.network, self.node, self.application = network, node, application
        self.asked: dict[str, TagOperation] = {}
        self.publishes: set[str] = set()
        engine = WatchedEngine(network, witness.failed)
        threads = VirtualThreads(network, node, witness.failed)
        clock, patience = clock_of(network), Patience(tick_s=TICK_S)
        self.runtime = Runtime(node, TERMS, engine, clock, threads, patience)
        self.runtime.node.application = application
        self.driver = TagDriver(self.runtime, _NoPublishing(), application)
        self.runtime.join()
        engine.watch(f"{SERVER_KEY}*", self._on_token)

    def ask(self, operation: TagOperation) -> None:
        """Have something agreed."""
        self.asked[operation.id] = operation
        self.driver.ask(operation)

    def publish(self, name: str) -> None:
        """Begin to publish under a tag, if it is held."""
        rule = self.driver.rules.of(name.replace(">", "x"))
        if rule is not None:
            self.publishes.add(rule.name)
            self.driver.note_use(name, rule)

    @property
    def version(self) -> tuple[str, int]:
        """The history and version of what it holds."""
        return self.driver.holder.history, self.driver.holder.held

    def crash(self) -> None:
        """Die at once."""
        self.network.crash(self.node)

    def _on_token(self, key: str, alive: bool) -> None:
        self.driver.see_server(key.rpartition("/")[2], alive)


class _WatchedTable:
    """A table whose changes the witness sees, in the order in which they happen."""

    def __init__(self, daemon: TagDaemonNode, witness: TagWitness) -> None:
        self._daemon, self._witness = daemon, witness
        self._table = daemon.role.table
        self.snapshot = self._table.snapshot

    def apply(self, slot: int, operation: bytes) -> bytes:
        result = self._table.apply(slot, operation)
        self._witness.applied(self._daemon, operation, result)
        return result

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        self._table.view(slot, members)
        self._witness.viewed(self._daemon, slot, members)

    def restore(self, state: bytes) -> None:
        self._table.restore(state)
        self._witness.restored(self._daemon, state)


class TagDaemonNode(TagProgramNode):
    """A daemon: a member that holds the table. It is a program, too."""

    def __init__(
        self,
        network: Network,
        node: str,
        name: str,
        terms: MembershipTerms,
        disk: MemoryState,
        stamp: int,
        witness: TagWitness,
    ) -> None:
        super().__init__(network, node, name, witness)
        self.name = name
        self.places = [0]  # for the witness: how much its table has taken
        self.role = TagRole(self.runtime, self.driver)
        tables = {SHARED_TABLE: _WatchedTable(self, witness)}
        strand = MembersStrand(self.runtime)

        def start() -> None:
            self.host = MemberHost(strand, name, terms, tables, disk, stamp, lambda news: None)

        strand.call(start, 0.0)
        self.role.begin(lambda: self.host.member.id, self._propose)

    @property
    def is_member(self) -> bool:
        """Whether it has a table."""
        return bool(self.role.table.table.members)

    def _propose(self, id: str, operation: bytes) -> None:
        request = OperationRequest(id, SHARED_TABLE, operation)
        self.host.step(lambda now_s: self.host.member.request(request, now_s))
