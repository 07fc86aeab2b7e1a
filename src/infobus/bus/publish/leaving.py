"""How one event, or one transaction, leaves: here, elsewhere, or both; in its class, in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from infobus.bus import stats
from infobus.bus.deliver.audience import NOBODY
from infobus.bus.deliver.event import Run
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Flusher, Outlet
from infobus.bus.publish.routing import Decider
from infobus.bus.publish.transaction import Draft
from infobus.bus.runtime.runtime import Hub
from infobus.errors import UsageError
from infobus.objects import DataObject, codec, id_of, identify, spelled
from infobus.objects.codec import encode_event
from infobus.protocols.frames import transactions
from infobus.protocols.frames.lanes import class_in, lane_class, lane_of
from infobus.protocols.frames.transactions import Group
from infobus.protocols.frames.wire import Item, Items, Qos
from infobus.protocols.qos.classes import check_positive
from infobus.subjects import TEST_SPACE, check_subject

MakeRecords = Callable[[], tuple[Sequence[Any], Mapping[int, bytes]]]
"""Returns the records of events, and the descriptors of types that they need.

The thread that does so may be another one that publishes at the same time.
"""

Keep = Callable[[MakeRecords], tuple[str, int]]
"""Puts records of events on disk; which ledger keeps them, and the number of the first."""

Quality = Literal["reliable", "best_effort"]


class Wish(NamedTuple):
    """What a publisher asks for beyond the usual."""

    class_: str = ""  # empty: the default class
    max_age: float = 0.0  # 0: no limit
    kept: bool = False  # it is in a ledger already


PLAIN = Wish()


class Sending(Decider):
    """Sends single events and transactions to where they are wanted."""

    def __init__(self, hub: Hub, flusher: Flusher, send_timeout_s: float, keep: Keep) -> None:
        super().__init__(hub, flusher, send_timeout_s)
        self._keep = keep
        self._numbers = stats.numbers()
        # Of these, counted right after they were taken:
        self._uncounted = stats.numbers()  # test events, and state: not published
        self._quenched = stats.numbers()
        self._epochs = itertools.count(1)  # of transactions

    def _wish(self, priority: str | None, max_age: float | None) -> Wish:
        """What a publisher asks for, checked."""
        check_positive("max_age", max_age, " of seconds")
        class_ = lane_class(self._classes, priority) if priority is not None else ""
        return Wish(class_, max_age or 0.0)

    def _publish(
        self,
        subject: str,
        obj: Any,
        quality: Quality,
        gather: bool,
        quench: bool = True,
        wish: Wish = PLAIN,
    ) -> Outlet | None:
        """Publish one event; its way out is returned, None if nobody wants it."""
        if quality != "reliable" and quality != "best_effort":
            raise UsageError(f"quality={quality!r}: expected 'reliable' or 'best_effort'")
        key = lane_of(subject, wish.class_)
        outlet, wanted, here = self._decisions.get(key) or self._decide(subject, wish.class_)
        if not quench:
            with self._hub.lock:
                outlet, wanted = self._outlet(self._lane(subject, wish.class_)), True
        is_wanted = wanted if isinstance(wanted, bool) else self._ask(wanted, obj)
        if outlet is None or not (is_wanted or here is not NOBODY):
            self._note_quenched(subject, obj)
            return None
        if not wish.class_:  # the order of different classes is of no interest
            self._flusher.make_way_for(outlet)
        if here is NOBODY and quality == "reliable":
            item, types = self._wire_item(subject, obj, self._qos(outlet, wish))
            outlet.send(item, len(item.body), types, gather)
            return outlet
        # Local events, and those told apart by their numbers alone, keep one order.
        with outlet.lock:
            with self._hub.lock:
                takers = here.takers(obj)
            if not (is_wanted or takers):
                self._note_quenched(subject, obj)
                return None
            item, types = self._wire_item(subject, obj, self._qos(outlet, wish))
            # In this order nothing was delivered if either half has no room in time.
            self._wait_for_consumers(takers, wish.class_)
            if self._closed is not None:
                raise self._closed
            if is_wanted and quality == "reliable":
                outlet.send(item, len(item.body), types, gather)
            elif is_wanted:
                outlet.send_best_effort(item, types)
            if takers:
                self._deliver_here(outlet, item, takers, quality)
        return outlet

    def _qos(self, outlet: Outlet, wish: Wish) -> Qos | None:
        """What is said of an event beside its lane; None if that is nothing."""
        class_ = ""
        if class_in(outlet.lane) != wish.class_:  # some consumer asked for a higher one
            class_ = wish.class_ or self._classes.default
        if not (class_ or wish.max_age or wish.kept):
            return None
        return Qos(wish.max_age, class_, kept=wish.kept)

    def _publish_group(self, drafts: list[Draft], guaranteed: bool, wish: Wish) -> None:
        """Publish a transaction: whole, on every channel where some of it is wanted."""
        is_test = drafts[0].subject.startswith(TEST_SPACE)
        now_s, numbers = time.time(), list(islice(self._numbers, len(drafts)))
        if is_test:
            stats.skip(self._uncounted, len(drafts))
        objects = [codec.decode(draft.type, draft.body) for draft in drafts]
        outlets: dict[Outlet, bool] = {}  # is it wanted elsewhere
        for draft, obj in zip(drafts, objects, strict=True):
            key = lane_of(draft.subject, wish.class_)
            outlet, wanted, _ = self._decisions.get(key) or self._decide(draft.subject, wish.class_)
            if outlet is not None:
                is_wanted = wanted if isinstance(wanted, bool) else self._ask(wanted, obj)
                outlets[outlet] = outlets.get(outlet, False) or is_wanted
        items = [
            Item(draft.subject, number, now_s, draft.type, draft.body, self._name(draft, number))
            for draft, number in zip(drafts, numbers, strict=True)
        ]
        types = tuple(dict.fromkeys(type_ for draft in drafts for type_ in draft.types))
        events, channels = Items.of(items), max(1, sum(outlets.values()))
        group = Group(numbers[0], next(self._epochs), channels, events, len(drafts))
        item = transactions.item(drafts[0].subject, now_s, group)
        expires_s = now_s + wish.max_age if wish.max_age else None
        if guaranteed:
            from infobus.bus.durable.records import (  # late: few need it
                descriptors_of,
                record_of_group,
            )

            class_ = wish.class_ or self._classes.default
            record = record_of_group(
                group, self.node, now_s, test=is_test, expires=expires_s, priority=class_
            )
            self._keep(lambda: ([record], descriptors_of(types)))
            wish = wish._replace(kept=True)
        with ExitStack() as stack:
            for outlet in sorted(outlets, key=lambda outlet: outlet.lane):
                stack.enter_context(outlet.lock)
            with self._hub.lock:
                takers = self._hub.delivery.takers_of(events, objects)
            if not (takers or any(outlets.values())):
                if not is_test:
                    stats.skip(self._quenched, len(drafts))
                return
            # All must have room before any takes it, or some would get it and others not.
            for outlet, is_wanted in outlets.items():
                outlet.flush()
                if is_wanted and not outlet.route.has_room():
                    self._wait_for_room(outlet)
            self._wait_for_consumers(tuple(takers), wish.class_)
            for outlet, is_wanted in outlets.items():
                item = replace(item, qos=self._qos(outlet, wish))
                if is_wanted:
                    outlet.send(item, len(item.body), types, False)
            self._deliver_group_here(next(iter(outlets)), item, takers)

    def _deliver_group_here(
        self, outlet: Outlet, item: Item, takers: dict[Subscription, list[int]]
    ) -> None:
        class_, items = class_in(outlet.lane), Items.of([item])
        run = Run(self.node, outlet.lane, [outlet.local_next], items, class_=class_)
        with self._hub.lock:
            for subscription, places in takers.items():
                self._hub.delivery.offer(subscription, replace(run, places=tuple(places)))
        outlet.local_next += bool(takers)

    def _name(self, draft: Draft, number: int) -> str | None:
        """Give the object of a draft its id; one that it had before is returned."""
        if not isinstance(draft.obj, DataObject):
            return None
        named = identify(draft.obj, (self.node, number))
        return None if named == (self.node, number) else spelled(named)

    def _note_quenched(self, subject: str, obj: Any) -> None:
        number = next(self._numbers)
        next(self._uncounted if subject.startswith(TEST_SPACE) else self._quenched)
        if isinstance(obj, DataObject):
            identify(obj, (self.node, number))

    def _wire_item(self, subject: str, obj: Any, qos: Qos | None) -> tuple[Item, tuple[int, ...]]:
        number = next(self._numbers)
        if subject.startswith(TEST_SPACE):
            next(self._uncounted)
        fingerprint, body, types, object_id = encode_event(obj, self.node, number)
        return Item(subject, number, time.time(), fingerprint, body, object_id, qos), types

    def _item(self, subject: str, obj: Any) -> tuple[Item, tuple[int, ...]]:
        """An event outside any route: initial state."""
        check_subject(subject)
        fingerprint, body, types = codec.encode(obj)
        number = next(self._numbers)
        next(self._uncounted)
        object_id = id_of(obj) if isinstance(obj, DataObject) else None
        return Item(subject, number, time.time(), fingerprint, body, object_id), types

    def _deliver_here(
        self,
        outlet: Outlet,
        item: Item,
        takers: tuple[Subscription, ...],
        quality: Quality,
    ) -> None:
        seq = outlet.local_next if quality == "reliable" else 0
        class_ = class_in(outlet.lane)
        run = Run(self.node, outlet.lane, [seq], Items.of([item]), class_=class_)
        with self._hub.lock:
            for subscription in takers:
                self._hub.delivery.offer(subscription, run)
        outlet.local_next += quality == "reliable"
