"""What a `Bus` does for guaranteed events: keeps them, and hands them to durable consumers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from infobus.bus.deliver.audience import filter_of, patterns_of, text_of
from infobus.bus.deliver.subscription import OnMismatch, check_choice
from infobus.bus.lifetime import Lifetime
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.settings import ledgers_folder
from infobus.bus.tags.tags import Tags
from infobus.errors import BusClosed, BusError, PeerError, StoreError, UsageError
from infobus.headers import readable
from infobus.open_files import open_files_needed
from infobus.protocols.frames import wire
from infobus.protocols.frames.guaranteed import SiteKeeper
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.deliver.event_keys import ConsumerKeys
    from infobus.bus.durable.driver import Guarantees
    from infobus.bus.durable.feed import LedgerFeed
    from infobus.bus.durable.homes import Homes
    from infobus.bus.durable.stores import KeptLedger
    from infobus.bus.durable.subscription import Acknowledge, DurableEvent, DurableSubscription
    from infobus.bus.publish.publisher import MakeRecords
    from infobus.filters import Filter
    from infobus.protocols.frames.guaranteed import Durable
    from infobus.stores.ledger.record import Record, SourcePlace

log = logging.getLogger("infobus")

_SITE_KEEPER_TAG = 70
_KEEPERS_COUNT_MAX = 100

DEAD_LETTERS = "dead_letters"
"""The first element of the subjects of dead letters; the durable name follows."""


class _SiteKeepers:
    """Which nodes keep places of durable names: known before this node has any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.names: dict[str, None] = {}
        runtime.register(self, [_SITE_KEEPER_TAG])

    def on_frame(self, payload: bytes) -> None:
        try:
            message = wire.decode(payload)
        except PeerError as error:
            self._runtime.on_bad_frame(error)
            return
        if isinstance(message, SiteKeeper) and len(self.names) < _KEEPERS_COUNT_MAX:
            self.names[message.sender] = None

    def on_peer(self, name: str, alive: bool) -> None:
        if not alive:
            self.names.pop(name, None)

    def on_tick(self) -> None:
        """Nothing is due."""


