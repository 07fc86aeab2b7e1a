"""A folder of ledgers, shared by the processes of a home: which there are, and which are free."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infobus.errors import StoreError
from infobus.stores import scanning
from infobus.stores.database import Database
from infobus.stores.ledger import KIND, Ledger, ledger_path
from infobus.stores.locks import FileLock
from infobus.stores.records import Position
from infobus.stores.scanning import Extent

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


def orphans(folder: Path) -> list[str]:
    """Return the ids of the ledgers that hold records and that nobody owns.

    What is there was not settled by all known consumers, or is within its retention, or nobody
    was there to prune it. A damaged one counts as well: whoever opens it is told.
    """
    found = []
    for path, _ in _unowned(folder):
        try:
            seen = _look(path, is_owned=False)
            end = seen.extent.next - 1
            # One that was pruned too early has a loss to tell of.
            if seen.extent.count or any(one.position < end for one in seen.positions.values()):
                found.append(path.stem)
        except StoreError:
            found.append(path.stem)
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
        return _look(path, is_owned=is_owned)


def _look(path: Path, *, is_owned: bool) -> Glance:
    opened = Database(path, KIND, path.stem)
    try:
        with opened.errors(), opened.snapshot():
            positions = scanning.positions(opened.facts)
            return Glance(path.stem, path, is_owned, scanning.measure(opened), positions)
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
