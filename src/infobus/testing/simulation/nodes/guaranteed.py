"""A node that publishes to ledgers and consumes durably, over a simulated network and disk.

What serves ledgers, takes over those of dead nodes, lets them go, saves progress and buries what
cannot be delivered is the code that ships; here is what the run decides, and what it witnesses.

Several nodes may share a home, a `MemoryDisk`. A node owns what it has opened; when it crashes,
whatever was not yet synced is gone, and another node of the home may open the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from infobus.bus.deliver.event import Transaction
from infobus.bus.durable.driver import Guarantees
from infobus.bus.durable.names_in_use import Use
from infobus.bus.durable.stores import KeptLedger
from infobus.bus.durable.subscription import DurableEvent
from infobus.bus.runtime.outbox import Mail
from infobus.bus.runtime.registration import Do, Heard
from infobus.bus.runtime.runtime import Runtime
from infobus.engines.memory.engine import Network
from infobus.errors import BusError, StoreFull
from infobus.patience import Patience
from infobus.protocols.effects import Complain
from infobus.protocols.frames import transactions
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.guaranteed import effects as effect
from infobus.protocols.guaranteed.adoption import LedgerTurns
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import (
    Bury,
    ConsumerTerms,
    HandOver,
    LostForGood,
    Save,
    UsedElsewhere,
)
from infobus.protocols.guaranteed.server import ServerTerms
from infobus.protocols.reliable.peer import Terms
from infobus.stores.ledger.reader import Leavings
from infobus.stores.ledger.record import Record, encode
from infobus.testing.memory_stores import MemoryConsumerStore, MemoryDisk, MemoryLedger
from infobus.testing.simulation.world import (
    WALL_AHEAD_S,
    VirtualThreads,
    WatchedEngine,
    clock_of,
)

__all__ = [
    "WALL_AHEAD_S",
    "DurableInterest",
    "GuaranteedNode",
    "GuaranteedWitness",
    "events_of",
    "let_go",
]

TICK_S = 0.1
COMMIT_S_MAX = 0.02
HANDLE_S_MAX = 0.05


class Crashed(Exception):
    """The node is no more; nothing after this is done."""


@dataclass(frozen=True, eq=False)
class DurableInterest:
    """A durable name, the home it belongs to, and what is wanted under it."""

    name: str
    home: MemoryDisk
    patterns: tuple[str, ...]
    where: str
    ordered: bool


def events_of(record: Record) -> list[tuple[str, dict[str, Any]]]:
    """Subject and object of the event within a record, or of those of a transaction."""
    if record.type != GROUP:
        return [(record.subject, msgspec.msgpack.decode(record.body))]
    items = transactions.decode(record.body).events
    return [(item.subject, msgspec.msgpack.decode(item.body)) for item in items]


def let_go(ledger: MemoryLedger, upto: int) -> None:
    """Prune a ledger up to a number, whoever still needs what is there."""
    rest = ledger.read(upto, ledger.next, 2**63)
    keep_bytes = sum(len(encode(record)) for _, record in rest)
    ledger.prune(0.0, keep_s=inf, keep_bytes=2**63, unsettled_keep_bytes=keep_bytes)


class GuaranteedWitness(Protocol):
    """Whoever wants to hear what a node does, and decides what its application does."""

    def opened(self, ledger: MemoryLedger) -> None:
        """A node owns a ledger."""

    def registered(self, interest: DurableInterest, registered_at: float) -> None:
        """A node uses a durable name, perhaps for the first time."""

    def committed(
        self, ledger: MemoryLedger, records: Iterable[tuple[int, Record]], wall_s: float
    ) -> None:
        """Records are safe in a ledger."""

    def delivered(
        self,
        node: GuaranteedNode,
        consumer: DurableConsumer,
        given: HandOver,
        places: Sequence[int],
    ) -> None:
        """An event is handed to the application; of a transaction, the events at these places."""

    def saved(self, consumer: DurableConsumer, save: Save) -> None:
        """A consumer's progress is on disk."""

    def lost(self, consumer: DurableConsumer, lost: LostForGood) -> None:
        """A loss is reported to the application."""

    def nacks(self, consumer: DurableConsumer, given: HandOver) -> bool:
        """Whether the application could not use the event; if not, it is settled."""

    def buries(self, consumer: DurableConsumer, dead: Bury) -> bool:
        """Whether there is room for a dead letter."""

    def has_room(self) -> bool:
        """Whether there is room on the disk for what a consumer has done with."""

    def crashed(self, node: GuaranteedNode) -> None:
        """A node is no more."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class GuaranteedNode:
    """Joins the shipped `Guarantees` and runtime to a simulated network and disk."""

    def __init__(
        self,
        network: Network,
        home: MemoryDisk,
        name: str,
        terms: tuple[ServerTerms, ConsumerTerms],
        turns: LedgerTurns,
        witness: GuaranteedWitness,
    ) -> None:
        self.network, self.home, self.name = network, home, name
        self.witness = witness
        self.consumers: dict[str, DurableConsumer] = {}
        self.effects_left: int | None = None  # until the node crashes in the middle of things
        self.is_alive = True
        self._terms = terms[1]
        self.sinks: dict[str, _Sink] = {}
        self._runtime = _Runtime(self)
        self._guarantees = _Guarantees(
            self,
            self._runtime,
            _Stores(self),
            self._bury,
            server_terms=terms[0],
            consumer_terms=terms[1],
            turns=turns,
        )
        self._runtime.join()
        self._guarantees.start()

    # What the run does.

    def publish(self, records: Sequence[Record]) -> None:
        """Log records; they are accepted a little later."""
        self._later(COMMIT_S_MAX, partial(self._append, records))

    def take_over(self) -> None:
        """Serve ledgers of the home that nobody serves, if something is lacking there."""
        self._guarantees.look_for_ledgers()

    def consume(self, interest: DurableInterest) -> None:
        """Use a durable name."""
        self.watched(partial(self._consume, interest))

    def stop(self, name: str) -> None:
        """Use a durable name no longer."""
        self.watched(partial(self._stop, name))

    def crash(self) -> None:
        """Die at once."""
        self.is_alive = False
        self.network.crash(self.name)
        self.home.crash(self.name)
        self.witness.crashed(self)

    @property
    def wall_s(self) -> float:
        """The wall clock."""
        return self.network.now_s + WALL_AHEAD_S

    @property
    def ledgers(self) -> Mapping[str, MemoryLedger]:
        """Those that the node has open."""
        return self._guarantees.open_ledgers()

    def watched(self, function: Callable[[], None]) -> None:
        """Do something that the node may not survive."""
        try:
            if self.is_alive:
                function()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Something went wrong, unless the node has just crashed on purpose."""
        if not isinstance(error, Crashed):
            self.witness.failed(error)

    def _later(self, delay_max_s: float, function: Callable[[], None]) -> None:
        delay_s = self.network.random.uniform(0, delay_max_s)
        self.network.call_later(delay_s, partial(self.watched, function), node=self.name)

    def _append(self, records: Sequence[Record]) -> None:
        records = [replace(record, time=self.wall_s) for record in records]
        self._guarantees.append(lambda: (records, {}))

    def _consume(self, interest: DurableInterest) -> None:
        sink = self.sinks[interest.name] = _Sink(self, interest)
        use = self._guarantees.subscribe(
            sink,
            interest.where,
            test=False,
            ordered=interest.ordered,
            deliveries_max=self._terms.deliveries_max,
        )
        self.began(use)

    def began(self, use: Use) -> None:
        """A durable name is in use."""
        name = use.subscription.name
        if (sink := self.sinks.get(name)) is use.subscription:
            sink.consumer = self.consumers[name] = use.consumer

    def _stop(self, name: str) -> None:
        self._guarantees.release(self.sinks.pop(name))
        del self.consumers[name]

    def _bury(self, name: str, dead: Bury) -> None:
        consumer = self.consumers[name]
        if not self.witness.buries(consumer, dead):
            raise StoreFull("the disk is full", path=name)
        body = msgspec.msgpack.encode({"origin": [dead.ledger, dead.entry.number, name]})
        self._append([Record(f"dead.{name}", self.wall_s, 0, body)])

    # The application.

    def handle(self, sink: _Sink, event: DurableEvent, given: HandOver) -> None:
        """An application has done, or not, what it wanted to do with an event."""
        if self.consumers.get(sink.name) is sink.consumer:
            nacks = self.witness.nacks(sink.consumer, given)
            (event.nack if nacks else event.ack)()

    def hand_over(self, sink: _Sink, event: DurableEvent, given: HandOver) -> None:
        """An application has got an event."""
        places = [0]
        if isinstance(event.data, Transaction):
            places = [part.number - 1 for part in event.data]
        self.witness.delivered(self, sink.consumer, given, places)
        self._later(HANDLE_S_MAX, partial(self.handle, sink, event, given))


