"""A subscription: a bounded queue between the bus and one consumer, and the consumer's choices.

The bus puts whole runs of events in (`offer`), the consumer takes single events out. What a
full queue and a loss mean is decided here, as the consumer stated it when it subscribed.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from infobus.bus.event import Event, Run, events_of, weight_of
from infobus.bus.losses import loss_error
from infobus.errors import BadFrame, BusClosed, BusError, LossError, UsageError
from infobus.protocols.effects import Lost
from infobus.protocols.interest import channel_pattern, touches
from infobus.protocols.wire import Items
from infobus.subjects import TEST_SPACE

if TYPE_CHECKING:
    import asyncio

    from infobus.filters import Filter

log = logging.getLogger("infobus")

OnLoss = Literal["ignore", "warn", "raise", "quit", "quit_and_recover"]
WhenFull = Literal["pace", "block", "drop_oldest", "disconnect"]


_AWAITED_COUNT = 64
"""Events that `async for` takes before it lets others run."""


class _TypesWanted(Exception):
    """The next events need types that an event loop must not wait for."""

    def __init__(self, items: Items) -> None:
        super().__init__("types wanted")
        self.items = items


class Host(Protocol):
    """What a subscription needs of its bus."""

    def on_bad_object(self, sender: str, error: BadFrame) -> None:
        """An object of `sender` cannot be read; its event is left out."""

    unknown_types: set[int]
    """Types of events that have come, whose descriptors have not."""

    def wait_for_types(self, items: Items) -> None:
        """Wait, bounded, for the descriptors of the events' types."""

    def relieved(self, subscription: Subscription) -> None:
        """A crowded subscription has room again."""

    def recover(self, subscription: Subscription) -> None:
        """Start the subscription anew, with initial state from the producers."""

    def forget(self, subscription: Subscription) -> None:
        """The subscription is closed."""

    def change_filter(
        self, subscription: Subscription, where: str | Filter | None, timeout_s: float
    ) -> None:
        """The subscription wants other events from now on."""


