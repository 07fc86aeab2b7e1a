"""Records what a sink has published: for each query its batch, and the next row of it.

A row's id is (query, batch, ordinal), and the published object has this id. Before a few guaranteed
rows are published atomically, the ledger records the intent. After a crash it asks the bus's own
ledgers whether these rows arrived there. So nothing is published twice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from infobus.bus.settings import ledgers_folder
from infobus.errors import StoreCorrupt, StoreError, StoreFull
from infobus.stores.journal.manifest import sync_folder
from infobus.stores.ledger.folder import glance, ledger_ids
from infobus.stores.ledger.ledger import KIND, ledger_path
from infobus.stores.ledger.reader import checked, rows_after
from infobus.stores.private import make_private_folder, private_opener
from infobus.stores.sqlite.database import Database
from infobus.stores.sqlite.locks import FileLock

DIGESTS_MAX = 1_000
"""Of so many batches before the last one it is known what they were."""


class SinkProgress(Struct, kw_only=True):
    """The position of one query's sink."""

    query: str
    batch: int = -1
    files: list[str] = []
    """The rows of the batch as they were staged first: a repetition may have another order."""
    next: int = 0
    """The ordinal of the next row to be published."""
    intended: int = 0
    """So many rows from there on may have been published, or not."""
    ledgers: dict[str, int] = {}
    """Which number was the next in each ledger when that was intended."""
    is_done: bool = True
    digest: int | None = None
    """Of all rows of the batch, in whatever order; None of one from before there were digests."""
    digests: dict[int, int] = {}
    """The same of batches before it that were published."""

    def begin(self, query: str, batch: int, files: list[str], digest: int) -> None:
        """Start another batch, whose rows are in these files."""
        if self.is_done and self.digest is not None:
            self.digests[self.batch] = self.digest
        for old in sorted(self.digests)[:-DIGESTS_MAX]:
            del self.digests[old]
        self.query, self.batch, self.files, self.digest = query, batch, files, digest
        self.next, self.intended, self.is_done = 0, 0, False

    def id_of(self, ordinal: int) -> str:
        """Return the id of a row of this batch."""
        return f"{self.query}.{self.batch}:{ordinal:x}"


def ledger_file(home: Path, bus: str, query: str) -> Path:
    """Return the file that holds the progress of a query's sink."""
    name = quote(query, safe="")
    if len(name) > 200:  # too long for a file, and the distinguishing part may be at its end
        name = f"{name[:160]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return home / "buses" / quote(bus, safe="") / "sinks" / f"{name}.json"


class SinkLedger:
    """The progress of one query's sink on disk; one process at a time may hold it."""

    def __init__(self, home: Path, bus: str, query: str, *, patience_s: float = 60.0) -> None:
        self._path = ledger_file(home, bus, query)
        folder = self._path.parent
        self._ledgers = ledgers_folder(home, bus)
        try:
            make_private_folder(folder)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder {folder}: {error.strerror}", path=str(folder)
            ) from error
        self._lock = FileLock(self._path.with_suffix(".lock"))
        if not self._lock.acquire(patience_s=patience_s):
            raise StoreError(
                f"another process publishes for the query {query!r}", path=str(self._path)
            )
        try:
            self.progress = self._load(query)
        except BaseException:
            self.close()
            raise

    def _load(self, query: str) -> SinkProgress:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=SinkProgress)
        except FileNotFoundError:
            return SinkProgress(query=query)
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreCorrupt(
                f"{self._path} cannot be read: {error}; it says what the query {query!r} has "
                "published, and without it rows may be published twice: move it away to accept "
                "that",
                path=str(self._path),
                problems=(str(error),),
            ) from error

    def save(self) -> None:
        """Write the progress to disk.

        Raises:
            StoreFull: It could not be written; the previous progress is still valid.
        """
        beside = self._path.with_suffix(".new")
        try:
            with open(beside, "wb", opener=private_opener) as file:
                file.write(msgspec.json.encode(self.progress))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise StoreFull(
                f"cannot write {self._path}: {error.strerror}", path=str(self._path)
            ) from error

    def check_staged(self) -> None:
        """Check that the rows to continue with still exist.

        Raises:
            StoreCorrupt: They do not.
        """
        progress = self.progress
        gone = tuple(path for path in progress.files if not Path(path).exists())
        if gone:
            raise StoreCorrupt(
                f"batch {progress.batch} of {progress.query} cannot go on: {gone[0]} is gone, with "
                f"rows as they were staged first, of which {progress.next} are published; move "
                f"{self._path} away to publish all of the batch, these once more",
                path=str(self._path),
                problems=gone,
            )

    def remove(self) -> None:
        """Remove it: another ledger has taken over."""
        self._path.unlink(missing_ok=True)

    def intend(self, count: int) -> None:
        """Record that the next rows are about to be published, all or none."""
        progress = self.progress
        progress.intended = count
        progress.ledgers = {id: glance(self._ledgers, id).extent.next for id in self._ids()}
        self.save()

    def settle(self, count: int) -> None:
        """Record that the next rows are published."""
        progress = self.progress
        progress.next += count
        progress.intended = 0
        self.save()

    def resolve(self) -> None:
        """Find out whether rows that were intended before a crash were published."""
        progress = self.progress
        if progress.intended and progress.id_of(progress.next) in set(self._kept_ids()):
            self.settle(progress.intended)
        progress.intended = 0

    def _ids(self) -> list[str]:
        return ledger_ids(self._ledgers)

    def _kept_ids(self) -> Iterator[str | None]:
        """Return the ids of objects that entered the ledgers since the intent was recorded."""
        for id in self._ids():
            path = ledger_path(self._ledgers, id)
            database = Database(path, KIND, id)
            try:
                with database.errors(), database.snapshot():
                    after = self.progress.ledgers.get(id, 1) - 1
                    for row in rows_after(database.connection, after, -1):
                        yield checked(row).object_id
            finally:
                database.close()

    def close(self) -> None:
        """Release the ledger, so that another process can continue."""
        self._lock.release()

    def __enter__(self) -> SinkLedger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
