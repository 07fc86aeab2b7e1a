"""Read stories from a vendor's lines; records that cannot be read are reported as skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from infobus.adapters.stories import Bulletin, Skipped


@dataclass(frozen=True)
class Format:
    """One vendor's format: how a record begins, how it ends, and how to parse it.

    `parse` gets all lines of a record and the day, and raises `ValueError` for a bad record.
    """

    name: str
    file: str
    begin: str
    end: str
    parse: Callable[[list[str], date], Bulletin]


def read_feed(lines: Iterable[str], format: Format, day: date) -> Iterator[Bulletin | Skipped]:
    """The stories in `lines`, each as soon as its last line has arrived."""
    record: list[str] = []
    first = 1
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if record and line.startswith(format.begin):
            yield Skipped(first, "another record begins inside of it")
            record = []
        if not record:
            first = number
        if line or record:
            record.append(line)
        if line == format.end:
            yield _read_record(record, first, format, day)
            record = []
    if record:
        yield Skipped(first, "the feed ended inside of it")


def _read_record(record: list[str], first: int, format: Format, day: date) -> Bulletin | Skipped:
    try:
        return format.parse(record, day)
    except ValueError as error:  # includes values that do not fit the attributes
        return Skipped(first, str(error))


def one(fields: dict[str, list[str]], name: str) -> str:
    """The value of a field that a record must have exactly once."""
    values = fields.get(name, [])
    if len(values) != 1 or not values[0]:
        raise ValueError(f"expected one {name}, got {len(values)}")
    return values[0]


def at(day: date, time: str, layout: str) -> datetime:
    """The moment on `day` given by a vendor's time."""
    return datetime.combine(day, datetime.strptime(time, layout).time(), UTC)
