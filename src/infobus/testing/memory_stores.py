"""Ledgers and consumer stores in memory, for simulations: they forget what was not synced.

They keep the promises of `infobus.stores.ledger.Ledger` and `.consumers.ConsumerStore` (both
pass the suites of `infobus.testing.conformance.stores`), but for damage and disks that are full.
A `MemoryDisk` stands for what survives; `crash` takes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from infobus.errors import BadValue, BusClosed, DurableInUse, LedgerInUse, StoreError
from infobus.stores.ledger.consumer_store import ConsumerProgress, Registration
from infobus.stores.ledger.reader import Leavings
from infobus.stores.ledger.record import Position, Record, SourcePlace, encode

Pruned = tuple[int, float]
Make = Callable[[], tuple[Sequence[Any], Mapping[int, bytes]]]


@dataclass
class _LedgerFile:
    """A ledger as it lies on disk; records with the time under which they are kept."""

    records: dict[int, tuple[float, Record]] = field(default_factory=dict)
    next: int = 1
    kept_at: float = float("-inf")
    pruned: list[Pruned] = field(default_factory=list)
    types: dict[int, bytes] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)


@dataclass
class _ConsumerFile:
    registration: Registration
    progress: dict[str, ConsumerProgress] = field(default_factory=dict)


class MemoryDisk:
    """What the processes of one home share, and what survives them.

    Its ledgers are called `name-0`, `name-1`, ...
    """

    def __init__(self, name: str = "ledger") -> None:
        self.name = name
        self._ledgers: dict[str, _LedgerFile] = {}
        self._consumers: dict[str, _ConsumerFile] = {}
        self._open: dict[tuple[str, str], _Opened] = {}

    def open_ledger(self, id: str | None = None, *, owner: str = "") -> MemoryLedger:
        """See `Ledger.open`. `owner` is the process, for `crash`."""
        if id is None:
            id = f"{self.name}-{len(self._ledgers)}"
            self._ledgers[id] = _LedgerFile()
        if id not in self._ledgers:
            raise StoreError(f"there is no ledger {id}", path=id)
        if ("ledger", id) in self._open:
            raise LedgerInUse(f"ledger {id} is in use by another live process", path=id)
        return self._opened("ledger", id, MemoryLedger(self, owner, id, self._ledgers[id]))

    def open_free(self, *, owner: str = "") -> MemoryLedger:
        """See `shelf.open_free`."""
        free = (id for id in self._ledgers if ("ledger", id) not in self._open)
        return self.open_ledger(next(free, None), owner=owner)

    def orphans(self) -> dict[str, Leavings]:
        """See `shelf.orphans`; here they need no pruning."""
        return {
            id: Leavings(
                file.next - 1, {name: one.position for name, one in file.positions.items()}
            )
            for id, file in self._ledgers.items()
            if file.next > 1 and ("ledger", id) not in self._open
        }

    def sources(self) -> dict[str, int]:
        """See `folder.sources`."""
        found: dict[str, int] = {}
        for file in self._ledgers.values():
            for stream, number in file.sources.items():
                found[stream] = max(number, found.get(stream, 0))
        return found

    def registrations(self) -> dict[str, float]:
        """See `Stores.registrations`."""
        return {name: file.registration.registered_at for name, file in self._consumers.items()}

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str = "", *, now_s: float, owner: str = ""
    ) -> MemoryConsumerStore:
        """See `ConsumerStore.open`."""
        if ("consumer", name) in self._open:
            raise DurableInUse(f"the durable name {name!r} is in use", name=name)
        wanted = Registration(1, now_s, tuple(patterns), where)
        file = self._consumers.setdefault(name, _ConsumerFile(wanted))
        known = file.registration
        if (known.patterns, known.where) != (wanted.patterns, where):
            file.registration = Registration(
                known.version + 1, known.registered_at, wanted.patterns, where
            )
        return self._opened("consumer", name, MemoryConsumerStore(self, owner, name, file))

    def crash(self, owner: str = "") -> None:
        """The process dies: what it had open is free, and what it had not synced is lost."""
        for key, opened in list(self._open.items()):
            if opened.owner == owner:
                opened.is_closed = True
                del self._open[key]

    def _opened(self, kind: str, name: str, opened: _AnyOpened) -> _AnyOpened:
        self._open[kind, name] = opened
        return opened

    def _closed(self, kind: str, name: str) -> None:
        del self._open[kind, name]


class _Opened:
    """A file that a process has open."""

    def __init__(self, disk: MemoryDisk, owner: str) -> None:
        self._disk = disk
        self.owner = owner
        self.is_closed = False

    def _check_open(self) -> None:
        if self.is_closed:
            raise BusClosed("this was closed, or its process has died")


_AnyOpened = TypeVar("_AnyOpened", bound=_Opened)


class MemoryLedger(_Opened):
    """See `Ledger`. `append` is `write` and `sync`, which a simulation may call apart."""

    is_removed = False

    def __init__(self, disk: MemoryDisk, owner: str, id: str, file: _LedgerFile) -> None:
        super().__init__(disk, owner)
        self.id = id
        self._file = file
        self._written: list[Record] = []
        self._types: dict[int, bytes] = {}
        self._positions = dict(file.positions)
        # For the witness of a simulation, which must know before anybody else does.
        self.on_appended: Callable[[list[tuple[int, Record]]], None] = lambda new: None

    @property
    def next(self) -> int:
        """The number of the next record, those that are not synced left out."""
        return self._file.next

    @property
    def gone_up_to(self) -> int:
        """The last number that was pruned, 0 if none was."""
        return self._file.pruned[-1][0] if self._file.pruned else 0

    def write(self, records: Sequence[Record], descriptors: Mapping[int, bytes] = {}) -> int:
        """Have records kept by the next `sync`; nobody sees them before, a crash loses them."""
        self._check_open()
        if not records:
            raise BadValue("append takes at least one record")
        first = self._file.next + len(self._written)
        self._written += records
        self._types.update(descriptors)
        return first

    def sync(self) -> list[tuple[int, Record]]:
        """Put everything on disk; return the records that are new there."""
        self._check_open()
        file = self._file
        new = list(enumerate(self._written, file.next))
        for number, record in new:
            file.kept_at = max(file.kept_at, record.time)
            file.records[number] = (file.kept_at, record)
        file.next += len(new)
        file.types = {**self._types, **file.types}
        file.positions = dict(self._positions)
        self._written, self._types = [], {}
        return new

    def append(self, records: Sequence[Record], descriptors: Mapping[int, bytes] = {}) -> int:
        """See `Ledger.append`."""
        first = self.write(records, descriptors)
        self.sync()
        return first

    def append_made(self, make: Make) -> int:
        """See `Ledger.append_made`."""
        records, descriptors = make()
        first = self.append(records, descriptors)
        self.on_appended(list(enumerate(records, first)))
        return first

    def append_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        descriptors: Mapping[int, bytes] = {},
        *,
        now_s: float,
        reached: Mapping[str, int] = {},
    ) -> None:
        """See `Ledger.append_from`."""
        known = self.sources()
        for stream, number in reached.items():
            known[stream] = max(number, known.get(stream, 0))
        news = []
        for source, record in zip(sources, records, strict=True):
            if source.number > known.get(source.stream, 0):
                known[source.stream] = source.number
                news.append(record)
        if news:
            self.write(news, descriptors)
            self._file.kept_at = max(self._file.kept_at, now_s)
            self._file.sources = known
            self.sync()

    def sources(self) -> dict[str, int]:
        """See `Ledger.sources`."""
        return dict(self._file.sources)

    def raise_sources(self, numbers: Mapping[str, int]) -> None:
        """See `Ledger.raise_sources`."""
        for stream, number in numbers.items():
            self._file.sources[stream] = max(number, self._file.sources.get(stream, 0))

    def read(self, after: int, count_max: int, bytes_max: int) -> list[tuple[int, Record]]:
        """See `Ledger.read`."""
        self._check_open()
        found: list[tuple[int, Record]] = []
        size = 0
        for number in range(max(after, self.gone_up_to) + 1, self._file.next):
            record = self._file.records[number][1]
            size += len(encode(record))
            if len(found) == count_max or (found and size > bytes_max):
                break
            found.append((number, record))
        return found

    def first_since(self, time: float) -> int:
        """See `Ledger.first_since`."""
        pruned = self._file.pruned
        if pruned and time <= pruned[-1][1]:
            return max((number for number, kept_at in pruned if kept_at < time), default=0) + 1
        kept = self._file.records.items()
        return next((number for number, (at, _) in kept if at >= time), self._file.next)

    def descriptor(self, fingerprint: int) -> bytes | None:
        """See `Ledger.descriptor`."""
        self._check_open()
        return self._file.types.get(fingerprint)

    def positions(self) -> dict[str, Position]:
        """See `Ledger.positions`."""
        return dict(self._positions)

    def settle(self, name: str, position: int, now_s: float | None = None) -> None:
        """See `Ledger.settle`; without a clock, the consumer was heard of at 0."""
        if not 0 <= position < self.next:
            raise BadValue(f"consumer {name!r} cannot have settled {position} of {self.next - 1}")
        known = self._positions.get(name, Position(0, now_s or 0.0))
        self._positions[name] = Position(
            max(position, known.position), max(now_s or 0.0, known.seen_at)
        )

    def drop(self, name: str) -> None:
        """See `Ledger.drop`."""
        self._positions.pop(name, None)
        self._file.positions = dict(self._positions)

    def prune(
        self,
        now_s: float,
        *,
        keep_s: float,
        keep_bytes: int,
        unsettled_keep_s: float = float("inf"),
        unsettled_keep_bytes: int | None = None,
    ) -> int:
        """See `Ledger.prune`."""
        self._check_open()
        settled = min((one.position for one in self._positions.values()), default=self.next)
        up_to = max(
            min(self._surplus(now_s - keep_s, keep_bytes), settled),
            self._surplus(now_s - unsettled_keep_s, unsettled_keep_bytes),
        )
        gone = self.gone_up_to
        if up_to > gone:
            self._file.pruned.append((up_to, self._file.records[up_to][0]))
        for number in range(gone + 1, up_to + 1):
            del self._file.records[number]
        self._file.positions = dict(self._positions)
        return self.gone_up_to - gone

    def _surplus(self, since: float, bytes_max: int | None) -> int:
        kept = self._file.records.items()
        last = self.gone_up_to
        size = sum(len(encode(record)) for _, (_, record) in kept)
        for number, (kept_at, record) in kept:
            if kept_at < since or (bytes_max is not None and size > bytes_max):
                last = number
            size -= len(encode(record))
        return last

    def verify(self) -> list[str]:
        """See `Ledger.verify`: nothing is ever wrong with memory."""
        return []

    def close(self) -> None:
        """See `Ledger.close`."""
        if not self.is_closed:
            self.sync()
            self.is_closed = True
            self._disk._closed("ledger", self.id)


class MemoryConsumerStore(_Opened):
    """See `ConsumerStore`."""

    def __init__(self, disk: MemoryDisk, owner: str, name: str, file: _ConsumerFile) -> None:
        super().__init__(disk, owner)
        self.name = name
        self._file = file
        self._progress = dict(file.progress)

    @property
    def registered_at(self) -> float:
        """When the consumer was first registered."""
        return self._file.registration.registered_at

    @property
    def patterns(self) -> tuple[str, ...]:
        """The subjects that the consumer wants."""
        return self._file.registration.patterns

    @property
    def where(self) -> str:
        """The filter, or empty."""
        return self._file.registration.where

    def progress(self) -> dict[str, ConsumerProgress]:
        """See `ConsumerStore.progress`."""
        return dict(self._progress)

    def position(self, ledger: str) -> int:
        """See `ConsumerStore.position`."""
        return self._progress.get(ledger, ConsumerProgress()).position

    def note(
        self,
        ledger: str,
        position: int,
        above: Collection[int] = (),
        deliveries: Mapping[int, int] | None = None,
    ) -> None:
        """See `ConsumerStore.note`."""
        if position < self.position(ledger) or any(number <= position for number in above):
            raise BadValue(f"{position} is behind {self.position(ledger)}, or not below {above}")
        self._progress[ledger] = ConsumerProgress(
            position, frozenset(above), dict(deliveries or {})
        )

    def flush(self) -> None:
        """See `ConsumerStore.flush`."""
        self._check_open()
        self._file.progress = dict(self._progress)

    def close(self) -> None:
        """See `ConsumerStore.close`."""
        if not self.is_closed:
            self.flush()
            self.is_closed = True
            self._disk._closed("consumer", self.name)
