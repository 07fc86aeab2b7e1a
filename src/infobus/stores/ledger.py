"""The publisher's log of guaranteed events: numbered, on disk before anyone hears of them.

A ledger is one SQLite file with one owner at a time among the processes that share a folder.
Numbers (1, 2, 3, ...) belong to the ledger, not to the process: whoever takes it over goes on
where the last owner stopped.

`append` returns when the records are synced to the disk; threads that append at the same time
share one sync. How far consumers have come is written along with the next commit: to lose the
last of it in a crash only keeps records for longer.

Every record carries a checksum, and the numbers have no holes but for those known to be gone.
All is checked when the ledger is opened, and again whenever records are read, so that damage is
refused, never served. One thing no check on this file alone can see: a write-ahead log that has
lost its end, because a disk lost what it had said was synced. Then the ledger ends earlier, at
a commit.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from infobus.errors import BadValue, BusClosed, LedgerInUse, StoreError
from infobus.stores import database, scanning
from infobus.stores.commits import GroupCommit
from infobus.stores.database import FACTS, Damage, Database, Kind
from infobus.stores.locks import FileLock
from infobus.stores.records import Position, Record, checksum, encode
from infobus.stores.scanning import Extent, RecordRow

KIND = Kind(
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
CHECKPOINT_BYTES = 4 << 20
PRUNE_COUNT_MAX = 10_000  # per transaction, so that publishers never wait for long
ROW_COUNT_MAX = 128  # per statement
_OPEN_PATIENCE_S = 0.2
_COMMIT_BYTES = 4120  # what even the smallest commit adds to the log
_NO_DESCRIPTORS: Mapping[int, bytes] = MappingProxyType({})


Step = Callable[[], object]


class _Append:
    """Records on their way to the disk."""

    __slots__ = ("descriptors", "encoded", "first")

    def __init__(
        self, encoded: list[tuple[float, bytes]], descriptors: Mapping[int, bytes]
    ) -> None:
        self.encoded = encoded
        self.descriptors = descriptors
        self.first = 0


class Ledger:
    """One ledger, owned by this process until `close`. All methods may be called by any thread.

    Whoever constructs one holds the lock, and keeps it if that fails; `open` does both.
    """

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.id = path.stem
        self.path = path
        self._lock = lock
        self._commits: GroupCommit[_Append | Step] = GroupCommit(str(path), self._commit)
        self._reading = threading.Lock()
        self._settling = threading.Lock()
        self._unsaved: dict[str, Position] = {}
        self._unmarked_bytes = CHECKPOINT_BYTES  # of the last owner's log, nothing is known
        self._reader: Database | None = (reader := Database(path, KIND, self.id))
        try:
            with reader.errors():
                self._extent = self._working = scanning.measure(reader)
                if problems := scanning.find_problems(reader, self._extent):
                    raise reader.corrupt(problems)
                self._positions = scanning.positions(reader.facts)
                self._types = {int(name, 16) for name in reader.facts.under("type/")}
            self._database = Database(path, KIND, self.id, mode="rw")
        except BaseException:
            reader.close()
            raise

    @classmethod
    def open(cls, folder: Path, id: str | None = None) -> Ledger:
        """Open a ledger, or make a new one if no `id` is given. All of it is checked first.

        Raises:
            LedgerInUse: Another ledger object, of this or another process, has it open.
            StoreCorrupt: It is damaged; the message says how and what to do.
            StoreError: It is not there, cannot be written, or is of a newer format.
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
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @property
    def next(self) -> int:
        """The number of the next record."""
        return self._extent.next

    @property
    def gone_up_to(self) -> int:
        """The last number that was pruned, 0 if none was."""
        return self._extent.gone

    @property
    def extent(self) -> Extent:
        """Which numbers the ledger holds."""
        return self._extent

    def append(
        self, records: Sequence[Record], descriptors: Mapping[int, bytes] = _NO_DESCRIPTORS
    ) -> int:
        """Keep records, and descriptors of types by fingerprint; return the first's number.

        Returning means that all of them are on disk, under numbers that follow each other. A
        record is kept under its own time, or under that of the record before it if the clock
        was set back: along a ledger, the times never fall.

        Raises:
            StoreFull: There is no room; none was kept. Trying again is safe. Only if this
                process dies before that may the failed records be there after all.
            StoreError: The ledger is sealed, or its disk has become read-only.
        """
        if not records:
            raise BadValue("append takes at least one record")
        work = _Append([(record.time, encode(record)) for record in records], descriptors)
        self._commits.run(work)
        return work.first

    def read(self, after: int, count_max: int, bytes_max: int) -> list[tuple[int, Record]]:
        """Return the records that follow number `after`, in order, each with its number.

        They are at most `count_max`, and of at most `bytes_max` bytes unless the first alone is
        larger. A number that is missing between `after` and the last one returned, or up to the
        end of the ledger if none is, is gone.

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
                    size += len(row[2])
                    if found and size > bytes_max:
                        break
                    if not extent.is_missing(after + 1, row[0] - 1):
                        raise Damage(f"records are missing between {after} and {row[0]}")
                    after = row[0]
                    found.append((after, scanning.checked(row)))
        return found

    def first_since(self, time: float) -> int:
        """Return the number of the first record kept at `time` or later, `next` if there is none.

        If records since then were pruned, it is `gone_up_to`: at least that one is missing.
        After a clock was set back, records before `time` may be among those that follow; none
        since `time` is ever before it.
        """
        with self._reading:
            reader = self._open_reader()
            with reader.errors(), reader.snapshot():
                return scanning.first_since(reader.connection, self._extent_of(reader), time)

    def descriptor(self, fingerprint: int) -> bytes | None:
        """Return the descriptor of the type with that fingerprint, if it is kept here."""
        with self._reading:
            reader = self._open_reader()
            with reader.errors():
                found: bytes | None = reader.facts.get(f"type/{fingerprint:016x}")
                return found

    def positions(self) -> dict[str, Position]:
        """Return how far each known consumer has come, by its name."""
        with self._settling:
            return dict(self._positions)

    def settle(self, name: str, position: int, now_s: float) -> None:
        """Note that consumer `name` has settled everything up to `position`; 0 is nothing.

        Positions never go back. It is on disk with the next commit, `prune` or `close`.

        Raises:
            BadValue: There is no record of that number yet.
        """
        if not 0 <= position < self.next:
            raise BadValue(
                f"consumer {name!r} cannot have settled record {position} of ledger {self.id}, "
                f"which has records up to {self.next - 1}"
            )
        with self._settling:
            known = self._positions.get(name, Position(0, now_s))
            news = Position(max(position, known.position), max(now_s, known.seen_at))
            self._positions[name] = self._unsaved[name] = news

    def drop(self, name: str) -> None:
        """Forget a consumer that will never return, on disk too."""
        self._commits.run(lambda: self._database.facts.delete(f"position/{name}"))
        with self._settling:
            self._positions.pop(name, None)
            self._unsaved.pop(name, None)

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

        A record that all known consumers have settled goes when it is older than `keep_s`, or
        when the records are larger than `keep_bytes` in all. One that a known consumer has not
        settled goes only by the limits for unsettled ones, which are a loss to that consumer.
        """
        with self._settling:
            settled = min((one.position for one in self._positions.values()), default=self.next)
            is_unsaved = bool(self._unsaved)
        with self._reading:
            reader = self._open_reader()
            with reader.errors(), reader.snapshot():
                up_to = max(
                    min(self._surplus(reader, now_s - keep_s, keep_bytes), settled),
                    self._surplus(reader, now_s - unsettled_keep_s, unsettled_keep_bytes),
                )
        count = self._extent.count
        while self._extent.gone < up_to:
            self._commits.run(lambda: self._delete(up_to))
            is_unsaved = False
        if is_unsaved:
            self._commits.run(lambda: None)
        return count - self._extent.count

    def verify(self) -> list[str]:
        """Read all of the file, and return what is wrong with it; nothing, as a rule."""
        looked_at = Database(self.path, KIND, self.id)
        try:
            with looked_at.errors(), looked_at.snapshot():
                return scanning.find_problems(looked_at, scanning.measure(looked_at))
        finally:
            looked_at.close()

    def close(self) -> None:
        """Write what is left to write, and let others own the ledger. Closing twice is fine."""
        try:
            # On a full disk this fails, and all that matters is safe in the write-ahead log.
            with suppress(StoreError):
                self._commits.run(self._mark_end, is_last=True)
        except BusClosed:
            return
        with self._reading:
            assert self._reader is not None, "only the last commit is followed by closing"
            self._reader.close()
            self._reader = None
        self._database.close()
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
        """What the ledger holds in the reader's snapshot, in which less may have been pruned."""
        gone, gone_at = scanning.gone(reader.facts)
        return replace(self._extent, gone=gone, gone_at=gone_at)

    def _surplus(self, reader: Database, since: float, bytes_max: int | None) -> int:
        """Return the last number that is older than `since` or too much for `bytes_max`."""
        extent = self._extent_of(reader)
        last = scanning.first_since(reader.connection, extent, since) - 1
        if bytes_max is None:
            return last
        return max(last, scanning.last_beyond(reader.connection, extent, bytes_max))

    # Writing: by whichever thread leads a commit, inside its transaction

    def _commit(self, works: Sequence[_Append | Step]) -> None:
        with self._settling:
            unsaved, self._unsaved = self._unsaved, {}
        is_full = self._unmarked_bytes > CHECKPOINT_BYTES
        try:
            with self._database.errors():
                rows, types = self._numbered([one for one in works if isinstance(one, _Append)])
                steps = [one for one in works if not isinstance(one, _Append)]
                if len(rows) > ROW_COUNT_MAX or types or unsaved or steps or is_full:
                    self._database.connection.execute("BEGIN IMMEDIATE")
                    self._put_facts(unsaved, types)
                    self._insert(rows)
                    for step in steps:
                        step()
                    if is_full:
                        self._mark_end()
                    self._database.connection.execute("COMMIT")
                else:  # the usual case: one statement is a transaction by itself
                    self._insert(rows)
        except BaseException:
            self._recover(unsaved)
            raise
        self._extent = self._working
        self._types |= types.keys()
        if is_full:
            self._checkpoint()

    def _recover(self, unsaved: Mapping[str, Position]) -> None:
        """After a failed commit, go on with what is in the file, whether it came to that or not."""
        with self._settling:
            self._unsaved = {**unsaved, **self._unsaved}
        database.roll_back(self._database.connection)
        with suppress(sqlite3.Error, Damage):  # a disk that fails altogether: the next commit tells
            self._extent = scanning.measure(self._database)
        self._working = self._extent

    def _numbered(self, appends: Sequence[_Append]) -> tuple[list[RecordRow], dict[int, bytes]]:
        """Give the records their numbers; return their rows, and the types that are new."""
        extent = self._working
        if appends and extent.sealed:
            raise StoreError(
                f"ledger {self.path} takes no more records: {extent.sealed}", path=str(self.path)
            )
        number, kept_at, size = extent.next, extent.kept_at, 0
        rows: list[RecordRow] = []
        types: dict[int, bytes] = {}
        for append in appends:
            append.first = number
            for time, body in append.encoded:
                kept_at = max(kept_at, time)
                size += len(body)
                rows.append((number, kept_at, body, checksum(number, kept_at, body)))
                number += 1
            if not append.descriptors.keys() <= self._types:
                types.update(append.descriptors)
        self._unmarked_bytes += size + _COMMIT_BYTES
        self._working = replace(extent, next=number, kept_at=kept_at, bytes=extent.bytes + size)
        return rows, {key: types[key] for key in types.keys() - self._types}

    def _insert(self, rows: Sequence[RecordRow]) -> None:
        # Each statement gives other threads a chance to run, so many rows go into one.
        for start in range(0, len(rows), ROW_COUNT_MAX):
            part = rows[start : start + ROW_COUNT_MAX]
            values = ",".join(["(?,?,?,?)"] * len(part))
            self._database.connection.execute(
                f"INSERT INTO records VALUES {values}", [*chain.from_iterable(part)]
            )

    def _put_facts(self, positions: Mapping[str, Position], types: Mapping[int, bytes]) -> None:
        for name, one in positions.items():
            self._database.facts.put(f"position/{name}", (one.position, one.seen_at))
        for fingerprint, descriptor in types.items():
            self._database.facts.put(f"type/{fingerprint:016x}", descriptor)

    def _delete(self, up_to: int) -> None:
        extent, ask = self._working, self._database.connection.execute
        up_to = min(up_to, extent.gone + PRUNE_COUNT_MAX)
        size, kept_at = ask(
            "SELECT total(length(record)), max(kept_at) FROM records WHERE number <= ?", (up_to,)
        ).fetchone()
        ask("DELETE FROM records WHERE number <= ?", (up_to,))
        lost = tuple((max(first, up_to + 1), last) for first, last in extent.lost if last > up_to)
        kept_at = extent.gone_at if kept_at is None else kept_at
        self._database.facts.put("gone", (up_to, kept_at))
        self._database.facts.put("lost", lost)
        self._unmarked_bytes += int(size)
        self._working = replace(
            extent, gone=up_to, gone_at=kept_at, lost=lost, bytes=extent.bytes - int(size)
        )

    def _mark_end(self) -> None:
        # What is copied into the main file now must be found there from then on.
        self._database.facts.put("end", self._working.next - 1)

    def _checkpoint(self) -> None:
        # A reader would keep the log from being written anew. On failure all is safe in the
        # log, which grows until the disk has room again.
        with self._reading, suppress(sqlite3.Error):
            self._database.checkpoint()
            self._unmarked_bytes = 0


def ledger_path(folder: Path, id: str) -> Path:
    """Return the path of the file of the ledger with that id.

    Raises:
        BadValue: No ledger can have that id.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", id):
        raise BadValue(f"{id!r} is not the id of a ledger: letters, digits, - and _ are allowed")
    return folder / f"{id}.db"
