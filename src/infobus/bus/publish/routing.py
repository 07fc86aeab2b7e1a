"""Who wants an event, and whether there is room for it: what publishing stands on."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from infobus.bus.deliver.audience import NOBODY, Audience
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Flusher, Outlet
from infobus.bus.runtime.runtime import Hub
from infobus.errors import Backpressure, BusClosed
from infobus.objects import codec
from infobus.protocols.frames.lanes import class_in, lane_class, lane_key, lane_of, urgency_of
from infobus.protocols.interest.peer_rows import Question, Wanted
from infobus.protocols.qos.classes import Upgrade
from infobus.subjects import channel_of, check_subject

if TYPE_CHECKING:
    from infobus.bus.qos_group import QosMember

_DECISIONS_COUNT_MAX = 200_000

Decision = tuple[Outlet | None, Wanted, Audience]  # way out, is it wanted there, who wants it here
UNWANTED: Decision = (None, False, NOBODY)


def _always(obj: Any) -> bool:
    return True


class Decider:
    """Decides, subject by subject, where events go, and remembers it."""

    def __init__(self, hub: Hub, flusher: Flusher, send_timeout_s: float) -> None:
        self.node = hub.name
        self.send_timeout_s = send_timeout_s
        self._hub = hub
        self._flusher = flusher
        self._classes = hub.node.terms.classes
        self._outlets: dict[str, Outlet] = {}  # by lane
        self._decisions: dict[str, Decision] = {}  # by subject, and class if it has one
        self._asking = threading.Lock()
        self._closed: BusClosed | None = None
        self._member: QosMember | None = None  # of a group whose policy is kept to
        hub.on_interest_changed = self._forget_decisions

    def _decide(self, subject: str, class_: str = "") -> Decision:
        """Who wants events of `subject` and a class; remembered until an interest changes."""
        if self._closed is not None:
            raise self._closed
        check_subject(subject)
        own = class_ or self._classes.default
        judged = self._member.judge(subject, own) if self._member is not None else own
        hub = self._hub
        with hub.lock:
            here = hub.audiences.of(subject)
            wanted = hub.node.wanted(subject)
            decision = UNWANTED
            if wanted is not False or here is not NOBODY:
                asked = lane_class(self._classes, hub.node.requests.class_for(subject, judged))
                if asked != class_:
                    wanted = _always if wanted is True else wanted  # with a word on its own class
                decision = (self._outlet(self._lane(subject, asked)), wanted, here)
            else:
                hub.node.note_unwanted(self._lane(subject, class_))
            if len(self._decisions) >= _DECISIONS_COUNT_MAX:
                self._decisions.clear()
            self._decisions[lane_of(subject, class_)] = decision
        return decision

    def _lane(self, subject: str, class_: str) -> str:
        return lane_of(channel_of(subject, self._hub.node.terms.depth), class_)

    def _outlet(self, lane: str) -> Outlet:
        outlet = self._outlets.get(lane)
        if outlet is None:
            put = partial(self._hub.engine.put, lane_key(lane))
            if urgency := urgency_of(self._classes, class_in(lane)):
                put = partial(put, urgency=urgency)
            outlet = self._outlets[lane] = Outlet(
                self.node,
                lane,
                self._hub.node.route(lane, time.monotonic()),
                put=put,
                describe_types=codec.descriptors,
                wait_for_room=self._wait_for_room,
                on_expired=self._hub.expiry.note,
                flusher=self._flusher,
                upgrade=self._upgrade_of(class_in(lane)),
            )
        return outlet

    def _upgrade_of(self, class_: str) -> Upgrade | None:
        """How events of a class are raised while they wait here; None: never."""
        rank = self._classes.rank(class_ or self._classes.default)
        return self._hub.node.terms.upgrade if rank > self._classes.raised_rank else None

    def _forget_decisions(self) -> None:
        if self._closed is None:
            self._decisions = {}

    def _ask(self, question: Question, obj: Any) -> bool:
        with self._asking:  # a matcher is one thread's at a time
            return question(obj)

    def _wait_for_consumers(self, takers: tuple[Subscription, ...], class_: str) -> None:
        hub = self._hub
        if not takers:
            return

        def holding() -> list[Subscription]:
            return [s for s in takers if s.holds_class(class_) and not s.is_closed]

        if not hub.wait_until(
            lambda: self._closed is not None or not holding(), self.send_timeout_s
        ):
            raise self._backpressure(tuple(map(repr, holding())))

    def _wait_for_room(self, outlet: Outlet) -> None:
        route = outlet.route
        outlet.note_held()
        self._hub.wait_until(
            lambda: route.has_room() or self._closed is not None, self.send_timeout_s
        )
        if self._closed is not None:
            raise self._closed
        if not route.has_room():
            raise self._backpressure(tuple(route.lagging()))

    def _backpressure(self, waiting_for: tuple[str, ...]) -> Backpressure:
        return Backpressure(
            f"receivers did not keep up for {self.send_timeout_s} s: waiting for "
            f"{', '.join(waiting_for)}; nothing was sent, try again later",
            waiting_for=waiting_for,
        )
