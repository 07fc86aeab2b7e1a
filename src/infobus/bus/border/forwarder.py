"""Sends the events of other buses on this one, unchanged.

Objects stay encoded unless a filter on this bus needs them. The events leave in the same way as
those that are published here: by the same decisions, lanes, windows and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infobus.bus.border.interior import Interior
from infobus.bus.deliver.event import Run, objects_of, seen_of
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.gather import ITEM_BYTES
from infobus.bus.publish.group import Departure, GroupWay
from infobus.bus.publish.outlet import Outlet
from infobus.bus.publish.routing import UNWANTED, Decision, Governed
from infobus.errors import (
    Backpressure,
    BadFrame,
    BadSubject,
    BadValue,
    NoRight,
    QosRefused,
    UsageError,
)
from infobus.objects import codec, find_type
from infobus.protocols.frames import transactions
from infobus.protocols.frames.lanes import class_in, lane_class, lane_of
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.frames.wire import Item, Items, Qos
from infobus.protocols.interest.peer_rows import Wanted
from infobus.protocols.reliable.effects import Lost
from infobus.subjects import channel_of

if TYPE_CHECKING:
    from infobus.protocols.tags.rules import TagRule

_FLAT_COUNT_MAX = 10_000  # types of which it is remembered whether they hold objects
_PLAIN = Qos()
_NOT_HERE = (BadSubject, BadValue, NoRight, QosRefused)
"""Why this bus does not take an event from any publisher."""


class Forwarder:
    """Sends events of other buses on this one; `but` is the subscription that never gets them."""

    def __init__(self, node: Interior, but: Subscription, frame_bytes: int) -> None:
        self.is_closed = False
        self._runtime, self._routing, self._lifetime = node.runtime, node.routing, node.lifetime
        self._but = but
        self._frame_bytes = frame_bytes
        self._groups = GroupWay(node.runtime, node.routing)
        self._classes = node.runtime.node.terms.classes
        self._flat: dict[int, bool] = {0: False}

    def send(self, items: Items, class_: str, reliable: bool) -> None:
        """See `Border.send`."""
        if None in (items.origins or [None]):
            raise UsageError("events that cross a border must say their origin; see `come_from`")
        self._lifetime.check()
        class_ = lane_class(self._classes, class_ or self._classes.default)
        start = 0
        for at in _groups_in(items):
            self._send_plain(items[start:at], class_, reliable)
            self._send_group(items[at : at + 1], class_)
            start = at + 1
        self._send_plain(items[start:] if start else items, class_, reliable)

    def lose(self, subject: str, class_: str, count: int) -> None:
        """See `Border.lose`."""
        class_ = lane_class(self._classes, class_ or self._classes.default)
        runtime, channel = self._runtime, channel_of(subject, self._runtime.node.terms.depth)
        with runtime.lock:
            here = [one for one in runtime.subscriptions if one.wants_lane(channel)]
            if not (
                runtime.node.rows.listeners(channel) or any(one is not self._but for one in here)
            ):
                return
        outlet = self._routing.outlet_for(subject, class_)
        with outlet.lock:
            self._patiently(partial(outlet.lose, count))
            first, outlet.local_next = outlet.local_next, outlet.local_next + count
            with runtime.lock:
                lost = Lost(runtime.name, outlet.lane, first, first + count - 1)
                runtime.report(lost, (outlet.lane,), but=self._but)

    # Events.

    def _send_plain(self, items: Items, class_: str, reliable: bool) -> None:
        for chunk in self._chunks(items):
            for outlet, places in self._parted(chunk, class_):
                part = chunk if len(places) == len(chunk) else chunk.at(places)
                with outlet.lock:
                    self._patiently(partial(self._leave, outlet, part, class_, reliable))

    def _chunks(self, items: Items) -> Iterator[Items]:
        """As much as one frame had better take, again and again."""
        count = len(items)
        size = sum(map(len, items.bodies)) + count * ITEM_BYTES
        step = max(1, self._frame_bytes * count // max(1, size))
        for at in range(0, count, step):
            yield items[at : at + step] if step < count else items

    def _parted(self, items: Items, class_: str) -> list[tuple[Outlet, Sequence[int]]]:
        """The ways out of events that anybody wants here, and which take each."""
        outlets = {subject: self._decision(subject, class_)[0] for subject in items.subjects}
        if len(set(outlets.values())) == 1:
            [outlet] = set(outlets.values())
            return [] if outlet is None else [(outlet, range(len(items)))]
        places: dict[Outlet, list[int]] = {}
        for at, subject in enumerate(items.each_subject()):
            if (outlet := outlets[subject]) is not None:
                places.setdefault(outlet, []).append(at)
        return list(places.items())

    def _decision(self, subject: str, class_: str) -> Decision:
        """Who wants events of a subject: nobody, if they must not be published here."""
        known = self._routing.decisions.get(lane_of(subject, class_))
        if known is not None:
            return known
        try:
            return self._routing.decide(subject, class_)
        except _NOT_HERE as error:
            self._runtime.counters.complain("border", str(error))
            return UNWANTED

    def _leave(self, outlet: Outlet, items: Items, class_: str, reliable: bool) -> None:
        """Send what is wanted of some events in one frame, and offer it here; all or nothing."""
        decisions = {subject: self._decision(subject, class_) for subject in items.subjects}
        items = self._fitting(items, decisions)
        if not items:
            return
        wanted, takers = self._who_wants(items, decisions)
        self._routing.wait_for_consumers(tuple(takers), class_)
        self._lifetime.check()
        items = self._in_class(items, class_, outlet)
        if wanted:
            part = items if len(wanted) == len(items) else items.at(wanted)
            if reliable:
                outlet.send_frame(part, self._types(part))
            else:
                for one in _by_origin(part):
                    outlet.send_frame_best_effort(one, self._types(one))
        if takers:
            self._offer(outlet, items, takers, reliable)

    def _fitting(self, items: Items, decisions: dict[str, Decision]) -> Items:
        """Those events that have the type of their tag."""
        levels = {
            subject: wanted.level
            for subject, (_, wanted, _) in decisions.items()
            if isinstance(wanted, Governed) and wanted.level is not None
        }
        if levels:
            bus = self._runtime.protection.bus if self._runtime.protection is not None else ""
            places = [
                at
                for at, item in enumerate(items)
                if (level := levels.get(item.subject)) is None or level.is_met_by(item, bus)
            ]
            if len(places) < len(items):
                what = "events are not protected as the policy asks: left out"
                self._runtime.counters.complain("border", what)
                items = items.at(places)
        rules = {
            subject: wanted.rule
            for subject, (_, wanted, _) in decisions.items()
            if isinstance(wanted, Governed) and wanted.rule is not None
        }
        if not rules:
            return items
        each = enumerate(zip(items.bodies, items.each_subject(), items.each_type(), strict=False))
        fitting = [
            at
            for at, (_, subject, type_) in each
            if subject not in rules or rules[subject].fits(type_)
        ]
        if len(fitting) == len(items):
            return items
        self._runtime.counters.complain(
            "border", "events have another type than their tag: left out"
        )
        return items.at(fitting)

    def _who_wants(
        self, items: Items, decisions: dict[str, Decision]
    ) -> tuple[Sequence[int], dict[Subscription, list[int]]]:
        """Which of some events other nodes want, and which each subscription of this node."""
        asked: dict[str, Wanted] = {}
        is_local = must_read = False
        for subject, (_, wanted, here) in decisions.items():
            asked[subject] = wanted.wanted if isinstance(wanted, Governed) else wanted
            must_read |= bool(here.sieves) or not isinstance(asked[subject], bool)
            is_local |= any(one is not self._but for one in here.always)
        if not (is_local or must_read):
            if len(asked) == 1:
                return (range(len(items)) if asked[items.subjects[0]] else ()), {}
            each = enumerate(items.each_subject())
            return [at for at, subject in each if asked[subject]], {}
        objects: Sequence[Any] = items.bodies  # whatever: nobody asks
        if must_read:
            run = Run(self._runtime.name, "", (0,) * len(items), items)
            objects = seen_of(items, objects_of(run, self._runtime.on_bad_object)[0])
        elsewhere: list[int] = []
        takers: dict[Subscription, list[int]] = {}
        for at, (subject, obj) in enumerate(zip(items.each_subject(), objects, strict=False)):
            if obj is None:  # it cannot be read
                continue
            question = asked[subject]
            if question if isinstance(question, bool) else self._routing.ask(question, obj):
                elsewhere.append(at)
            with self._runtime.lock:
                found = decisions[subject][2].takers(obj)
            for subscription in found:
                if subscription is not self._but:
                    takers.setdefault(subscription, []).append(at)
        return elsewhere, takers

    def _offer(
        self,
        outlet: Outlet,
        items: Items,
        takers: dict[Subscription, list[int]],
        reliable: bool,
    ) -> None:
        places = sorted({at for some in takers.values() for at in some})
        seqs = [0] * len(items)
        if reliable:
            for at in places:
                seqs[at] = outlet.local_next
                outlet.local_next += 1
        lane = outlet.lane
        run = Run(self._runtime.name, lane, seqs, items, class_=class_in(lane))
        if principal := self._runtime.delivery.principal:
            run = replace(run, principal=principal)
        with self._runtime.lock:
            for subscription, some in takers.items():
                part = run if len(some) == len(items) else run.at(some)
                self._runtime.delivery.offer(subscription, part)

    def _in_class(self, items: Items, class_: str, outlet: Outlet) -> Items:
        """Some events, as they say their class on the lane that a consumer has asked for."""
        if class_in(outlet.lane) == class_:
            return items
        own = class_ or self._classes.default
        qos = [
            one if one is not None and one.class_ else replace(one or _PLAIN, class_=own)
            for one in items.qos or [None]
        ]
        return replace(items, qos=qos)

    # Transactions.

    def _send_group(self, items: Items, class_: str) -> None:
        try:
            group = transactions.decode(items.bodies[0])
        except BadFrame as error:
            self._runtime.on_bad_object(self._runtime.name, error)
            return
        events = replace(group.events, origins=items.origins)
        self._wait_for_types(events)
        run = Run(self._runtime.name, "", (0,) * group.count, events)
        objects, are_whole = objects_of(run, self._runtime.on_bad_object)
        if not are_whole:
            return
        [sent] = items
        types = list(islice(events.each_type(), group.count))

        def check(rule: TagRule | None, at: int) -> None:
            if rule is not None and not rule.fits(types[at]):
                raise BadValue("a transaction has another type than a tag says: left out")

        def marked(item: Item, outlet: Outlet) -> Item:
            item = replace(item, qos=sent.qos, origin=sent.origin)
            return next(iter(self._in_class(Items.of([item]), class_, outlet)))

        departure = Departure(
            group,
            sent.time,
            class_,
            seen_of(events, objects),
            self._types(events),
            check,
            marked,
            but=self._but,
        )
        try:
            self._patiently(lambda: self._groups.leave(departure))
        except _NOT_HERE as error:
            self._runtime.counters.complain("border", str(error))

    # What they share.

    def _patiently(self, leave: Callable[[], object]) -> None:
        """Leave, however long there is no room; nobody is waited for who does not move."""
        while True:
            try:
                leave()
                return
            except Backpressure:
                if self.is_closed:
                    raise

    def _wait_for_types(self, items: Items) -> None:
        unknown = self._runtime.unknown_types
        if unknown and not unknown.isdisjoint(items.types):
            self._runtime.wait_for_types(items)

    def _types(self, items: Items) -> tuple[int, ...]:
        """All types that these objects need."""
        types = dict.fromkeys(items.types)
        if not all(map(self._is_flat, types)):
            types |= dict.fromkeys(codec.types_in(items.bodies))
        types.pop(0, None)
        return tuple(types)

    def _is_flat(self, fingerprint: int) -> bool:
        """Whether objects of a type hold no others."""
        known = self._flat.get(fingerprint)
        if known is None:
            if (found := find_type(fingerprint)) is None:
                return False
            if len(self._flat) >= _FLAT_COUNT_MAX:
                self._flat = {0: False}
            known = not any(attribute.kind.is_deep for attribute in found.attributes)
            self._flat[fingerprint] = known
        return known


def _groups_in(items: Items) -> list[int]:
    """The places of transactions among some events."""
    if GROUP not in items.types:
        return []
    types = zip(range(len(items)), items.each_type(), strict=False)
    return [at for at, type_ in types if type_ == GROUP]


def _by_origin(items: Items) -> Iterator[Items]:
    """Some events in order, parted where their origin changes."""
    if len(items.origins) < 2:
        yield items
        return
    start = 0
    for at in range(1, len(items) + 1):
        if at == len(items) or items.origins[at] != items.origins[start]:
            yield items[start:at]
            start = at
