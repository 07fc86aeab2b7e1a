"""Counts events that grew too old before anybody took them, and tells those who listen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from infobus.bus.deliver.event import Event, Run, as_sent, events_of
from infobus.bus.stats import Counters

log = logging.getLogger("infobus")


class Expiry:
    """Takes note of events that were let go because of their age, wherever they waited."""

    def __init__(self, name: str, counters: Counters, default_class: str) -> None:
        self._name = f"infobus-{name}-expired"
        self._counters = counters
        self._default_class = default_class
        self._listeners: list[Callable[[Event], object]] = []
        self._expired: SimpleQueue[Run | None] = SimpleQueue()

    def note(self, run: Run) -> None:
        """These events are gone. Never waits for user code."""
        self._counters.expired += len(run.items)
        if self._listeners:
            self._expired.put(run)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call `listener` with every event that goes from now on, on a thread of its own."""
        self._listeners.append(listener)
        if len(self._listeners) == 1:
            threading.Thread(target=self._tell_for_ever, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Tell no more, once what is known has been told."""
        self._expired.put(None)

    def _tell_for_ever(self) -> None:
        while (run := self._expired.get()) is not None:
            for event in events_of(run, as_sent, self._default_class):
                for listener in list(self._listeners):
                    try:
                        listener(event)
                    except BaseException:  # also SystemExit: it would end the thread, in silence
                        log.exception("a listener for expired events raised; others go on")
