"""A node that publishes to ledgers and consumes durably, over a simulated network and disk.

Several nodes may share a `Home`, what lies on disk. A node owns what it has opened; when it
crashes, whatever was not yet committed is gone, and another node of the home may open the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from infobus.engines.memory import MemoryEngine, Network
from infobus.protocols.durable import DurableConsumer
from infobus.protocols.durable_effects import (
    ConsumerTerms,
    DeadLetter,
    Deliver,
    LostForGood,
    Save,
    UsedElsewhere,
)
from infobus.protocols.durable_stream import Saved
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.guaranteed import LedgerServer, ServerTerms
from infobus.protocols.guaranteed_wire import (
    Durable,
    Fetch,
    GuaranteedMessage,
    Kept,
    Ledgers,
    Refused,
)
from infobus.protocols.ledger_reading import Record

TICK_S = 0.1
WALL_AHEAD_S = 1_000.0
"""How far the wall clock is ahead of the network's: nobody may take one for the other."""

_decoder = msgspec.msgpack.Decoder(GuaranteedMessage)


class Event(Struct, frozen=True):
    """A record of a simulated ledger."""

    subject: str
    time: float
    body: bytes
    expires: float | None = None
    type: int = 0
    object_id: str | None = None
    test: bool = False
    priority: str = "regular"
    transaction: bytes | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """The object within."""
        decoded: dict[str, Any] = msgspec.msgpack.decode(self.body)
        return decoded


@dataclass(eq=False)
class SimulatedLedger:
    """A ledger in memory; what is not committed does not survive `crash`."""

    id: str
    owner: str | None = None
    records: dict[int, Event] = field(default_factory=dict)
    last: int = 0  # the last number committed
    gone_upto: int = 0
    gone_time: float = 0.0  # of the newest record that is gone
    pending: list[Event] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    committed_positions: dict[str, int] = field(default_factory=dict)

    def commit(self) -> Sequence[tuple[int, Event]]:
        """Put everything on disk; the records that are new there are returned."""
        new = list(enumerate(self.pending, self.last + 1))
        self.records.update(new)
        self.last += len(new)
        self.pending = []
        self.committed_positions = dict(self.positions)
        return new

    def crash(self) -> None:
        """Forget what was not committed, and the owner."""
        self.pending, self.owner = [], None
        self.positions = dict(self.committed_positions)

    def prune(self, upto: int) -> None:
        """Let go of records, whoever still needs them."""
        for number in [number for number in self.records if number <= upto]:
            self.gone_upto, self.gone_time = number, self.records.pop(number).time

    def read(self, after: int, count_max: int, bytes_max: int) -> Sequence[tuple[int, Record]]:
        """See `ledger_reading.Ledger`."""
        found: list[tuple[int, Record]] = []
        for number in range(max(after, self.gone_upto) + 1, self.last + 1):
            found.append((number, self.records[number]))
            bytes_max -= len(self.records[number].body)
            if len(found) >= count_max or bytes_max <= 0:
                break
        return found

    def first_since(self, time: float) -> int:
        """See `ledger_reading.Ledger`."""
        if self.gone_upto and self.gone_time >= time:
            return 1
        newer = (number for number, record in self.records.items() if record.time >= time)
        return next(newer, self.last + 1)

    def settle(self, name: str, position: int) -> None:
        """See `ledger_reading.Ledger`."""
        assert position >= self.positions.get(name, 0), f"{name} goes back to {position}"
        self.positions[name] = position


@dataclass(eq=False)
class Registration:
    """A durable consumer as it lies on disk."""

    name: str
    patterns: list[str]
    where: str
    ordered: bool
    registered_at: float
    owner: str | None = None
    saved: dict[str, Saved] = field(default_factory=dict)


@dataclass(eq=False)
class Home:
    """What lies on one disk."""

    name: str
    ledgers: dict[str, SimulatedLedger] = field(default_factory=dict)
    registrations: dict[str, Registration] = field(default_factory=dict)

    def crash(self, owner: str) -> None:
        """Whatever `owner` had open is free."""
        for ledger in self.ledgers.values():
            if ledger.owner == owner:
                ledger.crash()
        for registration in self.registrations.values():
            if registration.owner == owner:
                registration.owner = None


