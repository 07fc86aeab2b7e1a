"""Delivery threads: they run callbacks, so that neither the engine nor another consumer waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from infobus.errors import BusError

log = logging.getLogger("infobus")

_RUN_COUNT_MAX = 256
"""Events that one subscription may have delivered before another one gets its turn."""


class Served(Protocol):
    """A subscription with a callback."""

    is_scheduled: bool
    on_error: Callable[[BusError], object] | None

    @property
    def callback(self) -> Callable[[Any], object] | None:
        """What is called with each event."""

    def take_nowait(self) -> Any:
        """The next event; None at the end. Raises `queue.Empty` if there is none now."""

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""


class Workers:
    """A pool that grows while callbacks block, so that a slow one delays only itself.

    Each subscription is served by one worker at a time, so its events stay in order.
    """

    def __init__(self, name: str, count_max: int = 64) -> None:
        self._name = name
        self._count_max = count_max
        self._ready: SimpleQueue[Served | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._spare = 0  # workers without work, less work without a worker

    def schedule(self, subscription: Served) -> None:
        """There is something to deliver."""
        with self._lock:
            if subscription.is_scheduled:
                return
            subscription.is_scheduled = True
            must_grow = self._spare <= 0 and self._count < self._count_max
            self._count += must_grow
            self._spare -= not must_grow
        self._ready.put(subscription)
        if must_grow:
            name = f"{self._name}-delivery-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Let the workers end once they have nothing to do."""
        self._ready.put(None)

    def _work(self) -> None:
        while True:
            subscription = self._ready.get()
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
        for _ in range(_RUN_COUNT_MAX):
            try:
                event = subscription.take_nowait()
            except Empty:
                # Whoever offers after this sees the flag down and schedules anew.
                with self._lock:
                    subscription.is_scheduled = not subscription.is_empty()
                    return subscription.is_scheduled
            except BusError as error:
                _complain(subscription, error)
                continue
            if event is None:
                return False
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
