"""The publishing half of a node: who wants an event, and how it gets there."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from infobus.bus import stats
from infobus.bus.deliver.audience import NOBODY
from infobus.bus.publish.leaving import PLAIN, Keep, Quality, Sending, Wish
from infobus.bus.publish.outlet import Flusher, Outlet
from infobus.bus.publish.routing import UNWANTED
from infobus.bus.publish.transaction import TransactionBlock
from infobus.bus.runtime.runtime import Hub
from infobus.errors import Backpressure, UsageError
from infobus.objects import DataObject, identify, runs
from infobus.objects.codec import encode_event
from infobus.protocols.frames.wire import Item, Items, Qos
from infobus.protocols.qos.admission import Admission
from infobus.protocols.qos.classes import Limits, Rate
from infobus.subjects import TEST_SPACE

if TYPE_CHECKING:
    from infobus.bus.publish.reservation import Reservation

_CHUNK_COUNT = 1024  # events that `publish_many` looks at together
_RUN_BODY_BYTES_MAX = 256  # larger ones gain little from that

_first, _second = itemgetter(0), itemgetter(1)

log = logging.getLogger("infobus")


class Publisher(Sending):
    """What a `Bus` is to those who publish."""

    def __init__(
        self,
        hub: Hub,
        flusher: Flusher,
        send_timeout_s: float,
        test: bool,
        keep: Keep,
        capacity: Limits,
    ) -> None:
        super().__init__(hub, flusher, send_timeout_s, keep)
        self.test = test  # a program under development
        self._admission = Admission(capacity.events_per_s, capacity.bytes_per_s)
        self._reservations = itertools.count(1)
        self._reserving = threading.Lock()

    def publish(
        self,
        subject: str,
        obj: Any,
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
    ) -> None:
        """Send `obj` to everyone who has subscribed to `subject`.

        Returning means that the bus has taken the object over: subscribers running now get it
        in publication order, or are told what they missed. If no subscription's subject and
        filter can match, the object is neither encoded nor sent (`Stats.quenched` counts it).
        With `quality="best_effort"` nothing is repaired and nothing reported.

        Args:
            subject: A full name such as `plant.line4.oven.temperature`, without wildcards.
            obj: A `DataObject`, or a dict with string keys (an untyped notification). It is
                copied before this returns; later changes to it are not sent.
            quality: `reliable` or `best_effort`.
            quench: False sends it even if nobody is known to want it.
            test: It reaches only subscriptions that ask for test events, and is not counted.
            guaranteed: Returning means that it is on disk here, and that every durable consumer
                gets it, whatever is killed; other subscriptions get it as ever.
            priority: Its class (`emergency`, `business`, `regular`, or as the bus was set up).
                Events of a higher class overtake; order holds within a class.
            max_age: Seconds after which it is worthless: it is let go wherever it waits then,
                and never delivered later (`Bus.on_expired` tells). Kept by durable consumers'
                dead letters if it is guaranteed.

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            BadValue: The object cannot be sent; nothing was.
            Backpressure: Receivers did not keep up for `send_timeout_s`; nothing of this
                object was sent, so trying again later is safe.
            StoreFull: Only with `guaranteed`; nothing was kept or sent, try again later.
            BusClosed: The bus was closed, or belongs to the parent of a forked process.
        """
        if guaranteed:
            is_plain = priority is None and max_age is None
            wish = PLAIN if is_plain else self._wish(priority, max_age)
            self._publish_guaranteed([(subject, obj)], test, wish)
            return
        is_test = test or self.test
        if is_test or priority is not None or max_age is not None:
            wish = self._wish(priority, max_age)
            subject = TEST_SPACE + subject if is_test else subject
            self._publish(subject, obj, quality, False, quench, wish)
            return
        decision = self._decisions.get(subject)
        if decision is None:
            decision = self._decide(subject)
        outlet, wanted, here = decision
        if wanted is not True or here is not NOBODY or quality != "reliable" or not quench:
            self._publish(subject, obj, quality, False, quench)
            return
        assert outlet is not None
        # The usual case, in as few steps as possible.
        gathering = self._flusher.gathering
        if gathering is not None and gathering is not outlet:
            self._flusher.make_way_for(outlet)
        number = next(self._numbers)
        fingerprint, body, types, object_id = encode_event(obj, self.node, number)
        item = Item(subject, number, time.time(), fingerprint, body, object_id)
        outlet.send(item, len(body), types, False)

    def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
    ) -> None:
        """Publish (subject, object) pairs in order, gathered into few frames.

        The same promise as `publish` for each of them. An error leaves those before it sent;
        with `guaranteed`, an error means that none was kept or sent.
        """
        if guaranteed:
            self._publish_guaranteed(list(events), test, self._wish(priority, max_age))
            return
        self._send_many(events, quality, quench, test, self._wish(priority, max_age))

    def _send_many(
        self,
        events: Iterable[tuple[str, Any]],
        quality: Quality,
        quench: bool,
        test: bool,
        wish: Wish,
    ) -> None:
        is_plain = quality == "reliable" and quench and wish._replace(kept=False) == PLAIN
        if test or self.test:
            events = ((TEST_SPACE + subject, obj) for subject, obj in events)
        used: set[Outlet | None] = set()
        try:
            for chunk in _chunks(events):
                outlet = self._publish_run(chunk, wish.kept) if is_plain else None
                used.add(outlet)
                if outlet is None:
                    for subject, obj in chunk:
                        used.add(self._publish(subject, obj, quality, True, quench, wish))
        finally:
            for outlet in used:  # no others: they may have to wait for receivers of their own
                if outlet is not None:
                    outlet.flush()

    def _publish_guaranteed(self, events: list[tuple[str, Any]], test: bool, wish: Wish) -> None:
        """Keep events in the ledger, then send them to whoever listens now."""
        if not events:
            return
        test = test or self.test
        now_s = time.time()
        expires_s = now_s + wish.max_age if wish.max_age else None
        class_ = wish.class_ or self._classes.default
        ledger, first = self._keep(lambda: _records(events, now_s, test, expires_s, class_))
        for number, (_, obj) in enumerate(events, first):
            if isinstance(obj, DataObject):
                identify(obj, (ledger, number))
        if not test and self._are_unheard(events):
            return
        try:
            self._send_many(events, "reliable", True, test, wish._replace(kept=True))
        except Backpressure as error:  # durable consumers get them all the same
            log.warning("guaranteed events are kept, but not sent to others: %s", error)

    def _are_unheard(self, events: list[tuple[str, Any]]) -> bool:
        """Whether it is known that nobody listens; then they are counted, and done with."""
        for subject, _ in events:
            if self._decisions.get(subject) is not UNWANTED:
                return False
        stats.skip(self._numbers, len(events))
        stats.skip(self._quenched, len(events))
        return True

    def _publish_run(self, chunk: list[tuple[str, Any]], kept: bool) -> Outlet | None:
        """Publish alike events for one channel together; None if they must go singly."""
        outlet = None
        try:
            if set(map(len, chunk)) != {2}:
                return None
            # Not by `zip(*chunk)`, which makes an iterator for each of them.
            subjects, objects = list(map(_first, chunk)), list(map(_second, chunk))
            different = set(subjects)
            for subject in different:
                way_out, wanted, here = self._decisions[subject]
                if wanted is not True or here is not NOBODY or outlet not in (None, way_out):
                    return None
                outlet = way_out
        except (KeyError, TypeError, ValueError):
            return None  # a subject for the first time, or no pair at all
        run = runs.encode(objects, _RUN_BODY_BYTES_MAX)
        if run is None or outlet is None:
            return None
        fingerprint, bodies, types = run
        count = len(bodies)
        numbers = list(islice(self._numbers, count))
        if subjects[0].startswith(TEST_SPACE):  # then all of them do: it is one channel
            stats.skip(self._uncounted, count)
        runs.identify(objects, self.node, numbers)
        if numbers[-1] - numbers[0] == count - 1:  # else another thread publishes, too
            numbers = numbers[:1]
        names = subjects if len(different) > 1 else subjects[:1]
        qos: list[Qos | None] = [Qos(kept=True)] if kept else []
        items = Items(names, numbers, [time.time()], [fingerprint], bodies, {}, qos)
        self._flusher.make_way_for(outlet)
        outlet.send_run(items, sum(map(len, bodies)), types)
        return outlet

    def publish_nowait(self, subject: str, obj: Any, quality: Quality = "reliable") -> bool:
        """Publish unless that might have to wait; False if it might, and nothing was sent."""
        if self.test:
            return False
        decision = self._decisions.get(subject) or self._decide(subject)
        outlet, _, here = decision
        if outlet is None:
            self._publish(subject, obj, quality, True)
            return True
        is_alone = self._flusher.gathering in (None, outlet)
        if quality != "reliable" or not is_alone or not outlet.lock.acquire(blocking=False):
            return False
        try:
            with self._hub.lock:
                takers = here.takers(obj)
            if outlet.is_full() or any(subscription.holds_class("") for subscription in takers):
                return False
            self._publish(subject, obj, quality, True)
            outlet.ask_flush()
            return True
        finally:
            outlet.lock.release()

    def transaction(
        self,
        *,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
    ) -> TransactionBlock:
        """Publish several events as one: `with bus.transaction() as tx: tx.publish(...)`.

        Each subscription gets all of them that it asked for, in order and as one event (whose
        `data` is a `Transaction`), or none. They leave when the block ends; if it ends by an
        exception, nothing was sent. They may have different subjects; if any of them is wanted
        somewhere, all of them go there. With `guaranteed`, durable consumers get it, too.
        """
        space, wish = TEST_SPACE if test or self.test else "", self._wish(priority, max_age)
        publish = partial(self._publish_group, guaranteed=guaranteed, wish=wish)
        return TransactionBlock(publish, space)

    def reserve(
        self, events_per_s: float, bytes_per_s: float | None = None, *, name: str = ""
    ) -> Reservation:
        """Reserve a steady rate: `with bus.reserve(100) as feed: feed.publish(...)`.

        Raises:
            QosRefused: This node was not given so much (`connect(capacity=...)`), or others
                have reserved it, here or in its group; the message says how much is free.
        """
        from infobus.bus.publish.reservation import (
            Reservation,  # late: most programs reserve nothing
        )

        if self._closed is not None:
            raise self._closed
        rate = Rate(events_per_s, bytes_per_s)
        name = name or f"reservation {next(self._reservations)}"
        keeper = self._member or self._admission
        with self._reserving:
            if name in self._admission.held:
                raise UsageError(f"there is a reservation {name!r} already; choose another name")
            keeper.reserve(name, events_per_s, bytes_per_s or 0.0)
        return Reservation(self, name, rate, keeper.release)

    def flush(self) -> None:
        """Send now what was gathered for batching."""
        if self._closed is not None:
            raise self._closed
        for outlet in list(self._outlets.values()):
            outlet.flush()


def _records(
    events: list[tuple[str, Any]], now_s: float, test: bool, expires_s: float | None, class_: str
) -> tuple[list[Any], Mapping[int, bytes]]:
    from infobus.bus.durable.records import records_of  # late: most programs keep nothing

    return records_of(events, now_s, test, expires_s, class_)


def _chunks(events: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    events = iter(events)
    while True:
        chunk: list[tuple[str, Any]] = []
        try:
            chunk.extend(islice(events, _CHUNK_COUNT))
        except BaseException:
            yield chunk  # what came before the error is published
            raise
        if not chunk:
            return
        yield chunk
