"""From a frame to the queues: which subscriptions get which of its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infobus.bus.clock import SYSTEM_CLOCK, Clock
from infobus.bus.deliver.audience import NOBODY, Audience, Audiences
from infobus.bus.deliver.callbacks import Workers
from infobus.bus.deliver.event import OnBadObject, Run, objects_of, seen_of, weight_of
from infobus.bus.deliver.group_gate import GroupGate, Place
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.deliver.type_requests import TypeRequests
from infobus.bus.stats import Counters
from infobus.errors import BadFrame
from infobus.headers import readable
from infobus.printable import printable
from infobus.protocols.effects import ToAll
from infobus.protocols.frames import transactions, wire
from infobus.protocols.frames.lanes import MARK, class_in
from infobus.protocols.frames.transactions import GROUP, Copies
from infobus.protocols.frames.wire import Items
from infobus.protocols.reliable.effects import Effects
from infobus.subjects import OWN

if TYPE_CHECKING:
    from infobus.bus.deliver.protection import Level
    from infobus.bus.rights.guard import Guard
    from infobus.protocols.tags.rules import TagRule

LookAt = Callable[[Subscription, str, str, float], Effects]


class Delivery:
    """Fills the queues of the subscriptions. Everything here is called under the runtime's lock."""

    def __init__(
        self,
        name: str,
        counters: Counters,
        workers: Workers,
        types: TypeRequests,
        place: Place,
        *,
        look_at_crowded: LookAt,
        on_bad_object: OnBadObject,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.audiences = Audiences()
        self.classed: dict[Subscription, None] = {}  # those whose queue has classes
        self.late: Effects = []  # effects of dispatching, to be carried out after it
        self._copies = Copies()
        self.guard: Guard | None = None  # of a secured bus
        self.gate = GroupGate(
            place,
            lambda run: self._deliver_group(run, transactions.decode(run.items.bodies[0])),
            self._pass_on,
        )
        self._waiting_lanes = self.gate.lanes
        self.principal_of: Callable[[str], str] | None = None
        """Who is behind a node; None on an open bus."""
        self.principal = ""  # of this node
        self._name = name
        self._counters = counters
        self._workers = workers
        self._types = types
        self._look_at = look_at_crowded
        self._on_bad_object = on_bad_object
        self._now_s, self._wall_s = clock.now_s, clock.wall_s

    def dispatch(self, sender: str, lane: str, first: int, items: Items) -> None:
        """Hand events to the subscriptions that want them, whole runs at a time."""
        count = len(items.bodies)
        if lane[:1] != OWN:
            self._counters.received_events += count
        if not self._types.known.issuperset(items.types):
            self._ask_for_types(items)
        class_ = class_in(lane) if MARK in lane else ""
        seqs = range(first, first + count) if first else (0,) * count  # 0 for best effort
        principal = "" if self.principal_of is None else self.principal_of(sender)
        run = Run(sender, lane, seqs, items, False, True, (), class_, principal)
        if self.guard is not None:
            run = self._accepted(self.guard, run)
            if not run.items:
                return
            items = run.items
        if self._waiting_lanes and (sender, lane) in self._waiting_lanes:
            self.gate.hold(run)
        elif len(items.subjects) == 1 and GROUP not in items.types:
            self._deliver(self._audience(items.subjects[0]), run)
        else:
            self._pass_on(run)

    def _accepted(self, guard: Guard, run: Run) -> Run:
        """Those events of a run that their sender may publish, or order."""
        refused = {
            subject
            for subject in run.items.subjects
            if not guard.accepts_event(run.sender, subject)
        }
        if not refused:
            return run
        each = zip(run.items.each_subject(), run.items.each_type(), strict=False)
        places = [
            at
            for at, (subject, type_) in enumerate(islice(each, len(run.items)))
            if type_ == GROUP or subject not in refused  # of a group, what is in it counts
        ]
        self._counters.denied += len(run.items) - len(places)
        return run.at(places)

    def _is_accepted(self, sender: str, group: transactions.Group) -> bool:
        """Whether its sender may publish all of a transaction."""
        guard = self.guard
        if guard is None:
            return True
        if all(guard.accepts_event(sender, one) for one in dict.fromkeys(group.events.subjects)):
            return True
        self._counters.denied += group.count
        return False

    def _pass_on(self, run: Run) -> None:
        self._deliver_groups(run) if GROUP in run.items.types else self._deliver_run(run)

    def _deliver_groups(self, run: Run) -> None:
        """Deliver a run, some of which may be transactions."""
        for at, type_ in zip(range(len(run.items)), run.items.each_type(), strict=False):
            one = run.part(at, at + 1)
            if type_ != GROUP:
                self._deliver_run(one)
                continue
            self.gate.busy[run.sender, run.lane] = run.seqs[at]
            goes_on = self._take_group(one)
            del self.gate.busy[run.sender, run.lane]
            if not goes_on:
                self.gate.hold(run.part(at + 1, None))
                return

    def _ask_for_types(self, items: Items) -> None:
        for type_ in items.types:
            if type_ not in self._types.known and self._types.must_ask_for(type_, self._now_s()):
                self.late.append(ToAll(wire.WantTypes(self._name, [type_])))

    def _deliver_run(self, run: Run) -> None:
        subjects = run.items.subjects
        if not subjects:
            return
        start, audience = 0, self._audience(subjects[0])
        for at, subject in enumerate(subjects):
            found = self._audience(subject)
            if found != audience:
                self._deliver(audience, run.part(start, at))
                start, audience = at, found
        self._deliver(audience, run.part(start, None) if start else run)

    def _audience(self, subject: str) -> Audience:
        found = self.audiences.found.get(subject) or self.audiences.of_stranger(subject)
        if found is None:
            self._counters.bad_objects += 1
            return NOBODY
        return found

    def _deliver(self, audience: Audience, run: Run) -> None:
        if audience.rule is not None:
            run = self._fitting(audience.rule, run)
            if not run.items:
                return
        if audience.level is not None:
            run = self._protected(audience.level, run)
            if not run.items:
                return
        for subscription in audience.always:
            self.offer(subscription, run)
        if audience.keyed:
            self._deliver_claimed(audience.keyed, run)
        if not audience.sieves:
            return
        wanted: dict[Subscription, list[int]] = {}
        objects, _ = objects_of(run, self._on_bad_object)
        for at, obj in enumerate(seen_of(run.items, objects)):
            if obj is not None:
                for subscription in audience.sifted(obj):
                    wanted.setdefault(subscription, []).append(at)
        if not self._types.unknown.isdisjoint(run.items.types):
            # Those who ask for types decide for themselves, once these are known.
            for subscription in audience.undecided():
                wanted.pop(subscription, None)
                self.offer(subscription, replace(run, is_sifted=False))
        for subscription, places in wanted.items():
            self.offer(subscription, run if len(places) == len(objects) else run.at(places))

    def _deliver_claimed(self, keyed: tuple[Subscription, ...], run: Run) -> None:
        """Hand events to subscriptions with keys, which check them when they take them."""
        told = [readable(one) for one in islice(run.items.each_headers(), len(run.items))]
        for subscription in keyed:
            if (keys := subscription.keys) is not None:
                places = [at for at, headers in enumerate(told) if keys.claims(headers)]
                if places:
                    self.offer(subscription, run if len(places) == len(told) else run.at(places))

    def _fitting(self, rule: TagRule, run: Run) -> Run:
        """Those events of a run that have the type of their tag."""
        misfits = {type_ for type_ in run.items.types if not rule.fits(type_)}
        if not misfits:
            return run
        types = run.items.each_type()
        places = [
            at for at, type_ in enumerate(islice(types, len(run.items))) if type_ not in misfits
        ]
        self._counters.against_tags += len(run.items) - len(places)
        what = f"publishes another type than {printable(rule.declared.type)}"
        self._counters.complain(run.sender, f"{what} under tag {printable(rule.name)}: left out")
        return run.at(places)

    def _protected(self, level: Level, run: Run) -> Run:
        """Those events of a run that are protected as the policy asks."""
        bus = "" if self.audiences.protection is None else self.audiences.protection.bus
        places = [at for at, item in enumerate(run.items) if level.is_met_by(item, bus)]
        if len(places) == len(run.items):
            return run
        self._counters.unprotected += len(run.items) - len(places)
        subject = printable(run.items.subjects[0])
        what = f"publishes under {subject} without what the policy asks: left out"
        self._counters.complain(run.sender, what)
        return run.at(places)

    def _take_group(self, run: Run) -> bool:
        """Deliver a transaction, unless that was done; False: what follows on its lane waits."""
        try:
            group = transactions.decode(run.items.bodies[0])
        except BadFrame as error:
            self._on_bad_object(run.sender, error)
            return True
        if not self._is_accepted(run.sender, group):
            return True
        name = next(iter(run.items.each_first_sender(run.sender))), group.number
        if not self._copies.is_first(name[0], group):
            return self.gate.arrive_again(run, name)
        if not self.gate.arrive(run, name, group.places, self._now_s()):
            return False
        self._deliver_group(run, group)
        return True

    def _deliver_group(self, run: Run, group: transactions.Group) -> None:
        self._ask_for_types(group.events)
        inside = replace(group.events, origins=run.items.origins)
        inner = Run(run.sender, run.lane, (0,) * group.count, inside)
        objects = seen_of(group.events, objects_of(inner, self._on_bad_object)[0])
        for subscription, places in self.takers_of(group.events, objects).items():
            self.offer(subscription, replace(run, places=tuple(places)))

    def takers_of(self, items: Items, objects: Sequence[Any]) -> dict[Subscription, list[int]]:
        """Which of some events, as filters see them, each subscription wants, by their places."""
        wanted: dict[Subscription, list[int]] = {}
        for at, (subject, obj) in enumerate(zip(items.each_subject(), objects, strict=False)):
            audience = self.audiences.of_stranger(subject)
            if audience is not None and obj is not None and audience.level is None:
                for subscription in audience.takers(obj):
                    wanted.setdefault(subscription, []).append(at)
        return wanted

    def offer(self, subscription: Subscription, run: Run) -> None:
        """Put a run of events into the queue of a subscription."""
        queue = subscription.queue
        if queue.contained and not (run := queue.not_contained(run)).items:
            return
        if queue.staged is not None:
            queue.staged.append(run)
            queue.offered += weight_of(run.items)
        elif (
            queue.classed is not None or run.class_ or (run.items.qos and not run.items.is_plain())
        ):
            self._offer_by_class(subscription, run)
            return
        else:
            queue.offer(run)
            if subscription.callback is not None:
                self._workers.schedule(subscription)
        if queue.offered - queue.taken > queue.high_count:
            self.late += self._look_at(subscription, queue.default_class, run.lane, self._now_s())

    def _offer_by_class(self, subscription: Subscription, run: Run) -> None:
        self.classed[subscription] = None
        queue, now_s = subscription.queue, self._now_s()
        classes = queue.offer_by_class(run, now_s, self._wall_s())
        if subscription.callback is not None:
            self._workers.schedule(subscription)
        for class_ in classes:
            if queue.waiting_in(class_) > queue.high_count:
                self.late += self._look_at(subscription, class_, run.lane, now_s)
