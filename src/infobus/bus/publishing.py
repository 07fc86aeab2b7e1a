"""The publishing half of a node: who wants an event, and how it gets there."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, repeat
from typing import Any, Literal

from infobus.bus.audience import NOBODY
from infobus.bus.deciding import UNWANTED, Decider
from infobus.bus.event import Run
from infobus.bus.hub import Hub
from infobus.bus.outlet import Flusher, Outlet
from infobus.bus.subscription import Subscription
from infobus.bus.transactions import Draft, TransactionBlock
from infobus.errors import Backpressure, UsageError
from infobus.objects import DataObject, codec, id_of, identify, runs, spelled
from infobus.objects.codec import encode_event
from infobus.protocols import groups
from infobus.protocols.groups import Group
from infobus.protocols.wire import Item, Items
from infobus.subjects import TEST_SPACE, check_subject

_CHUNK_COUNT = 1024  # events that `publish_many` looks at together
_RUN_BODY_BYTES_MAX = 256  # larger ones gain little from that

log = logging.getLogger("infobus")

Keep = Callable[[Sequence[Any], Iterable[int]], tuple[str, int]]
"""Puts records of events on disk; which ledger keeps them, and the number of the first."""

Quality = Literal["reliable", "best_effort"]


class Publisher(Decider):
    """What a `Bus` is to those who publish."""

    def __init__(
        self, hub: Hub, flusher: Flusher, send_timeout_s: float, test: bool, keep: Keep
    ) -> None:
        super().__init__(hub, flusher, send_timeout_s)
        self.test = test  # a program under development
        self._keep = keep
        self._numbers = itertools.count()
        self._unpublished = 0  # numbers that were taken for something else
        self._epochs = itertools.count(1)  # of transactions

    def publish(
        self,
        subject: str,
        obj: Any,
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
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

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            BadValue: The object cannot be sent; nothing was.
            Backpressure: Receivers did not keep up for `send_timeout_s`; nothing of this
                object was sent, so trying again later is safe.
            StoreFull: Only with `guaranteed`; nothing was kept or sent, try again later.
            BusClosed: The bus was closed, or belongs to the parent of a forked process.
        """
        if guaranteed:
            self._publish_guaranteed([(subject, obj)], test)
            return
        if test or self.test:
            subject = self._test_subject(subject)
        decision = self._decisions.get(subject)
        if decision is None:
            decision = self._decide(subject)
        outlet, wanted, here = decision
        if wanted is not True or here is not NOBODY or quality != "reliable" or not quench:
            self._publish(subject, obj, quality, False, quench)
            return
        assert outlet is not None
        # The usual case, in as few steps as possible.
        if self._flusher.gathering is not outlet:
            self._flusher.make_way_for(outlet)
        number = next(self._numbers)
        fingerprint, body, types, object_id = encode_event(obj, (self.node, number))
        item = (subject, number, time.time(), fingerprint, body, object_id)
        outlet.send(item, len(body), types, False)

    def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
    ) -> None:
        """Publish (subject, object) pairs in order, gathered into few frames.

        The same promise as `publish` for each of them. An error leaves those before it sent;
        with `guaranteed`, an error means that none was kept or sent.
        """
        if guaranteed:
            self._publish_guaranteed(list(events), test)
            return
        if test or self.test:
            events = ((self._test_subject(subject), obj) for subject, obj in events)
        used: set[Outlet | None] = set()
        try:
            for chunk in _chunks(events):
                outlet = self._publish_run(chunk) if quality == "reliable" and quench else None
                used.add(outlet)
                if outlet is None:
                    for subject, obj in chunk:
                        used.add(self._publish(subject, obj, quality, True, quench))
        finally:
            for outlet in used:  # no others: they may have to wait for receivers of their own
                if outlet is not None:
                    outlet.flush()

    def _publish_guaranteed(self, events: list[tuple[str, Any]], test: bool) -> None:
        """Keep events in the ledger, then send them to whoever listens now."""
        from infobus.bus.keeping import records_of  # late: most programs keep nothing

        test = test or self.test
        records, types = records_of(events, time.time(), test=test)
        if not records:
            return
        ledger, first = self._keep(records, types)
        for number, (_, obj) in enumerate(events, first):
            if isinstance(obj, DataObject):
                identify(obj, (ledger, number))
        if not test and self._are_unheard(events):
            return
        try:
            self.publish_many(events, test=test)
        except Backpressure as error:  # durable consumers get them all the same
            log.warning("guaranteed events are kept, but not sent to others: %s", error)

    def _are_unheard(self, events: list[tuple[str, Any]]) -> bool:
        """Whether it is known that nobody listens; then they are counted, and done with."""
        if any(self._decisions.get(subject) is not UNWANTED for subject, _ in events):
            return False
        self._hub.counters.quenched += len([*islice(self._numbers, len(events))])
        return True

    def _publish_run(self, chunk: list[tuple[str, Any]]) -> Outlet | None:
        """Publish alike events for one channel together; None if they must go singly."""
        outlet = None
        try:
            subjects, objects = zip(*chunk, strict=True)
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
        runs.identify(objects, zip(repeat(self.node), numbers))
        if numbers[-1] - numbers[0] == count - 1:  # else another thread publishes, too
            numbers = numbers[:1]
        names = list(subjects) if len(different) > 1 else [subjects[0]]
        items = Items(names, numbers, [time.time()] * count, [fingerprint], bodies)
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
            if outlet.is_full() or any(subscription.is_holding for subscription in takers):
                return False
            self._publish(subject, obj, quality, True)
            outlet.ask_flush()
            return True
        finally:
            outlet.lock.release()

    def transaction(self, *, test: bool = False, guaranteed: bool = False) -> TransactionBlock:
        """Publish several events as one: `with bus.transaction() as tx: tx.publish(...)`.

        Each subscription gets all of them that it asked for, in order and as one event (whose
        `data` is a `Transaction`), or none. They leave when the block ends; if it ends by an
        exception, nothing was sent. They may have different subjects; if any of them is wanted
        somewhere, all of them go there. With `guaranteed`, durable consumers get it, too.
        """
        space = TEST_SPACE if test or self.test else ""
        return TransactionBlock(self._publish_group, space, guaranteed)

    def flush(self) -> None:
        """Send now what was gathered for batching."""
        if self._closed is not None:
            raise self._closed
        for outlet in list(self._outlets.values()):
            outlet.flush()

    def _publish(
        self, subject: str, obj: Any, quality: Quality, gather: bool, quench: bool = True
    ) -> Outlet | None:
        """Publish one event; its way out is returned, None if nobody wants it."""
        if quality != "reliable" and quality != "best_effort":
            raise UsageError(f"quality={quality!r}: expected 'reliable' or 'best_effort'")
        outlet, wanted, here = self._decisions.get(subject) or self._decide(subject)
        if not quench:
            with self._hub.lock:
                outlet, wanted = self._outlet(self._channel(subject)), True
        is_wanted = wanted if isinstance(wanted, bool) else self._ask(wanted, obj)
        if outlet is None or not (is_wanted or here is not NOBODY):
            self._note_quenched(subject, obj)
            return None
        self._flusher.make_way_for(outlet)
        if here is NOBODY and quality == "reliable":
            item, types = self._wire_item(subject, obj)
            outlet.send(item, len(item[4]), types, gather)
            return outlet
        # Local events, and those told apart by their numbers alone, keep one order.
        with outlet.lock:
            with self._hub.lock:
                takers = here.takers(obj)
            if not (is_wanted or takers):
                self._note_quenched(subject, obj)
                return None
            item, types = self._wire_item(subject, obj)
            # In this order nothing was delivered if either half has no room in time.
            self._wait_for_consumers(takers)
            if self._closed is not None:
                raise self._closed
            if is_wanted and quality == "reliable":
                outlet.send(item, len(item[4]), types, gather)
            elif is_wanted:
                outlet.send_best_effort(item, types)
            if takers:
                self._deliver_here(outlet, item, takers, quality)
        return outlet

    def _publish_group(self, drafts: list[Draft], guaranteed: bool) -> None:
        """Publish a transaction: whole, on every channel where some of it is wanted."""
        is_test = drafts[0].subject.startswith(TEST_SPACE)
        self._unpublished += len(drafts) if is_test else 0
        now_s, numbers = time.time(), list(islice(self._numbers, len(drafts)))
        objects = [codec.decode(draft.type, draft.body) for draft in drafts]
        outlets: dict[Outlet, bool] = {}  # is it wanted elsewhere
        for draft, obj in zip(drafts, objects, strict=True):
            outlet, wanted, _ = self._decisions.get(draft.subject) or self._decide(draft.subject)
            if outlet is not None:
                is_wanted = wanted if isinstance(wanted, bool) else self._ask(wanted, obj)
                outlets[outlet] = outlets.get(outlet, False) or is_wanted
        items = [
            (draft.subject, number, now_s, draft.type, draft.body, self._identify(draft, number))
            for draft, number in zip(drafts, numbers, strict=True)
        ]
        types = tuple(dict.fromkeys(type_ for draft in drafts for type_ in draft.types))
        events, channels = Items.of(items), max(1, sum(outlets.values()))
        group = Group(numbers[0], next(self._epochs), channels, events, len(drafts))
        item = groups.item(drafts[0].subject, now_s, group)
        if guaranteed:
            from infobus.bus.keeping import record_of_group  # late: most programs keep nothing

            self._keep([record_of_group(group, self.node, now_s, test=is_test)], types)
        with ExitStack() as stack:
            for outlet in sorted(outlets, key=lambda outlet: outlet.channel):
                stack.enter_context(outlet.lock)
            with self._hub.lock:
                takers = self._hub.delivery.takers_of(events, objects)
            if not (takers or any(outlets.values())):
                if not is_test:
                    self._hub.counters.quenched += len(drafts)
                return
            # All must have room before any takes it, or some would get it and others not.
            for outlet, is_wanted in outlets.items():
                outlet.flush()
                if is_wanted and not outlet.route.has_room():
                    self._wait_for_room(outlet)
            self._wait_for_consumers(tuple(takers))
            for outlet, is_wanted in outlets.items():
                if is_wanted:
                    outlet.send(item, len(item[4]), types, False)
            self._deliver_group_here(next(iter(outlets)), item, takers)

    def _deliver_group_here(
        self, outlet: Outlet, item: tuple[Any, ...], takers: dict[Subscription, list[int]]
    ) -> None:
        run = Run(self.node, outlet.channel, [outlet.local_next], Items.of([item]))
        with self._hub.lock:
            for subscription, places in takers.items():
                self._hub.delivery.offer(subscription, run._replace(places=tuple(places)))
        outlet.local_next += bool(takers)

    def _identify(self, draft: Draft, number: int) -> str | None:
        """Give the object of a draft its id; one that it had before is returned."""
        if not isinstance(draft.obj, DataObject):
            return None
        named = identify(draft.obj, (self.node, number))
        return None if named == (self.node, number) else spelled(named)

    def _test_subject(self, subject: str) -> str:
        self._unpublished += 1  # test events are not counted
        return TEST_SPACE + subject

    def _note_quenched(self, subject: str, obj: Any) -> None:
        if not subject.startswith(TEST_SPACE):
            self._hub.counters.quenched += 1
        number = next(self._numbers)
        if isinstance(obj, DataObject):
            identify(obj, (self.node, number))

    def _wire_item(self, subject: str, obj: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        number = next(self._numbers)
        fingerprint, body, types, object_id = encode_event(obj, (self.node, number))
        return (subject, number, time.time(), fingerprint, body, object_id), types

    def _item(self, subject: str, obj: Any) -> tuple[Item, tuple[int, ...]]:
        """An event outside any route: initial state."""
        check_subject(subject)
        fingerprint, body, types = codec.encode(obj)
        number = next(self._numbers)
        self._unpublished += 1
        object_id = id_of(obj) if isinstance(obj, DataObject) else None
        return Item(subject, number, time.time(), fingerprint, body, object_id), types

    def _deliver_here(
        self,
        outlet: Outlet,
        item: tuple[Any, ...],
        takers: tuple[Subscription, ...],
        quality: Quality,
    ) -> None:
        seq = outlet.local_next if quality == "reliable" else 0
        run = Run(self.node, outlet.channel, [seq], Items.of([item]))
        with self._hub.lock:
            for subscription in takers:
                self._hub.delivery.offer(subscription, run)
        outlet.local_next += quality == "reliable"


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
