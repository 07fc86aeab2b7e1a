"""What a sink has published: per query the batch it is at, and the next row of it.

A row's id is (query, batch, ordinal), and the object that is published bears it. For guaranteed
events the intent is written down before a few rows are published at one stroke; after a crash
the bus's own ledgers are asked whether these rows had got there. So nothing is published twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from infobus.bus.folders import ledgers_folder
from infobus.errors import StoreCorrupt, StoreError, StoreFull
from infobus.stores.database import Database
from infobus.stores.journal_manifest import sync_folder
from infobus.stores.ledger import KIND, ledger_path
from infobus.stores.locks import FileLock
from infobus.stores.scanning import checked, rows_after
from infobus.stores.shelf import glance, ledger_ids

NO_DIGEST = 0
"""Of a batch without rows, and of one from before there were digests."""


class Progress(Struct, kw_only=True):
    """Where the sink of one query stands."""

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
    digest: int = NO_DIGEST
    """Of all rows of the batch, in whatever order."""

    def id_of(self, ordinal: int) -> str:
        """The id of a row of this batch."""
        return f"{self.query}.{self.batch}:{ordinal:x}"


class SinkLedger:
    """The progress of one query's sink on disk; one process at a time may hold it."""

    def __init__(self, home: Path, bus: str, query: str) -> None:
        folder = home / "buses" / quote(bus, safe="") / "sinks"
        self._path = folder / f"{quote(query, safe='')[:200]}.json"
        self._ledgers = ledgers_folder(home, bus)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder {folder}: {error.strerror}", path=str(folder)
            ) from error
        self._lock = FileLock(self._path.with_suffix(".lock"))
        if not self._lock.acquire(patience_s=60.0):
            raise StoreError(
                f"another process publishes for the query {query!r}", path=str(self._path)
            )
        self.progress = self._load(query)

    def _load(self, query: str) -> Progress:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Progress)
        except FileNotFoundError:
            return Progress(query=query)
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreCorrupt(
                f"{self._path} cannot be read: {error}; it says what the query {query!r} has "
                "published, and without it rows may be published twice: move it away to accept "
                "that",
                path=str(self._path),
                problems=(str(error),),
            ) from error

    def save(self) -> None:
        """Have the progress on disk.

        Raises:
            StoreFull: It could not be written; what was there before still counts.
        """
        beside = self._path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(self.progress))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise StoreFull(
                f"cannot write {self._path}: {error.strerror}", path=str(self._path)
            ) from error

    def intend(self, count: int) -> None:
        """Write down that the next rows are about to be published, all or none."""
        progress = self.progress
        progress.intended = count
        progress.ledgers = {id: glance(self._ledgers, id).extent.next for id in self._ids()}
        self.save()

    def settle(self, count: int) -> None:
        """Write down that the next rows are published."""
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
        """The ids of objects that came into the ledgers since the intent was written down."""
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
        """Let another process go on."""
        self._lock.release()

    def __enter__(self) -> SinkLedger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
