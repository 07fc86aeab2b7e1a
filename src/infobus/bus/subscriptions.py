"""Subscribing: what a `Bus` does with those who want to receive events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from infobus.bus.deliver.audience import filter_of, patterns_of
from infobus.bus.deliver.event import Event
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import OnLoss, OnMismatch, Subscription, WhenFull
from infobus.bus.initial_state import InitialState
from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.node_policy import NodePolicy
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.tags.tags import Tags
from infobus.errors import BusError, QosRefused
from infobus.protocols.qos.classes import check_positive

if TYPE_CHECKING:
    from infobus.bus.deliver.event_keys import ConsumerKeys
    from infobus.filters import Filter

log = logging.getLogger("infobus")


def classes_in(type: Any) -> tuple[Any, ...]:
    """The classes that a consumer asks for, ready to be received; none for any."""
    if type is None:
        return ()
    from infobus.objects.payloads import wanted_classes  # late: most programs name none

    return wanted_classes(type)


class Subscriptions:
    """Makes the subscriptions of a node, within what its policy allows."""

    def __init__(
        self,
        runtime: Runtime,
        policy: NodePolicy,
        state: InitialState,
        lifetime: Lifetime,
        tags: Tags,
        *,
        test: bool,
    ) -> None:
        self._runtime = runtime
        self._policy = policy
        self._state = state
        self._lifetime = lifetime
        self._tags = tags
        self._test = test

    def subscribe(
        self,
        patterns: Iterable[str],
        callback: Callable[[Event], object] | None,
        *,
        where: str | Filter | None,
        test: bool,
        on_loss: OnLoss,
        on_mismatch: OnMismatch,
        on_error: Callable[[BusError], object] | None,
        when_full: WhenFull,
        queue_count_max: int,
        priority: str | None,
        max_age: float | None,
        max_rate: float | None,
        timeout_s: float,
        keys: ConsumerKeys | None = None,
        type: Any = None,
        narrow: bool = False,
    ) -> Subscription:
        """See `Bus.subscribe_many`."""
        patterns = patterns_of("subscribe_many", patterns)
        self._lifetime.check()
        if (guard := self._runtime.guard) is not None:
            patterns = guard.wanted(patterns, narrow)
            when_full = guard.when_full(patterns, when_full)
        self._tags.check_subscriber(patterns, timeout_s)
        subscription = Subscription(
            self._runtime,
            patterns,
            terms=self._runtime.node.terms,
            where=filter_of(where),
            test=test or self._test,
            demand=self._demand(patterns, priority, max_age, max_rate),
            callback=callback,
            on_error=on_error,
            on_loss=on_loss,
            on_mismatch=on_mismatch,
            when_full=when_full,
            queue_count_max=queue_count_max,
            clock=self._runtime.clock,
            keys=keys,
            wanted=classes_in(type),
        )
        subscription.is_narrow = narrow
        silent = self._runtime.subscribe(subscription, timeout_s)
        if silent:
            log.warning("%s: no answer in %s s from %s", subscription, timeout_s, ", ".join(silent))
        if on_loss == "quit_and_recover":
            self._state.start(subscription)
        return subscription

    def _demand(
        self,
        patterns: list[str],
        priority: str | None,
        max_age: float | None,
        max_rate: float | None,
    ) -> Demand:
        """What a consumer asks for, if the class has room, and the group's policy allows it."""
        check_positive("max_rate", max_rate, " of events a second")
        check_positive("max_age", max_age, " of seconds")
        classes = self._policy.classes
        self._policy.lane_class(priority)  # checks it
        own = priority or classes.default
        highest = min((self._policy.judge(one, own) for one in patterns), key=classes.rank)
        priority = highest if highest != own else priority
        with self._runtime.lock:
            full = self._runtime.crowd.held_by(priority) if priority is not None else None
        if full is not None:
            raise QosRefused(
                f"class {priority!r} takes no new subscription: {full!r} is above the watermark; "
                f"try again when fewer than {full.queue.low_count} of that class wait there"
            )
        return Demand(priority, max_age, max_rate)
