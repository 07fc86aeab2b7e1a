"""The files of several homes as if they were of one: for who serves what others left behind."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from infobus.bus.durable.stores import FileStores
from infobus.errors import StoreError
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.reader import Leavings

log = logging.getLogger("infobus")


class Homes:
    """The stores of a node's own home, and of homes that it has adopted.

    The node writes to its own home alone. Of the others it serves ledgers that nobody owns, and
    learns which durable consumers are registered there.
    """

    def __init__(self, own: Path, bus_name: str) -> None:
        self._bus_name = bus_name
        self._stores = {own.absolute(): FileStores(own, bus_name)}
        self._own = self._stores[own.absolute()]
        self._places: dict[str, FileStores] = {}  # of ledgers that nobody owned
        self._failing: set[Path] = set()

    def adopt(self, home: Path) -> None:
        """From now on, look after another home, too."""
        self._stores.setdefault(home.absolute(), FileStores(home, self._bus_name))

    def open_free(self) -> Ledger:
        return self._own.open_free()

    def open_ledger(self, id: str) -> Ledger:
        return self._places.get(id, self._own).open_ledger(id)

    def takes_records(self, ledger: object) -> bool:
        """Whether new events may go to an open ledger: those of other homes stay as they are."""
        assert isinstance(ledger, Ledger)
        return self._places.get(ledger.id, self._own) is self._own and ledger.takes_records

    def orphans(self, afresh: bool) -> Mapping[str, Leavings | None]:
        """What is left to do in all homes; one that cannot be read is told, and left out."""
        found: dict[str, Leavings | None] = {}
        failed: StoreError | None = None
        for home, stores in [*self._stores.items()]:
            try:
                here = stores.orphans(afresh)
            except StoreError as error:
                failed = error
                if home not in self._failing:
                    log.error("home %s: %s", home, error)
                self._failing.add(home)
            else:
                self._failing.discard(home)
                self._places.update(dict.fromkeys(here, stores))
                found |= here
        if failed is not None and not found:
            raise failed
        return found

    def registrations(self) -> Mapping[str, float]:
        """The durable consumers of all homes; of a name in several, the earliest registration."""
        found: dict[str, float] = {}
        for stores in [*self._stores.values()]:
            for name, since in stores.registrations().items():
                found[name] = min(since, found.get(name, since))
        return found

    def sources(self) -> Mapping[str, int]:
        """How far the records of each source are kept in the node's own home."""
        return self._own.sources()

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str, now_s: float
    ) -> ConsumerStore:
        return self._own.open_consumer(name, patterns, where, now_s)
