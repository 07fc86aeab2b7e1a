"""The capture server: store everything that is published under some patterns.

Guaranteed events arrive through one durable subscription per pattern, and their positions are
committed with the objects: each is stored exactly once. All other events arrive through one
ordinary subscription. Each subscription has its own thread.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from infobus import Bus, BusClosed, BusError, Event, LossError
from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
from infobus.errors import StoreCorrupt, StoreError
from infobus.repository.repository import records_of
from infobus.stores.ledger.positions_sql import PositionsIn

if TYPE_CHECKING:
    from infobus.repository.repository import Repository

log = logging.getLogger("infobus")

BATCH_COUNT_MAX = 1000
GLANCE_S = 0.2  # how long to wait for an event before looking whether the capture is closed
PRUNE_S = 300.0
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
DELIVERIES_MAX = 1_000_000

Store = Callable[[Sequence[Any]], int]


class Capture:
    """Stores published events in its own threads until you close it.

    `Repository.capture` makes it; use it as a context manager. While the database is not
    available, events wait. If the database refuses an object, the capture sets the object aside
    (see `Repository.all_set_aside`) and continues with the others.

    Attributes:
        stored: The number of events stored.
        set_aside: The number of events set aside.
        lost: The number of losses reported, for events that were not guaranteed.
        problem: The current problem, or an empty string.
    """

    def __init__(
        self,
        repository: Repository,
        bus: Bus,
        patterns: Sequence[str],
        *,
        name: str,
        keep_s: float | None = None,
        pause_s_max: float = PAUSE_S_MAX,
    ) -> None:
        self._pause_s_max = pause_s_max
        self.stored = self.set_aside = self.lost = 0
        self.problem = ""
        self._repository = repository
        self._bus = bus
        self._is_closed = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        try:
            patterns = [*dict.fromkeys(patterns)]
            for number, pattern in enumerate(patterns):
                consumer = _consumer_name(name, pattern)
                # One of them gets all that is not guaranteed: what several patterns match comes
                # once, and a transaction as a whole.
                live = patterns if number == 0 else []
                subscribe = partial(self._subscribe, pattern, consumer, live)
                self._start(subscribe, _Once(consumer, repository).store)
            if keep_s is not None:
                self._run(self._prune, keep_s)
        except BaseException:
            self.close()
            raise

    def _subscribe(self, pattern: str, consumer: str, live: list[str]) -> DurableSubscription:
        # `ordered` would deliver one event at a time. It is not needed: the capture never
        # rejects an event, so they arrive in order anyway. A refused event is set aside, so it
        # must never become a dead letter.
        return self._bus.subscribe_durable(
            [pattern],
            None,
            consumer,
            on_mismatch="generic",  # what was sent is stored
            acknowledge="explicit",
            ordered=False,
            deliveries_max=DELIVERIES_MAX,
            live=live,
        )

    def close(self) -> None:
        """Store the events that have arrived, and stop. Idempotent.

        Guaranteed events that arrive later wait for the next capture with this name.
        """
        self._is_closed.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self, subscribe: Callable[[], DurableSubscription], store: Store) -> None:
        """Subscribe, and start a thread that stores the events."""
        self._run(self._work, subscribe, subscribe(), store)

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="infobus-capture", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _prune(self, keep_s: float) -> None:
        """Delete what is too old, until the capture is closed."""
        while True:
            try:
                before = datetime.now(UTC) - timedelta(seconds=keep_s)
                for _ in self._repository.prune_stepwise(before):
                    if self._is_closed.is_set():
                        return
            except StoreError as error:
                log.error("capture: what is too old is deleted later: %s", error)
            if self._is_closed.wait(PRUNE_S):
                return

    def _work(
        self,
        subscribe: Callable[[], DurableSubscription],
        source: DurableSubscription,
        store: Store,
    ) -> None:
        while not self._is_closed.is_set():
            batch, error, _ = self._gather(source, GLANCE_S)
            if not self._keep(batch, store):
                break
            if error is not None:
                source.close()
                again = self._subscribe_again(subscribe, error)
                if again is None:
                    return
                source = again
        else:
            self._finish(source, store)
        source.close()

    def _finish(self, source: DurableSubscription, store: Store) -> None:
        """Store the events that have arrived until now, and no later ones."""
        source.stop_live()  # what is in its queue can still be taken, and no more is put there
        # Gather everything first: every acknowledgement lets more guaranteed events arrive, and
        # those wait for the next capture.
        left: list[DurableEvent] = []
        is_over = False
        while not is_over:
            batch, _, is_over = self._gather(source, 0)
            left += batch
        for at in range(0, len(left), BATCH_COUNT_MAX):
            if not self._keep(left[at : at + BATCH_COUNT_MAX], store):
                return

    def _gather(
        self, source: DurableSubscription, timeout_s: float
    ) -> tuple[list[DurableEvent], BusError | None, bool]:
        """Return the events that are available now, up to one batch.

        Also return the error that ended the subscription, if any, and whether the queue is
        empty.
        """
        batch: list[DurableEvent] = []
        for taken in range(BATCH_COUNT_MAX):
            try:
                batch.append(source.receive(0 if taken else timeout_s))
            except LossError as error:
                log.warning("capture: %s", error)
                with self._counting:
                    self.lost += 1
            except TimeoutError:
                return batch, None, True
            except BusClosed:
                self._is_closed.set()
                return batch, None, True
            except BusError as error:
                return batch, error, True
        return batch, None, False

    def _subscribe_again(
        self, subscribe: Callable[[], DurableSubscription], error: BusError
    ) -> DurableSubscription | None:
        """Another subscription for one that ended, as soon as it can be had.

        After a process was killed, its durable name may seem to be in use for a while.
        """
        while True:
            log.warning("capture: %s; it is tried again", error)
            self.problem = str(error)
            if self._is_closed.wait(self._pause_s_max):
                return None
            try:
                source = subscribe()
                self.problem = ""
                return source
            except BusClosed:
                self._is_closed.set()
            except BusError as again:
                error = again

    def _keep(self, batch: list[Any], store: Store) -> bool:
        """Store a batch, however long that takes, and set refused events aside.

        Returns False if the capture was closed while the database was not available.
        """
        try:
            self._store(batch, store)
        except StoreError as error:
            log.error("capture: %d events were not stored: %s", len(batch), error)
            return False
        return True

    def _store(self, batch: list[Any], store: Store) -> None:
        if not batch:
            return
        if self._insist(lambda: store(batch)) is None:
            with self._counting:
                self.stored += len(batch)
        else:
            for event in batch:
                self._keep_one(event, store)
        for event in batch:
            event.ack()

    def _keep_one(self, event: Event, store: Store) -> None:
        refusal = self._insist(lambda: store([event]))
        if refusal is not None:
            log.error("capture: %s of %s is set aside: %s", event.type, event.subject, refusal)
            records, reason = list(records_of(event)), f"{type(refusal).__name__}: {refusal}"
            if self._insist(lambda: self._repository.set_aside(records, reason)) is not None:
                log.error("capture: and cannot be set aside either; it is lost: %s", event.id)
        with self._counting:
            self.stored += refusal is None
            self.set_aside += refusal is not None

    def _insist(self, store: Callable[[], object]) -> Exception | None:
        """Retry while the database is not available; return its refusal, or None if it worked."""
        pause_s = PAUSE_S
        while True:
            try:
                store()
                self.problem = ""
                return None
            except StoreCorrupt as error:
                return error
            except StoreError as error:
                if not self.problem:
                    log.error("capture: %s; it is tried again", error)
                self.problem = str(error)
                if self._is_closed.wait(pause_s):
                    raise
                pause_s = min(2 * pause_s, self._pause_s_max)
            except Exception as error:  # one bad object must not stop the others
                return error


class _Once:
    """Stores guaranteed events once: the position in their ledger is in the same transaction.

    They come in the order of their ledger and are never sent back, so one number tells which of
    them have been stored. Other events are stored as they come.
    """

    def __init__(self, consumer: str, repository: Repository) -> None:
        self._in_table = PositionsIn(consumer)
        self._repository = repository
        self._positions: dict[str, int] = {}
        with repository.transaction() as connection:
            self._in_table.create(connection)

    def store(self, events: Sequence[Any]) -> int:
        """Store those events of a batch that have not been stored before."""
        guaranteed = [event for event in events if event.guaranteed]
        plain = [event for event in events if not event.guaranteed]
        stored_count = self._store_once(guaranteed)
        return stored_count + (self._repository.store(plain) if plain else 0)

    def _store_once(self, events: Sequence[Any]) -> int:
        self._look_up({event.sender for event in events} - self._positions.keys())
        new = [event for event in events if event.number > self._positions[event.sender]]
        last = {event.sender: event for event in new}

        def settle(connection: Connection) -> bool:
            return all(self._in_table.settle(connection, event) for event in last.values())

        records = [record for event in new for record in records_of(event)]
        if not new:
            return 0
        is_stored = self._repository.store_records(records, settle, keep_newer=True)
        if not is_stored:
            self._positions.clear()  # somebody else was at it under this name
            return self._store_once(events)
        self._positions |= {ledger: event.number for ledger, event in last.items()}
        return len(new)

    def _look_up(self, ledgers: set[str]) -> None:
        if ledgers:
            with self._repository.transaction() as connection:
                for ledger in ledgers:
                    self._positions[ledger] = self._in_table.position(connection, ledger)


def _consumer_name(name: str, pattern: str) -> str:
    """Return a durable name for one pattern, so that patterns can be added and removed freely.

    >>> _consumer_name("capture", "news.>")
    'capture-02f21b11'
    """
    return f"{name}-{hashlib.blake2b(pattern.encode(), digest_size=4).hexdigest()}"
