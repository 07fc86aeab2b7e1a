"""Where events go: who wants them, by which outlet they leave, and whether there is room."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from infobus.bounds import Bounds
from infobus.bus.clock import Clock
from infobus.bus.deliver.audience import NOBODY, Audience
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.node_policy import NodePolicy
from infobus.bus.publish.outlet import Flusher, Outlet
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import Backpressure, BusError
from infobus.objects import codec
from infobus.patience import Patience
from infobus.protocols.frames.lanes import class_in, lane_class, lane_key, lane_of, urgency_of
from infobus.protocols.interest.peer_rows import Question, Wanted
from infobus.protocols.qos.classes import Upgrade
from infobus.subjects import TEST_SPACE, channel_of, check_publishable, check_subject

if TYPE_CHECKING:
    from infobus.bus.deliver.protection import Level
    from infobus.protocols.tags.rules import TagRule, TagRules


log = logging.getLogger("infobus")


class Governed(Struct, frozen=True):
    """What is wanted of a subject whose tag says what may be published there, and how."""

    rule: TagRule | None
    wanted: Wanted
    level: Level | None = None  # how its events must be protected

    def check(self, obj: Any) -> None:
        """Raise `BadValue` if a tag asks for objects of another type."""
        if self.rule is not None:
            self.rule.check(obj)


Decision = tuple[Outlet | None, Wanted | Governed, Audience]
"""Way out, whether it is wanted there, who wants it here."""
UNWANTED: Decision = (None, False, NOBODY)


def _always(obj: Any) -> bool:
    return True


class Routing:
    """Decides, subject by subject, where events go, and remembers it."""

    def __init__(
        self,
        runtime: Runtime,
        flusher: Flusher,
        policy: NodePolicy,
        lifetime: Lifetime,
        clock: Clock,
        patience: Patience,
        bounds: Bounds,
    ) -> None:
        self.send_timeout_s = patience.send_s
        self._decisions_count_max = bounds.decisions_count_max
        self.outlets: dict[str, Outlet] = {}  # by lane
        self.own_subjects: set[str] = set()  # of the bus, under which this node publishes
        self.decisions: dict[str, Decision] = {}  # by subject, and class if it has one
        self.rules: TagRules | None = None  # of the tags that concern this node
        self.note_use: Callable[[str, TagRule | None], None] = lambda subject, rule: None
        self._runtime = runtime
        self._flusher = flusher
        self._policy = policy
        self._lifetime = lifetime
        self._clock = clock
        self._asking = threading.Lock()

    def decide(self, subject: str, class_: str = "") -> Decision:
        """Who wants events of `subject` and a class; remembered until an interest changes.

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            QosRefused: The group's policy denies it, or asks for a protection that is impossible.
            NoRight: A tag does not let this program publish here.
            NotAllowed: The policy of the bus does not.
        """
        self._lifetime.check()
        check_subject(subject)
        name, rule = subject.removeprefix(TEST_SPACE), None
        if subject not in self.own_subjects:
            check_publishable(name)
            if self._runtime.guard is not None:
                self._runtime.guard.check_publish(subject)
            rule = None if self.rules is None else self.rule(self.rules, name)
        level = None
        if (protection := self._runtime.protection) is not None:
            level = protection.of(name)
            if level is not None:
                level.check_publisher(name)
        classes = self._policy.classes
        judged = self._policy.judge(subject, class_ or classes.default)
        runtime = self._runtime
        with runtime.lock:
            here = runtime.audiences.of(subject)
            wanted = runtime.node.wanted(subject, runtime.compiler.chars_at_once())
            runtime.compiler.note_asked()
            decision: Decision = UNWANTED
            if wanted is not False or here is not NOBODY:
                asked = lane_class(classes, runtime.node.requests.class_for(subject, judged))
                if asked != class_:
                    wanted = _always if wanted is True else wanted  # with a word on its own class
                decision = (self.outlet(self._lane(subject, asked)), wanted, here)
            else:
                runtime.node.note_unwanted(self._lane(subject, class_))
            if (rule is not None and not rule.is_silent) or level is not None:
                decision = (decision[0], Governed(rule, wanted, level), here)
            if len(self.decisions) >= self._decisions_count_max:
                self.decisions.clear()
            self.decisions[lane_of(subject, class_)] = decision
        return decision

    @property
    def highest(self) -> str:
        """The highest class."""
        return self._policy.classes.names[0]

    def rule(self, rules: TagRules, subject: str) -> TagRule | None:
        """What a tag says to this program as a publisher; `NoRight` if it may not be one."""
        rule = rules.of(subject)
        if rule is not None:
            rule.check_publisher(subject)
        self.note_use(subject, rule)
        return rule

    def forget(self) -> None:
        """Somebody's interest has changed: decide anew."""
        self.decisions.clear()

    def outlet_for(self, subject: str, class_: str) -> Outlet:
        """The way out of a subject's events, whether or not anyone wants them."""
        with self._runtime.lock:
            return self.outlet(self._lane(subject, class_))

    def _lane(self, subject: str, class_: str) -> str:
        return lane_of(channel_of(subject, self._runtime.node.terms.depth), class_)

    def outlet(self, lane: str) -> Outlet:
        """The way out of a lane. The caller holds the runtime's lock."""
        outlet = self.outlets.get(lane)
        if outlet is None:
            classes, class_ = self._policy.classes, class_in(lane)
            put = partial(self._runtime.engine.put, lane_key(lane))
            if urgency := urgency_of(classes, class_):
                put = partial(put, urgency=urgency)
            outlet = self.outlets[lane] = Outlet(
                self._runtime.name,
                lane,
                self._runtime.node.route(lane, self._clock.now_s()),
                put=put,
                describe_types=codec.descriptors,
                wait_for_room=self.wait_for_room,
                on_expired=self._runtime.expiry.note,
                flusher=self._flusher,
                clock=self._clock,
                upgrade=self._upgrade_of(class_),
            )
        return outlet

    def _upgrade_of(self, class_: str) -> Upgrade | None:
        """How events of a class are raised while they wait here; None: never."""
        classes = self._policy.classes
        rank = classes.rank(class_ or classes.default)
        return self._runtime.node.terms.upgrade if rank > classes.raised_rank else None

    def flush(self) -> None:
        """Send now what was gathered on any lane."""
        for outlet in list(self.outlets.values()):
            outlet.flush()

    def close(self, why: BusError, until_s: float) -> None:
        """Send what was gathered, as far as there is room in time, and take nothing more."""
        for outlet in list(self.outlets.values()):
            with outlet.lock:
                left_s = max(0.0, until_s - self._clock.now_s()) if outlet.is_gathering() else 0.0
                self._runtime.wait_until(outlet.route.has_room, left_s)
                outlet.close(why)
                if outlet.is_gathering():
                    names = ", ".join(outlet.route.lagging())
                    log.warning("closing without having sent everything: %s lag behind", names)

    def ask(self, question: Question, obj: Any) -> bool:
        """Whether any filter of other nodes wants an object."""
        with self._asking:  # a matcher is one thread's at a time
            return question(obj)

    def abandon(self) -> None:
        """Become usable in a forked child, where the parent's locks may be held for ever."""
        self._asking = threading.Lock()

    def wait_for_consumers(self, takers: tuple[Subscription, ...], class_: str) -> None:
        """Wait until all of these subscriptions have room for an event of a class.

        Raises:
            Backpressure: They did not have it in time.
        """
        if not any(one.holds_class(class_) for one in takers):
            return

        def holding() -> list[Subscription]:
            return [s for s in takers if s.holds_class(class_) and not s.is_closed]

        if not self._runtime.wait_until(
            lambda: self._lifetime.over is not None or not holding(), self.send_timeout_s
        ):
            raise self._backpressure(tuple(map(repr, holding())))

    def wait_for_room(self, outlet: Outlet) -> None:
        """Wait until the window of an outlet has room.

        Raises:
            Backpressure: Receivers did not confirm enough in time.
        """
        route = outlet.route
        outlet.note_held()
        self._runtime.wait_until(
            lambda: route.has_room() or self._lifetime.over is not None, self.send_timeout_s
        )
        self._lifetime.check()
        if not route.has_room():
            raise self._backpressure(tuple(route.lagging()))

    def _backpressure(self, waiting_for: tuple[str, ...]) -> Backpressure:
        return Backpressure(
            f"receivers did not keep up for {self.send_timeout_s} s: waiting for "
            f"{', '.join(waiting_for)}; nothing was sent, try again later",
            waiting_for=waiting_for,
        )
