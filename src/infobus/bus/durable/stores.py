"""What guaranteed delivery keeps on disk: the interface, and the files of a home behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from infobus.bus.settings import consumers_folder, ledgers_folder
from infobus.errors import StoreError
from infobus.stores.ledger.consumer_store import (
    ConsumerProgress,
    ConsumerStore,
    consumer_names,
    registered_at,
)
from infobus.stores.ledger.folder import Seen, open_free, orphans, sources
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.reader import Leavings
from infobus.stores.ledger.record import Position, Record, SourcePlace


class KeptLedger(Protocol):
    """See `infobus.stores.ledger.Ledger`."""

    id: str

    @property
    def next(self) -> int: ...
    @property
    def is_removed(self) -> bool: ...
    def append_made(self, make: Callable[[], tuple[Sequence[Any], Mapping[int, bytes]]]) -> int: ...
    def append_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        descriptors: Mapping[int, bytes],
        *,
        now_s: float,
        reached: Mapping[str, int],
    ) -> None: ...
    def raise_sources(self, numbers: Mapping[str, int]) -> None: ...
    def read(self, after: int, count_max: int, bytes_max: int) -> Sequence[tuple[int, Any]]: ...
    def first_since(self, time: float) -> int: ...
    def settle(self, name: str, position: int, now_s: float) -> None: ...
    def positions(self) -> dict[str, Position]: ...
    def descriptor(self, fingerprint: int) -> bytes | None: ...
    def prune(self, now_s: float, *, keep_s: float, keep_bytes: int) -> int: ...
    def close(self) -> None: ...


class KeptConsumer(Protocol):
    """See `infobus.stores.ledger.ConsumerStore`."""

    @property
    def registered_at(self) -> float: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...
    def progress(self) -> dict[str, ConsumerProgress]: ...
    def note(
        self,
        ledger: str,
        position: int,
        above: Collection[int] = (),
        deliveries: Mapping[int, int] | None = None,
    ) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class KeptPlaces(Protocol):
    """See `infobus.stores.ledger.PlaceStore`."""

    def load(self) -> dict[str, Any]: ...
    def save(self, changes: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class Stores(Protocol):
    """The ledgers and durable consumers of a home, which processes share."""

    def open_free(self) -> KeptLedger:
        """Take over a ledger that nobody owns and that takes records, or make a new one."""

    def open_ledger(self, id: str) -> KeptLedger:
        """Open a ledger; raises `LedgerInUse` if somebody was quicker."""

    def takes_records(self, ledger: KeptLedger) -> bool:
        """Whether new events may go to an open ledger."""

    def orphans(self, afresh: bool) -> Mapping[str, Leavings | None]:
        """What is left to do in those used ledgers that nobody owns; None: it is damaged."""

    def registrations(self) -> Mapping[str, float]:
        """The durable consumers of the home, in use or not, and since when they are registered."""

    def sources(self) -> Mapping[str, int]:
        """How far the records of each source are kept, in whichever ledger of the own home."""

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str, now_s: float
    ) -> KeptConsumer:
        """Use a durable name; raises `DurableInUse` if another subscription of the home does."""


class FileStores:
    """The files of a home."""

    def __init__(self, home: Path, bus_name: str) -> None:
        self._ledgers = ledgers_folder(home, bus_name)
        self._consumers = consumers_folder(home, bus_name)
        self._seen: Seen = {}  # ledgers that nobody owned
        self._registered: dict[str, float] = {}  # as far as they were read

    def open_free(self) -> Ledger:
        return open_free(self._ledgers)

    def open_ledger(self, id: str) -> Ledger:
        return Ledger.open(self._ledgers, id)

    def takes_records(self, ledger: KeptLedger) -> bool:
        assert isinstance(ledger, Ledger)
        return ledger.takes_records

    def orphans(self, afresh: bool) -> Mapping[str, Leavings | None]:
        if afresh:
            self._seen.clear()  # in case that a clock did not tell two changes apart
        return orphans(self._ledgers, self._seen)

    def registrations(self) -> Mapping[str, float]:
        known, folder = self._registered, self._consumers
        names = consumer_names(folder)
        self._registered = found = {name: known[name] for name in names if name in known}
        for name in names:
            if name not in known:
                with suppress(StoreError):  # who uses the name gets the error
                    found[name] = registered_at(folder, name)
        return found

    def sources(self) -> Mapping[str, int]:
        return sources(self._ledgers)

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str, now_s: float
    ) -> ConsumerStore:
        return ConsumerStore.open(self._consumers, name, patterns, where, now_s=now_s)
