"""The publisher's log of guaranteed events: numbered, and on disk before they are sent.

A ledger is one SQLite file with one owner at a time among the processes that share a folder.
Numbers (1, 2, 3, ...) belong to the ledger, not to the process: a new owner continues where the
last one stopped.

`append` returns when the records are synced to the disk; threads that append at the same time share
one sync. The positions of consumers are written with the next commit: if a crash loses the latest
ones, records only stay for longer.

Every record has a checksum, and the numbers have no holes except those known to be gone. The ledger
checks structure and numbers when it is opened, and checksums whenever it reads records (or at once,
by `verify`): it refuses damaged data and never serves it. It also notices if it was copied without
its log. One thing no check can see: that the last commit is missing from the end of the log,
because the disk lost what it had reported as synced.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from infobus.errors import BadValue, BusClosed, LedgerInUse, StoreError
from infobus.stores.ledger import reader as scanning
from infobus.stores.ledger.reader import Extent
from infobus.stores.ledger.record import Position, Record, SourcePlace
from infobus.stores.ledger.writer import CHECKPOINT_BYTES, NOWHERE, Append, Make, Writer
from infobus.stores.sqlite import database
from infobus.stores.sqlite.database import FACTS, Damage, Database, DatabaseKind
from infobus.stores.sqlite.locks import FileLock

KIND = DatabaseKind(
    name="ledger",
    application_id=0x69624C67,
    format=1,
    schema=(
        "CREATE TABLE records (number INTEGER PRIMARY KEY, kept_at REAL NOT NULL, "
        "record BLOB NOT NULL, crc INTEGER NOT NULL)",
        FACTS,
    ),
    repair="infobus ledger repair {}",
)
_OPEN_PATIENCE_S = 0.2
_NO_DESCRIPTORS: Mapping[int, bytes] = MappingProxyType({})


class Ledger:
    """One ledger, owned by this process until `close`. All methods may be called by any thread.

    The constructor expects that the caller holds the lock, and does not release it on failure;
    `open` acquires and releases it.
    """

    def __init__(
        self, path: Path, lock: FileLock, *, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> None:
        self.id = path.stem
        self.path = path
        self._lock = lock
        self._reading = threading.Lock()
        self._settling = threading.Lock()
        self._reader: Database | None = (reader := Database(path, KIND, self.id))
        try:
            with reader.errors():
                extent = scanning.measure(reader)
                problems = scanning.find_problems(reader, extent, are_records_read=False)
                if problems := problems or reader.log_problems():
                    raise reader.corrupt(problems)
                self._positions = scanning.positions(reader.facts)
                found = {int(name, 16): one for name, one in reader.facts.under("type/").items()}
            # Descriptors that are missing here are written with the next record that
            # needs them.
            types = {key for key, one in found.items() if not scanning.is_misplaced(one, key)}
            sources = scanning.sources(reader.facts)
            self._writer = Writer(
                path, KIND, lock, extent, types, sources, self._reading, checkpoint_bytes
            )
        except BaseException:
            reader.close()
            raise

    @classmethod
    def open(
        cls, folder: Path, id: str | None = None, *, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> Ledger:
        """Open a ledger, or create one if you pass no `id`. Its structure is checked first.

        A log of more than `checkpoint_bytes` is copied into the main file.

        Raises:
            LedgerInUse: Another ledger object, of this or another process, has it open.
            StoreCorrupt: It is damaged; the message says how and what to do.
            StoreError: It does not exist, cannot be written, or is of a newer format.
        """
        database.make_folder(folder)
        path = ledger_path(folder, id or uuid.uuid4().hex)
        if id is not None and not path.exists():
            raise StoreError(f"there is no ledger {id} in {folder}", path=str(path))
        lock = FileLock(path.with_suffix(".lock"))
        if not lock.acquire(patience_s=_OPEN_PATIENCE_S):
            raise LedgerInUse(f"ledger {path} is in use by another live process", path=str(path))
        try:
            if id is None:
                database.create(path, KIND)
            return cls(path, lock, checkpoint_bytes=checkpoint_bytes)
        except BaseException:
            lock.release()
            raise

    @property
    def next(self) -> int:
        """The number of the next record."""
        return self.extent.next

    @property
    def gone_up_to(self) -> int:
        """The last number that was pruned, 0 if none was."""
        return self.extent.gone

    @property
    def takes_records(self) -> bool:
        """Whether it is neither sealed nor removed from its folder."""
        return not self.extent.sealed and not self.is_removed

    @property
    def is_removed(self) -> bool:
        """Whether its files were removed or replaced: nobody could open it again."""
        return self._writer.is_gone

    @property
    def extent(self) -> Extent:
        """The numbers that the ledger holds."""
        return self._writer.extent

    def append(
        self, records: Sequence[Record], descriptors: Mapping[int, bytes] = _NO_DESCRIPTORS
    ) -> int:
        """Store records, and descriptors of types by fingerprint; return the first's number.

        Returning means that all of them are on disk, under consecutive numbers. A record is stored
        under its own time, or under that of the record before it if the clock was set back: along a
        ledger, the times never fall.

        Raises:
            StoreFull: The disk is full; no record was stored. Trying again is safe. Only if this
                process dies before that may the failed records be there after all.
            StoreError: The ledger is sealed, its files were removed, or its disk has become
                read-only.
        """
        if not records:
            raise BadValue("append takes at least one record")
        return self.append_made(lambda: (records, descriptors))

    def append_made(self, make: Make) -> int:
        """As `append`, for the records that `make` returns; if it raises, nothing is stored.

        If threads share a sync, one thread makes the records of all of them. That is much quicker
        than each thread making its own: while threads take turns, every step finds a cold cache.
        """
        work = Append(make)
        self._writer.append(work)
        if work.error is not None:
            raise work.error
        return work.first

    def append_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        descriptors: Mapping[int, bytes] = _NO_DESCRIPTORS,
        *,
        now_s: float,
        reached: Mapping[str, int] = NOWHERE,
    ) -> None:
        """As `append`, for records that have been kept elsewhere: each has its source.

        A record whose source has come that far already is left out. How far a source has come is
        written in the same transaction, so no crash can separate the two. The records are kept
        under `now_s`: what counts for the consumers of this ledger is when they came here.
        Sources in `reached` are raised in that transaction, too.
        """
        make = lambda: (records, descriptors)  # noqa: E731
        self._writer.append(Append(make, sources, reached, kept_at=now_s))

    def sources(self) -> dict[str, int]:
        """Return up to which number the records of each source are on disk."""
        return dict(self._writer.sources)

    def raise_sources(self, numbers: Mapping[str, int]) -> None:
        """Leave out what these sources have had kept elsewhere; it is on disk on return."""
        known = self._writer.sources
        if any(number > known.get(stream, 0) for stream, number in numbers.items()):
            self._writer.append(Append(lambda: ((), _NO_DESCRIPTORS), reached=numbers))

    def read(self, after: int, count_max: int, bytes_max: int) -> list[tuple[int, Record]]:
        """Return the records that follow number `after`, in order, each with its number.

        They are at most `count_max`, and at most `bytes_max` bytes unless the first alone is
        larger. A number that is missing between `after` and the last one returned is gone; if none
        is returned, so is every number up to the end of the ledger.

        Raises:
            StoreCorrupt: A record is damaged.
        """
        found: list[tuple[int, Record]] = []
        size = 0
        with self._reading:
            reader = self._open_reader()
            with reader.errors(), reader.snapshot():
                extent = self._extent_of(reader)
                for row in scanning.rows_after(reader.connection, after, count_max):
                    record = scanning.checked(row)
                    size += len(row[2])
                    if found and size > bytes_max:
                        break
                    if not extent.is_missing(after + 1, row[0] - 1):
                        raise Damage(f"records are missing between {after} and {row[0]}")
                    after = row[0]
                    found.append((after, record))
        return found

    def first_since(self, time: float) -> int:
        """Return a number before which every record, stored or gone, is older than `time`.

        It is the least such number (`next` if all are older), unless records since then were
        pruned: then it may be less, because their times are known only roughly. After a clock was
        set back, some records that follow are older as well; no record since `time` is ever before
        it.
        """
        with self._reading:
            reader = self._open_reader()
            with reader.errors(), reader.snapshot():
                return scanning.first_since(reader.connection, self._extent_of(reader), time)

    def descriptor(self, fingerprint: int) -> bytes | None:
        """Return the descriptor of the type with that fingerprint, if it is stored here.

        A descriptor of another type is ignored.
        """
        with self._reading:
            reader = self._open_reader()
            with reader.errors():
                found: bytes | None = reader.facts.get(f"type/{fingerprint:016x}")
        return None if found is None or scanning.is_misplaced(found, fingerprint) else found

    def positions(self) -> dict[str, Position]:
        """Return the position of each known consumer, by its name."""
        with self._settling:
            return dict(self._positions)

    def settle(self, name: str, position: int, now_s: float | None = None) -> None:
        """Note that consumer `name` has settled everything up to `position`; 0 is nothing.

        Positions never go back. A position is on disk with the next commit, `prune` or `close`.
        `now_s` is when the consumer was last heard of; default: now.

        Raises:
            BadValue: There is no record of that number yet.
        """
        if not 0 <= position < self.next:
            raise BadValue(
                f"consumer {name!r} cannot have settled record {position} of ledger {self.id}, "
                f"which has records up to {self.next - 1}"
            )
        seen_at = time.time() if now_s is None else now_s
        with self._settling:
            known = self._positions.get(name, Position(0, seen_at))
            news = Position(max(position, known.position), max(seen_at, known.seen_at))
            self._positions[name] = news
            self._writer.note(name, news)

    def drop(self, name: str) -> None:
        """Forget a consumer that will never return, on disk too."""
        self._writer.drop(name)
        with self._settling:
            self._positions.pop(name, None)

    def seal(self, why: str) -> None:
        """Accept no more records, for good; a later `append` fails with the reason `why`."""
        self._writer.seal(why)

    def prune(
        self,
        now_s: float,
        *,
        keep_s: float,
        keep_bytes: int,
        unsettled_keep_s: float = float("inf"),
        unsettled_keep_bytes: int | None = None,
    ) -> int:
        """Delete old records, and return how many. Positions are on disk after that.

        A record that all known consumers have settled is deleted when it is older than `keep_s`, or
        when the records exceed `keep_bytes` in all. A record that a known consumer has not settled
        is deleted only by the limits for unsettled ones; that is a loss for the consumer.
        """
        with self._settling:
            settled = min((one.position for one in self._positions.values()), default=self.next)
        with self._reading:
            reader = self._open_reader()
            with reader.errors(), reader.snapshot():
                up_to = max(
                    min(self._surplus(reader, now_s - keep_s, keep_bytes), settled),
                    self._surplus(reader, now_s - unsettled_keep_s, unsettled_keep_bytes),
                )
        gone = self.gone_up_to
        self._writer.delete(up_to)
        self._writer.flush()
        return self.gone_up_to - gone

    def verify(self) -> list[str]:
        """Read the whole file, and return what is wrong with it; normally nothing."""
        looked_at = Database(self.path, KIND, self.id)
        try:
            with looked_at.errors(), looked_at.snapshot():
                extent = scanning.measure(looked_at)
                return scanning.find_problems(looked_at, extent, are_records_read=True)
        finally:
            looked_at.close()

    def close(self) -> None:
        """Write everything that is pending, and release the ledger. Closing twice is fine."""
        with self._reading:
            reader, self._reader = self._reader, None
        if reader is None:
            return
        # Who closes last removes the log, unless it only reads.
        is_complete = self._writer.finish()
        for one in (reader, self._writer) if is_complete else (self._writer, reader):
            one.close()
        self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading: on a connection of its own, so that nobody waits for a sync

    def _open_reader(self) -> Database:
        if self._reader is None:
            raise BusClosed(f"ledger {self.path} is closed")
        return self._reader

    def _extent_of(self, reader: Database) -> Extent:
        """Return the extent in the reader's snapshot, in which less may have been pruned."""
        return replace(self.extent, pruned=scanning.pruned(reader.facts))

    def _surplus(self, reader: Database, since: float, bytes_max: int | None) -> int:
        """Return the last number that is older than `since` or in excess of `bytes_max`."""
        extent = self._extent_of(reader)
        last = scanning.first_since(reader.connection, extent, since) - 1
        if bytes_max is None:
            return last
        return max(last, scanning.last_beyond(reader.connection, extent, bytes_max))


def ledger_path(folder: Path, id: str) -> Path:
    """Return the path of the file of the ledger with that id.

    Raises:
        BadValue: No ledger can have that id.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", id):
        raise BadValue(f"{id!r} is not the id of a ledger: letters, digits, - and _ are allowed")
    return folder / f"{id}.db"
