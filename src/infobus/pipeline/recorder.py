"""The journal's consumer: what is published under some subjects goes into a journal.

All events come through one durable subscription. Guaranteed ones are acknowledged after the
manifest that lists them is on disk. The same manifest says which events of each ledger are there,
so what comes again after a crash is known to be there already: nothing is lost and nothing
doubled. They are written in the order of their coming, which is that of the ledger.
Of all other events, a crash loses those of the last moments.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infobus import Bus, BusClosed, BusError, Event, LossError, Transaction
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
GUARANTEED_COUNT_MAX = 200
"""A durable consumer has at most 256 events in hand, and more come only after a commit."""
LINGER_S = 0.5
TEND_S = 10.0
RETRY_S = 1.0
_FOR_EVER = 2**31
"""Deliveries: a journal that is killed time and again still wants every event."""


@dataclass(frozen=True, slots=True)
class RecorderProgress:
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
        retry_s: How long to wait for room on a full disk before the next attempt.
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
        retry_s: float = RETRY_S,
    ) -> None:
        self._retry_s = retry_s
        self.progress = RecorderProgress()
        self._writer = JournalWriter.open(folder)
        self.name = name or f"journal-{self._writer.manifest.journal[:12]}"
        self._upkeep = upkeep
        self._linger_s = linger_s
        self._is_stopping = threading.Event()
        kept = self._writer.manifest.positions.get(self.name, {})
        self._kept = {ledger: Numbers(ranges) for ledger, ranges in kept.items()}
        try:
            self._events = bus.subscribe_durable(
                list(patterns),
                None,
                self.name,
                where=where,
                test=test,
                on_mismatch="generic",  # a journal keeps what was sent
                acknowledge="explicit",
                ordered=False,  # or each would wait for the commit of the one before
                deliveries_max=_FOR_EVER,
                live=True,
            )
            (self._writer.folder / PATTERNS).write_text("\n".join(patterns), "utf-8")
        except BaseException:
            self._writer.close()
            raise

    def run(self, on_commit: Callable[[RecorderProgress], object] | None = None) -> None:
        """Write events until `stop` is called, then what has come until then."""
        tend_at_s = time.monotonic() + TEND_S
        try:
            while not self._is_stopping.is_set():
                self._commit(self._gather(), on_commit)
                if time.monotonic() >= tend_at_s:
                    tend_at_s = time.monotonic() + TEND_S
                    self._tend()
            # Of guaranteed events no more than have come: every commit lets further ones come.
            self._events.stop_live()
            self._commit(self._all_that_is_there(), on_commit)
            self._tend()
        finally:
            self._events.close()
            (self._writer.folder / PATTERNS).unlink(missing_ok=True)
            self._writer.close()

    def stop(self) -> None:
        """Have `run` come to its end; may be called from any thread, and from a signal handler.

        It hears of it within `linger_s`.
        """
        self._is_stopping.set()

    def _gather(self) -> list[DurableEvent]:
        """Events that came within `linger_s` of the first of them, or as many as go together."""
        batch: list[DurableEvent] = []
        guaranteed = 0
        end_s = time.monotonic() + self._linger_s
        while len(batch) < BATCH_COUNT_MAX and guaranteed < GUARANTEED_COUNT_MAX:
            event = self._next(max(0.0, end_s - time.monotonic()))
            if event is None:
                break
            if not batch:
                end_s = time.monotonic() + self._linger_s
            guaranteed += event.guaranteed
            batch.append(event)
        return batch

    def _all_that_is_there(self) -> list[DurableEvent]:
        return [*iter(lambda: self._next(0), None)]

    def _next(self, timeout_s: float) -> DurableEvent | None:
        """The next event; None if there is none in time, or this is to stop."""
        while True:
            try:
                return self._events.receive(timeout_s)
            except TimeoutError:
                return None
            except BusClosed as error:
                if not self._is_stopping.is_set():
                    log.warning("the journal in %s ends: %s", self._writer.folder, error)
                    self._is_stopping.set()
                return None
            except BusError as error:
                self._note(losses=1)
                # Guaranteed events among those come out of their ledger all the same.
                is_live = isinstance(error, LossError) and bool(error.channel or error.last is None)
                what = "events, unless they are guaranteed" if is_live else "events"
                log.warning("the journal in %s misses %s: %s", self._writer.folder, what, error)

    def _commit(
        self, batch: list[DurableEvent], on_commit: Callable[[RecorderProgress], object] | None
    ) -> None:
        durable = [event for event in batch if event.guaranteed]
        events: list[Event] = []
        for event in batch:
            if event.guaranteed:
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
                if self._is_stopping.wait(self._retry_s):
                    raise

    def _tend(self) -> None:
        try:
            tend(self._writer, time.time(), self._upkeep)
        except StoreFull as error:
            log.error("files are merged and removed later: %s", error)

    def _note(self, **more: int) -> None:
        before = self.progress
        self.progress = RecorderProgress(
            **{name: getattr(before, name) + more.get(name, 0) for name in before.__slots__}
        )
