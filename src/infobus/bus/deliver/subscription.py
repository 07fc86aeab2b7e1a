"""A subscription: a bounded queue between the bus and one consumer, and the consumer's choices.

The bus puts whole runs of events in (`offer`), the consumer takes single events out. What a
full queue and a loss mean is decided here, as the consumer stated it when it subscribed.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, get_args

from msgspec.structs import replace

from infobus.bus.clock import SYSTEM_CLOCK, Clock
from infobus.bus.deliver.event import (
    READ_COUNT,
    Data,
    Event,
    OnBadObject,
    Reading,
    Run,
    Transaction,
    events_of,
    weight_of,
)
from infobus.bus.deliver.priority_queue import Demand, Waits
from infobus.bus.deliver.queue import Inbox, Look
from infobus.errors import (
    BadFrame,
    BusClosed,
    BusError,
    LossError,
    MismatchError,
    UsageError,
)
from infobus.headers import with_headers
from infobus.objects.codec import Mismatched
from infobus.patience import Patience
from infobus.protocols.frames.lanes import channel_in, class_in, in_words
from infobus.protocols.frames.wire import Items, Request
from infobus.protocols.interest.own_rows import Row, channel_pattern, touches
from infobus.protocols.reliable.effects import Lost
from infobus.protocols.reliable.peer import Terms
from infobus.subjects import TEST_SPACE
from infobus.waiters import let_others_run

if TYPE_CHECKING:
    from infobus.bus.deliver.event_keys import ConsumerKeys
    from infobus.filters import Filter

log = logging.getLogger("infobus")

OnLoss = Literal["ignore", "warn", "raise", "quit", "quit_and_recover"]
OnMismatch = Literal["raise", "skip", "generic"]
WhenFull = Literal["pace", "block", "drop_oldest", "disconnect"]

_TIMEOUT_S_MAX = 4e6
"""As long as Python can wait for a lock, about."""


class TypesWanted(Exception):
    """The next events need types that an event loop must not wait for."""

    def __init__(self, items: Items) -> None:
        super().__init__("types wanted")
        self.items = items


class Owner(Protocol):
    """What a subscription needs of its bus."""

    def on_bad_object(self, sender: str, error: BadFrame | Mismatched) -> Any:
        """An object of `sender` cannot be read; its event is left out."""

    def on_mismatch(self, sender: str, error: Mismatched) -> None:
        """An object of `sender` does not fit its type here."""

    def on_forged(self, sender: str, why: str) -> None:
        """An event of `sender` has a signature that does not count; it is left out."""

    patience: Patience
    """How long it waits for the other nodes."""

    unknown_types: set[int]
    """Types of events that have come, whose descriptors have not."""

    def wait_for_types(self, items: Items) -> None:
        """Wait, bounded, for the descriptors of the events' types."""

    def relieved(self, subscription: Subscription) -> None:
        """A crowded subscription has room again, in some class."""

    def recover(self, subscription: Subscription) -> None:
        """Start the subscription anew, with initial state from the producers."""

    def forget(self, subscription: Subscription) -> None:
        """The subscription is closed."""

    def change_filter(
        self, subscription: Subscription, where: str | Filter | None, timeout_s: float
    ) -> None:
        """The subscription wants other events from now on."""


