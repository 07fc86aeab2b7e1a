"""Records the events that pass a router, under the names that they have where they go."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from queue import Empty, Queue

from infobus import Bus, Event, Transaction
from infobus.bus.bus import interior
from infobus.bus.deliver.event import Run, events_of
from infobus.errors import StoreFull
from infobus.stores.journal.writer import JournalWriter

log = logging.getLogger("infobus.router")

_RUNS_COUNT_MAX = 1_024  # that wait; then what crosses waits, too
_TOGETHER_COUNT_MAX = 8_192
_LINGER_S = 0.5
_RETRY_S = 1.0


class ForwardedJournal:
    """Writes runs of events into the journal in `folder`, on a thread of its own, until closed.

    A crash loses those of the last half second; a full disk holds up what is to cross.

    Raises:
        StoreError: The folder cannot be used, or another process writes there.
    """

    def __init__(self, folder: Path, backbone: Bus) -> None:
        runtime = interior(backbone).runtime
        self._default_class = runtime.node.terms.classes.default
        self._on_bad_object = runtime.on_bad_object
        self._writer = JournalWriter.open(folder)
        self._runs: Queue[Run | None] = Queue(_RUNS_COUNT_MAX)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="infobus-journal", daemon=True)
        self._thread.start()

    def note(self, run: Run) -> None:
        """Write down a run that has just passed, as it is on the bus where it went."""
        if not self._is_closing.is_set():
            self._runs.put(run)

    def close(self) -> None:
        """Write what was noted, and end. Idempotent."""
        if not self._is_closing.is_set():
            self._is_closing.set()
            self._runs.put(None)
            self._thread.join()
            self._writer.close()

    def _work(self) -> None:
        is_over = False
        while not is_over:
            events: list[Event] = []
            run = self._runs.get()
            end_s = time.monotonic() + _LINGER_S
            while run is not None and len(events) < _TOGETHER_COUNT_MAX:
                for event in events_of(run, self._on_bad_object, self._default_class):
                    events += event.data if isinstance(event.data, Transaction) else (event,)
                try:
                    run = self._runs.get(timeout=max(0.0, end_s - time.monotonic()))
                except Empty:
                    break
            is_over = run is None
            if events:
                self._append(events)

    def _append(self, events: list[Event]) -> None:
        while True:
            try:
                self._writer.append(events, now_s=time.time())
                return
            except StoreFull as error:
                log.error("%s; trying again until there is room", error)
                if self._is_closing.wait(_RETRY_S):
                    return
