"""Reads a ledger's file: what it holds, and everything that can be wrong with it.

Facts of a ledger, beside its records:

    pruned          [[number, kept_at], ...]: up to where records were pruned, the last few times
    lost            [[first, last], ...]: numbers that a repair could not save
    sealed          why the ledger accepts no more records
    end             the last number when the log was last copied into the main file
    open            an owner has written here, and has not closed the ledger
    position/NAME   [position, seen_at]: the position of a consumer
    source/STREAM   up to which number the records of a source are kept here (see `SourcePlace`)
    type/HEX        the descriptor of the type with that fingerprint (see `is_misplaced`)
"""

from __future__ import annotations

import sqlite3
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import msgspec

from infobus.errors import BadFrame
from infobus.objects import descriptors
from infobus.stores.ledger.record import Position, Record, checksum, decode
from infobus.stores.sqlite.database import Damage, Database, Facts

COLUMNS = "number, kept_at, record, crc"
RecordRow = tuple[int, float, bytes, int]
_PROBLEM_COUNT_MAX = 100
_PRUNED_COUNT_MAX = 64


def is_misplaced(descriptor: bytes, fingerprint: int) -> bool:
    """Return whether a descriptor is of another type: old versions stored a supertype's."""
    try:
        return descriptors.read(descriptor).fingerprint != fingerprint
    except BadFrame:
        return False  # of a newer version, perhaps; the process that learns it reports the problem


class Extent(msgspec.Struct, frozen=True):
    """The numbers in a ledger: those after `gone` and before `next`, except the `lost`."""

    pruned: tuple[tuple[int, float], ...]
    """Up to where records were pruned, and the time of the last of them; the latest last."""
    next: int
    kept_at: float
    """The time of the last record."""
    bytes: int
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of numbers that a repair could not save."""
    sealed: str = ""
    """Why the ledger takes no more records, or empty."""

    @property
    def gone(self) -> int:
        """The last number that was pruned, 0 if none was."""
        return self.pruned[-1][0] if self.pruned else 0

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.next - 1 - self.gone - sum(last - first + 1 for first, last in self.lost)

    def is_missing(self, first: int, last: int) -> bool:
        """Return whether all of these numbers are known to be gone or lost."""
        first = max(first, self.gone + 1)
        for start, end in self.lost:
            if start <= first <= end:
                first = end + 1
        return first > last


class Leavings(msgspec.Struct, frozen=True):
    """The work that is left in a ledger that nobody owns."""

    last: int
    """The last number that was given."""
    positions: dict[str, int]
    """Up to where each known consumer has settled everything."""
    settled_at: float = float("inf")
    """When the oldest record was kept, if all known consumers have settled it."""


def measure(database: Database) -> Extent:
    """Return what the file holds, without checking each record's checksum."""
    facts, ask = database.facts, database.connection.execute
    past, lost = pruned(facts), _lost(facts)
    size = ask("SELECT total(length(record)) FROM records").fetchone()[0]
    last, kept_at = _end(database)
    return Extent(
        pruned=past,
        next=last + 1,
        kept_at=kept_at,
        bytes=int(size),
        lost=lost,
        sealed=facts.get("sealed") or "",
    )


def leavings(database: Database) -> Leavings:
    """Return the work that is left in the file, without reading its records."""
    known = {name: one.position for name, one in positions(database.facts).items()}
    last, _ = _end(database)
    oldest = database.connection.execute(
        "SELECT number, kept_at FROM records ORDER BY number LIMIT 1"
    ).fetchone()
    is_settled = oldest and oldest[0] <= min(known.values(), default=last)
    return Leavings(last, known, oldest[1] if is_settled else float("inf"))


def _end(database: Database) -> tuple[int, float]:
    """Return the last number that was assigned, and the time of the last record."""
    newest = database.connection.execute(
        f"SELECT {COLUMNS} FROM records ORDER BY number DESC LIMIT 1"
    ).fetchone()
    if newest and not is_whole(newest):
        raise Damage(f"the checksum of record {newest[0]} is wrong")
    past = pruned(database.facts)
    last, kept_at = newest[:2] if newest else past[-1] if past else (0, float("-inf"))
    return max(last, *(end for _, end in _lost(database.facts)), 0), kept_at


def _lost(facts: Facts) -> tuple[tuple[int, int], ...]:
    return tuple((first, last) for first, last in facts.get("lost") or ())


def pruned(facts: Facts) -> tuple[tuple[int, float], ...]:
    """Return up to which numbers records were pruned, the last few times."""
    return tuple((number, kept_at) for number, kept_at in facts.get("pruned") or ())


