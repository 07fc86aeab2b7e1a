"""Builds a sound file from the whole records of a damaged one, which it sets aside.

A repaired ledger is sealed: it serves its records and accepts no more. Its last records may have
been lost without a trace, and a number must never be given to two events.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, cast

import msgspec

from infobus.errors import LedgerInUse, StoreCorrupt, StoreError
from infobus.stores.ledger.ledger import KIND, Ledger, ledger_path
from infobus.stores.ledger.reader import RecordRow, find_problems, is_misplaced, is_whole, measure
from infobus.stores.sqlite.database import (
    Database,
    DatabaseKind,
    Facts,
    companions,
    create,
    fact_checksum,
    sync_folder,
)
from infobus.stores.sqlite.locks import FileLock
from infobus.stores.sqlite.salvage import Row, Value, salvage


@dataclass(frozen=True)
class Repaired:
    """The records that a repair has saved, and those that it has not."""

    id: str
    count: int
    """How many records the ledger holds now."""
    lost: tuple[tuple[int, int], ...]
    """Ranges of numbers that are known to be lost; later ones may be, too."""
    aside: Path | None
    """Where the damaged file is; None if there was nothing to repair."""


def repair(folder: Path, id: str) -> Repaired:
    """Salvage the whole records of a damaged ledger. A sound one stays as it is.

    Raises:
        LedgerInUse: A live process owns it.
        StoreError: It does not exist, is of a newer format, or its disk cannot be written.
    """
    path = ledger_path(folder, id)
    if not path.exists():
        raise StoreError(f"there is no ledger {id} in {folder}", path=str(path))
    with FileLock(path.with_suffix(".lock")) as lock:
        if not lock.acquire(patience_s=0.2):
            raise LedgerInUse(f"ledger {path} is in use by a live process", path=str(path))
        aside = None if _is_sound(path) else replace_damaged(path, KIND, _refill)
        return _report(Ledger(path, lock), aside)


def _is_sound(path: Path) -> bool:
    try:
        opened = Database(path, KIND, path.stem)
    except StoreCorrupt:
        return False
    try:
        with opened.errors(), opened.snapshot():
            extent = measure(opened)
            problems = find_problems(opened, extent, are_records_read=True)
            return not problems and not opened.log_problems()
    except StoreCorrupt:
        return False
    finally:
        opened.close()


def _report(ledger: Ledger, aside: Path | None) -> Repaired:
    with ledger:
        return Repaired(ledger.id, ledger.extent.count, ledger.extent.lost, aside)


def replace_damaged(
    path: Path, kind: DatabaseKind, refill: Callable[[sqlite3.Connection, Iterator[Row]], None]
) -> Path:
    """Replace a damaged file by one that `refill` fills; return where the old one is now."""
    aside = next(
        place
        for number in count(1)
        if not (place := path.with_suffix(f".damaged-{number}")).exists()
    )
    log, index = companions(path)
    os.link(path, aside)
    create(path, kind, lambda connection: refill(connection, salvage(aside, log)))
    # A crash before this leaves a log that does not belong to the new file. Such a file is
    # refused as damaged, and repaired with all rows of both.
    with suppress(FileNotFoundError):
        log.rename(companions(aside)[0])
    index.unlink(missing_ok=True)
    sync_folder(path.parent)
    return aside


def _refill(connection: sqlite3.Connection, rows: Iterator[Row]) -> None:
    found: dict[str, list[Any]] = {}
    for number, values in rows:
        if len(values) == 4:
            _keep_record(connection, number, values)
        elif fact := whole_fact(values):
            found.setdefault(fact[0], []).append(fact[1])
    facts = Facts(connection)
    for key, versions in found.items():
        if key.startswith("type/"):
            fingerprint = int(key.removeprefix("type/"), 16)
            versions = [one for one in versions if not is_misplaced(one, fingerprint)]
        if key.startswith(("position/", "source/", "type/")) and versions:
            facts.put(key, max(versions))  # a position never goes back, and a type never changes
    pruned = max(found.get("pruned", [[]]), key=lambda times: times[-1:])
    gone = pruned[-1][0] if pruned else 0
    connection.execute("DELETE FROM records WHERE number <= ?", (gone,))
    numbers = [row[0] for row in connection.execute("SELECT number FROM records ORDER BY number")]
    known = [gone, *numbers[-1:], *found.get("end", ())]
    known += [
        position for key in found if key.startswith("position/") for position, _ in found[key]
    ]
    known += [last for ranges in found.get("lost", ()) for _, last in ranges]
    lost = _gaps([gone, *numbers, max(known) + 1])
    facts.put("pruned", pruned)
    facts.put("lost", lost)
    facts.put("end", max(known))
    facts.put("sealed", f"it was damaged and repaired, with {len(numbers)} records saved")


def _keep_record(connection: sqlite3.Connection, number: int, values: list[Value]) -> None:
    _, kept_at, record, crc = values
    # SQLite stores a whole number as an integer, even if it is a float.
    kept_at = float(kept_at) if isinstance(kept_at, int) else kept_at
    row = cast(RecordRow, (number, kept_at, record, crc))
    if is_whole(row):
        connection.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", row)


def whole_fact(values: list[Value]) -> tuple[str, Any] | None:
    """Return the key and the value of a row of facts, if it is one and its checksum is right."""
    match values:
        case [str(key), bytes(value), int(crc)] if fact_checksum(key, value) == crc:
            return key, msgspec.msgpack.decode(value)
    return None


def _gaps(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the ranges that are missing between the given numbers.

    >>> _gaps([0, 1, 2, 5, 6, 8])
    [(3, 4), (7, 7)]
    """
    return [(one + 1, two - 1) for one, two in pairwise(numbers) if two > one + 1]