class Subscription:
    """The events of one or more patterns, for one consumer. Made by `Bus.subscribe`.

    Iterate it (`for event in sub`), or await it (`async for event in sub`), or take one event
    with `receive(timeout_s)`. Several threads may share it; each event goes to one of them.
    Closing it ends every iteration.
    """

    def __init__(
        self,
        host: Host,
        patterns: Sequence[str],
        *,
        depth: int,
        where: Filter | None,
        test: bool,
        callback: Callable[[Event], object] | None,
        on_error: Callable[[BusError], object] | None,
        on_loss: OnLoss,
        when_full: WhenFull,
        queue_count_max: int,
    ) -> None:
        _check_choice("on_loss", on_loss, OnLoss)
        _check_choice("when_full", when_full, WhenFull)
        for name, function in (("callback", callback), ("on_error", on_error)):
            if function is not None and not callable(function):
                raise UsageError(f"{name} must be a function, got {function!r}")
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                "a callback cannot be a coroutine function: leave it out, and use "
                "`async for event in subscription`"
            )
        if queue_count_max < 1:
            raise UsageError(f"queue_count_max is {queue_count_max}; it must be at least 1")
        self.patterns = tuple(patterns)
        self.where = where  # the bus's to change
        self.test = test
        # What other nodes are told that it wants: test events are elsewhere.
        tests = [TEST_SPACE + pattern for pattern in patterns] if test else []
        self.told = (*self.patterns, *tests)
        self.channels = frozenset(channel_pattern(pattern, depth) for pattern in self.told)
        self.callback = callback
        self.on_error = on_error
        self.on_loss: OnLoss = on_loss
        self.when_full: WhenFull = when_full
        self.queue_count_max = queue_count_max
        self.high_count = (queue_count_max + 1) // 2
        self.low_count = queue_count_max // 4
        self.loss: LossError | None = None  # the last loss that was reported here
        self.lost = 0  # reported losses
        self._host = host
        # The bus's side, under the bus's lock.
        self.offered = 0
        self.is_holding = False  # asks senders to wait
        self.held_since_s = 0.0
        self.has_waited_enough = False  # "pace" has had its time; oldest events go now
        self.staged: list[Run] | None = None  # runs that wait for initial state
        self.is_scheduled = False  # a delivery worker has, or will have, this subscription
        # The consumer's side, under its own lock.
        self.taken = 0
        self._lock = threading.Lock()
        # Of runs taken from the queue; the next event is last. The list is never replaced.
        self._ready: list[Event] = []
        self._unread: Run | None = None  # a run whose types are being waited for
        self._error: BusError | None = None
        # Between the two.
        self._dropped: dict[tuple[str, str], tuple[int, int]] = {}  # route -> first, last
        self._drop_lock = threading.Lock()
        self._queue: SimpleQueue[Run | Lost | None] = SimpleQueue()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._is_closed = False
        self._awaited = 0

    # What the consumer does.

    def __iter__(self) -> Iterator[Event]:
        ready = self._ready
        while (event := self._take(None)) is not None:
            yield event
            with suppress(IndexError):  # another thread may have been quicker
                while ready:
                    yield ready.pop()

    def __next__(self) -> Event:
        event = self._take(None)
        if event is None:
            raise StopIteration
        return event

    def receive(self, timeout_s: float | None = None) -> Event:
        """The next event, waiting for it at most `timeout_s` seconds.

        Raises:
            TimeoutError: Nothing came in time.
            LossError: Events are gone (with `on_loss="raise"`); the next call goes on after them.
            BusClosed: The subscription is closed and everything in it was taken.
        """
        try:
            event = self._take(timeout_s)
        except Empty:
            what = ", ".join(self.patterns[:3])
            raise TimeoutError(f"no event on {what} in {timeout_s} s") from None
        if event is None:
            raise BusClosed(f"the subscription to {', '.join(self.patterns[:3])} is closed")
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        import asyncio  # takes half as long to import as the rest of the package

        loop = asyncio.get_running_loop()
        while True:
            try:
                event = self._take(0, wait_for_types=False)
            except _TypesWanted as wanted:
                await asyncio.to_thread(self._host.wait_for_types, wanted.items)
                continue
            except Empty:
                waiter = (loop, loop.create_future())
                self._waiters.append(waiter)
                try:
                    if self._queue.empty():  # else it came between the two
                        await waiter[1]
                finally:  # also when this was cancelled
                    with suppress(ValueError):
                        self._waiters.remove(waiter)
                continue
            if event is None:
                raise StopAsyncIteration
            self._awaited += 1
            if self._awaited % _AWAITED_COUNT == 0:
                await asyncio.sleep(0)  # a full queue must not starve the rest of the loop
            return event

    def change_filter(self, where: str | Filter | None, *, timeout_s: float = 2.0) -> None:
        """Receive only what `where` is true of; with None, whatever the patterns match.

        Returning means that every live node this one can see knows. An event that both filters
        let through is delivered, once, whenever it was published; what is in the queue stays.

        Raises:
            BadFilter: `where` is not a filter; nothing has changed.
        """
        self._host.change_filter(self, where, timeout_s)

    def close(self) -> None:
        """Stop receiving. What is in the queue can still be taken; then iteration ends."""
        if not self._is_closed:
            self._host.forget(self)

    @property
    def is_closed(self) -> bool:
        """Whether the subscription takes no more events in."""
        return self._is_closed

    @property
    def waiting_count(self) -> int:
        """How many events wait in the queue; large ones count once more for every 2 KiB."""
        return self.offered - self.taken

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.waiting_count} waiting"
        return f"<Subscription to {', '.join(self.patterns[:3])}: {state}>"

    # What the bus does, under its lock.

    def offer(self, run: Run) -> None:
        """Put a run of events into the queue; the bus looks after its bounds."""
        if len(run.items) > self.high_count:
            self._put_in_parts(run)
        else:
            self.offered += weight_of(run.items)
            self._queue.put(run)
        if self._waiters:
            self._wake_async()

    def _put_in_parts(self, run: Run) -> None:
        # The oldest run is dropped as a whole: a small queue must not lose everything by that.
        for at in range(0, len(run.items), self.high_count):
            part = run.part(at, at + self.high_count)
            self.offered += weight_of(part.items)
            self._queue.put(part)

    def wake_with(self, entry: Lost | None) -> None:
        """Put a loss, or None for the end, into the queue."""
        self._queue.put(entry)
        if self._waiters:
            self._wake_async()

    def drop_oldest(self) -> int:
        """Let the oldest run in the queue go; the consumer is told before its next event.

        Returns how many events went; 0 if the queue is empty.
        """
        for _ in range(self._queue.qsize()):
            try:
                entry = self._queue.get_nowait()
            except Empty:
                break
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)
                first, route = entry.seqs[0], (entry.sender, entry.channel)
                if first:  # best effort is not reported
                    with self._drop_lock:
                        start, _last = self._dropped.get(route, (first, first))
                        self._dropped[route] = (start, entry.seqs[-1])
                return len(entry.items)
            self._queue.put(entry)
        return 0

    def end(self, error: BusError | None = None) -> None:
        """Take no more in; once the queue is empty, raise `error` or end the iteration."""
        self._is_closed = True
        self._error = error
        self.wake_with(None)

    def abandon(self, why: BusError) -> None:
        """End in a forked child, where the parent's threads may hold the locks for ever."""
        self._lock, self._drop_lock = threading.Lock(), threading.Lock()
        self._queue, self._waiters = SimpleQueue(), []
        self._ready.clear()
        self._unread, self._dropped = None, {}
        self.end(why)

    def clear(self) -> None:
        """Empty the queue, as for a newcomer."""
        while True:
            try:
                entry = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        return self._queue.empty() and not (self._ready or self._dropped)

    def wants_channel(self, channel: str) -> bool:
        """Whether `channel` (any channel if empty) may carry events for this subscription."""
        return not channel or touches(self.channels, channel)

    def _wake_async(self) -> None:
        # The list is never replaced, so that one who is just joining it cannot be missed.
        with suppress(IndexError):
            while True:
                loop, future = self._waiters.pop()
                with suppress(RuntimeError):  # that event loop has been closed meanwhile
                    loop.call_soon_threadsafe(_set_done, future)

    # Taking events out.

    def take_nowait(self) -> Event | None:
        """The next event; None at the end. Raises `queue.Empty` if there is none now."""
        return self._take(0)

    def _take(self, timeout_s: float | None, wait_for_types: bool = True) -> Event | None:
        ready = self._ready
        try:
            if ready:
                return ready.pop()
        except IndexError:
            pass  # another thread was quicker
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise Empty
        try:
            while True:
                try:
                    if ready:
                        return ready.pop()
                except IndexError:
                    pass
                if self._dropped and not self._report_dropped():
                    return None
                if not self._next_run(deadline_s, wait_for_types):
                    return None
        finally:
            self._lock.release()

    def _next_run(self, deadline_s: float | None, wait_for_types: bool) -> bool:
        """Make a run of events ready; False at the end. Losses are dealt with on the way."""
        entry: Run | Lost | None = self._unread
        if entry is None:
            entry = self._queue.get() if deadline_s is None else self._get(deadline_s)
        self._unread = None
        if entry is None:
            return self._ended()
        if isinstance(entry, Lost):
            return self._react(entry)
        items, unknown = entry.items, self._host.unknown_types
        if unknown and not unknown.isdisjoint(items.types):
            if not wait_for_types:
                self._unread = entry
                raise _TypesWanted(items)
            self._host.wait_for_types(items)
        self.taken += weight_of(items)
        if self.is_holding or self.has_waited_enough:
            self._look_whether_relieved()
        events = events_of(entry, self._host.on_bad_object)
        if not entry.is_sifted and (where := self.where) is not None:
            events = [event for event in events if where.matches(event.data)]
        if len(events) > 1:
            events.reverse()
        self._ready[:0] = events
        return True

    def _ended(self) -> bool:
        self._queue.put(None)  # for whoever else waits
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return False

    def _look_whether_relieved(self) -> None:
        if self.waiting_count <= self.low_count:
            self._host.relieved(self)

    def _get(self, deadline_s: float) -> Run | Lost | None:
        left_s = deadline_s - time.monotonic()
        return self._queue.get(timeout=left_s) if left_s > 0 else self._queue.get_nowait()

    def _report_dropped(self) -> bool:
        with self._drop_lock:
            (sender, channel), (first, last) = self._dropped.popitem()
        return self._react(Lost(sender, channel, first, last))

    def _react(self, lost: Lost) -> bool:
        """Do what the consumer chose to do about a loss (paper 004, section 3.4)."""
        self.lost += 1
        self.loss = error = loss_error(lost)
        match self.on_loss:
            case "warn":
                log.warning("%s", error)
            case "raise":
                raise error
            case "quit":
                log.warning("%s; the subscription quits", error)
                self.close()
                self._ready.clear()
                self._dropped.clear()
                self.clear()
                self._queue.put(None)
                return False
            case "quit_and_recover":
                log.warning("%s; the subscription starts anew", error)
                self._ready.clear()
                self._dropped.clear()
                self._host.recover(self)
        return True


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        expected = ", ".join(repr(choice) for choice in get_args(choices))
        raise UsageError(f"{name}={value!r} is not known; choose one of {expected}")
