"""The journal's consumer: what is published under some subjects goes into a journal.

Guaranteed events come through a durable subscription and are acknowledged after the manifest
that lists them is on disk. The same manifest says which events of each ledger are there, so what
comes again after a crash is known to be there already: nothing is lost and nothing doubled.
They are written in the order of their coming, which is that of the ledger.
All other events come through an ordinary subscription; a crash loses those of the last moments.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from infobus import Bus, BusError, Event, Transaction
from infobus.bus.durable.subscription import DurableEvent
from infobus.errors import StoreFull
from infobus.stores.journal.journal import JournalWriter
from infobus.stores.journal.ranges import Numbers
from infobus.stores.journal.upkeep import Upkeep, tend

log = logging.getLogger("infobus")

PATTERNS = "recording.txt"
"""In a journal's folder while it is written: the patterns that are listened to, one per line."""
BATCH_COUNT_MAX = 8_192
"""So many events are written at once, at most."""
QUEUE_COUNT_MAX = 8_192
"""So many wait here while others are written; then senders are held."""
GUARANTEED_COUNT_MAX = 200
"""A durable consumer has at most 256 events in hand, and more come only after a commit."""
LINGER_S = 0.5
TEND_S = 10.0
RETRY_S = 1.0
_FOR_EVER = 2**31
"""Deliveries: a journal that is killed time and again still wants every event."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a recorder has done since it began: a snapshot."""

    events: int = 0
    guaranteed: int = 0
    commits: int = 0
    losses: int = 0
    """Reports of events that can no longer be had."""


class Recorder:
    """Writes what is published under `patterns` into the journal in `folder`.

    It subscribes when it is made, and works in `run`, until `stop`. What had been handed to it
    then is in the journal when `run` returns.

    Args:
        bus: The bus to listen to; it is not closed.
        patterns: Subjects.
        folder: Of the journal; made if it is not there.
        name: Of the durable consumer; each journal has its own unless told otherwise.
        where: A filter.
        test: Test events, too.
        upkeep: What is kept, and for how long.
        linger_s: How long an event waits for others to be written with.
    """

    def __init__(
        self,
        bus: Bus,
        patterns: Sequence[str],
        folder: str | Path,
        *,
        name: str | None = None,
        where: str | None = None,
        test: bool = False,
        upkeep: Upkeep = Upkeep(),  # noqa: B008 - it is frozen
        linger_s: float = LINGER_S,
    ) -> None:
        self.progress = Progress()
        self._writer = JournalWriter.open(folder)
        self.name = name or f"journal-{self._writer.manifest.journal[:12]}"
        self._upkeep = upkeep
        self._linger_s = linger_s
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._is_stopping = threading.Event()
        kept = self._writer.manifest.positions.get(self.name, {})
        self._kept = {ledger: Numbers(ranges) for ledger, ranges in kept.items()}
        options: dict[str, Any] = {"where": where, "test": test, "on_error": self._on_error}
        try:
            self._durable = bus.subscribe_durable(
                list(patterns),
                self._put,
                self.name,
                acknowledge="explicit",
                ordered=False,  # or each would wait for the commit of the one before
                deliveries_max=_FOR_EVER,
                **options,
            )
            self._live = bus.subscribe_many(patterns, self._put_live, **options)
            (self._writer.folder / PATTERNS).write_text("\n".join(patterns), "utf-8")
        except BaseException:
            self._writer.close()
            raise

    def run(self, on_commit: Callable[[Progress], object] | None = None) -> None:
        """Write events until `stop` is called, then what has come until then."""
        tend_at_s = time.monotonic() + TEND_S
        try:
            while not self._is_stopping.is_set():
                self._commit(self._gather(), on_commit)
                if time.monotonic() >= tend_at_s:
                    tend_at_s = time.monotonic() + TEND_S
                    self._tend()
            self._live.close()
            # No more than this: every commit lets further guaranteed events come.
            left = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
            self._commit([event for event in left if event is not None], on_commit)
            self._tend()
        finally:
            self._live.close()
            self._durable.close()
            (self._writer.folder / PATTERNS).unlink(missing_ok=True)
            self._writer.close()

    def stop(self) -> None:
        """Have `run` come to its end; may be called from any thread, and from a signal handler."""
        self._is_stopping.set()
        self._queue.put(None)

    # What the bus does.

    def _put(self, event: Any) -> None:
        while self._queue.qsize() > QUEUE_COUNT_MAX and not self._is_stopping.is_set():
            time.sleep(0.01)
        self._queue.put(event)

    def _put_live(self, event: Event) -> None:
        # Those that are in a ledger come from there.
        if not event.guaranteed:
            self._put(event)

    def _on_error(self, error: BusError) -> None:
        self._note(losses=1)
        log.warning("the journal in %s misses events: %s", self._writer.folder, error)

    # What `run` does.

    def _gather(self) -> list[Any]:
        """Events that came within `linger_s` of the first of them, or as many as go together."""
        batch: list[Any] = []
        guaranteed = 0
        end_s = time.monotonic() + self._linger_s
        while len(batch) < BATCH_COUNT_MAX and guaranteed < GUARANTEED_COUNT_MAX:
            try:
                event = self._queue.get(timeout=max(0.0, end_s - time.monotonic()))
            except Empty:
                break
            if event is None:
                break
            if not batch:
                end_s = time.monotonic() + self._linger_s
            guaranteed += isinstance(event, DurableEvent)
            batch.append(event)
        return batch

    def _commit(self, batch: list[Any], on_commit: Callable[[Progress], object] | None) -> None:
        durable = [event for event in batch if isinstance(event, DurableEvent)]
        events: list[Event] = []
        for event in batch:
            if isinstance(event, DurableEvent):
                kept = self._kept.setdefault(event.sender, Numbers())
                if event.number in kept:
                    continue  # it is in the journal already, and has come again
                kept.add(event.number)
            events += event.data if isinstance(event.data, Transaction) else (event,)
        if events:
            self._append(events)
        for event in durable:
            event.ack()
        if events:
            self._note(events=len(events), guaranteed=len(durable), commits=1)
            if on_commit is not None:
                on_commit(self.progress)

    def _append(self, events: list[Event]) -> None:
        kept = {ledger: numbers.ranges for ledger, numbers in self._kept.items()}
        while True:
            try:
                self._writer.append(events, now_s=time.time(), positions={self.name: kept})
                return
            except StoreFull as error:
                # What is guaranteed is not lost by waiting; senders of the rest are held.
                log.error("%s; trying again until there is room", error)
                if self._is_stopping.wait(RETRY_S):
                    raise

    def _tend(self) -> None:
        try:
            tend(self._writer, time.time(), self._upkeep)
        except StoreFull as error:
            log.error("files are merged and removed later: %s", error)

    def _note(self, **more: int) -> None:
        before = self.progress
        self.progress = Progress(
            **{name: getattr(before, name) + more.get(name, 0) for name in before.__slots__}
        )
