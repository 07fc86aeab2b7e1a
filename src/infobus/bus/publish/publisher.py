"""Publishing: three ways out of a node, for one event, for many, and for a group.

Each way asks `Routing` who wants the events, waits until there is room for them, and hands them to
an `Outlet` and to the subscriptions of this node. Guaranteed events are kept on disk first, and
then leave in the same ways.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from infobus.bus import stats
from infobus.bus.clock import Clock
from infobus.bus.deliver.audience import NOBODY
from infobus.bus.deliver.event import Run
from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.group import Departure, GroupWay
from infobus.bus.publish.node_policy import NodePolicy
from infobus.bus.publish.outlet import Flusher, Outlet
from infobus.bus.publish.routing import UNWANTED, Governed, Routing
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import Backpressure, UsageError
from infobus.headers import HeaderValue, with_headers
from infobus.headers import decode as decoded_headers
from infobus.headers import encode as header_bytes
from infobus.objects import DataObject, codec, id_of, identify, runs, spelled
from infobus.objects.codec import encode_event
from infobus.open_files import open_files_needed
from infobus.protocols.frames.lanes import class_in, lane_class, lane_key, lane_of
from infobus.protocols.frames.transactions import Group
from infobus.protocols.frames.wire import Item, Items, Qos
from infobus.protocols.qos.classes import check_positive
from infobus.security.event_marks import SEALED, SIGNED
from infobus.subjects import OWN, TEST_SPACE, check_publishable

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.deliver.protection import Level
    from infobus.bus.publish.event_keys import KeyedPublisher
    from infobus.bus.publish.transaction import Draft
    from infobus.protocols.tags.rules import TagRule
    from infobus.security.event_keys import EventKey, PublicEventKey

log = logging.getLogger("infobus")

_CHUNK_COUNT = 1024  # events that `many` looks at together
_RUN_BODY_BYTES_MAX = 256  # larger ones gain little from that

_first, _second = itemgetter(0), itemgetter(1)

Publication = tuple[str, Any] | tuple[str, Any, Mapping[str, HeaderValue] | None]
"""One of many events: its subject, its object, and headers of its own if it has some."""

MakeRecords = Callable[[], tuple[Sequence[Any], Mapping[int, bytes]]]
"""Returns the records of events, and the descriptors of types that they need.

