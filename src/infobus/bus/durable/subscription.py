"""A durable subscription: its name and what it has settled outlive the process.

Events come from the publishers' ledgers through the node's `Guarantees`, one or a few at a time;
each is settled (`ack`) or comes again (`nack`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from infobus.bus.deliver.event import Event
from infobus.errors import BusClosed, BusError, UsageError

if TYPE_CHECKING:
    from infobus.bus.durable.driver import Guarantees

log = logging.getLogger("infobus")

Acknowledge = Literal["automatic", "explicit"]
_GLANCE_S = 0.5


class DurableEvent(Event, frozen=True, gc=False):
    """A guaranteed event: it is delivered until it is settled.

    `sender` is the ledger that keeps it, `number` its number there; together they are its id,
    which stays the same when it comes again. `deliveries` counts how often it has come.
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

    Iterate it (also with `async for`), or take one event with `receive`. Unless it was made with
    `acknowledge="explicit"`, asking for the next event settles the one before; a callback settles
    its event by returning, and lets it come again by raising.
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
    ) -> None:
        if acknowledge not in ("automatic", "explicit"):
            raise UsageError(f"acknowledge={acknowledge!r}: expected 'automatic' or 'explicit'")
        self.name = name
        self.patterns = tuple(patterns)
        self.lost = 0  # reported losses
        self._guarantees = guarantees
        self._callback = callback
        self._on_error = on_error
        self._is_automatic = acknowledge == "automatic"
        self._queue: SimpleQueue[DurableEvent | BusError | None] = SimpleQueue()
        self._lasts: dict[object, DurableEvent] = {}  # what each thread or task took last
        self._is_closed = False

    # What the consumer does.

    def receive(self, timeout_s: float | None = None) -> DurableEvent:
        """The next event, waiting for it at most `timeout_s` seconds.

        Raises:
            TimeoutError: Nothing came in time.
            LossError: Events fell out of a ledger's retention before they were settled.
            BusClosed: The subscription is closed.
        """
        return self._take(timeout_s, threading.get_ident())

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
        import asyncio  # takes half as long to import as the rest of the package

        while True:
            # In short waits: one that is cancelled must not keep its thread for ever.
            try:
                return await asyncio.to_thread(self._take, _GLANCE_S, asyncio.current_task())
            except TimeoutError:
                continue
            except BusClosed:
                raise StopAsyncIteration from None

    def close(self) -> None:
        """Stop receiving. What is not settled waits for the next use of the name."""
        if not self._is_closed:
            self._guarantees.release(self)

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

    def start(self) -> None:
        """Begin to call the callback, if there is one."""
        if self._callback is not None:
            name = f"infobus-durable-{self.name}"
            threading.Thread(target=self._deliver_for_ever, name=name, daemon=True).start()

    def offer(self, entry: DurableEvent | BusError) -> None:
        """Hand over an event or an error."""
        self._queue.put(entry)

    def end(self, error: BusError | None = None) -> None:
        """Take no more in; raise `error`, then end the iteration."""
        self._is_closed = True
        if error is not None:
            self._queue.put(error)
        self._queue.put(None)

    def abandon(self, why: BusError) -> None:
        """End in a forked child, where the parent's threads may hold the locks for ever."""
        self._queue, self._lasts = SimpleQueue(), {}
        self.end(why)

    def _take(self, timeout_s: float | None, taker: object) -> DurableEvent:
        last = self._lasts.pop(taker, None)
        if last is not None and self._is_automatic:
            last.ack()
        try:
            entry = self._queue.get(timeout=timeout_s)
        except Empty:
            what = ", ".join(self.patterns[:3])
            raise TimeoutError(f"no guaranteed event on {what} in {timeout_s} s") from None
        if entry is None:
            self._queue.put(None)  # for whoever else waits
            raise BusClosed(f"the durable subscription {self.name!r} is closed")
        if isinstance(entry, BusError):
            raise entry
        self._lasts[taker] = entry
        return entry

    def _deliver_for_ever(self) -> None:
        assert self._callback is not None
        while True:
            entry = self._queue.get()
            if entry is None:
                return
            if isinstance(entry, BusError):
                self._complain(entry)
                continue
            try:
                self._callback(entry)
            except BaseException:  # also SystemExit: it would end the thread, and in silence
                log.exception("the callback for %s raised; the event comes again", entry.subject)
                entry.nack()
            else:
                if self._is_automatic:
                    entry.ack()

    def _complain(self, error: BusError) -> None:
        if self._on_error is None:
            log.error("%s", error)
            return
        try:
            self._on_error(error)
        except BaseException:
            log.exception("the error handler of %r raised; delivery continues", self)