class Subscription(Generic[Data]):
    """The events of one or more patterns, for one consumer. Made by `Bus.subscribe`.

    To type checkers, `bus.subscribe(..., type=Order)` is a `Subscription[Order]`.

    Iterate it (`for event in sub`), or await it (`async for event in sub`), or take one event
    with `receive(timeout_s)`. Several threads may share it; each event goes to one of them.
    Closing it ends every iteration.
    """

    def __init__(
        self,
        owner: Owner,
        patterns: Sequence[str],
        *,
        terms: Terms,
        where: Filter | None,
        test: bool,
        demand: Demand,
        callback: Callable[[Event], object] | None,
        on_error: Callable[[BusError], object] | None,
        on_loss: OnLoss,
        on_mismatch: OnMismatch = "raise",
        when_full: WhenFull,
        queue_count_max: int,
        clock: Clock = SYSTEM_CLOCK,
        keys: ConsumerKeys | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> None:
        check_choice("on_loss", on_loss, OnLoss)
        check_choice("on_mismatch", on_mismatch, OnMismatch)
        check_choice("when_full", when_full, WhenFull)
        for name, function in (("callback", callback), ("on_error", on_error)):
            if function is not None and not callable(function):
                raise UsageError(f"{name} must be a function, got {function!r}")
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                "a callback cannot be a coroutine function: leave it out, and use "
                "`async for event in subscription`"
            )
        if not isinstance(queue_count_max, int) or queue_count_max < 1:
            raise UsageError(f"queue_count_max={queue_count_max!r}: expected a number from 1 on")
        self.queue = Inbox(terms, demand, queue_count_max)  # the bus fills it
        self.patterns = tuple(patterns)
        self.where = where  # the bus's to change
        self.keys = keys
        self.test = test
        # What other nodes are told that it wants: test events are elsewhere.
        tests = [TEST_SPACE + pattern for pattern in patterns] if test else []
        self.told = (*self.patterns, *tests)
        self.channels = frozenset(channel_pattern(pattern, terms.depth) for pattern in self.told)
        self.callback = self.handler = callback
        self.on_error = on_error
        self.on_loss: OnLoss = on_loss
        self.on_mismatch: OnMismatch = on_mismatch
        self.when_full: WhenFull = when_full
        self.wanted = wanted  # the classes of which its objects are; any, if empty
        self.loss: LossError | None = None  # the last loss that was reported here
        self.lost = 0  # reported losses
        self.is_narrow = False  # what the policy does not allow of its patterns is left out
        self._owner = owner
        self._now_s, self._wall_s = clock.now_s, clock.wall_s
        self.is_scheduled = False  # a delivery worker has, or will have, this subscription
        self._lock = threading.Lock()  # the consumer's side
        self._unread: Run | None = None  # a run whose types are being waited for
        self._error: BusError | None = None
        self._is_closed = False

    # What the consumer does.

    def __iter__(self) -> Iterator[Event[Data]]:
        queue, ready = self.queue, self.queue.ready
        while (event := self._take(None)) is not None:
            yield event
            while ready and not queue.is_interrupted:
                try:
                    event = ready.pop()
                except IndexError:  # another thread was quicker
                    break
                yield event

    def __next__(self) -> Event[Data]:
        event = self._take(None)
        if event is None:
            raise StopIteration
        return event

    def receive(self, timeout_s: float | None = None) -> Event[Data]:
        """The next event, waiting for it at most `timeout_s` seconds.

        Raises:
            TimeoutError: Nothing came in time.
            LossError: Events are gone (with `on_loss="raise"`); the next call goes on after them.
            MismatchError: An object does not fit its type here (with `on_mismatch="raise"`); the
                next call goes on after it.
            BusClosed: The subscription is closed and everything in it was taken.
        """
        try:
            event = self._take(timeout_s)
        except Empty:
            what = ", ".join(self.patterns[:3])
            raise TimeoutError(f"no event on {what} in {timeout_s} s") from None
        except (TypeError, ValueError, OverflowError):
            if isinstance(timeout_s, int | float) and timeout_s < _TIMEOUT_S_MAX:
                raise  # It is not this that was wrong.
            raise UsageError(
                f"timeout_s={timeout_s!r}: expected seconds, or None to wait for ever"
            ) from None
        if event is None:
            raise BusClosed(f"the subscription to {', '.join(self.patterns[:3])} is closed")
        return event

    def receive_many(
        self, count_max: int = 1000, timeout_s: float | None = None
    ) -> list[Event[Data]]:
        """The next events: what has come, at most so many. It waits for the first as `receive`."""
        events = [self.receive(timeout_s)]
        with suppress(Empty):
            while len(events) < count_max and (event := self._take(0)) is not None:
                events.append(event)
        return events

    def __aiter__(self) -> AsyncIterator[Event[Data]]:
        return self

    async def __anext__(self) -> Event[Data]:
        if self.queue.mail.is_turn_over():
            await let_others_run()
        while True:
            try:
                event = self._take(0, wait_for_types=False)
            except TypesWanted as wanted:
                await self.types_of(wanted)
                continue
            except Empty:
                await self.queue.mail.ready()
                continue
            if event is None:
                raise StopAsyncIteration
            return event

    def change_filter(self, where: str | Filter | None, *, timeout_s: float | None = None) -> None:
        """Receive only what `where` is true of; with None, whatever the patterns match.

        Returning means that every live node this one can see knows. An event that both filters
        let through is delivered, once, whenever it was published; what is in the queue stays.

        Args:
            where: The new filter.
            timeout_s: How long to wait for the nodes' answers; the patience of the node if None.

        Raises:
            BadFilter: `where` is not a filter; nothing has changed.
        """
        owner = self._owner
        timeout_s = owner.patience.subscribe_s if timeout_s is None else timeout_s
        owner.change_filter(self, where, timeout_s)

    def close(self) -> None:
        """Stop receiving. What is in the queue can still be taken; then iteration ends."""
        if not self._is_closed:
            self._owner.forget(self)

    @property
    def is_closed(self) -> bool:
        """Whether the subscription takes no more events in."""
        return self._is_closed

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.waiting_count} waiting"
        return f"<Subscription to {', '.join(self.patterns[:3])}: {state}>"

    @property
    def waiting_count(self) -> int:
        """How many events wait in the queue; large ones count once more for every 2 KiB."""
        return self.queue.waiting_count

    def waiting_in(self, class_: str) -> int:
        """How many events of a class wait; see `waiting_count`."""
        return self.queue.waiting_in(class_)

    @property
    def thinned(self) -> int:
        """How many events were left out because of `max_rate`."""
        return self.queue.thinned

    # What the bus does, under its lock.

    def holds_class(self, class_: str) -> bool:
        """Whether the senders of events of a class (empty: the default) are asked to wait."""
        return self.queue.holds_class(class_)

    def wake_with(self, lost: Lost) -> None:
        """Let the consumer hear of a loss, after what came before it."""
        self.queue.offer_loss(lost, self._now_s())

    def tick(self, now_s: float) -> list[Run]:
        """Time has passed: what has grown too old leaves the queue, and is returned."""
        return self.queue.tick(now_s)

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        return self.queue.is_empty()

    def is_drained(self) -> bool:
        """Whether all events that had come were taken."""
        queue = self.queue
        return not (queue.waiting_count or queue.ready or queue.reading or self._unread)

    def end(self, error: BusError | None = None) -> None:
        """Take no more in; once the queue is empty, raise `error` or end the iteration."""
        self._is_closed = True
        self._error = error
        self.queue.end()

    def abandon(self, why: BusError) -> None:
        """End in a forked child, where the parent's threads may hold the locks for ever."""
        self.queue.abandon()
        self._lock, self._unread = threading.Lock(), None
        self.end(why)

    def requests(self) -> list[Request]:
        """What it asks of the events of its patterns, as other nodes are told."""
        demand = self.queue.demand
        if not demand:
            return []
        max_age = demand.max_age if demand.max_age < math.inf else 0.0
        asked = (demand.priority or "", max_age, demand.max_rate or 0.0)
        return [Request(pattern, *asked) for pattern in self.told]

    def rows(self) -> list[Row]:
        """What other nodes are told that it wants."""
        where = self.row_text(self.where)
        return [(pattern, where) for pattern in self.told]

    def row_text(self, where: Filter | None) -> str:
        """What other nodes would be told if that were its filter."""
        if self.keys is not None:
            return self.keys.row_text(where)
        return "" if where is None else where.text

    def wants_lane(self, lane: str) -> bool:
        """Whether `lane` (any lane if empty) may carry events for this subscription."""
        return not lane or touches(self.channels, channel_in(lane))

    # Taking events out.

    def take_nowait(self, wait_for_types: bool = True) -> Event | None:
        """The next event; None at the end. Raises `queue.Empty` if there is none now.

        It waits a little for a type that is not known here, or raises `TypesWanted`.
        """
        return self._take(0, wait_for_types)

    async def types_of(self, wanted: TypesWanted) -> None:
        """Wait, bounded, for types that are wanted."""
        from asyncio import to_thread  # takes half as long as the rest of the package

        await to_thread(self._owner.wait_for_types, wanted.items)

    def ring(self, bell: Callable[[], None]) -> None:
        """Have `bell` called, by any thread, whenever there may be something to take."""
        self.queue.mail.bell = bell
        bell()

    def _take(self, timeout_s: float | None, wait_for_types: bool = True) -> Event | None:
        queue, ready = self.queue, self.queue.ready
        try:
            if ready and not queue.is_interrupted:
                return ready.pop()
        except IndexError:
            pass  # another thread was quicker
        deadline_s = None if timeout_s is None else self._now_s() + timeout_s
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise Empty
        try:
            if queue.is_interrupted:  # not below: what was just made ready may have an age limit
                queue.set_aside(self._now_s())
            while True:
                try:
                    if ready:
                        return ready.pop()
                except IndexError:
                    pass
                if queue.held_back:
                    if (event := queue.next_held_back()) is not None:
                        raise mismatch_error(event)
                    continue
                if queue.reading is not None:
                    queue.read_on(queue.reading)
                    continue
                if queue.losses and not self._react(queue.next_loss()):
                    return None
                if not self._next_run(deadline_s, wait_for_types):
                    return None
        finally:
            self._lock.release()

    def _next_entry(self, deadline_s: float | None) -> Waits | Look | None:
        """What goes next: a run, a loss, events that were set aside, or None for the end.

        A `Look` says to ask again. Raises `queue.Empty` if nothing came in time.
        """
        queue = self.queue
        if queue.classed is not None:
            waits = queue.take_by_class(self._now_s(), self._wall_s())
            if waits is not None:
                return waits
        # Written out, because every run of events comes this way.
        if deadline_s is None:
            entry = queue.mail.get()
        elif (left_s := deadline_s - self._now_s()) > 0:
            entry = queue.mail.get(timeout=left_s)
        else:
            entry = queue.mail.get_nowait()
        if isinstance(entry, Run):
            queue.taken += weight_of(entry.items)
        else:
            queue.note_look(entry)
        return entry

    def _next_run(self, deadline_s: float | None, wait_for_types: bool) -> bool:
        """Make a run of events ready; False at the end. Losses are dealt with on the way."""
        queue = self.queue
        if self._unread is None:
            entry = self._next_entry(deadline_s)
            if not isinstance(entry, Run):
                return self._deal_with(entry)
        else:
            entry, self._unread = self._unread, None
        items, unknown = entry.items, self._owner.unknown_types
        if unknown and not unknown.isdisjoint(items.types):
            if not wait_for_types:
                self._unread = entry
                raise TypesWanted(items)
            self._owner.wait_for_types(items)
        if queue.watched and queue.is_relieved():
            self._owner.relieved(self)
        if self.keys is not None and not entry.places:
            opened = self._with_keys(self.keys, entry)
            if self.wanted:
                opened = as_wanted(opened, self.wanted, self._on_bad_object)
            queue.make_ready(opened[::-1])
            return True
        if len(items.bodies) > READ_COUNT and entry.is_sifted and not self.wanted:
            queue.reading = Reading(entry, self._on_bad_object, queue.default_class)
            return True
        events = events_of(entry, self._on_bad_object, queue.default_class)
        if not entry.is_sifted and (where := self.where) is not None:
            events = [
                event
                for event in events
                if where.matches(with_headers(_sent(event.data), event.headers))
            ]
        if self.wanted:
            events = as_wanted(events, self.wanted, self._on_bad_object)
        if len(events) > 1:
            events.reverse()
        queue.make_ready(events)
        return True

    def _with_keys(self, keys: ConsumerKeys, run: Run) -> list[Event]:
        """The events of a run that are signed as they must be, opened if that is possible."""
        items, places = keys.opened(run.items, run.sender, self._owner.on_forged)
        seqs = [run.seqs[at] for at in places]
        run = replace(run, items=items, seqs=seqs)
        events = events_of(run, self._on_bad_object, self.queue.default_class)
        where = self.where
        return [
            replace(event, signed_by=keys.signer_of(event.headers)) if keys.signed_by else event
            for event in events
            if where is None or where.matches(with_headers(_sent(event.data), event.headers))
        ]

    def _on_bad_object(self, sender: str, error: BadFrame | Mismatched) -> Any:
        """What the consumer gets in place of an object that cannot be given as it is known."""
        if not isinstance(error, Mismatched):
            return self._owner.on_bad_object(sender, error)
        self._owner.on_mismatch(sender, error)
        match self.on_mismatch:
            case "generic":
                return error.object
            case "skip":
                return None
        self.queue.has_mismatches = True
        return error

    def _deal_with(self, entry: Lost | list[Event] | Look | None) -> bool:
        """What is in the queue beside runs of events; False at the end."""
        if isinstance(entry, Lost):
            return self._react(entry)
        if isinstance(entry, list):
            self.queue.make_ready(entry)
        if entry is not None:
            return True
        self.queue.end()  # for others that wait
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return False

    def _react(self, lost: Lost) -> bool:
        """Do what the consumer chose to do about a loss (paper 004, section 3.4)."""
        self.lost += 1
        self.loss = error = loss_error(lost, self.queue.default_class)
        match self.on_loss:
            case "warn":
                log.warning("%s", error)
            case "raise":
                raise error
            case "quit":
                log.warning("%s; the subscription quits", error)
                self.close()
                self.queue.forget()
                self.queue.clear()
                self.queue.end()
                return False
            case "quit_and_recover":
                log.warning("%s; the subscription starts anew", error)
                self.queue.forget()
                self._owner.recover(self)
        return True