The thread that does so may be another one that publishes at the same time.
"""

Keep = Callable[[MakeRecords], tuple[str, int]]
"""Puts records of events on disk; which ledger keeps them, and the number of the first."""

Quality = Literal["reliable", "best_effort"]


class Wish(Struct, frozen=True):
    """What a publisher asks for beyond the usual."""

    quality: Quality = "reliable"
    quench: bool = True  # do not send what nobody wants
    test: bool = False
    guaranteed: bool = False  # keep it on disk before it leaves
    class_: str = ""  # empty: the default class
    max_age: float = 0.0  # 0: no limit
    headers: bytes = b""
    reserved: int = 0  # the number of a reservation along paths


PLAIN = Wish()


class ProducerKeys(Struct, frozen=True):
    """The keys that a publisher names; see `Bus.publish`."""

    sign: str | EventKey | None = None
    seal_to: Collection[str | PublicEventKey] | None = None
    clear: Collection[str] = ()  # attributes that stay readable


class Publisher:
    """Sends what this node publishes to where it is wanted."""

    def __init__(
        self,
        runtime: Runtime,
        routing: Routing,
        flusher: Flusher,
        policy: NodePolicy,
        lifetime: Lifetime,
        clock: Clock,
        keep: Keep,
        bus_name: str,
        home: Path,
        *,
        test: bool,
    ) -> None:
        self.plain = Wish(test=True) if test else PLAIN  # what a publisher gets who asks nothing
        self._node = runtime.name
        self._runtime = runtime
        self._routing = routing
        self._groups = GroupWay(runtime, routing)
        self._decisions = routing.decisions
        self._flusher = flusher
        self._policy = policy
        self._lifetime = lifetime
        self._wall_s = clock.wall_s
        self._keep = keep
        self._bus_name, self._home = bus_name, home
        self._numbers = stats.numbers()
        # Of these, counted right after they were taken:
        self._uncounted = stats.numbers()  # test events, state, the bus's own: not published
        self._quenched = stats.numbers()
        self._epochs = itertools.count(1)  # of transactions

    def wish(
        self,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> Wish:
        """What a publisher asks for, checked. What is guaranteed is always sent reliably."""
        if quality != "reliable" and quality != "best_effort":
            raise UsageError(f"quality={quality!r}: expected 'reliable' or 'best_effort'")
        check_positive("max_age", max_age, " of seconds")
        wish = Wish(
            quality="reliable" if guaranteed else quality,
            quench=quench or guaranteed,
            test=test or self.plain.test,
            guaranteed=guaranteed,
            class_=self._policy.lane_class(priority),
            max_age=max_age or 0.0,
            headers=header_bytes(headers),
        )
        return PLAIN if wish == PLAIN else wish

    def counts(self) -> tuple[int, int]:
        """How many events were published, and how many of these nobody wanted."""
        # In the opposite order of counting, or more might seem quenched than published.
        quenched, uncounted = stats.taken(self._quenched), stats.taken(self._uncounted)
        return stats.taken(self._numbers) - uncounted, quenched

    # One event.

    def one(
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
        headers: Mapping[str, HeaderValue] | None = None,
        sign: str | EventKey | None = None,
        seal_to: Collection[str | PublicEventKey] | None = None,
        clear: Collection[str] = (),
    ) -> None:
        """Publish one event; see `Bus.publish`, of which this is the implementation."""
        if (
            test
            or guaranteed
            or not quench
            or priority is not None
            or max_age is not None
            or headers is not None
            or quality != "reliable"
            or sign is not None
            or seal_to is not None
            or clear
            or self.plain is not PLAIN
        ):
            wish = self.wish(quality, quench, test, guaranteed, priority, max_age, headers)
            if sign is None and seal_to is None and not clear:
                self._one(subject, obj, wish)
            else:
                keys = ProducerKeys(sign, seal_to, clear)
                self._one_with_keys(subject, obj, wish, keys)
            return
        # In as few steps as possible, the usual case before all others.
        try:
            outlet, wanted, here = self._decisions[subject]
        except (KeyError, TypeError):  # for the first time, or no subject at all
            outlet, wanted, here = self._routing.decide(subject)
        if wanted is True and here is NOBODY:
            assert outlet is not None
            gathering = self._flusher.gathering
            if gathering is not None and gathering is not outlet:
                self._flusher.make_way_for(outlet)
            number = next(self._numbers)
            fingerprint, body, types, object_id = encode_event(obj, self._node, number)
            item = Item(subject, number, self._wall_s(), fingerprint, body, object_id)
            outlet.send(item, len(body), types, False)
        elif wanted is False and here is NOBODY:
            self._note_quenched(subject, obj)
        else:
            self._send(subject, obj, PLAIN, False)

    @cached_property
    def _keyed(self) -> KeyedPublisher:
        from infobus.bus.publish.event_keys import KeyedPublisher  # late: few events have keys

        return KeyedPublisher(self._bus_name, self._home, self._wall_s)

    def _one_with_keys(self, subject: str, obj: Any, wish: Wish, keys: ProducerKeys) -> None:
        """Publish one event signed or sealed, unless it is known that nobody wants it."""
        place = TEST_SPACE + subject if wish.test else subject
        lane = lane_of(place, wish.class_)
        if wish.quench and not wish.guaranteed and self._decisions.get(lane) is UNWANTED:
            self._note_quenched(place, obj)
            return
        made, headers = self._keyed.prepared(place, obj, decoded_headers(wish.headers), keys)
        self._one(subject, made, replace(wish, headers=header_bytes(headers)))
        if made is not obj and isinstance(obj, DataObject) and (name := id_of(made)) is not None:
            identify(obj, name)

    def _one(self, subject: str, obj: Any, wish: Wish) -> None:
        """Publish one event about which something is unusual."""
        if wish.guaranteed:
            rules = self._routing.rules
            if rules is not None and (rule := rules.of(subject)) is not None:
                wish = self._as_tagged(wish, rule)
            if self._runtime.protection is not None:
                [(_, obj, *own)] = self._kept_as_asked([(subject, obj)], wish)
                wish = replace(wish, headers=header_bytes(own[0])) if own else wish
            if not self._keep_events([(subject, obj)], wish):
                return
        leave = partial(
            self._send, TEST_SPACE + subject if wish.test else subject, obj, wish, False
        )
        _to_listeners(leave) if wish.guaranteed else leave()

    def by_reservation(self, number: int, subject: str, obj: Any, **options: Any) -> None:
        """Publish one event by a reservation along paths; the options are those of `one`."""
        wish = replace(self.wish(**options), reserved=number)
        if wish.guaranteed:
            raise UsageError(
                "guaranteed events cross sites by the ledgers of routers, and need no reservation: "
                "publish them by the bus"
            )
        self._send(TEST_SPACE + subject if wish.test else subject, obj, wish, False)

    def one_nowait(self, subject: str, obj: Any) -> bool:
        """Publish one event unless that might have to wait; False if it might, and nothing was."""
        if self.plain is not PLAIN:
            return False
        obj = codec.carried(obj) if not isinstance(obj, DataObject) else obj
        outlet, wanted, here = self._decisions.get(subject) or self._routing.decide(subject)
        if isinstance(wanted, Governed):
            wanted.check(obj)
            if wanted.level is not None or self._as_tagged(PLAIN, wanted.rule) is not PLAIN:
                return False
        if outlet is None:
            self._note_quenched(subject, obj)
            return True
        is_alone = self._flusher.gathering in (None, outlet)
        if not is_alone or not outlet.lock.acquire(blocking=False):
            return False
        try:
            with self._runtime.lock:
                takers = here.takers(obj)
            if outlet.is_full() or any(subscription.holds_class("") for subscription in takers):
                return False
            self._send(subject, obj, PLAIN, True)
            outlet.ask_flush()
            return True
        finally:
            outlet.lock.release()

    def _send(self, subject: str, obj: Any, wish: Wish, gather: bool) -> Outlet | None:
        """Send one event of any kind; its way out is returned, None if nobody wants it."""
        if obj.__class__ is not dict and not hasattr(obj, "__bus_plan__"):
            obj = codec.carried(obj)
        routing, class_ = self._routing, wish.class_
        decision = self._decisions.get(lane_of(subject, class_)) or routing.decide(subject, class_)
        outlet, wanted, here = decision
        if isinstance(wanted, Governed):
            wanted.check(obj)
            if (tagged := self._as_tagged(wish, wanted.rule)) is not wish:
                return self._send(subject, obj, tagged, gather)
            if wanted.level is not None and (outlet is not None or not wish.quench):
                made, raised = self._raised(subject, obj, wish, wanted.level)
                if raised is not wish:
                    return self._send(subject, made, raised, gather)
            wanted = wanted.wanted
        if not wish.quench:
            outlet, wanted = routing.outlet_for(subject, class_), True
        if wish.reserved and outlet is not None:  # nothing that is not reserved holds it up
            outlet = routing.outlet_for(subject, self._policy.lane_class(routing.highest))
        seen = with_headers(obj, decoded_headers(wish.headers)) if wish.headers else obj
        is_wanted = wanted if isinstance(wanted, bool) else routing.ask(wanted, seen)
        if outlet is None or not (is_wanted or here is not NOBODY):
            self._note_quenched(subject, obj)
            return None
        if not class_:  # the order of different classes is of no interest
            self._flusher.make_way_for(outlet)
        is_reliable = wish.quality == "reliable"
        if here is NOBODY and is_reliable:
            item, types = self._item(subject, obj, self._qos(outlet, wish), wish.headers)
            outlet.send(item, len(item.body) + len(item.headers), types, gather)
            return outlet
        # Local events, and those told apart by their numbers alone, keep one order.
        with outlet.lock:
            with self._runtime.lock:
                takers = here.takers(seen)
            if not (is_wanted or takers):
                self._note_quenched(subject, obj)
                return None
            item, types = self._item(subject, obj, self._qos(outlet, wish), wish.headers)
            # In this order nothing was delivered if either half has no room in time.
            routing.wait_for_consumers(takers, class_)
            self._lifetime.check()
            if is_wanted and is_reliable:
                outlet.send(item, len(item.body) + len(item.headers), types, gather)
            elif is_wanted:
                outlet.send_best_effort(item, types)
            if takers:
                seq = outlet.local_next if is_reliable else 0
                run = self._run(outlet, item, seq)
                with self._runtime.lock:
                    for subscription in takers:
                        self._runtime.delivery.offer(subscription, run)
                outlet.local_next += is_reliable
        return outlet

    def _raised(self, subject: str, obj: Any, wish: Wish, level: Level) -> tuple[Any, Wish]:
        """An event and a wish as the policy asks; the same wish if it is as it must be."""
        headers = decoded_headers(wish.headers)
        if not level.lacks(headers):
            level.check_raised(subject, headers)
            return obj, wish
        keys = ProducerKeys(
            None if level.signers is None or SIGNED in headers else level.pairs[0],
            None if level.receivers is None or SEALED in headers else level.receivers,
        )
        obj, told = self._keyed.prepared(subject, obj, headers, keys)
        return obj, replace(wish, headers=header_bytes(told))

    def _kept_as_asked(self, events: Iterable[Publication], wish: Wish) -> Iterator[Publication]:
        """Events that are to be kept, protected as the policy asks; each with its headers."""
        protection = self._runtime.protection
        for subject, obj, *own in events:
            level = None if protection is None else protection.of(subject)
            if level is None:
                yield (subject, obj, *own)
                continue
            level.check_publisher(subject)
            one = replace(wish, headers=header_bytes(own[0])) if own else wish
            made, one = self._raised(TEST_SPACE * wish.test + subject, obj, one, level)
            yield subject, made, decoded_headers(one.headers)

    def _as_tagged(self, wish: Wish, rule: TagRule | None) -> Wish:
        """A wish with what a tag says for those who do not say."""
        if rule is None:
            return wish
        declared, classes = rule.declared, self._policy.classes
        is_known = declared.priority in classes.names
        class_ = wish.class_ or (lane_class(classes, declared.priority) if is_known else "")
        max_age = wish.max_age or declared.max_age
        if (class_, max_age) == (wish.class_, wish.max_age):
            return wish
        return replace(wish, class_=class_, max_age=max_age)

    def reserve_subject(self, subject: str) -> None:
        """Let this node publish under a subject of the bus's own, by `report`."""
        self._routing.own_subjects.add(subject)

    def report(self, subject: str, make: Callable[[], Any]) -> bool:
        """Publish what `make` returns, at best effort, if anybody may want it; never waits."""
        outlet, wanted, here = self._decisions.get(subject) or self._routing.decide(subject)
        if outlet is None:
            return False
        assert not isinstance(wanted, Governed), "no tag governs what is the bus's own"
        obj = make()
        is_wanted = wanted if isinstance(wanted, bool) else self._routing.ask(wanted, obj)
        item, types = self._item(subject, obj, None, b"")
        if is_wanted:
            frame = outlet.unnumbered(item, types)
            self._runtime.send([(lane_key(outlet.lane), frame, True, 0)])
        run = self._run(outlet, item, 0)
        with self._runtime.lock:
            for subscription in here.takers(obj):
                if not subscription.holds_class(""):
                    self._runtime.delivery.offer(subscription, run)
        return True

    # Many events.

    def many(
        self, events: Iterable[Publication], wish: Wish, keys: ProducerKeys | None = None
    ) -> None:
        """Publish events in order, gathered into few frames; see `Bus.publish_many`."""
        if keys is not None:
            headers = decoded_headers(wish.headers)
            space = TEST_SPACE if wish.test else ""
            events = self._keyed.prepared_many(events, headers, keys, space)
        if not wish.guaranteed:
            self._send_many(events, wish)
            return
        if self._runtime.protection is not None:
            events = self._kept_as_asked(events, wish)
        events = list(events)
        if events and self._keep_events(events, wish):
            _to_listeners(partial(self._send_many, events, wish))

    def _send_many(self, events: Iterable[Publication], wish: Wish) -> None:
        is_plain = replace(wish, guaranteed=False, test=False, headers=b"") == PLAIN
        if wish.test:
            events = _in_test_space(events)
        used: set[Outlet | None] = set()
        try:
            for chunk in _chunks(events):
                outlet = self._send_run(chunk, wish) if is_plain else None
                used.add(outlet)
                if outlet is None:
                    for subject, obj, *own in chunk:
                        one = replace(wish, headers=header_bytes(own[0])) if own else wish
                        used.add(self._send(subject, obj, one, True))
        finally:
            with ExitStack() as stack:  # one that has no room in time keeps no other from leaving
                for outlet in used:  # no others: they may have to wait for receivers of their own
                    if outlet is not None:
                        stack.callback(outlet.flush)

    def _send_run(self, chunk: list[Publication], wish: Wish) -> Outlet | None:
        """Send alike events for one channel together; None if they must go singly."""
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
        numbers = self._take_numbers(count, subjects[0])  # they are one channel, so alike
        runs.identify(objects, self._node, numbers)
        if numbers[-1] - numbers[0] == count - 1:  # else another thread publishes, too
            numbers = numbers[:1]
        names = subjects if len(different) > 1 else subjects[:1]
        qos: list[Qos | None] = [Qos(kept=True)] if wish.guaranteed else []
        told = [wish.headers] if wish.headers else []
        items = Items(names, numbers, [self._wall_s()], [fingerprint], bodies, {}, qos, told)
        self._flusher.make_way_for(outlet)
        outlet.send_run(items, sum(map(len, bodies)) + len(wish.headers), types)
        return outlet

    # A group: a transaction.

    def group(self, drafts: list[Draft], wish: Wish) -> None:
        """Publish a transaction: whole, on every channel where some of it is wanted."""
        now_s, numbers = self._wall_s(), self._take_numbers(len(drafts), drafts[0].subject)
        objects = [
            with_headers(codec.decode(draft.type, draft.body), decoded_headers(draft.headers))
            for draft in drafts
        ]

        def check(rule: TagRule | None, at: int) -> None:
            if rule is not None:
                rule.check(drafts[at].obj)

        subjects = [draft.subject for draft in drafts]
        outlets = self._groups.outlets(subjects, objects, wish.class_, check)
        items = [
            Item(
                draft.subject,
                number,
                now_s,
                draft.type,
                draft.body,
                self._name(draft, number),
                headers=draft.headers,
            )
            for draft, number in zip(drafts, numbers, strict=True)
        ]
        types = tuple(dict.fromkeys(type_ for draft in drafts for type_ in draft.types))
        channels = max(1, sum(outlets.values()))
        group = Group(numbers[0], next(self._epochs), channels, Items.of(items), len(drafts))

        def marked(item: Item, outlet: Outlet) -> Item:
            return replace(item, qos=self._qos(outlet, wish))

        departure = Departure(group, now_s, wish.class_, objects, types, check, marked)
        if wish.guaranteed:
            self._keep_group(group, now_s, types, wish)
            _to_listeners(partial(self._leave_group, departure, wish))
        else:
            self._leave_group(departure, wish)

    def _leave_group(self, departure: Departure, wish: Wish) -> None:
        if not (self._groups.leave(departure) or wish.test):
            stats.skip(self._quenched, departure.group.count)

    def _name(self, draft: Draft, number: int) -> str | None:
        """Give the object of a draft its id; one that it had before is returned."""
        if not isinstance(draft.obj, DataObject):
            return None
        named = identify(draft.obj, (self._node, number))
        return None if named == (self._node, number) else spelled(named)

    # Guaranteed events, before they leave.

    @open_files_needed()
    def _keep_events(self, events: list[Publication], wish: Wish) -> bool:
        """Put events on disk; False if it is known that nobody listens to them now."""
        if (guard := self._runtime.guard) is not None:
            for event in events:
                if event[0] not in self._routing.own_subjects:
                    guard.check_publish(event[0])
        if not all(isinstance(event[1], (DataObject, dict)) for event in events):
            events[:] = [(event[0], codec.carried(event[1]), *event[2:]) for event in events]
        if (rules := self._routing.rules) is not None:
            for event in events:
                if (rule := self._routing.rule(rules, event[0])) is not None:
                    rule.check(event[1])
        from infobus.bus.publish.records import records_of  # late: most programs keep nothing

        now_s = self._wall_s()
        expires_s = now_s + wish.max_age if wish.max_age else None
        class_ = wish.class_ or self._policy.classes.default
        about = (now_s, wish.test, expires_s, class_, wish.headers, self._routing.own_subjects)
        make = partial(records_of, events, *about)
        ledger, first = self._keep(make)
        for number, event in enumerate(events, first):
            if isinstance(event[1], DataObject):
                identify(event[1], (ledger, number))
        if wish.test:
            return True
        for event in events:
            if self._decisions.get(event[0]) is not UNWANTED:
                return True
        stats.skip(self._numbers, len(events))
        stats.skip(self._quenched, len(events))
        return False

    @open_files_needed()
    def _keep_group(self, group: Group, now_s: float, types: tuple[int, ...], wish: Wish) -> None:
        from infobus.bus.publish.records import descriptors_of, record_of_group  # late: as above

        record = record_of_group(
            group,
            self._node,
            now_s,
            test=wish.test,
            expires=now_s + wish.max_age if wish.max_age else None,
            priority=wish.class_ or self._policy.classes.default,
        )
        self._keep(lambda: ([record], descriptors_of(types)))

    # What they share.

    def state_item(self, subject: str, obj: Any) -> tuple[Item, tuple[int, ...]]:
        """An event outside any route: initial state."""
        check_publishable(subject)
        fingerprint, body, types = codec.encode(obj)
        number = next(self._numbers)
        next(self._uncounted)
        object_id = id_of(obj) if isinstance(obj, DataObject) else None
        return Item(subject, number, self._wall_s(), fingerprint, body, object_id), types

    def _item(
        self, subject: str, obj: Any, qos: Qos | None, headers: bytes
    ) -> tuple[Item, tuple[int, ...]]:
        number = next(self._numbers)
        if subject[:1] == OWN:
            next(self._uncounted)
        fingerprint, body, types, object_id = encode_event(obj, self._node, number)
        now_s = self._wall_s()
        return Item(subject, number, now_s, fingerprint, body, object_id, qos, headers), types

    def _qos(self, outlet: Outlet, wish: Wish) -> Qos | None:
        """What is said of an event beside its lane; None if that is nothing."""
        class_ = ""
        if class_in(outlet.lane) != wish.class_:  # some consumer asked for a higher one
            class_ = wish.class_ or self._policy.classes.default
        if not (class_ or wish.max_age or wish.guaranteed or wish.reserved):
            return None
        return Qos(wish.max_age, class_, kept=wish.guaranteed, reserved=wish.reserved)

    def _take_numbers(self, count: int, subject: str) -> list[int]:
        numbers = list(islice(self._numbers, count))
        if subject[:1] == OWN:
            stats.skip(self._uncounted, count)
        return numbers

    def _note_quenched(self, subject: str, obj: Any) -> None:
        number = next(self._numbers)
        next(self._uncounted if subject[:1] == OWN else self._quenched)
        if isinstance(obj, DataObject):
            identify(obj, (self._node, number))

    def _run(self, outlet: Outlet, item: Item, seq: int) -> Run:
        """An event on its way to subscriptions of this node."""
        items, class_ = Items.of([item]), class_in(outlet.lane)
        principal = self._runtime.delivery.principal
        return Run(self._node, outlet.lane, [seq], items, class_=class_, principal=principal)


def _to_listeners(leave: Callable[[], object]) -> None:
    """Send events that are kept: plain subscribers may miss them, durable consumers do not."""
    try:
        leave()
    except Backpressure as error:
        log.warning("guaranteed events are kept, but not sent to others: %s", error)


def _in_test_space(events: Iterable[Publication]) -> Iterator[Publication]:
    for subject, *rest in events:
        yield (TEST_SPACE + subject, *rest)


def _chunks(events: Iterable[Publication]) -> Iterator[list[Publication]]:
    events = iter(events)
    while True:
        chunk: list[Publication] = []
        try:
            chunk.extend(islice(events, _CHUNK_COUNT))
        except BaseException:
            yield chunk  # what came before the error is published
            raise
        if not chunk:
            return
        yield chunk
