"""How fast objects are stored in the repository, beside SQLAlchemy that is given the rows ready.

All write the same rows into the same tables, in transactions of the same size, in turns. The
repository's time also has the taking apart of the objects in it; the others are given rows. Run
it with `python -m infobus.bench.repository`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import sqlalchemy
from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy import insert

from infobus import DataObject
from infobus.bench.model import Bar
from infobus.bench.postgres import temporary_postgres
from infobus.bench.report import bar_table
from infobus.errors import UsageError
from infobus.repository import Repository
from infobus.repository.writer import write_rows

REPOSITORY = "infobus"
COPY = "COPY of ready rows"
ALCHEMY = "SQLAlchemy of ready rows"
SQLITE = "SQLite"
POSTGRESQL = "PostgreSQL"
TIMES_MIN = {REPOSITORY: 3.0, COPY: 5.0}
"""Into PostgreSQL they shall be so many times as fast as SQLAlchemy."""


class Desk(DataObject, name="bench.Desk"):
    """Who wrote it."""

    name: str
    city: str


class Story(DataObject, name="bench.Story"):
    """A story of nine rows: itself, six words, two desks."""

    headline: str
    body: str
    published: datetime
    urgency: int
    topics: list[str]
    places: list[str]
    desks: list[Desk]


class WireStory(Story, name="bench.WireStory"):
    """A story as one vendor has it."""

    wire_id: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one way to store into one database."""

    database: str
    engine: str
    rates: list[float]
    """Objects per second, in each round."""

    @property
    def rate(self) -> float:
        """The median of all rounds."""
        return median(self.rates)


def stories(count: int) -> list[Story]:
    """That many stories, which nobody has stored yet."""
    day = datetime(1987, 2, 26, tzinfo=UTC)
    return [
        WireStory(
            headline=f"COCOA REVIEW {number}",
            body="Showers continued throughout the week. " * 10,
            published=day + timedelta(seconds=number),
            urgency=number % 5,
            topics=["cocoa", "grain", "sugar"],
            places=["usa", "uk", "brazil"],
            desks=[Desk(name="Commodities", city="London"), Desk(name="Markets", city="New York")],
            wire_id=f"f{number:06}",
        )
        for number in range(count)
    ]


def measure(
    folder: Path, *, rounds: int = 9, count: int = 2000
) -> tuple[list[Found], dict[str, str]]:
    """Measure with SQLite on the disk of `folder`, and with a PostgreSQL started for it.

    Also returns what was left out, and why.
    """
    left_out: dict[str, str] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as opened:
        urls = {SQLITE: f"sqlite:///{folder}/bench.db"}
        try:
            urls[POSTGRESQL] = opened.enter_context(temporary_postgres(durable=True))
        except UsageError as error:
            left_out[POSTGRESQL] = str(error)
        loads = {
            (database, engine): load
            for database, url in urls.items()
            for engine, load in _loads(opened.enter_context(Repository(url)))
        }
        for number in range(rounds + 1):
            for key, load in loads.items():
                took_s = load(count)
                if number:  # the first round makes the tables
                    rates.setdefault(key, []).append(count / took_s)
    found = [Found(database=d, engine=e, rates=taken) for (d, e), taken in rates.items()]
    return found, left_out


def _loads(repository: Repository) -> Iterator[tuple[str, Callable[[int], float]]]:
    def ready(count: int) -> list[tuple[sqlalchemy.Table, list[dict[str, Any]]]]:
        return repository.rows_of(stories(count))

    def store(count: int) -> float:
        objects = stories(count)
        return _timed(lambda: repository.store(objects))

    def alchemy(count: int) -> float:
        rows = ready(count)

        def write() -> None:
            with repository.transaction() as connection:
                for table, dicts in rows:
                    connection.execute(insert(table), dicts)

        return _timed(write)

    def copy(count: int) -> float:
        rows = [(t, [tuple(d.values()) for d in dicts]) for t, dicts in ready(count)]

        def write() -> None:
            with repository.transaction() as connection:
                for table, tuples in rows:
                    write_rows(connection, table, tuples)

        return _timed(write)

    yield REPOSITORY, store
    yield ALCHEMY, alchemy
    if repository.url.startswith("postgresql"):
        yield COPY, copy


def _timed(write: Callable[[], object]) -> float:
    gc.collect()  # or somebody would pay for the making of the objects
    begun_s = time.perf_counter()
    write()
    return time.perf_counter() - begun_s


def ratios(found: Sequence[Found], database: str, engine: str) -> list[float]:
    """How many times SQLAlchemy's rate another way reached, in each round."""
    rates = {one.engine: one.rates for one in found if one.database == database}
    if engine not in rates:
        return []
    return [a / b for a, b in zip(rates[engine], rates[ALCHEMY], strict=True)]


def judge(found: Sequence[Found]) -> list[Bar]:
    """The bars: into PostgreSQL, against SQLAlchemy's `executemany` in the same round."""
    bars = []
    for engine, bar in TIMES_MIN.items():
        times = ratios(found, POSTGRESQL, engine)
        bars.append(
            Bar(
                what=f"{engine} / SQLAlchemy",
                measured=median(times) if times else None,
                bar=bar,
                spread=(min(times), max(times)) if times else None,
            )
        )
    return bars


def found_table(found: Sequence[Found]) -> Table:
    """One row for each database and way."""
    table = Table(title="Objects of nine rows stored (medians)", box=box.SIMPLE)
    table.add_column("database")
    table.add_column("by")
    for column in ("objects per s", "/ SQLAlchemy"):
        table.add_column(column, justify="right")
    for one in found:
        ratio = median(ratios(found, one.database, one.engine))
        table.add_row(one.database, one.engine, f"{one.rate:,.0f}", f"{ratio:.2f}")
    return table


def print_report(console: Console, *, rounds: int = 9, count: int = 2000) -> None:
    """Measure, and print what came of it."""
    with TemporaryDirectory() as folder:
        found, left_out = measure(Path(folder), rounds=rounds, count=count)
    console.print(found_table(found))
    console.print(bar_table(judge(found)))
    for database, reason in left_out.items():
        console.print(f"[yellow]{database} left out:[/] {reason}")


if __name__ == "__main__":
    print_report(Console())
