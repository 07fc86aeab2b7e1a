"""How fast the pipeline is, beside Spark's own Parquet source on the very same files.

    full       every column of every event is read, but for `_attributes`, which is empty here
    narrow     two columns are read
    batches    a stream takes the journal in micro-batches, and throws it away; a batch counts with
               all that Spark does for it, and what a stream needs to begin is told apart

Also how fast events are captured by the journal and by the repository (`bench.repository`), what a
rule of correlation takes (`bench.pipeline_rules`), and how long it takes from the bus to a table.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

import msgspec

import infobus
from infobus import DataObject, Event, id_of
from infobus.bench import repository
from infobus.bench.model import Bar
from infobus.bench.pipeline_rules import Took
from infobus.pipeline import jobs
from infobus.pipeline.jobs.session import session
from infobus.pipeline.recorder import PATTERNS
from infobus.stores.journal.journal import Journal, JournalWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, NATIVE, NOTHING = "infobus", "Spark's Parquet", "a Python source that reads nothing"
FULL, NARROW, BATCHES = "full", "narrow", "batches"
BARS = {FULL: 0.8, NARROW: 0.35, BATCHES: 1 / 1.3}
"""How many times Spark's own rate the source shall reach, at least."""
PATIENCE_S = 120.0
CHUNK_COUNT = 20_000
"""Events of one file."""
BATCH_COUNT = 10
TYPE = "bench.Quote"


class Quote(DataObject, name=TYPE):
    """An event of seven attributes."""

    symbol: str
    exchange: str
    price: float
    size: int
    bid: float
    ask: float
    note: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """How many events a second were read, in each round."""

    what: str
    by: str
    rates: list[float]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream took, in each round."""

    by: str
    starts_s: list[float] = []
    """All but its batches: to begin, and to end."""
    batches_s: list[float] = []
    """Median of its batches."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call of `infobus bench pipeline` found out."""

    machine: dict[str, str]
    events: int
    found: list[Found]
    streams: list[Stream]
    rules: list[Took]
    journal_per_s: float
    """Events that the journal's writer took in a second."""
    latencies_s: list[float]
    """From publication until a table had the object."""
    stored: list[repository.Found]
    bars: list[Bar]
    left_out: dict[str, str]


def write_journal(folder: Path, count: int, on_part: Callable[[int], object]) -> float:
    """Write that many events; returns how many a second."""
    day_s = 1_700_000_000.0
    quotes = [
        Quote(
            symbol=f"S{n % 500}",
            exchange="NYSE",
            price=n % 97 + 0.25,
            size=n % 1000,
            bid=n % 89 + 0.5,
            ask=n % 89 + 0.75,
            note=f"order {n} of the day",
        )
        for n in range(CHUNK_COUNT)
    ]
    took_s = 0.0
    with JournalWriter.open(folder) as writer:
        for start in range(0, count, CHUNK_COUNT):
            part = quotes[: count - start]
            events = [
                Event(f"quotes.s{n % 50}", quote, "bench", n, day_s + n / 1000, n)
                for n, quote in enumerate(part, start)
            ]
            begun_s = time.perf_counter()
            writer.append(events, now_s=time.time())
            took_s += time.perf_counter() - begun_s
            on_part(start + len(part))
    return count / took_s


def measure_reading(
    spark: SparkSession, folder: Path, *, rounds: int, on_turn: Callable[[str], object]
) -> tuple[list[Found], list[Stream]]:
    """Read the journal in all ways, in turns; the first round only warms up."""
    journal = Journal.open(folder)
    rates: dict[tuple[str, str], list[float]] = {}
    streams = {by: Stream(by=by) for by in (OURS, NATIVE, NOTHING)}
    for number in range(rounds + 1):
        for what, by, read in _ways(spark, journal):
            on_turn(f"{what}, {by}")
            begun_s = time.perf_counter()
            read()
            if number:
                took_s = time.perf_counter() - begun_s
                rates.setdefault((what, by), []).append(journal.next_offset / took_s)
        for by, stream in _streams(spark, journal):
            on_turn(f"{BATCHES}, {by}")
            start_s, batch_s = _drain(stream, f"{folder}.{list(streams).index(by)}-{number}")
            if number:
                streams[by].starts_s.append(start_s)
                streams[by].batches_s.append(batch_s)
    for by in (OURS, NATIVE):
        count = _files_at_once(journal) * CHUNK_COUNT
        rates[BATCHES, by] = [count / batch_s for batch_s in streams[by].batches_s]
    found = [Found(what=what, by=by, rates=taken) for (what, by), taken in rates.items()]
    return found, list(streams.values())


def _ways(spark: SparkSession, journal: Journal) -> Iterator[tuple[str, str, Callable[[], object]]]:
    paths = [str(path) for path in journal.files(TYPE)]

    def ours(columns: list[str]) -> None:
        given = {**_given(journal), "columns": ",".join(columns)}
        _consume(spark.read.format("infobus").options(**given).load())

    def native(columns: list[str]) -> None:
        _consume(spark.read.parquet(*paths).select(*columns))

    for what, columns in ((FULL, _columns(journal)), (NARROW, ["symbol", "price"])):
        yield what, OURS, partial(ours, columns)
        yield what, NATIVE, partial(native, columns)


