"""What a `Bus` does for guaranteed events: keeps them, and hands them to durable consumers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from infobus.bus.deliver.audience import filter_of, patterns_of, text_of
from infobus.bus.lifetime import Lifetime
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.settings import ledgers_folder
from infobus.errors import BusClosed, BusError, UsageError
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.durable.driver import Guarantees
    from infobus.bus.durable.subscription import Acknowledge, DurableEvent, DurableSubscription
    from infobus.bus.publish.publisher import MakeRecords
    from infobus.filters import Filter

log = logging.getLogger("infobus")

DEAD_LETTERS = "dead_letters"
"""The first element of the subjects of dead letters; the durable name follows."""


class Guaranteed:
    """The ledgers and durable consumers of a node; what drives them is begun when needed."""

    def __init__(
        self,
        hub: Runtime,
        bus_name: str,
        home: Path,
        lifetime: Lifetime,
        publish: Callable[..., None],
        *,
        test: bool,
    ) -> None:
        self._hub = hub
        self._bus_name = bus_name
        self._home = home
        self._lifetime = lifetime
        self._publish = publish  # dead letters
        self._test = test
        self.driver: Guarantees | None = None
        self._beginning = threading.Lock()

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
        on_error: Callable[[BusError], object] | None,
        acknowledge: Acknowledge,
        ordered: bool,
        deliveries_max: int,
    ) -> DurableSubscription:
        """See `Bus.subscribe_durable`."""
        from infobus.bus.durable.subscription import DurableSubscription

        patterns = patterns_of("subscribe_durable", patterns)
        if not isinstance(name, str) or not name:
            raise UsageError(f"durable={name!r}: expected the consumer's name, such as 'billing'")
        check_subject(f"{DEAD_LETTERS}.{name}")
        if deliveries_max < 1:
            raise UsageError(f"deliveries_max is {deliveries_max}; it must be at least 1")
        driver = self._begun()
        subscription = DurableSubscription(
            driver,
            name,
            patterns,
            callback=callback,
            on_error=on_error,
            acknowledge=acknowledge,
            workers=self._hub.workers,
        )
        driver.subscribe(
            subscription,
            text_of(filter_of(where)),
            test=test or self._test,
            ordered=ordered,
            deliveries_max=deliveries_max,
        )
        return subscription

    def open(self) -> None:
        """Serve what is kept already: some ledgers of the home may have lost their owner."""
        if ledgers_folder(self._home, self._bus_name).is_dir():
            self._begun()

    def close(self) -> None:
        """Save everything, and let others have the ledgers and names."""
        if self.driver is not None:
            self.driver.close()

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child."""
        self._beginning = threading.Lock()
        if self.driver is not None:
            self.driver.abandon(why)

    def _begun(self) -> Guarantees:
        with self._beginning:
            self._lifetime.check()
            if self.driver is None:
                from infobus.bus.durable.driver import Guarantees  # late: it stands on a database
                from infobus.bus.durable.stores import FileStores

                stores = FileStores(self._home, self._bus_name)
                driver = Guarantees(self._hub, stores, self._bury)
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
        self._publish(subject, letter(consumer, dead), guaranteed=True, test=dead.entry.test)
