"""The capture server: everything that is published under some subjects, into the repository."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

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
GLANCE_S = 0.2
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
DELIVERIES_MAX = 1_000_000

Store = Callable[[Sequence[Any]], int]


class _Source(Protocol):
    def receive(self, timeout_s: float | None = None) -> Any: ...
    def close(self) -> None: ...


class Capture:
    """Stores what is published, in threads of its own, until it is closed.

    Made by `Repository.capture`; use it as a context manager. While the database cannot be used,
    events wait; an object that it refuses is set aside (`Repository.all_set_aside`), and the
    others go on.

    Attributes:
        stored: How many events have been stored.
        set_aside: How many have been set aside.
        lost: How many losses were reported: of events that were not guaranteed.
        problem: What is wrong now, empty if nothing is.
    """

    def __init__(
        self, repository: Repository, bus: Bus, patterns: Sequence[str], *, name: str
    ) -> None:
        self.stored = self.set_aside = self.lost = 0
        self.problem = ""
        self._repository = repository
        self._bus = bus
        self._is_closed = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        try:
            for pattern in dict.fromkeys(patterns):
                consumer = _consumer_name(name, pattern)
                durable = partial(self._subscribe_durable, pattern, consumer)
                self._start(durable, _Guaranteed(consumer, repository).store)
            self._start(lambda: bus.subscribe_many(patterns, on_loss="raise"), repository.store)
        except BaseException:
            self.close()
            raise

    def _subscribe_durable(self, pattern: str, consumer: str) -> _Source:
        # Not `ordered`, which would give out one at a time: none is ever sent back, so they come
        # in order all the same. One that is refused is set aside, and never a dead letter.
        return self._bus.subscribe(
            pattern,
            durable=consumer,
            acknowledge="explicit",
            ordered=False,
            deliveries_max=DELIVERIES_MAX,
        )

    def close(self) -> None:
        """Store what has come, and stop, whatever else keeps coming. Idempotent.

        Guaranteed events that have not come by then wait for the next capture of this name.
        """
        self._is_closed.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self, subscribe: Callable[[], _Source], store: Store) -> None:
        """Subscribe, and store what comes in a thread of its own."""
        source = subscribe()
        thread = threading.Thread(
            target=self._work, args=(subscribe, source, store), name="infobus-capture", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, subscribe: Callable[[], _Source], source: _Source, store: Store) -> None:
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

    def _finish(self, source: _Source, store: Store) -> None:
        """Store what has come until now, whatever else keeps coming."""
        if isinstance(source, DurableSubscription):
            # Once: every acknowledgement lets further ones come, and these wait for the next time.
            batch, _, _ = self._gather(source, 0)
            self._keep(batch, store)
            return
        source.close()  # what is in its queue can still be taken, and no more is put there
        is_over = False
        while not is_over:
            batch, _, is_over = self._gather(source, 0)
            if not self._keep(batch, store):
                return

    def _gather(self, source: _Source, timeout_s: float) -> tuple[list[Any], BusError | None, bool]:
        """The next events, as many as are there already.

        And what ended the subscription, if something did, and whether nothing more is there.
        """
        batch: list[Any] = []
        # Those that are left out count, too: they may come for ever.
        for taken in range(BATCH_COUNT_MAX):
            try:
                event = source.receive(0 if taken else timeout_s)
                if isinstance(event, DurableEvent) or not event.guaranteed:
                    batch.append(event)  # else it comes out of a ledger, too
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

    def _subscribe_again(self, subscribe: Callable[[], _Source], error: BusError) -> _Source | None:
        """Another subscription for one that ended, as soon as it can be had.

        A durable name may seem to be in use, for a while after its process was killed.
        """
        while True:
            log.warning("capture: %s; it is tried again", error)
            self.problem = str(error)
            if self._is_closed.wait(PAUSE_S_MAX):
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
        """Store a batch, however long that takes; what is refused is set aside.

        Returns whether it is stored: if not, this was closed while the database was away.
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
            if isinstance(event, DurableEvent):
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
        """Do it, however long the database is away; returns why it refused, None if it did not."""
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
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            except Exception as error:  # whatever an object may have caused: the others go on
                return error


class _Guaranteed:
    """Stores guaranteed events once: the position in their ledger is in the same transaction.

    They come in the order of their ledger and are never sent back, so one number tells which of
    them have been stored.
    """

    def __init__(self, consumer: str, repository: Repository) -> None:
        self._in_table = PositionsIn(consumer)
        self._repository = repository
        self._positions: dict[str, int] = {}
        with repository.transaction() as connection:
            self._in_table.create(connection)

    def store(self, events: Sequence[Any]) -> int:
        """Store those events of a batch that have not been stored before."""
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
            return self.store(events)
        self._positions |= {ledger: event.number for ledger, event in last.items()}
        return len(new)

    def _look_up(self, ledgers: set[str]) -> None:
        if ledgers:
            with self._repository.transaction() as connection:
                for ledger in ledgers:
                    self._positions[ledger] = self._in_table.position(connection, ledger)


def _consumer_name(name: str, pattern: str) -> str:
    """A durable name for each pattern, so that one more or less changes nothing for the others.

    >>> _consumer_name("capture", "news.>")
    'capture-02f21b11'
    """
    return f"{name}-{hashlib.blake2b(pattern.encode(), digest_size=4).hexdigest()}"
