"""The public face of a node: publish, subscribe, and what goes with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

from infobus.bus.aio import AioBus
from infobus.bus.deliver.audience import filter_of, patterns_of, text_of
from infobus.bus.deliver.event import Event
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import OnLoss, Subscription, WhenFull
from infobus.bus.folders import ledgers_folder
from infobus.bus.initial_state import InitialState, StateFunction
from infobus.bus.publish.leaving import MakeRecords
from infobus.bus.publish.outlet import Flusher
from infobus.bus.publish.publisher import Publisher
from infobus.bus.runtime.runtime import Hub
from infobus.bus.services import ServiceMethods
from infobus.bus.stats import Stats, snapshot, taken
from infobus.engines.base import Engine
from infobus.errors import BusClosed, BusError, QosRefused, UsageError
from infobus.objects import Type, all_types
from infobus.protocols.qos.classes import Limits, check_positive
from infobus.protocols.reliable.peer import NO_LIMITS, Terms
from infobus.subjects import check_pattern, check_subject

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.durable.driver import Guarantees
    from infobus.bus.durable.subscription import Acknowledge, DurableEvent, DurableSubscription
    from infobus.bus.quench import Quench
    from infobus.filters import Filter

log = logging.getLogger("infobus")

QUEUE_COUNT_MAX = 65_536
DEAD_LETTERS = "dead_letters"
"""The first element of the subjects of dead letters; the durable name follows."""


class Bus(Publisher, ServiceMethods):
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
        test: bool,
        capacity: Limits = NO_LIMITS,
        group: str = "",
    ) -> None:
        hub = Hub(name, terms, engine)
        super().__init__(hub, flusher, send_timeout_s, test, self._keep_in_ledger, capacity)
        self._group = group
        self.name = bus_name
        self.home = home
        self._guarantees: Guarantees | None = None
        self._guaranteeing = threading.Lock()
        self._prepare_services()
        self.aio = AioBus(self)
        self._state = InitialState(self._hub, self._outlets, self._outlet, self._item)

    # Subscribing.

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callable[[Event], object] | None = None,
        *,
        where: str | Filter | None = None,
        test: bool = False,
        on_loss: OnLoss = "raise",
        on_error: Callable[[BusError], object] | None = None,
        when_full: WhenFull = "pace",
        queue_count_max: int = QUEUE_COUNT_MAX,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
        timeout_s: float = 2.0,
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callable[[DurableEvent], object] | None = None,
        *,
        durable: str,
        where: str | Filter | None = None,
        test: bool = False,
        on_error: Callable[[BusError], object] | None = None,
        acknowledge: Acknowledge = "automatic",
        ordered: bool = True,
        deliveries_max: int = 5,
    ) -> DurableSubscription: ...

    def subscribe(
        self,
        pattern: str,
        callback: Callable[[Any], object] | None = None,
        *,
        durable: str | None = None,
        **options: Any,
    ) -> Subscription | DurableSubscription:
        """Receive what is published under `pattern` from now on.

        Returning means that every live node this one can see knows of the subscription: what
        they publish after that is delivered in order, or reported as lost. Nodes that did not
        answer within `timeout_s` are named in a warning of the log.

        Args:
            pattern: `*` stands for one element, a last `>` for one or more.
            callback: Called with each event on a delivery thread, one event at a time. Without
                it, iterate over the subscription (also with `async for`).
            where: A filter over the attributes of the objects, such as
                `'symbol == "GMC" && price > 40'`; only what it is true of is delivered.
            test: Receive test events, too (`event.test`); without it none is delivered.
            on_loss: What to do about events that can no longer be had. `ignore` it; `warn` in
                the log; `raise` a `LossError` once, from the iterator or to `on_error`, then
                go on; `quit`: close the subscription; `quit_and_recover`: start anew, with
                initial state from the producers (which is also asked for at the beginning).
            on_error: Called with errors that have no iterator to be raised from.
            when_full: What to do when the consumer falls behind. `pace` holds the senders for
                at most 2 s (0.5 s if it is stuck), then drops the oldest; `block` holds them for
                as long as it takes; `drop_oldest` drops at once; drops are reported as losses.
                `disconnect` closes the subscription with `SlowConsumer`.
            queue_count_max: How many events may wait (large ones count once more for every
                2 KiB); senders are held from half of it.
            priority: The class in which this consumer gets its events, whatever their own is;
                senders send them at least as urgently.
            max_age: Seconds after which an event is worthless here, if its supplier has not
                said less; it is let go wherever it waits then.
            max_rate: At most so many events a second; others are left out, and counted.
            timeout_s: How long to wait for the nodes' answers.

        Raises:
            QosRefused: The class stands above its watermark here; the message says whose queue.

        With `durable="name"` it is a durable consumer, for guaranteed events only: its name and
        what it has settled outlive the process, and what is published while it is away waits.

        Args:
            durable: The consumer's name; one subscription at a time may use it.
            acknowledge: `automatic`: an event is settled when the callback returns or the next
                one is asked for; `explicit`: by `event.ack()`. `event.nack()` lets it come again.
            ordered: False lets events go past one that is to come again.
            deliveries_max: After so many deliveries in vain an event goes to the subject
                `dead_letters.<name>`, as an `infobus.DeadLetter`.
        """
        if durable is not None:
            return self.subscribe_durable([pattern], callback, durable, **options)
        return self.subscribe_many([pattern], callback, **options)

    def subscribe_many(
        self,
        patterns: Iterable[str],
        callback: Callable[[Event], object] | None = None,
        *,
        where: str | Filter | None = None,
        test: bool = False,
        on_loss: OnLoss = "raise",
        on_error: Callable[[BusError], object] | None = None,
        when_full: WhenFull = "pace",
        queue_count_max: int = QUEUE_COUNT_MAX,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
        timeout_s: float = 2.0,
    ) -> Subscription:
        """Receive what is published under any of `patterns`, as one subscription.

        As `subscribe`, with one round of messages for all patterns. An event that several of
        them match is delivered once.
        """
        patterns = patterns_of("subscribe_many", patterns)
        if self._closed is not None:
            raise self._closed
        subscription = Subscription(
            self._hub,
            patterns,
            terms=self._hub.node.terms,
            where=filter_of(where),
            test=test or self.test,
            demand=self._demand(patterns, priority, max_age, max_rate),
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

    def _demand(
        self,
        patterns: list[str],
        priority: str | None,
        max_age: float | None,
        max_rate: float | None,
    ) -> Demand:
        """What a consumer asks for, if the class has room, and the group's policy allows it."""
        check_positive("max_rate", max_rate, " of events a second")
        self._wish(priority, max_age)  # checks them
        if self._member is not None:
            own = priority or self._classes.default
            granted = {self._member.judge(pattern, own) for pattern in patterns}
            highest = min(granted, key=self._classes.rank)
            priority = highest if highest != own else priority
        with self._hub.lock:
            full = self._hub.crowd.held_by(priority) if priority is not None else None
        if full is not None:
            raise QosRefused(
                f"class {priority!r} takes no new subscription: {full!r} is above the watermark; "
                f"try again when fewer than {full.low_count} of that class wait there"
            )
        return Demand(priority, max_age, max_rate)

    def on_expired(self, listener: Callable[[Event], object]) -> None:
        """Call `listener` with each event that this node lets go because of its age.

        That is, from any queue it waits in: on its way out of this node, or to a consumer here.
        It is called on a thread of its own, in the order in which the events went.
        """
        if self._closed is not None:
            raise self._closed
        self._hub.expiry.listen(listener)

    def subscribe_durable(
        self,
        patterns: Iterable[str],
        callback: Callable[[DurableEvent], object] | None,
        name: str,
        *,
        where: str | Filter | None = None,
        test: bool = False,
        on_error: Callable[[BusError], object] | None = None,
        acknowledge: Acknowledge = "automatic",
        ordered: bool = True,
        deliveries_max: int = 5,
    ) -> DurableSubscription:
        """As `subscribe` with `durable`: one durable consumer of any of `patterns`."""
        from infobus.bus.durable.subscription import DurableSubscription

        patterns = patterns_of("subscribe_durable", patterns)
        if not isinstance(name, str) or not name:
            raise UsageError(f"durable={name!r}: expected the consumer's name, such as 'billing'")
        check_subject(f"{DEAD_LETTERS}.{name}")
        if deliveries_max < 1:
            raise UsageError(f"deliveries_max is {deliveries_max}; it must be at least 1")
        guarantees = self._guaranteed()
        subscription = DurableSubscription(
            guarantees,
            name,
            patterns,
            callback=callback,
            on_error=on_error,
            acknowledge=acknowledge,
        )
        guarantees.subscribe(
            subscription,
            text_of(filter_of(where)),
            test=test or self.test,
            ordered=ordered,
            deliveries_max=deliveries_max,
        )
        subscription.start()
        return subscription

    def _guaranteed(self) -> Guarantees:
        """What keeps events for durable consumers; begun when it is first needed."""
        with self._guaranteeing:
            if self._closed is not None:
                raise self._closed
            if self._guarantees is None:
                from infobus.bus.durable.driver import Guarantees  # late: it stands on a database

                self._guarantees = Guarantees(self._hub, self.name, self.home, self._bury)
                self._guarantees.start()
                self._keep = self._guarantees.append
            return self._guarantees

    def _keep_in_ledger(self, make: MakeRecords) -> tuple[str, int]:
        return (self._guarantees or self._guaranteed()).append(make)

    def _bury(self, consumer: str, dead: Any) -> None:
        """Publish a dead letter."""
        from infobus.bus.durable.dead_letters import letter

        if dead.entry.subject.startswith(f"{DEAD_LETTERS}."):
            log.error("durable consumer %r cannot use dead letter %s", consumer, dead.entry.number)
            return  # a letter about a letter would never end
        subject = f"{DEAD_LETTERS}.{consumer}"
        self.publish(subject, letter(consumer, dead), guaranteed=True, test=dead.entry.test)

    def quench(self, pattern: str) -> Quench:
        """What anyone wants of the subjects that `pattern` matches, for a producer to ask.

        `publish` does not send what nobody wants; this is for those who can save themselves
        the making of it.

        >>> import infobus
        >>> with infobus.connect("quench", engine="memory") as bus:
        ...     sub = bus.subscribe("trades.>", where='symbol == "GMC" && price > 40')
        ...     wanted = bus.quench("trades.>")
        ...     print(wanted.expression())
        ...     print(wanted.wants({"symbol": "IBM"}), wanted.values("symbol"))
        price > 40 && symbol == "GMC"
        False [[('==', 'GMC')]]
        """
        check_pattern(pattern)
        if self._closed is not None:
            raise self._closed
        from infobus.bus.quench import Quench  # late: most programs need none of it

        return Quench(self._hub, pattern)

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
        # In the opposite order of counting, or more might seem quenched than published.
        quenched, uncounted = taken(self._quenched), taken(self._uncounted)
        return snapshot(self._hub, taken(self._numbers) - uncounted, quenched, frames)

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what is gathered, wait (bounded) until receivers have confirmed it, and leave.

        Idempotent. Subscriptions end; what is in their queues can still be taken.
        """
        if self._closed is not None:
            return
        deadline_s = time.monotonic() + timeout_s
        why = BusClosed(f"this node's connection to the bus {self.name!r} was closed")
        self._close_services(timeout_s)  # first: operations that still run may publish
        if self._member is not None:
            self._member.close()
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
        if self._guarantees is not None:
            self._guarantees.close()
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
        if self._group:
            from infobus.bus.qos_group import QosMember  # late: few nodes are in a group

            admission, classes = self._admission, self._classes
            forget = self._forget_decisions
            self._member = QosMember(self, self._group, admission, classes, on_policy=forget)
        if ledgers_folder(self.home, self.name).is_dir():
            self._guaranteed()  # some of them may have lost their owner

    def abandon(self) -> None:
        """Become closed in a forked child, which must not use its parent's connection."""
        why = BusClosed(
            "this bus was connected before a fork and belongs to the parent process: connect "
            "again in the child, or start the child with the 'spawn' method"
        )
        self._end(why)
        self._hub.abandon(why)
        self._abandon_services(why)
        self._asking, self._guaranteeing = threading.Lock(), threading.Lock()
        if self._guarantees is not None:
            self._guarantees.abandon(why)

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
