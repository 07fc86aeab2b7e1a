"""A folder of ledgers, shared by the processes of a home: lists them, and finds free ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infobus.errors import StoreError
from infobus.stores.ledger import reader
from infobus.stores.ledger.ledger import KIND, Ledger, ledger_path
from infobus.stores.ledger.reader import Extent, Leavings
from infobus.stores.ledger.record import Position
from infobus.stores.sqlite.database import Database, companions, database_files
from infobus.stores.sqlite.locks import FileLock

_log = logging.getLogger("infobus")

TAKE_BYTES_MAX = 16 * 1024 * 1024
"""A ledger that holds more is left to those who serve it."""


@dataclass(frozen=True)
class Glance:
    """The content of a ledger at a moment, seen from outside."""

    id: str
    path: Path
    is_owned: bool
    """Whether a live process owns it."""
    extent: Extent
    positions: dict[str, Position]


def ledger_ids(folder: Path) -> list[str]:
    """Return the ids of all ledgers in a folder, which need not exist."""
    return sorted(path.stem for path in database_files(folder))


def open_free(folder: Path, *, take_bytes_max: int = TAKE_BYTES_MAX) -> Ledger:
    """Take over a ledger that nobody owns and that accepts records, or create a new one.

    A ledger that is damaged or of a newer format is skipped, with a line in the log. So is a large
    one: opening it reads all of it, too long a wait for a process that has one event to publish.
    """
    for path, lock in _unowned(folder):
        try:
            with _opened(path) as opened:
                if opened.used_bytes() > take_bytes_max:
                    continue
            ledger = Ledger(path, lock)
        except StoreError as error:
            _log.error("%s", error)
            continue
        if ledger.takes_records:
            return ledger
        ledger.close()
    return Ledger.open(folder)


Seen = dict[str, tuple[tuple[int, ...], Leavings | None]]
"""What was found in ledgers, and the times and sizes of their files then."""


def orphans(folder: Path, seen: Seen | None = None) -> dict[str, Leavings | None]:
    """Return the work that is left in used ledgers that nobody owns, by their ids.

    It is None for a ledger that is damaged or cannot be read: the process that opens it gets the
    error. Files that have not changed since they were `seen` are not read again.

    Raises:
        StoreError: The folder cannot be read, as when too many files are open.
    """
    seen = {} if seen is None else seen
    found: dict[str, Leavings | None] = {}
    for path in (ledger_path(folder, id) for id in ledger_ids(folder)):
        if _is_owned(path):
            continue
        stamp = _stamp(path)
        if path.stem not in seen or seen[path.stem][0] != stamp:
            try:
                with _opened(path) as opened:
                    seen[path.stem] = stamp, reader.leavings(opened)
            except StoreError:
                seen[path.stem] = stamp, None
        left = seen[path.stem][1]
        if left is None or left.last:  # even if all is pruned: there may be a loss to report
            found[path.stem] = left
    return found


def _stamp(path: Path) -> tuple[int, ...]:
    """Return the times and sizes of a ledger's file and of its log, if that has content."""
    stamp: list[int] = []
    for one in (path, companions(path)[0]):
        with suppress(FileNotFoundError):
            stat = one.stat()
            stamp += (stat.st_mtime_ns, stat.st_size) if stat.st_size else ()
    return tuple(stamp)


def glance(folder: Path, id: str) -> Glance:
    """Read the state of a ledger, without checking or changing it; it may have an owner.

    Raises:
        StoreError: It does not exist, or cannot be read.
    """
    path = ledger_path(folder, id)
    if not path.exists():
        raise StoreError(f"there is no ledger {id} in {folder}", path=str(path))
    is_owned = _is_owned(path)
    with _opened(path) as opened:
        positions = reader.positions(opened.facts)
        return Glance(id, path, is_owned, reader.measure(opened), positions)


def sources(folder: Path) -> dict[str, int]:
    """Return how far the records of each source are kept, in whichever ledger of a folder.

    A ledger that cannot be read is skipped, with a line in the log.
    """
    found: dict[str, int] = {}
    for path in (ledger_path(folder, id) for id in ledger_ids(folder)):
        try:
            with _opened(path) as opened:
                for stream, number in reader.sources(opened.facts).items():
                    found[stream] = max(number, found.get(stream, 0))
        except StoreError as error:
            _log.error("%s", error)
    return found


def _is_owned(path: Path) -> bool:
    # Do not hold its lock while reading: a publisher would find it taken, and create another.
    with FileLock(path.with_suffix(".lock")) as lock:
        return not lock.acquire()


@contextmanager
def _opened(path: Path) -> Iterator[Database]:
    opened = Database(path, KIND, path.stem)
    try:
        with opened.errors(), opened.snapshot():
            yield opened
    finally:
        opened.close()


def _unowned(folder: Path) -> Iterator[tuple[Path, FileLock]]:
    """Iterate over the ledgers that nobody owns, holding the lock of one at a time.

    The lock is released unless the caller stops there.
    """
    for id in ledger_ids(folder):
        path = ledger_path(folder, id)
        lock = FileLock(path.with_suffix(".lock"))
        if lock.acquire():
            yield path, lock
            lock.release()
