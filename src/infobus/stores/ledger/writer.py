"""The writing half of a ledger: one connection, on which some thread leads each commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from infobus.errors import StoreError
from infobus.stores.ledger import reader
from infobus.stores.ledger.reader import Extent
from infobus.stores.ledger.record import Position, Record, SourcePlace, checksum, encode
from infobus.stores.sqlite.database import FAILURES, Database, DatabaseKind, roll_back
from infobus.stores.sqlite.group_commit import GroupCommit
from infobus.stores.sqlite.locks import FileLock, identity

CHECKPOINT_BYTES = 4 << 20
ROW_COUNT_MAX = 128  # per statement
_COLUMN_COUNT = 4
_PART_COUNT = ROW_COUNT_MAX * _COLUMN_COUNT  # values
DELETE_COUNT_MAX = 10_000  # per transaction, so that publishers never wait for long
POSITIONS_S = 1.0  # how long positions may wait for a commit that includes them
FILES_S = 0.1  # how often a commit first looks whether the files are still there
_COMMIT_BYTES = 4120  # the least that a commit adds to the log

Step = Callable[[], object]
Make = Callable[[], tuple[Sequence[Record], Mapping[int, bytes]]]
"""Returns records, and the descriptors of types that they need, by fingerprint."""


NOWHERE: Mapping[str, int] = MappingProxyType({})


class Append(msgspec.Struct, eq=False):
    """Records on their way to the disk."""

    make: Make
    sources: Sequence[SourcePlace] = ()
    """Where each of them comes from, if they are kept on behalf of other ledgers."""
    reached: Mapping[str, int] = NOWHERE
    """Up to which number records of sources are kept elsewhere: they are left out here."""
    kept_at: float = float("-inf")
    """They are kept under this time, or under their own if that is later."""
    first: int = 0
    """The number of the first one, once they are kept."""
    error: Exception | None = None
    """Why they could not be made."""


class Writer:
    """Writes records and facts of one ledger. `extent` is what is on disk.

    The first commit marks the ledger as open, in the main file too; closing removes the mark. So a
    main file that is marked, and has no log, was copied without it.
    """

    def __init__(
        self,
        path: Path,
        kind: DatabaseKind,
        lock: FileLock,
        extent: Extent,
        types: set[int],
        sources: dict[str, int],
        no_readers: AbstractContextManager[object],
        checkpoint_bytes: int = CHECKPOINT_BYTES,
    ) -> None:
        self.extent = self._working = extent
        self.sources = sources
        """Up to which number the records of each source are on disk."""
        self._types = types
        self._no_readers = no_readers
        self._guard = threading.Lock()  # for the positions that are not on disk yet
        self._unsaved: dict[str, Position] = {}
        self._saved_s = 0.0
        self._checkpoint_bytes = checkpoint_bytes
        self._unmarked_bytes = checkpoint_bytes  # nothing is known about the last owner's log
        self._is_marked = False  # as open, in the main file
        self.is_gone = False
        """Whether the files were removed or replaced: nothing is accepted any more."""
        self._look_at_s = 0.0
        self._lock = lock
        self._database = Database(path, kind, path.stem, mode="rw")
        self._identity = identity(path)
        self._commits: GroupCommit[Append | Step] = GroupCommit(str(path), self._commit)
        self.append: Callable[[Append], None] = self._commits.run
        """Returns when the records are on disk."""

    def note(self, name: str, position: Position) -> None:
        """Write a position with a commit that is due anyway."""
        with self._guard:
            self._unsaved[name] = position

    def flush(self) -> None:
        """Return when all positions are on disk."""
        if self._unsaved:
            self._commits.run(lambda: None)

    def drop(self, name: str) -> None:
        """Return when the position of `name` is gone."""
        self._commits.run(lambda: self._database.facts.delete(f"position/{name}"))
        with self._guard:
            self._unsaved.pop(name, None)

    def seal(self, why: str) -> None:
        """Return when the seal is on disk: from then on no more records are accepted."""
        self._commits.run(lambda: self._seal(why))

    def delete(self, up_to: int) -> None:
        """Return when the records up to that number are gone."""
        while self.extent.gone < up_to:
            self._commits.run(lambda: self._delete(up_to))

    def finish(self) -> bool:
        """Write everything that is pending, and take no more; return whether that succeeded.

        If not, as on a full disk, the log holds everything that matters, and must stay.

        Raises:
            BusClosed: It was closed before.
        """
        self._is_marked = True  # or the last commit would set the mark that it removes
        try:
            self._commits.run(self._mark_closed, is_last=True)
        except StoreError:
            return False
        return True

    def close(self) -> None:
        """Close the file; if nobody else has it open, its log is copied and removed."""
        self._database.close()

    # The rest runs on the thread that leads a commit.

    def _commit(self, works: Sequence[Append | Step]) -> None:
        appends = [one for one in works if isinstance(one, Append)]
        has_steps = len(appends) < len(works)
        is_full = self._unmarked_bytes > self._checkpoint_bytes or not self._is_marked
        if time.monotonic() >= self._look_at_s:
            self._check_files()
        unsaved = self._due_positions(is_urgent=has_steps or is_full) if self._unsaved else {}
        try:
            rows, types, sources = self._numbered(appends)
            if len(rows) > _PART_COUNT or types or sources or unsaved or has_steps or is_full:
                self._database.connection.execute("BEGIN IMMEDIATE")
                self._put_facts(unsaved, types)
                self._put_sources(sources)
                self._insert(rows)
                for step in works:
                    if not isinstance(step, Append):
                        step()
                if is_full:
                    self._mark_end()
                    if not self._is_marked:
                        self._database.facts.put("open", True)
                self._database.connection.execute("COMMIT")
                self._types |= types.keys()
            else:  # the usual case: one statement is a transaction by itself
                self._insert(rows)
        except BaseException as error:
            self._recover(unsaved)
            if isinstance(error, FAILURES):
                raise self._database.complaint(error) from error
            raise
        self.extent = self._working
        if sources:
            self.sources = {**self.sources, **sources}
        if is_full:
            self._checkpoint()

    def _check_files(self) -> None:
        """Raise if others can no longer find what is written here."""
        self._look_at_s = time.monotonic() + FILES_S
        path = self._database.path
        if not self.is_gone:
            self.is_gone = identity(path) != self._identity or not self._lock.is_intact()
        if self.is_gone:
            raise StoreError(
                f"the files of ledger {path} were removed or replaced while it was in use. "
                "Nothing was accepted now; the next event goes to another ledger. What this one "
                "holds is delivered only as long as this process lives",
                path=str(path),
            )

    def _due_positions(self, *, is_urgent: bool) -> dict[str, Position]:
        now_s = time.monotonic()
        with self._guard:
            if not (is_urgent or now_s >= self._saved_s + POSITIONS_S):
                return {}
            self._saved_s = now_s
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved

    def _recover(self, unsaved: Mapping[str, Position]) -> None:
        """After a failed commit, continue from what the file holds: it may have succeeded."""
        with self._guard:
            self._unsaved = {**unsaved, **self._unsaved}
        roll_back(self._database.connection)
        with suppress(*FAILURES):  # a disk that fails altogether: the next commit reports it
            self.extent = reader.measure(self._database)
            self.sources = reader.sources(self._database.facts)
        self._working = self.extent

    def _numbered(
        self, appends: Sequence[Append]
    ) -> tuple[list[Any], dict[int, bytes], dict[str, int]]:
        """Number the records; return all rows as one list, new types, and sources that went on."""
        extent = self._working
        if appends and extent.sealed:
            raise StoreError(
                f"ledger {self._database.path} takes no more records: {extent.sealed}",
                path=str(self._database.path),
            )
        number, kept_at, size = extent.next, extent.kept_at, 0
        rows: list[Any] = []
        types: dict[int, bytes] = {}
        sources: dict[str, int] = {}
        for append in appends:
            try:
                records, descriptors = append.make()
            except Exception as error:
                append.error = error
                continue
            append.first = number
            for stream, reached in append.reached.items():
                if reached > max(sources.get(stream, 0), self.sources.get(stream, 0)):
                    sources[stream] = reached
            if append.sources:
                records = self._news(records, append.sources, sources)
            kept_at = max(kept_at, append.kept_at) if records else kept_at
            for record in records:
                body = encode(record)
                if record.time > kept_at:
                    kept_at = record.time
                size += len(body)
                rows += number, kept_at, body, checksum(number, kept_at, body)
                number += 1
            if descriptors:
                types.update(descriptors)
        self._unmarked_bytes += size + _COMMIT_BYTES
        self._working = replace(extent, next=number, kept_at=kept_at, bytes=extent.bytes + size)
        new = {key: types[key] for key in types.keys() - self._types} if types else types
        return rows, new, sources

    def _news(
        self, records: Sequence[Record], sources: Sequence[SourcePlace], reached: dict[str, int]
    ) -> list[Record]:
        """Return the records that are not kept yet, and note how far their sources come."""
        news: list[Record] = []
        for record, source in zip(records, sources, strict=True):
            stream = source.stream
            if source.number > max(reached.get(stream, 0), self.sources.get(stream, 0)):
                reached[stream] = source.number
                news.append(record)
        return news

    def _insert(self, rows: Sequence[Any]) -> None:
        # Each statement gives other threads a chance to run, so one statement inserts many
        # rows.
        for start in range(0, len(rows), _PART_COUNT):
            part = rows[start : start + _PART_COUNT]
            self._database.connection.execute(_insertion(len(part) // _COLUMN_COUNT), part)

    def _put_facts(self, positions: Mapping[str, Position], types: Mapping[int, bytes]) -> None:
        for name, one in positions.items():
            self._database.facts.put(f"position/{name}", (one.position, one.seen_at))
        for fingerprint, descriptor in types.items():
            self._database.facts.put(f"type/{fingerprint:016x}", descriptor)

    def _put_sources(self, numbers: Mapping[str, int]) -> None:
        for stream, number in numbers.items():
            self._database.facts.put(f"source/{stream}", number)

    def _delete(self, up_to: int) -> None:
        extent, ask = self._working, self._database.connection.execute
        up_to = min(up_to, extent.gone + DELETE_COUNT_MAX)
        size, kept_at = ask(
            "SELECT total(length(record)), max(kept_at) FROM records WHERE number <= ?", (up_to,)
        ).fetchone()
        ask("DELETE FROM records WHERE number <= ?", (up_to,))
        lost = tuple((max(first, up_to + 1), last) for first, last in extent.lost if last > up_to)
        if kept_at is None:  # all of them were lost, which happens in a repaired ledger
            kept_at = extent.pruned[-1][1] if extent.pruned else 0.0
        pruned = reader.thinned((*extent.pruned, (up_to, kept_at)))
        self._database.facts.put("pruned", pruned)
        self._database.facts.put("lost", lost)
        self._unmarked_bytes += int(size)
        self._working = replace(extent, pruned=pruned, lost=lost, bytes=extent.bytes - int(size))

    def _seal(self, why: str) -> None:
        self._database.facts.put("sealed", why)
        self._working = replace(self._working, sealed=why)

    def _mark_end(self) -> None:
        # From now on the main file must hold what is copied into it here.
        self._database.facts.put("end", self._working.next - 1)

    def _mark_closed(self) -> None:
        self._mark_end()
        self._database.facts.delete("open")

    def _checkpoint(self) -> None:
        # A reader would prevent the log from being reused. If this fails, the log still
        # holds everything, and grows until the disk has room again.
        with self._no_readers, suppress(*FAILURES):
            self._is_marked |= self._database.checkpoint()
            self._unmarked_bytes = 0


@cache
def _insertion(count: int) -> str:
    return "INSERT INTO records VALUES " + ",".join(["(?,?,?,?)"] * count)