class _Sink:
    """What a durable subscription is to the driver."""

    consumer: DurableConsumer

    def __init__(self, node: GuaranteedNode, interest: DurableInterest) -> None:
        self.interest = interest
        self.name = interest.name
        self.patterns = interest.patterns
        self.lost = 0
        self.given: HandOver | None = None  # that is just being handed over
        self._node = node

    def offer(self, entry: DurableEvent | BusError) -> None:
        """Hand over an event, or the word of a loss, of which the account knows already."""
        if isinstance(entry, DurableEvent):
            assert self.given is not None
            self._node.hand_over(self, entry, self.given)

    def end(self, error: BusError | None = None) -> None:
        """The name is free."""
        assert error is None, error

    def abandon(self, why: BusError) -> None:
        """Nothing forks here."""


class _Stores:
    """The home's disk, as the processes of a node see it."""

    def __init__(self, node: GuaranteedNode) -> None:
        self._node = node

    def open_free(self) -> MemoryLedger:
        return self._opened(self._node.home.open_free(owner=self._node.name))

    def open_ledger(self, id: str) -> MemoryLedger:
        return self._opened(self._node.home.open_ledger(id, owner=self._node.name))

    def takes_records(self, ledger: KeptLedger) -> bool:
        return True

    def orphans(self, afresh: bool) -> Mapping[str, Leavings | None]:
        return self._node.home.orphans()

    def registrations(self) -> Mapping[str, float]:
        return self._node.home.registrations()

    def sources(self) -> Mapping[str, int]:
        return self._node.home.sources()

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str, now_s: float
    ) -> MemoryConsumerStore:
        node = self._node
        store = node.home.open_consumer(name, patterns, where, now_s=now_s, owner=node.name)
        node.witness.registered(node.sinks[name].interest, store.registered_at)
        return store

    def _opened(self, ledger: MemoryLedger) -> MemoryLedger:
        node = self._node
        ledger.on_appended = lambda new: node.witness.committed(ledger, new, node.wall_s)
        node.witness.opened(ledger)
        return ledger


