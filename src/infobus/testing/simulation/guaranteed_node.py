"""A node that publishes to ledgers and consumes durably, over a simulated network and disk.

Several nodes may share a home, a `MemoryDisk`. A node owns what it has opened; when it crashes,
whatever was not yet synced is gone, and another node of the home may open the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Protocol

import msgspec

from infobus.engines.memory.engine import MemoryEngine, Network
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import transactions
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.guaranteed.adoption import LedgerTurns
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import (
    ConsumerTerms,
    DeadLetter,
    Deliver,
    LostForGood,
    Save,
    UsedElsewhere,
)
from infobus.protocols.guaranteed.frames import (
    Durable,
    Entry,
    Fetch,
    GuaranteedMessage,
    Kept,
    Ledgers,
    Refused,
)
from infobus.protocols.guaranteed.ledger_port import Record as Readable
from infobus.protocols.guaranteed.ledger_port import choosing
from infobus.protocols.guaranteed.position import Saved
from infobus.protocols.guaranteed.server import LedgerServer, ServerTerms
from infobus.stores.ledger.record import Record, encode
from infobus.testing.memory_stores import MemoryConsumerStore, MemoryDisk, MemoryLedger

TICK_S = 0.1
WALL_AHEAD_S = 1_000.0
"""How far the wall clock is ahead of the network's: nobody may take one for the other."""

_decoder = msgspec.msgpack.Decoder(GuaranteedMessage)


@dataclass(frozen=True, eq=False)
class Interest:
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


class Witness(Protocol):
    """Whoever wants to hear what a node does, and decides what its application does."""

    def opened(self, ledger: MemoryLedger) -> None:
        """A node owns a ledger."""

    def registered(self, interest: Interest, registered_at: float) -> None:
        """A node uses a durable name, perhaps for the first time."""

    def committed(
        self, ledger: MemoryLedger, records: Iterable[tuple[int, Record]], wall_s: float
    ) -> None:
        """Records are safe in a ledger."""

    def delivered(
        self,
        node: GuaranteedNode,
        consumer: DurableConsumer,
        given: Deliver,
        places: Sequence[int],
    ) -> None:
        """An event is handed to the application; of a transaction, the events at these places."""

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
        home: MemoryDisk,
        name: str,
        terms: tuple[ServerTerms, ConsumerTerms],
        turns: LedgerTurns,
        witness: Witness,
    ) -> None:
        self.network, self.home, self.name = network, home, name
        self.server = LedgerServer(
            name=name, decode=_decode, describe=lambda types: [], terms=terms[0]
        )
        self.ledgers: dict[str, MemoryLedger] = {}
        self.own: MemoryLedger | None = None  # the one that the node writes to
        self.consumers: dict[str, DurableConsumer] = {}
        self.effects_left: int | None = None  # until the node crashes in the middle of things
        self.is_alive = True
        self._terms, self._turns, self._witness = terms[1], turns, witness
        self._stores: dict[str, MemoryConsumerStore] = {}
        self._choices: dict[str, Callable[[Readable | Entry], tuple[int, ...]]] = {}
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

    def publish(self, records: Sequence[Record]) -> tuple[str, int]:
        """Log records, which are safe a little later; ledger and number of the first."""
        if self.own is None:
            if not self.ledgers:
                self._open(self.home.open_free(owner=self.name))
            if not self.is_alive:  # opening the ledger was too much
                return "", 0
            self.own = next(iter(self.ledgers.values()))
        self._later(0.02, partial(self._sync, self.own))
        return self.own.id, self.own.write(records)

    def take_over(self) -> None:
        """Serve ledgers of the home that nobody serves, if something is lacking there."""
        found = self.home.orphans().items()
        wanted = [id for id, one in found if self.server.is_lacking(one.last, one.positions)]
        for id in self._turns.choose(wanted):
            if self.is_alive:
                self._turns.opened(id, self.network.now_s)
                self._open(self.home.open_ledger(id, owner=self.name))
        self._hear()

    def consume(self, interest: Interest) -> None:
        """Use a durable name."""
        store = self._stores[interest.name] = self.home.open_consumer(
            interest.name, interest.patterns, interest.where, now_s=self.wall_s, owner=self.name
        )
        self._witness.registered(interest, store.registered_at)
        self._sessions_count += 1
        self.consumers[interest.name] = consumer = DurableConsumer(
            node=self.name,
            name=interest.name,
            session=self._sessions_count,
            patterns=list(store.patterns),
            registered_at=store.registered_at,
            where=store.where,
            ordered=interest.ordered,
            terms=self._terms,
            saved={
                id: Saved(one.position, one.above, one.deliveries)
                for id, one in store.progress().items()
            },
        )
        self._choices[interest.name] = choosing(consumer.patterns, consumer.where, _decode)
        self._do(consumer.start(self.network.now_s, self.wall_s), consumer)
        self._hear()

    def stop(self, name: str) -> None:
        """Use a durable name no longer."""
        consumer = self.consumers[name]
        self._do(consumer.close(), consumer)
        if self.is_alive:
            del self.consumers[name]
            self._stores.pop(name).close()
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

    def _open(self, ledger: MemoryLedger) -> None:
        self.ledgers[ledger.id] = ledger
        self._witness.opened(ledger)
        positions = {name: one.position for name, one in ledger.positions().items()}
        now_s, last = self.network.now_s, ledger.next - 1
        self._do(self.server.opened(ledger.id, ledger, last, positions, now_s))

    def _sync(self, ledger: MemoryLedger) -> None:
        new = ledger.sync()
        self._witness.committed(ledger, new, self.wall_s)
        self._do(self.server.committed(ledger.id, ledger.next - 1, self.network.now_s))
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
        place = self.publish([Record(f"dead.{consumer.name}", self.wall_s, 0, body)])
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
        self._let_go()

    def _let_go(self) -> None:
        now_s = self.network.now_s
        for id, ledger in list(self.ledgers.items()):
            if ledger is self.own:
                self._turns.closed(id, now_s)
            elif self._turns.is_over(id, now_s) or not self.server.is_wanted(id):
                self._turns.closed(id, now_s)
                self.ledgers.pop(id).close()
                self._do(self.server.closed(id))

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
                store = self._stores[consumer.name]
                store.note(ledger, saved.position, saved.above, saved.deliveries)
                store.flush()
            case Deliver():
                places = self._choices[consumer.name](effect.entry)
                self._witness.delivered(self, consumer, effect, places)
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


def _decode(record: Readable) -> object:
    return msgspec.msgpack.decode(record.body)
