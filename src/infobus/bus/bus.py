"""The public face of a node: publish, subscribe, and what goes with them."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from infobus.bus.aio import AioBus
from infobus.bus.event import Event
from infobus.bus.hub import Hub
from infobus.bus.outlet import Flusher, Outlet
from infobus.bus.state import InitialState, StateFunction
from infobus.bus.stats import Stats, snapshot
from infobus.bus.subscription import OnLoss, Subscription, WhenFull
from infobus.engines.base import Engine
from infobus.errors import Backpressure, BusClosed, BusError, UsageError
from infobus.objects import DataObject, Type, all_types, codec, id_of, identify
from infobus.objects.codec import encode_event
from infobus.protocols.peers import Terms
from infobus.protocols.wire import Item, Items
from infobus.subjects import channel_key, channel_of, check_pattern, check_subject

log = logging.getLogger("infobus")

QUEUE_COUNT_MAX = 65_536
_DECISIONS_COUNT_MAX = 200_000

Quality = Literal["reliable", "best_effort"]
Decision = tuple[Outlet | None, bool, tuple[Subscription, ...]]  # way out, is it wanted there, here
_NOBODY: Decision = (None, False, ())


class Bus:
    """This process's node on the bus. Made by `infobus.connect`; use it as a context manager.

    All methods may be called from any thread. For `asyncio`, `bus.aio` holds an awaitable twin
    of each method that can wait, and subscriptions are async iterable.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        bus_name: str,
        home: Path,
        terms: Terms,
        flusher: Flusher,
        send_timeout_s: float,
    ) -> None:
        self.name = bus_name
        self.node = name
        self.home = home
        self.send_timeout_s = send_timeout_s
        self.aio = AioBus(self)
        self._hub = Hub(name, terms, engine)
        self._flusher = flusher
        self._outlets: dict[str, Outlet] = {}
        self._decisions: dict[str, Decision] = {}
        self._numbers = itertools.count()
        self._unpublished = 0  # numbers that were taken for something else
        self._state = InitialState(self._hub, self._outlets, self._outlet, self._item)
        self._closed: BusClosed | None = None
        self._hub.on_interest_changed = self._forget_decisions

    # Publishing.

    def publish(self, subject: str, obj: Any, *, quality: Quality = "reliable") -> None:
        """Send `obj` to everyone who has subscribed to `subject`.

        Returning means that the bus has taken the object over: subscribers running now get it
        in publication order, or are told what they missed. If nobody wants the subject, the
        object is neither encoded nor sent. With `quality="best_effort"` nothing is repaired
        and nothing reported.

        Args:
            subject: A full name such as `plant.line4.oven.temperature`, without wildcards.
            obj: A `DataObject`, or a dict with string keys (an untyped notification). It is
                copied before this returns; later changes to it are not sent.
            quality: `reliable` or `best_effort`.

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            BadValue: The object cannot be sent; nothing was.
            Backpressure: Receivers did not keep up for `send_timeout_s`; nothing of this
                object was sent, so trying again later is safe.
            BusClosed: The bus was closed, or belongs to the parent of a forked process.
        """
        decision = self._decisions.get(subject)
        if decision is None:
            decision = self._decide(subject)
        outlet, _, here = decision
        if outlet is None or here or quality != "reliable":
            self._publish(subject, obj, quality, False)
            return
        # The usual case, in as few steps as possible.
        if self._flusher.gathering is not outlet:
            self._flusher.make_way_for(outlet)
        number = next(self._numbers)
        fingerprint, body, types, object_id = encode_event(obj, (self.node, number))
        item = (subject, number, time.time(), fingerprint, body, object_id)
        outlet.send(item, len(body), types, False)

    def publish_many(
        self, events: Iterable[tuple[str, Any]], *, quality: Quality = "reliable"
    ) -> None:
        """Publish (subject, object) pairs in order, gathered into few frames.

        The same promise as `publish` for each of them. An error leaves those before it sent.
        """
        used: set[Outlet | None] = set()
        try:
            for subject, obj in events:
                used.add(self._publish(subject, obj, quality, True))
        finally:
            for outlet in used:  # no others: they may have to wait for receivers of their own
                if outlet is not None:
                    outlet.flush()

    def publish_nowait(self, subject: str, obj: Any, quality: Quality = "reliable") -> bool:
        """Publish unless that might have to wait; False if it might, and nothing was sent."""
        decision = self._decisions.get(subject) or self._decide(subject)
        outlet, _, here = decision
        if outlet is None:
            self._publish(subject, obj, quality, True)
            return True
        is_alone = self._flusher.gathering in (None, outlet)
        if quality != "reliable" or not is_alone or not outlet.lock.acquire(blocking=False):
            return False
        try:
            if outlet.is_full() or any(subscription.is_holding for subscription in here):
                return False
            self._publish(subject, obj, quality, True)
            outlet.ask_flush()
            return True
        finally:
            outlet.lock.release()

    def flush(self) -> None:
        """Send now what was gathered for batching."""
        if self._closed is not None:
            raise self._closed
        for outlet in list(self._outlets.values()):
            outlet.flush()

    def _publish(self, subject: str, obj: Any, quality: Quality, gather: bool) -> Outlet | None:
        """Publish one event; its way out is returned, None if nobody wants it."""
        if quality != "reliable" and quality != "best_effort":
            raise UsageError(f"quality={quality!r}: expected 'reliable' or 'best_effort'")
        decision = self._decisions.get(subject)
        if decision is None:
            decision = self._decide(subject)
        outlet, is_wanted_elsewhere, here = decision
        if outlet is None:
            self._hub.counters.quenched += 1
            number = next(self._numbers)
            if isinstance(obj, DataObject):
                identify(obj, (self.node, number))
            return None
        self._flusher.make_way_for(outlet)
        if here or quality == "best_effort":
            # Local events, and those told apart by their numbers alone, keep one order.
            with outlet.lock:
                item, types = self._wire_item(subject, obj)
                # In this order nothing was delivered if either half has no room in time.
                self._wait_for_consumers(here)
                if self._closed is not None:
                    raise self._closed
                if is_wanted_elsewhere and quality == "reliable":
                    outlet.send(item, len(item[4]), types, gather)
                elif is_wanted_elsewhere:
                    outlet.send_best_effort(item, types)
                if here:
                    self._deliver_here(outlet, item, here, quality)
        else:
            item, types = self._wire_item(subject, obj)
            outlet.send(item, len(item[4]), types, gather)
        return outlet

    def _wire_item(self, subject: str, obj: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        number = next(self._numbers)
        fingerprint, body, types, object_id = encode_event(obj, (self.node, number))
        return (subject, number, time.time(), fingerprint, body, object_id), types

    def _decide(self, subject: str) -> Decision:
        """Who wants `subject`, remembered until somebody's interest changes."""
        if self._closed is not None:
            raise self._closed
        check_subject(subject)
        hub = self._hub
        with hub.lock:
            here = hub.matching(subject)
            is_wanted_elsewhere = hub.node.rows.wants(subject)
            decision = _NOBODY
            channel = channel_of(subject, hub.node.terms.depth)
            if here or is_wanted_elsewhere:
                decision = (self._outlet(channel), is_wanted_elsewhere, here)
            else:
                hub.node.note_unwanted(channel)
            if len(self._decisions) >= _DECISIONS_COUNT_MAX:
                self._decisions.clear()
            self._decisions[subject] = decision
        return decision

    def _outlet(self, channel: str) -> Outlet:
        outlet = self._outlets.get(channel)
        if outlet is None:
            outlet = self._outlets[channel] = Outlet(
                self.node,
                channel,
                self._hub.node.route(channel, time.monotonic()),
                put=partial(self._hub.engine.put, channel_key(channel)),
                describe_types=codec.descriptors,
                wait_for_room=self._wait_for_room,
                flusher=self._flusher,
            )
        return outlet

    def _forget_decisions(self) -> None:
        if self._closed is None:
            self._decisions = {}

    def _item(self, subject: str, obj: Any) -> tuple[Item, tuple[int, ...]]:
        """An event outside any route: initial state."""
        check_subject(subject)
        fingerprint, body, types = codec.encode(obj)
        number = next(self._numbers)
        self._unpublished += 1
        object_id = id_of(obj) if isinstance(obj, DataObject) else None
        return Item(subject, number, time.time(), fingerprint, body, object_id), types

    def _wait_for_consumers(self, here: tuple[Subscription, ...]) -> None:
        hub = self._hub
        if not here:
            return
        with hub.changed:
            deadline_s = time.monotonic() + self.send_timeout_s
            while holding := [s for s in here if s.is_holding and not s.is_closed]:
                if self._closed is not None:
                    return
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not hub.changed.wait(left_s):
                    names = tuple(repr(subscription) for subscription in holding)
                    raise self._backpressure(names)

    def _deliver_here(
        self,
        outlet: Outlet,
        item: tuple[Any, ...],
        here: tuple[Subscription, ...],
        quality: Quality,
    ) -> None:
        seq = outlet.local_next if quality == "reliable" else 0
        with self._hub.lock:
            self._hub.offer(here, self.node, outlet.channel, seq, 0, Items.of([item]))
        outlet.local_next += quality == "reliable"

    def _wait_for_room(self, outlet: Outlet) -> None:
        route = outlet.route
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

    # Subscribing.

    def subscribe(
        self,
        pattern: str,
        callback: Callable[[Event], object] | None = None,
        *,
        on_loss: OnLoss = "raise",
        on_error: Callable[[BusError], object] | None = None,
        when_full: WhenFull = "pace",
        queue_count_max: int = QUEUE_COUNT_MAX,
        timeout_s: float = 2.0,
    ) -> Subscription:
        """Receive what is published under `pattern` from now on.

        Returning means that every live node this one can see knows of the subscription: what
        they publish after that is delivered in order, or reported as lost. Nodes that did not
        answer within `timeout_s` are named in a warning of the log.

        Args:
            pattern: `*` stands for one element, a last `>` for one or more.
            callback: Called with each event on a delivery thread, one event at a time. Without
                it, iterate over the subscription (also with `async for`).
            on_loss: What to do about events that can no longer be had. `ignore` it; `warn` in
                the log; `raise` a `LossError` once, from the iterator or to `on_error`, then
                go on; `quit`: close the subscription; `quit_and_recover`: start anew, with
                initial state from the producers (which is also asked for at the beginning).
            on_error: Called with errors that have no iterator to be raised from.
            when_full: What to do when the consumer falls behind. `pace` holds the senders for
                at most 2 s, then drops the oldest; `block` holds them for as long as it takes;
                `drop_oldest` drops at once; drops are reported as losses. `disconnect` closes
                the subscription with `SlowConsumer`.
            queue_count_max: How many events may wait (large ones count once more for every
                2 KiB); senders are held from half of it.
            timeout_s: How long to wait for the nodes' answers.
        """
        return self.subscribe_many(
            [pattern],
            callback,
            on_loss=on_loss,
            on_error=on_error,
            when_full=when_full,
            queue_count_max=queue_count_max,
            timeout_s=timeout_s,
        )

    def subscribe_many(
        self,
        patterns: Iterable[str],
        callback: Callable[[Event], object] | None = None,
        *,
        on_loss: OnLoss = "raise",
        on_error: Callable[[BusError], object] | None = None,
        when_full: WhenFull = "pace",
        queue_count_max: int = QUEUE_COUNT_MAX,
        timeout_s: float = 2.0,
    ) -> Subscription:
        """Receive what is published under any of `patterns`, as one subscription.

        As `subscribe`, with one round of messages for all patterns. An event that several of
        them match is delivered once.
        """
        if isinstance(patterns, str):
            raise UsageError(f"subscribe_many takes a list of patterns, got the str {patterns!r}")
        patterns = list(dict.fromkeys(patterns))
        if not patterns:
            raise UsageError("subscribe_many was given no pattern; give at least one")
        for pattern in patterns:
            check_pattern(pattern)
        if self._closed is not None:
            raise self._closed
        subscription = Subscription(
            self._hub,
            patterns,
            depth=self._hub.node.terms.depth,
            callback=callback,
            on_error=on_error,
            on_loss=on_loss,
            when_full=when_full,
            queue_count_max=queue_count_max,
        )
        silent = self._hub.subscribe(subscription, timeout_s)
        if silent:
            log.warning("%s: no answer in %s s from %s", subscription, timeout_s, ", ".join(silent))
        if on_loss == "quit_and_recover":
            self._state.start(subscription)
        return subscription

    def initial_state(self, pattern: str, function: StateFunction) -> None:
        """Give newcomers the present state of what this node publishes under `pattern`.

        `function` returns (subject, object) pairs. It is called between two publications,
        which wait for it: so it must neither publish, nor wait for a lock that is held by a
        thread which publishes. A subscription with
        `on_loss="quit_and_recover"` gets these first (marked `event.initial`), and then
        exactly the events that were published after the call.
        """
        check_pattern(pattern)
        if self._closed is not None:
            raise self._closed
        self._state.register(pattern, function)

    # The rest.

    def types(self, timeout_s: float = 1.0) -> list[Type]:
        """The types that any node on the bus knows of, this one included, by name."""
        self._hub.learn_types(timeout_s)
        return sorted(all_types(), key=lambda kind: kind.name)

    def stats(self) -> Stats:
        """What this node has done since it connected: an immutable snapshot."""
        frames = sum(outlet.frames for outlet in list(self._outlets.values()))
        published = next(self._numbers) - self._unpublished
        self._unpublished += 1
        return snapshot(self._hub, published, frames)

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what is gathered, wait (bounded) until receivers have confirmed it, and leave.

        Idempotent. Subscriptions end; what is in their queues can still be taken.
        """
        if self._closed is not None:
            return
        deadline_s = time.monotonic() + timeout_s
        why = BusClosed(f"this node's connection to the bus {self.name!r} was closed")
        self._end(why)
        self._hub.wake()  # publishers that wait for room now give up
        for outlet in list(self._outlets.values()):
            with outlet.lock:
                left_s = max(0.0, deadline_s - time.monotonic())
                if outlet.pending and not self._hub.wait_until(outlet.route.has_room, left_s):
                    names = ", ".join(outlet.route.lagging())
                    log.warning("closing without having sent everything: %s lag behind", names)
                outlet.close(why)
        self._flusher.stop()
        self._state.close()
        if not self._hub.confirm(max(0.0, deadline_s - time.monotonic())):
            log.warning(
                "closing although receivers have not confirmed everything in %s s", timeout_s
            )
        self._hub.close()

    def open(self, sync_timeout_s: float) -> None:
        """Join the bus: called once, by `connect`."""
        self._hub.open(sync_timeout_s)
        self._flusher.start()
        self._state.open()

    def abandon(self) -> None:
        """Become closed in a forked child, which must not use its parent's connection."""
        why = BusClosed(
            "this bus was connected before a fork and belongs to the parent process: connect "
            "again in the child, or start the child with the 'spawn' method"
        )
        self._end(why)
        self._hub.abandon(why)

    def _end(self, why: BusClosed) -> None:
        self._closed = why
        self._decisions = {}

    def __enter__(self) -> Bus:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Bus {self.name!r}: node {self.node}, {state}>"