class _Guarantees(Guarantees):
    """The shipped driver, which tells the witness of a run what it does."""

    def __init__(self, node: GuaranteedNode, *arguments: Any, **terms: Any) -> None:
        self._node = node
        super().__init__(*arguments, **terms)

    def open_ledgers(self) -> Mapping[str, MemoryLedger]:
        return self.ledgers  # type: ignore[return-value]

    def _do(self, use: Use, one: effect.OwnEffect) -> None:
        self._node.began(use)
        match one:
            case Save():
                if not self._node.witness.has_room():
                    raise StoreFull("the disk is full", path=use.consumer.name)
                self._node.witness.saved(use.consumer, one)
            case HandOver():
                use.subscription.given = one  # type: ignore[union-attr]
            case LostForGood():
                self._node.witness.lost(use.consumer, one)
            case UsedElsewhere(holder):
                raise AssertionError(f"{self._node.name} is told that {holder} uses its name")
        super()._do(use, one)


class _Runtime(Runtime):
    """The shipped runtime of a node that may crash between any two of its effects."""

    def __init__(self, node: GuaranteedNode) -> None:
        self._node = node
        network = node.network
        engine = WatchedEngine(network, node.failed)
        threads = VirtualThreads(network, node.name, node.failed)
        patience = Patience(tick_s=TICK_S)
        terms = Terms(idle_beat_s=60.0)  # nobody publishes here but to ledgers
        super().__init__(node.name, terms, engine, clock_of(network), threads, patience)

    def carry_out(
        self,
        do: Do,
        effects: Iterable[Any],
        mail: Mail,
        *,
        heard: Heard | None = None,
        hears_all: bool = False,
        is_locked: bool = False,
    ) -> None:
        if hears_all:
            effects = self._survived(effects)
        super().carry_out(do, effects, mail, heard=heard, hears_all=hears_all, is_locked=is_locked)

    def _survived(self, effects: Iterable[Any]) -> Iterator[Any]:
        node = self._node
        for one in effects:
            if node.is_alive and node.effects_left is not None:
                node.effects_left -= 1
                if node.effects_left < 0:
                    node.crash()
            if not node.is_alive:
                raise Crashed(node.name)
            if isinstance(one, Complain):
                raise AssertionError(f"{node.name} complains: {one}")
            yield one