class Guaranteed:
    """The ledgers and durable consumers of a node; what drives them is begun when needed."""

    def __init__(
        self,
        runtime: Runtime,
        bus_name: str,
        home: Path,
        lifetime: Lifetime,
        publish: Callable[..., None],
        tags: Tags,
        *,
        test: bool,
    ) -> None:
        self._runtime = runtime
        self._bus_name = bus_name
        self._home = home
        self._lifetime = lifetime
        self._publish = publish  # dead letters
        self._tags = tags
        self._test = test
        self.driver: Guarantees | None = None
        self._homes: Homes | None = None
        self._site_keepers = _SiteKeepers(runtime)
        self._beginning = threading.RLock()  # a signal may close what its thread begins

    def keep(self, make: MakeRecords) -> tuple[str, int]:
        """Put records of events on disk; which ledger keeps them, and the number of the first."""
        return (self.driver or self._begun()).append(make)

    def subscribe(
        self,
        patterns: Iterable[str],
        callback: Callable[[DurableEvent], object] | None,
        name: str,
        *,
        where: str | Filter | None,
        test: bool,
        on_mismatch: OnMismatch,
        on_error: Callable[[BusError], object] | None,
        acknowledge: Acknowledge,
        ordered: bool,
        deliveries_max: int,
        keys: ConsumerKeys | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> DurableSubscription:
        """See `Bus.subscribe_durable`."""
        from infobus.bus.durable.subscription import DurableSubscription

        patterns = patterns_of("subscribe_durable", patterns)
        if not isinstance(name, str) or not name:
            raise UsageError(f"durable={name!r}: expected the consumer's name, such as 'billing'")
        check_subject(f"{DEAD_LETTERS}.{name}")
        check_choice("on_mismatch", on_mismatch, OnMismatch)
        if deliveries_max < 1:
            raise UsageError(f"deliveries_max is {deliveries_max}; it must be at least 1")
        if self._runtime.guard is not None:
            patterns = self._runtime.guard.wanted(patterns, narrow=False)
        driver = self._begun()
        self._tags.check_subscriber(patterns, self._runtime.patience.subscribe_s)
        subscription = DurableSubscription(
            driver,
            name,
            patterns,
            callback=callback,
            on_error=on_error,
            acknowledge=acknowledge,
            workers=self._runtime.workers,
        )
        asked = filter_of(where)
        driver.subscribe(
            subscription,
            text_of(asked) if keys is None else keys.row_text(asked),
            test=test or self._test,
            on_mismatch=on_mismatch,
            ordered=ordered,
            deliveries_max=deliveries_max,
            judge=None if keys is None else partial(keys.read_kept, asked),
            wanted=wanted,
        )
        return subscription

    # What routers do.

    def feed(
        self,
        patterns: Iterable[str],
        name: str,
        *,
        where: str,
        since: float,
        on_error: Callable[[BusError], object],
    ) -> LedgerFeed:
        """Be a durable consumer that gets events as they are kept, those since a time included.

        Raises:
            DurableInUse: Another subscription of this home uses the name.
        """
        from infobus.bus.durable.feed import LedgerFeed  # late: only routers do this

        driver, patterns = self._begun(), list(patterns)
        self._tags.check_subscriber(patterns, self._runtime.patience.subscribe_s)
        feed = LedgerFeed(driver, name, patterns, on_error)
        driver.feed(feed, where, since)
        return feed

    def keep_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        types: Mapping[int, bytes],
        reached: Mapping[str, int],
    ) -> None:
        """Put records on disk that are kept elsewhere, each once, however often they come.

        `reached` are sources that are raised to a number in the same transaction.

        Raises:
            StoreError: Nothing was kept; trying again is safe.
        """
        (self.driver or self._begun()).append_from(sources, records, types, reached)

    def kept_from(self) -> Mapping[str, int]:
        """Up to which number this home keeps the records of each source."""
        return self._begun().sources()

    def watch_consumers(self, watcher: Callable[[Durable], object]) -> Callable[[], None]:
        """Call `watcher`, which must not wait, with what durable consumers say of themselves.

        Those that are in use say it when they begin, to each node that comes, and every 5 s.
        Returns what ends this.
        """
        return self._begun().watch(watcher)

    def registrations(self) -> Mapping[str, float]:
        """The durable consumers of this node's homes, in use or not, and since when they are."""
        return self._begun().registrations()

    def open(self) -> None:
        """Serve what is kept already: some ledgers of the home may have lost their owner."""
        if ledgers_folder(self._home, self._bus_name).is_dir():
            self._begun()

    def adopt(self, homes: Iterable[Path]) -> None:
        """See `Bus.adopt`."""
        driver = self._begun()
        assert self._homes is not None
        for home in homes:
            self._homes.adopt(home)
        driver.look_for_ledgers()

    def keep_names(self, file: Path) -> None:
        """See `Bus.keep_names`."""
        from infobus.stores.ledger.place_store import PlaceStore

        self._begun().keep_names(PlaceStore(file))

    def _keepers(self) -> list[str]:
        return [*self._site_keepers.names.copy()]

    def served(self) -> tuple[str, ...]:
        """The ids of the ledgers that this node serves now."""
        return () if self.driver is None else tuple(sorted(self.driver.ledgers.copy()))

    def open_ledgers(self) -> dict[str, KeptLedger]:
        """The ledgers that this node serves now, by id."""
        return {} if self.driver is None else self.driver.ledgers.copy()

    def close(self) -> None:
        """Save everything, and let others have the ledgers and names; nothing is kept any more."""
        with self._beginning:  # whoever begins just now has begun, and nobody will after this
            driver = self.driver
        if driver is not None:
            driver.close()

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child."""
        self._beginning = threading.RLock()
        if self.driver is not None:
            self.driver.abandon(why)

    @open_files_needed()
    def _begun(self) -> Guarantees:
        with self._beginning:
            self._lifetime.check()
            if self.driver is None:
                from infobus.bus.durable.driver import Guarantees  # late: it stands on a database
                from infobus.bus.durable.homes import Homes

                self._homes = Homes(self._home, self._bus_name)
                try:
                    driver = Guarantees(
                        self._runtime, self._homes, self._bury, keepers=self._keepers
                    )
                except RuntimeError as error:  # no more threads can be started
                    raise StoreError(
                        f"guaranteed delivery cannot begin, so nothing was accepted: {error}",
                        path=str(self._home),
                    ) from error
                self._lifetime.check()
                driver.start()
                self.driver = driver
            return self.driver

    def _bury(self, consumer: str, dead: Any) -> None:
        """Publish a dead letter."""
        from infobus.bus.durable.dead_letters import letter

        if dead.entry.subject.startswith(f"{DEAD_LETTERS}."):
            log.error("durable consumer %r cannot use dead letter %s", consumer, dead.entry.number)
            return  # a letter about a letter would never end
        subject = f"{DEAD_LETTERS}.{consumer}"
        self._publish(
            subject,
            letter(consumer, dead),
            guaranteed=True,
            test=dead.entry.test,
            headers=readable(dead.entry.headers),
        )
