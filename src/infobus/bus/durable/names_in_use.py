"""What a node knows of a durable name in use, and of a ledger that it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from infobus.bus.deliver.event import Run, Transaction, events_of, native
from infobus.bus.deliver.subscription import OnMismatch, Owner, as_wanted
from infobus.bus.durable.feed import LedgerFeed
from infobus.bus.durable.stores import KeptConsumer, KeptLedger
from infobus.bus.durable.subscription import DurableEvent
from infobus.bus.runtime.registration import Part
from infobus.errors import BadFrame, BusError, StoreError
from infobus.objects import codec, find_type
from infobus.objects.codec import Mismatched
from infobus.protocols.frames import transactions
from infobus.protocols.frames.guaranteed import Entry
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import ConsumerEffects, Rewound
from infobus.protocols.guaranteed.ledger_port import choosing, types_of
from infobus.protocols.guaranteed.position import Saved


class Sink(Protocol):
    """What gets the events of a durable consumer; see `DurableSubscription`."""

    name: str
    patterns: tuple[str, ...]
    lost: int

    def offer(self, entry: DurableEvent | BusError) -> None:
        """Hand over an event or an error."""

    def end(self, error: BusError | None = None) -> None:
        """Take no more in; raise `error`, then end the iteration."""

    def abandon(self, why: BusError) -> None:
        """End in a forked child."""


User = Sink | LedgerFeed
"""The user of a durable name; a router gets the events as they are kept."""


Judge = Callable[[str, Entry, Owner], tuple[Entry, str] | None]
"""Opens an event of a ledger, and says which key has signed it; None if it is not wanted."""


class ServedLedger:
    """A ledger as the serving half reads it."""

    def __init__(self, ledger: KeptLedger, wall_s: Callable[[], float]) -> None:
        self.ledger = ledger
        self._wall_s = wall_s
        self.read = ledger.read
        self.first_since = ledger.first_since

    def settle(self, name: str, position: int) -> None:
        """Note how far a consumer has come."""
        self.ledger.settle(name, position, self._wall_s())


class Use:
    """A durable name in use by this process: a machine that is also told the wall clock's time."""

    part: Part

    def __init__(
        self,
        consumer: DurableConsumer,
        store: KeptConsumer,
        subscription: User,
        wall_s: Callable[[], float],
        on_mismatch: OnMismatch = "raise",
        judge: Judge | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> None:
        self.judge = judge
        self.on_mismatch = on_mismatch
        self._wanted = wanted
        self.take = consumer.take
        self._wall_s = wall_s
        self.consumer = consumer
        self.store = store
        self.subscription = subscription
        self._places = choosing(consumer.patterns, consumer.where, decode_record)

    def peer_up(self, name: str, now_s: float) -> ConsumerEffects:
        """Tell the node of the consumer."""
        return self.consumer.peer_up(name)

    def peer_down(self, name: str, now_s: float) -> ConsumerEffects:
        """Others may take over the ledgers of the node."""
        return self.consumer.peer_down(name)

    def tick(self, now_s: float) -> ConsumerEffects:
        """Time has passed, here and on the wall."""
        return self.consumer.tick(now_s, self._wall_s())

    def data(self, id: str, entry: Entry, owner: Owner) -> Any:
        """The object of an event, or the transaction as far as the consumer wants it.

        Raises:
            BadFrame: Some of it cannot be read.
            Mismatched: Some of it does not fit its type here, and is not wanted as it was sent.
        """

        def on_bad_object(sender: str, error: BadFrame | Mismatched) -> Any:
            if isinstance(error, Mismatched):
                if self.on_mismatch != "generic":
                    raise error
                owner.on_mismatch(sender, error)
            return owner.on_bad_object(sender, error)

        if entry.type != GROUP:
            object_id = entry.object_id or entry.name_in(id)
            try:
                data = native(codec.reader_for(entry.type)(entry.body, object_id))
                return self._typed(data)
            except Mismatched as error:
                return on_bad_object(id, error)
        places = self._places(entry)
        events = transactions.decode(entry.body).events.at(places)
        run = Run(entry.name_in(id)[0], "", [entry.number] * len(places), events)
        found = events_of(run, on_bad_object, entry.priority)
        if len(found) < len(places):
            raise BadFrame("a transaction of which some objects cannot be read")
        if self._wanted:
            found = as_wanted(found, self._wanted, on_bad_object)
        return Transaction(tuple(found))

    def _typed(self, data: Any) -> Any:
        if not self._wanted:
            return data
        from infobus.objects.payloads import typed  # late: most consumers take any type

        return typed(data, self._wanted)


def decode_record(record: Any) -> object:
    """The object of a record, for filters."""
    return codec.decode(record.type, record.body)


def decode_kept(ledgers: Mapping[str, KeptLedger], record: Any) -> object:
    """As `decode_record`; types that are not known are learned from the ledgers.

    Filters may ask for them, and the publisher that knew them may be gone.
    """
    _learn_from(ledgers, types_of([record]))
    return decode_record(record)


def saved_in(store: KeptConsumer) -> dict[str, Saved]:
    """What a durable consumer has saved of each ledger."""
    progress = store.progress().items()
    return {id: Saved(one.position, one.above, one.deliveries) for id, one in progress}


def descriptors_in(ledgers: Mapping[str, KeptLedger], types: Iterable[int]) -> list[bytes]:
    """The descriptors of types; those that are not known are looked for in the ledgers."""
    types = list(types)
    _learn_from(ledgers, types)
    return codec.descriptors(types)


def _learn_from(ledgers: Mapping[str, KeptLedger], types: Iterable[int]) -> None:
    """Learn types that are not known here, and their supertypes, from the ledgers."""
    for type_ in types:
        if not codec.known(type_):
            for ledger in ledgers.values():
                if (descriptor := ledger.descriptor(type_)) is not None:
                    with suppress(BadFrame):  # then nobody can learn it
                        codec.learn(descriptor)
                    break
        if (known := find_type(type_)) is not None:
            _learn_from(ledgers, [one for one in known.closure if not codec.known(one)])


def rewound_error(consumer: str, rewound: Rewound) -> StoreError:
    """The error that tells of a ledger that ends too early."""
    ledger = rewound.ledger
    return StoreError(
        f"ledger {ledger} was cut short, or is an older copy: durable consumer {consumer!r} has "
        f"settled {rewound.position} there ({rewound.detail}). Nothing of it is delivered. "
        f"Seal it with: infobus ledger seal {ledger}",
        path=ledger,
    )