def as_wanted(
    events: Sequence[Event], wanted: tuple[Any, ...], on_bad_object: OnBadObject
) -> list[Event]:
    """The events with objects of these classes; `on_bad_object` is asked about all others."""
    from infobus.objects.payloads import typed  # late: most subscriptions take any type

    found = []
    for event in events:
        data = event.data
        if isinstance(data, Transaction):
            inside = as_wanted(data.events, wanted, on_bad_object)
            data = Transaction(tuple(inside)) if len(inside) == len(data) else None
        elif not isinstance(data, Mismatched):
            try:
                data = typed(data, wanted)
            except Mismatched as error:
                data = on_bad_object(event.sender, error)
        if data is event.data:
            found.append(event)
        elif data is not None:
            found.append(replace(event, data=data))
    return found


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise `UsageError` if `value` is not one of the choices, a `Literal`."""
    if value not in get_args(choices):
        expected = ", ".join(repr(choice) for choice in get_args(choices))
        raise UsageError(f"{name}={value!r} is not known; choose one of {expected}")


def _sent(data: Any) -> Any:
    return data.object if isinstance(data, Mismatched) else data


def mismatch_error(event: Event) -> MismatchError:
    """The error that tells of an event which holds a `Mismatched` in place of its object."""
    found: Mismatched = event.data
    why = ""
    if found.attribute:
        why = (
            f"; the sender has another definition of {found.type}, see: infobus types {found.type}"
        )
    return MismatchError(
        f'{event.subject}: {found}{why}. on_mismatch="generic" gives the object as it was sent',
        subject=event.subject,
        type=found.type,
        attribute=found.attribute,
        expected=found.expected,
        sent=found.sent,
        event=replace(event, data=found.object),
    )


def loss_error(lost: Lost, default_class: str = "") -> LossError:
    """The error that tells of `lost`; the default class is the one that lanes do not name."""
    where = f" on {in_words(lost.lane)}" if lost.lane else ""
    if lost.reason:
        what = (
            f"{lost.sender} is out of reach: it has died, or no way leads there; if it goes on, "
            "its events are lost until it is back"
        )
    elif lost.last is None:
        what = (
            f"{lost.sender} took this node for dead, or may have done so: an unknown number of its "
            f"events{where} is lost{f', from number {lost.first} on' if lost.first else ''}"
        )
    else:
        what = f"events {lost.first} to {lost.last} of {lost.sender}{where} are lost"
    class_ = class_in(lost.lane) or (default_class if lost.lane else "")
    return LossError(
        what,
        sender=lost.sender,
        channel=channel_in(lost.lane),
        priority=class_,
        first=lost.first,
        last=lost.last,
        reason=lost.reason,
    )