def thinned(past: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """Drop some entries of the pruning history if there are many, mostly older ones."""
    return past if len(past) <= _PRUNED_COUNT_MAX else (*past[:-1:2], past[-1])


def positions(facts: Facts) -> dict[str, Position]:
    """Return the position of each known consumer."""
    return {name: Position(*value) for name, value in facts.under("position/").items()}


def sources(facts: Facts) -> dict[str, int]:
    """Return up to which number the records of each source are kept."""
    return {stream: int(number) for stream, number in facts.under("source/").items()}


def rows_after(connection: sqlite3.Connection, number: int, count_max: int) -> Iterator[RecordRow]:
    """Return the rows of records that follow `number`, in order."""
    return connection.execute(
        f"SELECT {COLUMNS} FROM records WHERE number > ? ORDER BY number LIMIT ?",
        (number, count_max),
    )


def is_whole(row: RecordRow) -> bool:
    """Return whether a row is as it was written."""
    number, kept_at, encoded, crc = row
    try:
        return checksum(number, kept_at, encoded) == crc
    except (TypeError, struct.error):  # values of other kinds than were written
        return False


def checked(row: RecordRow) -> Record:
    """Return the record of a row, or raise `Damage`."""
    try:
        if is_whole(row):
            return decode(row[2])
    except msgspec.MsgspecError as error:
        raise Damage(f"record {row[0]} cannot be read: {error}") from error
    raise Damage(f"the checksum of record {row[0]} is wrong")


def first_since(connection: sqlite3.Connection, extent: Extent, time: float) -> int:
    """Return a number before which every record, stored or gone, is older than `time`.

    It is the least one, unless records since then were pruned: then it may be less, because their
    times are known only roughly. It relies on times that never fall along a ledger.
    """
    if extent.pruned and time <= extent.pruned[-1][1]:
        return max((number for number, kept_at in extent.pruned if kept_at < time), default=0) + 1

    def kept_at(number: int) -> float:
        found = next(rows_after(connection, number - 1, 1), None)
        if found and not is_whole(found):
            raise Damage(f"the checksum of record {found[0]} is wrong")
        return found[1] if found else float("inf")

    numbers = range(extent.gone + 1, extent.next)
    return numbers.start + bisect_left(numbers, time, key=kept_at)


def last_beyond(connection: sqlite3.Connection, extent: Extent, bytes_max: int) -> int:
    """Return the last number to delete so that no more than `bytes_max` are left."""
    left = extent.bytes
    if left > bytes_max:
        sizes = connection.execute("SELECT number, length(record) FROM records ORDER BY number")
        for number, size in sizes:
            left -= size
            if left <= bytes_max:
                return int(number)
    return extent.gone


def find_problems(database: Database, extent: Extent, *, are_records_read: bool) -> list[str]:
    """Check every page and fact, and each record if asked to; return what is wrong."""
    find = _record_problems if are_records_read else _number_problems
    try:
        return database.structure_problems() or [
            *find(database.connection, extent),
            *_fact_problems(database.facts, extent),
            *_missing_log(database, extent),
        ]
    except Damage as error:
        return [str(error)]


def _missing_log(database: Database, extent: Extent) -> list[str]:
    """While a ledger is open, and after a crash, there is a log beside the main file.

    If the main file holds more than its owner had copied last, another program copied the log.
    """
    facts = database.facts
    end = facts.get("end") or 0
    if not facts.get("open") or extent.next > end + 1 or database.has_log():
        return []
    return [
        f"its log is missing: it was copied without {database.path.name}-wal, or that file was "
        f"removed. It held all events after number {end}"
    ]


def _number_problems(connection: sqlite3.Connection, extent: Extent) -> list[str]:
    count, first = connection.execute("SELECT count(*), min(number) FROM records").fetchone()
    if count == extent.count and (first is None or first > extent.gone):
        return []
    return [
        f"there are {count} records from number {first or 0} on, but it should be {extent.count} "
        f"from {extent.gone + 1} to {extent.next - 1}"
    ]


def _record_problems(connection: sqlite3.Connection, extent: Extent) -> list[str]:
    problems: list[str] = []
    before, time_before = extent.pruned[-1] if extent.pruned else (0, float("-inf"))
    for row in rows_after(connection, -1, -1):
        number, kept_at = row[:2]
        if is_whole(row) and number == before + 1 and kept_at >= time_before:
            time_before = kept_at
        else:
            problems += _row_problems(row, before, time_before, extent)
        before = number
        if len(problems) >= _PROBLEM_COUNT_MAX:
            break
    return problems


def _row_problems(row: RecordRow, before: int, time_before: float, extent: Extent) -> Iterator[str]:
    number, kept_at = row[:2]
    if not is_whole(row):
        yield f"the checksum of record {number} is wrong"
    elif kept_at < time_before:
        yield f"record {number} is older than the one before it"
    if number <= extent.gone:
        yield f"record {number} is there, but those up to {extent.gone} are gone"
    elif not extent.is_missing(before + 1, number - 1):
        yield f"records are missing between {before} and {number}"


def _fact_problems(facts: Facts, extent: Extent) -> list[str]:
    everything: dict[str, Any] = facts.all("", "\U0010ffff")
    problems = []
    end = everything.get("end", 0)
    if end >= extent.next:
        problems.append(f"records up to {end} were written, but they end at {extent.next - 1}")
    for name, position in positions(facts).items():
        if position.position >= extent.next:
            problems.append(
                f"consumer {name!r} has settled record {position.position}, "
                f"but they end at {extent.next - 1}"
            )
    return problems
