"""A folder of ledgers, shared by the processes of a home: which there are, and which are free."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infobus.errors import StoreError
from infobus.stores import scanning
from infobus.stores.database import Database
from infobus.stores.ledger import KIND, Ledger, ledger_path
from infobus.stores.locks import FileLock
from infobus.stores.records import Position
from infobus.stores.scanning import Extent, Leavings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Glance:
    """What a ledger holds at a moment, seen from outside."""

    id: str
    path: Path
    is_owned: bool
    """Whether a live process owns it."""
    extent: Extent
    positions: dict[str, Position]


def ledger_ids(folder: Path) -> list[str]:
    """Return the ids of all ledgers in a folder, which need not be there."""
    return sorted(path.stem for path in folder.glob("*.db"))


def open_free(folder: Path) -> Ledger:
    """Take over a ledger that nobody owns and that takes records, or make a new one.

    One that is damaged or of a newer format is passed over, with a word in the log.
    """
    for path, lock in _unowned(folder):
        try:
            ledger = Ledger(path, lock)
        except StoreError as error:
            _log.error("%s", error)
            continue
        if not ledger.extent.sealed:
            return ledger
        ledger.close()
    return Ledger.open(folder)


def orphans(folder: Path) -> dict[str, Leavings | None]:
    """Return what is left to do in those used ledgers that nobody owns, by their ids.

    It is None for one that is damaged, or cannot be read: whoever opens it is told.

    Raises:
        StoreError: The folder cannot be looked at, as when too many files are open.
    """
    found: dict[str, Leavings | None] = {}
    for path, _ in _unowned(folder):
        try:
            with _opened(path) as opened:
                left = scanning.leavings(opened)
        except StoreError:
            found[path.stem] = None
        else:
            if left.last:  # even if all is pruned: there may be a loss to tell of
                found[path.stem] = left
    return found


def glance(folder: Path, id: str) -> Glance:
    """Look at a ledger, whoever owns it. It is not checked, and not changed.

    Raises:
        StoreError: It is not there, or cannot be read.
    """
    path = ledger_path(folder, id)
    if not path.exists():
        raise StoreError(f"there is no ledger {id} in {folder}", path=str(path))
    with FileLock(path.with_suffix(".lock")) as lock:
        is_owned = not lock.acquire()
        with _opened(path) as opened:
            positions = scanning.positions(opened.facts)
            return Glance(id, path, is_owned, scanning.measure(opened), positions)


@contextmanager
def _opened(path: Path) -> Iterator[Database]:
    opened = Database(path, KIND, path.stem)
    try:
        with opened.errors(), opened.snapshot():
            yield opened
    finally:
        opened.close()


def _unowned(folder: Path) -> Iterator[tuple[Path, FileLock]]:
    """Go through the ledgers that nobody owns, holding the lock of one at a time.

    It is released unless the caller stops there.
    """
    for id in ledger_ids(folder):
        path = ledger_path(folder, id)
        lock = FileLock(path.with_suffix(".lock"))
        if lock.acquire():
            yield path, lock
            lock.release()
