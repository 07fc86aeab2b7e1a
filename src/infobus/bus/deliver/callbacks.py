"""Delivery threads: they run callbacks, so that neither the engine nor another consumer waits."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from infobus.errors import BusError
from infobus.patience import DEFAULT_PATIENCE

log = logging.getLogger("infobus")

_RUN_COUNT_MAX = 256
"""Events that one subscription may have delivered before another one gets its turn."""


class Served(Protocol):
    """A subscription with a callback."""

    is_scheduled: bool
    handler: Callable[[Any], object] | None  # as the user has given it
    on_error: Callable[[BusError], object] | None

    @property
    def callback(self) -> Callable[[Any], object] | None:
        """What is called with each event."""

    def take_nowait(self) -> Any:
        """The next event; None at the end. Raises `queue.Empty` if there is none now."""

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""


class LeftOver(Protocol):
    """A subscription that is closed and whose events are taken by and by."""

    def is_drained(self) -> bool:
        """Whether all events that had come were taken."""


class _Work:
    """What one worker is doing."""

    __slots__ = ("event", "subscription")

    def __init__(self, subscription: Served) -> None:
        self.subscription = subscription
        self.event: Any = None

    def __str__(self) -> str:
        handler = self.subscription.handler
        name = getattr(handler, "__qualname__", None) or repr(handler)
        subject = "no event yet" if self.event is None else self.event.subject
        return f"the callback {name} of {self.subscription!r}, called for {subject},"


_all_workers: weakref.WeakSet[Workers] = weakref.WeakSet()


def rest_at_exit() -> None:
    """Wait, bounded, for the callbacks that run in this process, and call no more."""
    begun_s = time.monotonic()
    for workers in list(_all_workers):
        workers.rest(max(0.0, workers.patience_s - (time.monotonic() - begun_s)))


def forget_all() -> None:
    """Begin anew in a forked child, which has none of its parent's threads."""
    _all_workers.clear()


class Workers:
    """A pool that grows while callbacks block, so that a slow one delays only itself.

    Each subscription is served by one worker at a time, so its events stay in order. A callback
    that runs is never cut: closing the bus and the end of the program wait for it, for a while.
    """

    def __init__(
        self, name: str, patience_s: float = DEFAULT_PATIENCE.handlers_s, count_max: int = 64
    ) -> None:
        self._name = name
        self.patience_s = patience_s
        self._count_max = count_max
        self._ready: SimpleQueue[Served | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._spare = 0  # workers without work, less work without a worker
        self._at_work: dict[int, _Work] = {}  # by thread
        self._changed = threading.Condition(self._lock)
        self._rests = 0  # who wants the workers to begin nothing new
        self._waits = 0  # who wants to be told when one of them has nothing to do
        _all_workers.add(self)
        self._is_told = False  # that there are no more threads to be had

    def schedule(self, subscription: Served) -> None:
        """There is something to deliver."""
        with self._lock:
            is_new = not subscription.is_scheduled
            if not is_new and self._count:
                return
            subscription.is_scheduled = True
            must_grow = not self._count or (self._spare <= 0 and self._count < self._count_max)
            self._count += must_grow
            self._spare += must_grow - is_new
        if is_new:
            self._ready.put(subscription)
        if must_grow:
            self._grow()

    def _grow(self) -> None:
        name = f"{self._name}-delivery-{self._count}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
                self._spare -= 1
                is_told, self._is_told = self._is_told, True
            if not is_told:
                log.error("callbacks wait for a thread that can be started: %s", error)

    def stop(self) -> None:
        """Let the workers end once they have nothing to do."""
        self._ready.put(None)

    def rest(self, timeout_s: float | None = None) -> None:
        """Call no more callbacks until `resume`; wait for those that run, `timeout_s` at most.

        A callback that still runs then is named in a warning. One that calls this is not waited
        for.
        """
        with self._lock:
            self._rests += 1  # first: a worker notes its work before it looks at this
        self.wait_for(None, timeout_s)

    def resume(self) -> None:
        """Go on with what waits."""
        with self._lock:
            self._rests -= 1
            self._changed.notify_all()

    def finish(self, subscriptions: Sequence[LeftOver], timeout_s: float) -> None:
        """Wait until all events of closed subscriptions are taken, and their callbacks are over.

        Those that have events left then are named in a warning.
        """
        until_s = time.monotonic() + timeout_s
        me = threading.get_ident()

        def left() -> list[LeftOver]:
            busy: list[object] = [
                work.subscription for at, work in list(self._at_work.items()) if at != me
            ]
            return [one for one in subscriptions if one in busy or not one.is_drained()]

        with self._lock:
            self._waits += 1
            # Callbacks tell when they are over; iterators do not, so we look now and then.
            while left() and (left_s := until_s - time.monotonic()) > 0:
                self._changed.wait_for(lambda: not left(), min(left_s, 0.05))
            self._waits -= 1
        for subscription in left():
            log.warning("%r was not drained in %s s", subscription, timeout_s)

    def wait_for(self, subscription: Served | None, timeout_s: float | None = None) -> None:
        """Wait for the callback of a subscription (of all, if None) that runs; see `rest`."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        me = threading.get_ident()

        def running() -> list[_Work]:
            at_work = list(self._at_work.items())
            some = [work for thread, work in at_work if thread != me]
            return [work for work in some if subscription in (None, work.subscription)]

        with self._lock:
            self._waits += 1
            is_over = self._changed.wait_for(lambda: not running(), timeout_s)
            self._waits -= 1
        for work in () if is_over else running():
            log.warning("%s still runs after %s s and may be cut off", work, timeout_s)

    def _work(self) -> None:
        while True:
            subscription = self._ready.get()
            if self._rests:
                with self._lock:
                    self._changed.wait_for(lambda: not self._rests)
            if subscription is None:
                self._ready.put(None)
                if self._ready.qsize() == 1:
                    return
            elif self._deliver(subscription):
                self._ready.put(subscription)
            else:
                with self._lock:
                    self._spare += 1

    def _deliver(self, subscription: Served) -> bool:
        """Deliver some events; True if there are more."""
        callback = subscription.callback
        assert callback is not None
        me = threading.get_ident()
        work = self._at_work[me] = _Work(subscription)
        try:
            return self._deliver_some(subscription, callback, work)
        finally:
            del self._at_work[me]
            if self._waits:
                with self._lock:
                    self._changed.notify_all()

    def _deliver_some(
        self, subscription: Served, callback: Callable[[Any], object], work: _Work
    ) -> bool:
        for _ in range(_RUN_COUNT_MAX):
            if self._rests:
                break
            try:
                event = subscription.take_nowait()
            except Empty:
                # An offer after this sees the flag down and schedules again.
                with self._lock:
                    subscription.is_scheduled = not subscription.is_empty()
                    return subscription.is_scheduled
            except BusError as error:
                _complain(subscription, error)
                continue
            if event is None:
                return False
            work.event = event
            try:
                callback(event)
            except BaseException:  # also SystemExit: it would end the thread, and in silence
                log.exception("the callback for %s raised; delivery continues", event.subject)
        return True


def _complain(subscription: Served, error: BusError) -> None:
    if subscription.on_error is None:
        log.error("%s", error)
        return
    try:
        subscription.on_error(error)
    except BaseException:
        log.exception("the error handler of %r raised; delivery continues", subscription)
