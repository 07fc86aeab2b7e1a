"""A durable subscription: its name and what it has settled outlive the process.

Events come from the publishers' ledgers through the node's `Guarantees`, one or a few at a time;
each is settled (`ack`) or comes again (`nack`). With `live`, an ordinary subscription stands beside
them, and its events that are in no ledger are handed out in turn with those that are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Literal

from msgspec.structs import astuple

from infobus.bus.deliver.event import Event
from infobus.bus.deliver.subscription import Subscription, TypesWanted
from infobus.errors import BusClosed, BusError, LossError, UsageError
from infobus.waiters import Mailbox

if TYPE_CHECKING:
    from infobus.bus.deliver.callbacks import Workers
    from infobus.bus.durable.driver import Guarantees

log = logging.getLogger("infobus")

Acknowledge = Literal["automatic", "explicit"]


class _Look:
    """Stands in the mailbox for what the live part may have."""


_LOOK = _Look()


class DurableEvent(Event, frozen=True, gc=False):
    """A guaranteed event: it is delivered until it is settled.

    `sender` is the ledger that kept it first, `number` its number there; together they are its id,
    which stays the same when it comes again, and on every bus. If it came from another bus, `via`
    is the ledger that keeps it on this one. `deliveries` counts how often it has come.
    An event that is not `guaranteed` comes once, to a subscription that is `live`; there is
    nothing to settle.
    """

    deliveries: int = 1
    answer: Callable[[bool], None] | None = None

    def ack(self) -> None:
        """Settle the event: it does not come again. Answering twice does no harm."""
        if self.answer is not None:
            self.answer(True)

    def nack(self) -> None:
        """Let the event come again, after a pause that grows with each delivery."""
        if self.answer is not None:
            self.answer(False)


class DurableSubscription:
    """The guaranteed events of a durable consumer. Made by `Bus.subscribe(..., durable=name)`.

    Iterate it (also with `async for`), or take one event with `receive`. Unless you asked for
    `acknowledge="explicit"`, asking for the next event settles what was taken before, whichever
    thread or task asks; a callback settles its event by returning, and lets it come again by
    raising. A wait that is cancelled or times out takes nothing.

    Threads and tasks may share it; each event goes to one of them. If they work at the same time,
    use `acknowledge="explicit"`: otherwise one that asks for the next event also settles those
    that the others still work on, and these do not come again after a crash.
    """

    def __init__(
        self,
        guarantees: Guarantees,
        name: str,
        patterns: Sequence[str],
        *,
        callback: Callable[[DurableEvent], object] | None,
        on_error: Callable[[BusError], object] | None,
        acknowledge: Acknowledge,
        workers: Workers,
    ) -> None:
        if acknowledge not in ("automatic", "explicit"):
            raise UsageError(f"acknowledge={acknowledge!r}: expected 'automatic' or 'explicit'")
        self.name = name
        self.patterns = tuple(patterns)
        self.lost = 0  # reported losses
        self.callback = None if callback is None else partial(self._deliver, callback)
        self.handler = callback
        self.on_error = on_error
        self.is_scheduled = False  # a delivery worker has, or will have, this subscription
        self._guarantees = guarantees
        self._workers = workers
        self._is_automatic = acknowledge == "automatic"
        self._mail: Mailbox[DurableEvent | BusError | _Look | None] = Mailbox()
        self._taken: deque[DurableEvent] = deque()  # what is settled by asking for the next one
        self._is_ending = self._is_closed = False
        self._live: Subscription | None = None
        self._is_live = False
        self._is_live_ready = False  # the live part may have something
        self._has_look = False  # there is a `_Look` in the mailbox
        self._is_lives_turn = False

    # What the consumer does.

    def receive(self, timeout_s: float | None = None) -> DurableEvent:
        """The next event, waiting for it at most `timeout_s` seconds.

        Raises:
            TimeoutError: Nothing came in time.
            LossError: Events fell out of a ledger's retention before they were settled; or, with
                `live`, plain events can no longer be had.
            BusClosed: The subscription is closed.
        """
        self.settle_taken()
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                if self._is_live_ready and (event := self._take_live()) is not None:
                    return event
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if (event := self._handed_over(self._mail.get(timeout=left_s))) is not None:
                    return event
        except Empty:
            kind = "" if self._is_live else "guaranteed "
            where = ", ".join(self.patterns[:3])
            raise TimeoutError(f"no {kind}event on {where} in {timeout_s} s") from None

    def receive_many(
        self, count_max: int = 1000, timeout_s: float | None = None
    ) -> list[DurableEvent]:
        """The next events: what has come, at most so many. It waits for the first as `receive`.

        Asking for the next ones settles all of them, unless you settle them yourself.
        """
        events = [self.receive(timeout_s)]
        with suppress(Empty):
            while len(events) < count_max and (event := self.take_nowait()) is not None:
                events.append(event)
        return events

    def __iter__(self) -> Iterator[DurableEvent]:
        return self

    def __next__(self) -> DurableEvent:
        try:
            return self.receive()
        except BusClosed:
            raise StopIteration from None

    def __aiter__(self) -> AsyncIterator[DurableEvent]:
        return self

    async def __anext__(self) -> DurableEvent:
        self.settle_taken()
        while True:
            try:
                if self._is_live_ready and (event := self._take_live(False)) is not None:
                    return event
                if (event := self._handed_over(await self._mail.take())) is not None:
                    return event
            except TypesWanted as wanted:
                if (live := self._live) is not None:
                    await live.types_of(wanted)
            except BusClosed:
                raise StopAsyncIteration from None

    def close(self) -> None:
        """Stop receiving. What is not settled waits for the next use of the name.

        A callback that runs is waited for, within the patience of the node, so that its event can
        still be settled.
        """
        if not self._is_closed:
            self.stop_live()
            self._is_ending = True  # first: a worker notes its work before it looks at this
            if self.callback is not None:
                self._workers.wait_for(self)
            self._guarantees.release(self)

    def stop_live(self) -> None:
        """With `live`: take no more plain events in; those that have come can still be taken."""
        if (live := self._live) is not None:
            live.close()

    @property
    def is_closed(self) -> bool:
        """Whether the subscription takes no more events in."""
        return self._is_closed

    def __enter__(self) -> DurableSubscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<DurableSubscription {self.name!r} to {', '.join(self.patterns[:3])}: {state}>"

    # What the bus does.

    def join(self, live: Subscription) -> None:
        """Hand out the events of another subscription, too, unless they are in a ledger."""
        self._live, self._is_live = live, True
        live.ring(self._ring)

    def offer(self, entry: DurableEvent | BusError | _Look | None) -> None:
        """Hand over an event, an error, or None for the end."""
        self._mail.put(entry)
        if self.callback is not None:
            self._workers.schedule(self)

    def end(self, error: BusError | None = None) -> None:
        """Take no more in; raise `error`, then end the iteration."""
        self._is_closed = True
        self.stop_live()
        if error is not None:
            self.offer(error)
        self.offer(None)

    def abandon(self, why: BusError) -> None:
        """End in a forked child, where the parent's threads may hold the locks for ever."""
        self._mail, self.callback, self._live = Mailbox(), None, None
        self._taken.clear()
        self.end(why)

    # What delivery workers do.

    def take_nowait(self) -> DurableEvent | None:
        """The next event; None at the end. Raises `queue.Empty` if there is none now."""
        if self._is_ending and not self._is_closed:
            raise Empty
        try:
            while True:
                if self._is_live_ready and (event := self._take_live()) is not None:
                    return event
                if (event := self._handed_over(self._mail.get_nowait())) is not None:
                    if not self._is_closed:
                        return event
                    self._taken.clear()  # it can no longer be settled, so it comes next time
        except BusClosed:
            return None

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        is_paused = self._is_ending and not self._is_closed
        return is_paused or (self._mail.empty() and not self._is_live_ready)

    def _deliver(self, callback: Callable[[DurableEvent], object], event: DurableEvent) -> None:
        try:
            callback(event)
        except BaseException:  # also SystemExit: it would end the thread, and in silence
            log.exception("the callback for %s raised; the event comes again", event.subject)
            self._taken.clear()
            event.nack()
        else:
            self.settle_taken()

    # Handing over.

    def settle_taken(self) -> None:
        """Settle what was taken, as asking for the next event does."""
        with suppress(IndexError):  # one by one: other threads may be taking some
            while True:
                self._taken.popleft().ack()

    def _ring(self) -> None:
        """The live part may have something."""
        self._is_live_ready = True
        if not self._has_look:
            self._has_look = True
            self.offer(_LOOK)

    def _take_live(self, wait_for_types: bool = True) -> DurableEvent | None:
        """The next event of the live part; None if there is none, or if it is not its turn."""
        live = self._live
        self._is_lives_turn = not self._is_lives_turn
        if live is None:
            self._is_live_ready = False
            return None
        if not (self._is_lives_turn or self._is_closed or self._mail.empty()):
            self._ring()  # in case that somebody else is quicker to take what is there
            return None
        self._is_live_ready = False  # first: what comes from now on rings again
        try:
            while (event := live.take_nowait(wait_for_types)) is not None:
                if not event.guaranteed:  # else it comes out of its ledger
                    self._ring()
                    return DurableEvent(*astuple(event))
            self._live = None  # it is closed, and everything in it was taken
        except Empty:
            pass
        except BaseException as error:  # such as a loss: there may be more behind it
            self.lost += isinstance(error, LossError)
            self._ring()
            raise
        return None

    def _handed_over(self, entry: DurableEvent | BusError | _Look | None) -> DurableEvent | None:
        if isinstance(entry, _Look):
            self._has_look = False
            return None
        if entry is None:
            self._mail.put(None)  # for others that wait
            raise BusClosed(f"the durable subscription {self.name!r} is closed")
        if isinstance(entry, BusError):
            raise entry
        if self._is_automatic:
            self._taken.append(entry)
        return entry