def _given(journal: Journal) -> dict[str, str]:
    return {"journal": str(journal.folder), "type": TYPE}


def _columns(journal: Journal) -> list[str]:
    return [name for name in journal.select(TYPE).schema.names if name != "_attributes"]


def _files_at_once(journal: Journal) -> int:
    """Whole files go into a batch of either source: so both have the same batches."""
    return -(-len(journal.files(TYPE)) // BATCH_COUNT)


def _streams(spark: SparkSession, journal: Journal) -> Iterator[tuple[str, DataFrame]]:
    paths, at_once = journal.files(TYPE), _files_at_once(journal)
    columns = _columns(journal)
    ours = spark.readStream.format("infobus").options(**_given(journal))
    ours = ours.option("columns", ",".join(columns))
    yield OURS, ours.option("maxEventsPerTrigger", str(at_once * CHUNK_COUNT)).load()
    schema = spark.read.parquet(str(paths[0])).select(*columns).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", at_once)
    yield NATIVE, files.parquet(str(paths[0].parent))
    yield NOTHING, spark.readStream.format("nothing").option("batches", BATCH_COUNT).load()


def _consume(frame: DataFrame) -> None:
    """Look at every value, and bring back one number."""
    from pyspark.sql import functions as F

    frame.agg(F.count("*"), F.max(F.xxhash64(*frame.columns))).collect()


def _drain(stream: DataFrame, checkpoint: str) -> tuple[float, float]:
    """Run a stream to its end; seconds for all but its batches, and for one of these."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    begun_s = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    took_s = time.perf_counter() - begun_s
    batches_s = [
        one["durationMs"]["triggerExecution"] / 1e3
        for one in query.recentProgress
        if one["numInputRows"]
    ]
    return took_s - sum(batches_s), median(batches_s)


def measure_latency(
    spark: SparkSession, folder: Path, *, count: int, every_s: float = 1.0
) -> list[float]:
    """Publish objects and see when each is in a table, with a live job between; in seconds."""
    name, home, db = f"bench-{secrets.token_hex(4)}", folder / "home", folder / "latency.db"
    bus_options = {"bus": name, "home": str(home), "journal": str(folder / "live")}
    live = {"live": "true", "subject": "bench.>"}
    events = spark.readStream.format("infobus").options(**bus_options, **live).load()
    options = jobs.options_for(
        "decompose", {"journal": bus_options["journal"], "db": f"sqlite:///{db}"}
    )
    query = jobs.run(
        "decompose",
        events,
        options,
        query="latency",
        checkpoint=str(folder / "latency"),
        trigger={"processingTime": "1 second"},
    )
    assert query is not None
    found: list[float] = []
    try:
        with infobus.connect(name, home=home) as bus:
            _wait_until((folder / "live" / PATTERNS).exists)
            for _ in range(count + 1):
                quote = Quote(
                    symbol="S1", exchange="NYSE", price=1.0, size=1, bid=1.0, ask=1.0, note=""
                )
                bus.publish("bench.latency", quote)
                found.append(_wait_until(lambda: _is_stored(db, id_of(quote))))  # noqa: B023
                time.sleep(every_s)
    finally:
        query.stop()
    return found[1:]  # the first one also waited for the tables to be made


def _is_stored(db: Path, id: str | None) -> bool:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(db)) as connection:
        row = connection.execute("SELECT 1 FROM bench_quote WHERE _id = ?", (id,)).fetchone()
        return row is not None
    return False  # there is no table yet


def _wait_until(is_so: Callable[[], bool]) -> float:
    """Wait for it; returns how long that took."""
    begun_s = time.perf_counter()
    while not is_so():
        time.sleep(0.02)
        if time.perf_counter() - begun_s > PATIENCE_S:
            raise TimeoutError(f"nothing came out of the pipeline for {PATIENCE_S:.0f} s")
    return time.perf_counter() - begun_s


def open_session(complaints: IO[bytes]) -> SparkSession:
    """A session on all cores of this machine; Spark's own words go to that file."""
    from infobus.bench.pipeline_nothing import NothingSource

    spark = session(
        "bench",
        settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(os.cpu_count())},
        complaints=complaints,
    )
    spark.dataSource.register(NothingSource)
    return spark


def ratios(found: Sequence[Found], what: str) -> list[float]:
    """How many times Spark's own rate the source reached, in each round."""
    rates = {one.by: one.rates for one in found if one.what == what}
    pairs: Any = zip(rates.get(OURS, ()), rates.get(NATIVE, ()), strict=True)
    return [ours / native for ours, native in pairs]


def judge(found: Sequence[Found], stored: Sequence[repository.Found]) -> list[Bar]:
    """The bars: against Spark's own source, and against SQLAlchemy."""
    bars = []
    for what, bar in BARS.items():
        times = ratios(found, what)
        bars.append(
            Bar(
                what=f"{what}: {OURS} / {NATIVE}",
                measured=median(times) if times else None,
                bar=bar,
                spread=(min(times), max(times)) if times else None,
            )
        )
    return bars + repository.judge(stored)
