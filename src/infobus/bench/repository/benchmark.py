"""`infobus bench repository`: how fast objects are stored.

All ways write the same rows into the same tables, in transactions of the same size, in turns. The
repository's time includes taking the objects apart; the other ways get rows.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy
from rich.table import Table
from sqlalchemy import insert

from infobus import DataObject
from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.postgres import temporary_postgres
from infobus.bench.common.rounds import (
    OnStep,
    Rounds,
    ignore_step,
    ratios,
    rounds_of,
    take_warm_turns,
)
from infobus.bench.common.tables import table_of
from infobus.errors import UsageError
from infobus.repository import Repository
from infobus.repository.writer import write_rows

REPOSITORY = "infobus"
COPY = "COPY of ready rows"
ALCHEMY = "SQLAlchemy of ready rows"
SQLITE = "SQLite"
POSTGRESQL = "PostgreSQL"

Store = Callable[[int], float]
"""Stores so many objects; returns how many seconds that took."""

BARS = {REPOSITORY: 3.0, COPY: 5.0}
"""Into PostgreSQL, each way is at least this many times as fast as SQLAlchemy."""


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure three rounds, or nine."""
    with TemporaryDirectory() as folder:
        found, left_out = measure(Path(folder), rounds=3 if quick else 9, on_step=on_step)
    return Findings(
        name="repository",
        tables=[table(found)],
        values={"found": found},
        bars=bars_of(found),
        left_out=left_out,
    )


class Desk(DataObject, name="bench.Desk"):
    """Who wrote it."""

    name: str
    city: str


class BenchStory(DataObject, name="bench.Story"):
    """A story of nine rows: itself, six words, two desks."""

    headline: str
    body: str
    published: datetime
    urgency: int
    topics: list[str]
    places: list[str]
    desks: list[Desk]


class WireStory(BenchStory, name="bench.WireStory"):
    """A story as one vendor has it."""

    wire_id: str


def stories(count: int) -> list[BenchStory]:
    """Make so many new stories."""
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
    folder: Path, *, rounds: int, count: int = 2000, on_step: OnStep = ignore_step
) -> tuple[list[Rounds], dict[str, str]]:
    """Measure with SQLite on the disk of `folder`, and with a PostgreSQL started for it.

    The round that warms up makes the tables. Returns the rounds, and the databases that were left
    out with the reason.
    """
    left_out: dict[str, str] = {}
    with ExitStack() as opened:
        urls = {SQLITE: f"sqlite:///{folder}/bench.db"}
        try:
            urls[POSTGRESQL] = opened.enter_context(temporary_postgres(durable=True))
        except UsageError as error:
            left_out[POSTGRESQL] = str(error)
        turns = {
            (database, engine): partial(_turn, store, count)
            for database, url in urls.items()
            for engine, store in _ways(opened.enter_context(Repository(url)))
        }
        taken = take_warm_turns(turns, rounds=rounds, on_step=on_step)
    return rounds_of(taken), left_out


def _turn(store: Store, count: int) -> dict[str, float]:
    return {"rate": count / store(count)}


def _ways(repository: Repository) -> Iterator[tuple[str, Store]]:
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


def bars_of(found: Sequence[Rounds]) -> list[Bar]:
    """Into PostgreSQL, against SQLAlchemy's `executemany` in the same round."""
    return [
        Bar.over_rounds(f"{engine} / SQLAlchemy", _times(found, POSTGRESQL, engine), bar)
        for engine, bar in BARS.items()
    ]


def table(found: Sequence[Rounds]) -> Table:
    """One row for each database and way."""
    rows = [
        (
            one.load,
            one.engine,
            f"{one.median('rate'):,.0f}",
            f"{median(_times(found, one.load, one.engine)):.2f}",
        )
        for one in found
    ]
    columns = ["objects per s", "/ SQLAlchemy"]
    return table_of(
        "Objects of nine rows stored (medians)", ["database", "by"], columns, rows, grouped=True
    )


def _times(found: Sequence[Rounds], database: str, engine: str) -> list[float]:
    return ratios(found, (database, engine), (database, ALCHEMY), "rate")