class Witness(Protocol):
    """Whoever wants to hear what a node does, and decides what its application does."""

    def committed(
        self, ledger: SimulatedLedger, events: Iterable[tuple[int, Event]], wall_s: float
    ) -> None:
        """Events are safe in a ledger."""

    def delivered(self, node: GuaranteedNode, consumer: DurableConsumer, given: Deliver) -> None:
        """An event is handed to the application."""

    def saved(self, consumer: DurableConsumer, save: Save) -> None:
        """A consumer's progress is on disk."""

    def lost(self, consumer: DurableConsumer, lost: LostForGood) -> None:
        """A loss is reported to the application."""

    def nacks(self, consumer: DurableConsumer, given: Deliver) -> bool:
        """Whether the application could not use the event; if not, it is settled."""

    def buries(self, consumer: DurableConsumer, dead: DeadLetter) -> bool:
        """Whether there is room for a dead letter."""

    def crashed(self, node: GuaranteedNode) -> None:
        """A node is no more."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class GuaranteedNode:
    """Joins one `LedgerServer`, some `DurableConsumer`s and one `MemoryEngine`."""

    def __init__(
        self,
        network: Network,
        home: Home,
        name: str,
        terms: tuple[ServerTerms, ConsumerTerms],
        witness: Witness,
    ) -> None:
        self.network, self.home, self.name = network, home, name
        self.server = LedgerServer(
            name=name, decode=_decode, describe=lambda types: [], terms=terms[0]
        )
        self.consumers: dict[str, DurableConsumer] = {}
        self.effects_left: int | None = None  # until the node crashes in the middle of things
        self.is_alive = True
        self._terms, self._witness = terms[1], witness
        self._sessions_count = 0
        self._burials: dict[tuple[str, int], list[tuple[DurableConsumer, DeadLetter]]] = {}
        self._own: deque[GuaranteedMessage] = deque()  # what the node says to itself
        self._engine = MemoryEngine(network)
        self._engine.open(name)
        for key in (f"n/{name}", "all"):
            self._engine.declare(key, self._on_frame)
        self._engine.announce(f"l/{name}")
        self._engine.watch("l/*", self._on_token)
        network.call_later(network.random.uniform(0, TICK_S), self._tick, node=name)

    # What the run does.

    def publish(self, events: Iterable[Event]) -> tuple[str, int]:
        """Log events, which are safe a little later; ledger and number of the last."""
        ledger = self._ledger()
        if self.is_alive:  # opening the ledger may have been too much
            ledger.pending.extend(events)
            self._later(0.02, partial(self._commit, ledger))
        return ledger.id, ledger.last + len(ledger.pending)

    def take_over(self) -> None:
        """Serve the ledgers of the home that nobody serves."""
        for ledger in self.home.ledgers.values():
            if self.is_alive and ledger.owner is None:
                self._open(ledger)
        self._hear()

    def consume(self, registration: Registration) -> None:
        """Use a durable name."""
        registration.owner = self.name
        self._sessions_count += 1
        self.consumers[registration.name] = consumer = DurableConsumer(
            node=self.name,
            name=registration.name,
            session=self._sessions_count,
            patterns=registration.patterns,
            registered_at=registration.registered_at,
            where=registration.where,
            ordered=registration.ordered,
            terms=self._terms,
            saved=dict(registration.saved),
        )
        self._do(consumer.start(self.network.now_s, self.wall_s), consumer)
        self._hear()

    def stop(self, name: str) -> None:
        """Use a durable name no longer."""
        consumer = self.consumers[name]
        self._do(consumer.close(), consumer)
        if self.is_alive:
            del self.consumers[name]
            self.home.registrations[name].owner = None
            self._hear()

    def crash(self) -> None:
        """Die at once."""
        self.is_alive = False
        self.network.crash(self.name)
        self.home.crash(self.name)
        self._witness.crashed(self)

    @property
    def wall_s(self) -> float:
        """The wall clock."""
        return self.network.now_s + WALL_AHEAD_S

    # Ledgers.

    def _ledger(self) -> SimulatedLedger:
        """The ledger that this node writes to."""
        own = (ledger for ledger in self.home.ledgers.values() if ledger.owner == self.name)
        ledger = next(own, None)
        if ledger is None:
            free = (ledger for ledger in self.home.ledgers.values() if ledger.owner is None)
            ledger = next(free, None)
            if ledger is None:
                ledger = SimulatedLedger(f"{self.home.name}.{len(self.home.ledgers)}")
                self.home.ledgers[ledger.id] = ledger
            self._open(ledger)
        return ledger

    def _open(self, ledger: SimulatedLedger) -> None:
        ledger.owner = self.name
        now_s = self.network.now_s
        self._do(self.server.opened(ledger.id, ledger, ledger.last, ledger.positions, now_s))

    def _commit(self, ledger: SimulatedLedger) -> None:
        new = ledger.commit()
        self._witness.committed(ledger, new, self.wall_s)
        self._do(self.server.committed(ledger.id, ledger.last, self.network.now_s))
        for number, _ in new:
            for consumer, dead in self._burials.pop((ledger.id, number), ()):
                now_s = self.network.now_s
                self._do(consumer.dead_lettered(dead.ledger, dead.entry.number, now_s), consumer)

    def _bury(self, consumer: DurableConsumer, dead: DeadLetter) -> None:
        number = dead.entry.number
        if self.consumers.get(consumer.name) is not consumer:
            return
        if not self._witness.buries(consumer, dead):
            failed = consumer.dead_letter_failed(dead.ledger, number, self.network.now_s)
            self._do(failed, consumer)
            return
        body = msgspec.msgpack.encode({"origin": [dead.ledger, number, consumer.name]})
        place = self.publish([Event(f"dead.{consumer.name}", self.wall_s, body)])
        self._burials.setdefault(place, []).append((consumer, dead))

    # The application.

    def _handle(self, consumer: DurableConsumer, given: Deliver) -> None:
        if self.consumers.get(consumer.name) is not consumer:
            return
        done = consumer.nacked if self._witness.nacks(consumer, given) else consumer.settled
        self._do(done(given.ledger, given.entry.number, self.network.now_s), consumer)

    # The world.

    def _on_frame(self, payload: bytes) -> None:
        self._watched(lambda: self._take(_decoder.decode(payload)))

    def _on_token(self, key: str, alive: bool) -> None:
        self._watched(lambda: self._see(key.rpartition("/")[2], alive))

    def _later(self, delay_max_s: float, function: Callable[[], None]) -> None:
        delay_s = self.network.random.uniform(0, delay_max_s)
        self.network.call_later(delay_s, lambda: self._watched(function), node=self.name)

    def _watched(self, function: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        try:
            function()
            self._hear()
        except Exception as error:  # the engine would log it and go on
            self._witness.failed(error)

    def _hear(self) -> None:
        """Take in what this node said to itself, and finish what it had begun."""
        while self.is_alive and (self._own or self.server.has_work):
            if self._own:
                self._take(self._own.popleft())
            self._do(self.server.work(self.network.now_s))

    def _take(self, message: GuaranteedMessage) -> None:
        self._do(self.server.take(message, self.network.now_s))
        for consumer in list(self.consumers.values()):
            self._do(consumer.take(message, self.network.now_s), consumer)

    def _see(self, peer: str, alive: bool) -> None:
        if not alive:
            self.server.peer_down(peer)
        for consumer in list(self.consumers.values()):
            self._do(consumer.peer_up(peer) if alive else consumer.peer_down(peer), consumer)

    def _tick(self) -> None:
        self.network.call_later(TICK_S, self._tick, node=self.name)
        self._watched(self._on_tick)

    def _on_tick(self) -> None:
        self._do(self.server.tick(self.network.now_s))
        for consumer in list(self.consumers.values()):
            self._do(consumer.tick(self.network.now_s, self.wall_s), consumer)

    def _do(self, effects: Sequence[object], consumer: DurableConsumer | None = None) -> None:
        for effect in effects:
            if not self.is_alive:
                return
            if self.effects_left is not None:
                self.effects_left -= 1
                if self.effects_left < 0:
                    self.crash()
                    return
            match effect:
                case ToPeer(
                    peer, (Durable() | Ledgers() | Fetch() | Kept() | Refused()) as message
                ):
                    self._send(f"n/{peer}", message, is_own=peer == self.name)
                case ToAll(Durable() | Ledgers() as message):
                    self._send("all", message, is_own=True)
                case Complain():
                    raise AssertionError(f"{self.name} complains: {effect}")
                case UsedElsewhere(holder):
                    raise AssertionError(f"{self.name} is told that {holder} uses its name")
                case _:
                    assert consumer is not None, effect
                    self._do_for(consumer, effect)

    def _do_for(self, consumer: DurableConsumer, effect: object) -> None:
        match effect:
            case Save(ledger, saved):
                self._witness.saved(consumer, effect)
                self.home.registrations[consumer.name].saved[ledger] = saved
            case Deliver():
                self._witness.delivered(self, consumer, effect)
                self._later(0.05, partial(self._handle, consumer, effect))
            case DeadLetter():
                self._later(0.05, partial(self._bury, consumer, effect))
            case LostForGood():
                self._witness.lost(consumer, effect)
            case _:
                raise AssertionError(f"nobody knows how to do {effect}")

    def _send(self, key: str, message: GuaranteedMessage, is_own: bool) -> None:
        if is_own:
            self._own.append(message)
        if key != f"n/{self.name}":
            self._engine.put(key, msgspec.msgpack.encode(message))


def _decode(record: Record) -> object:
    return msgspec.msgpack.decode(record.body)
