"""How fast the pipeline is, beside Spark's own Parquet source on the very same files.

    full       Spark reads every column of every event except `_attributes`, which is empty here
    narrow     Spark reads two columns
    merged     both once more, from the few large files that a journal makes of its small ones
    untyped    Spark counts events that are read without a type, with all attributes in maps
    batches    a stream reads the journal in micro-batches and throws them away; a batch counts
               with everything that Spark does for it, and the start of a stream counts apart

This module also measures how long an object takes from the bus to a table.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

import infobus
from infobus import DataObject, Event, id_of
from infobus.bench.common.rounds import Key, OnStep, Rounds, rounds_of, take_warm_turns
from infobus.pipeline import jobs
from infobus.pipeline.jobs.session import session
from infobus.pipeline.recorder import PATTERNS
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import compact, sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Turn = Callable[[], dict[str, float]]

OURS, NATIVE, NOTHING = "infobus", "Spark's Parquet", "a Python source that reads nothing"
FULL, NARROW, BATCHES = "full", "narrow", "batches"
MERGED, UNTYPED = ", merged", "untyped"
UNTYPED_COUNT = 500_000
"""Events that are read without a type, at most: they take long."""
PATIENCE_S = 120.0
CHUNK_COUNT = 20_000
"""Events of one file."""
BATCH_COUNT = 10
TYPE = "bench.Quote"


class PipelineQuote(DataObject, name=TYPE):
    """An event of seven attributes."""

    symbol: str
    exchange: str
    price: float
    size: int
    bid: float
    ask: float
    note: str


def write_journal(folder: Path, count: int, on_part: Callable[[int], object]) -> float:
    """Write so many events; returns how many per second."""
    day_s = 1_700_000_000.0
    quotes = [
        PipelineQuote(
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


def merged(folder: Path) -> Path:
    """Copy a journal and merge the files of the copy, as a recorder does by itself."""
    copy = folder.with_name(f"{folder.name}-merged")
    shutil.copytree(folder, copy)
    with JournalWriter.open(copy) as writer:
        compact(writer, time.time())
        sweep(writer, time.time(), 0.0)
    return copy


def measure_reading(
    spark: SparkSession, folder: Path, *, rounds: int, on_step: OnStep
) -> list[Rounds]:
    """Read the journal in all ways, in turns.

    The value `rate` is in events per second. Streams also have `batch_s`, the median of their
    batches, and `start_s`, the rest of the time: to begin and to end.
    """
    journal = Journal.open(folder)
    large = Journal.open(merged(folder))
    turns = {
        **_reads(spark, journal),
        **_reads(spark, large, MERGED),
        **_counts(spark, large),
        **_streams(spark, journal),
    }
    return rounds_of(take_warm_turns(turns, rounds=rounds, on_step=on_step))


def _counts(spark: SparkSession, journal: Journal) -> dict[Key, Turn]:
    count = min(journal.next_offset, UNTYPED_COUNT)
    paths = [str(path) for path in journal.files(TYPE)]
    given = {"journal": str(journal.folder), "endingOffset": str(count)}

    def read(frame: Callable[[], DataFrame], events: int) -> dict[str, float]:
        begun_s = time.perf_counter()
        frame().count()
        return {"rate": events / (time.perf_counter() - begun_s)}

    def ours() -> DataFrame:
        return spark.read.format("infobus").options(**given).load()

    def native() -> DataFrame:
        return spark.read.parquet(*paths)

    return {
        (UNTYPED, OURS): partial(read, ours, count),
        (UNTYPED, NATIVE): partial(read, native, journal.next_offset),
    }


def _reads(spark: SparkSession, journal: Journal, files: str = "") -> dict[Key, Turn]:
    paths = [str(path) for path in journal.files(TYPE)]

    def ours(columns: list[str]) -> DataFrame:
        given = {**_given(journal), "columns": ",".join(columns)}
        return spark.read.format("infobus").options(**given).load()

    def native(columns: list[str]) -> DataFrame:
        return spark.read.parquet(*paths).select(*columns)

    def read(frame: Callable[[list[str]], DataFrame], columns: list[str]) -> dict[str, float]:
        begun_s = time.perf_counter()
        _consume(frame(columns))
        return {"rate": journal.next_offset / (time.perf_counter() - begun_s)}

    return {
        (load + files, engine): partial(read, frame, columns)
        for load, columns in ((FULL, _columns(journal)), (NARROW, ["symbol", "price"]))
        for engine, frame in ((OURS, ours), (NATIVE, native))
    }


def _given(journal: Journal) -> dict[str, str]:
    return {"journal": str(journal.folder), "type": TYPE}


def _columns(journal: Journal) -> list[str]:
    return [name for name in journal.select(TYPE).schema.names if name != "_attributes"]


def _files_at_once(journal: Journal) -> int:
    """The files per batch. Both sources take whole files, so they have the same batches."""
    return -(-len(journal.files(TYPE)) // BATCH_COUNT)


def _streams(spark: SparkSession, journal: Journal) -> dict[Key, Turn]:
    paths, at_once = journal.files(TYPE), _files_at_once(journal)
    columns = _columns(journal)
    batch_events = at_once * CHUNK_COUNT

    def ours() -> DataFrame:
        reader = spark.readStream.format("infobus").options(**_given(journal))
        reader = reader.option("columns", ",".join(columns))
        return reader.option("maxEventsPerTrigger", str(batch_events)).load()

    def native() -> DataFrame:
        schema = spark.read.parquet(str(paths[0])).select(*columns).schema
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", at_once)
        return files.parquet(str(paths[0].parent))

    def nothing() -> DataFrame:
        return spark.readStream.format("nothing").option("batches", BATCH_COUNT).load()

    def drain(stream: Callable[[], DataFrame]) -> dict[str, float]:
        took_s, progress = run_to_end(stream(), f"{journal.folder}.{secrets.token_hex(4)}")
        batches_s = [
            one["durationMs"]["triggerExecution"] / 1e3 for one in progress if one["numInputRows"]
        ]
        batch_s = median(batches_s)
        values = {"batch_s": batch_s, "start_s": took_s - sum(batches_s)}
        return values if stream is nothing else {"rate": batch_events / batch_s, **values}

    frames = {OURS: ours, NATIVE: native, NOTHING: nothing}
    return {(BATCHES, engine): partial(drain, frame) for engine, frame in frames.items()}


def _consume(frame: DataFrame) -> None:
    """Look at every value, and bring back one number."""
    from pyspark.sql import functions as F

    frame.agg(F.count("*"), F.max(F.xxhash64(*frame.columns))).collect()


def run_to_end(
    stream: DataFrame, checkpoint: str, *, mode: str = "append"
) -> tuple[float, list[Any]]:
    """Run a stream and throw its rows away; returns the seconds, and Spark's report per batch."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    writer = writer.outputMode(mode).trigger(availableNow=True)
    begun_s = time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    return time.perf_counter() - begun_s, list(query.recentProgress)


def measure_latency(
    spark: SparkSession, folder: Path, *, count: int, every_s: float = 1.0
) -> list[float]:
    """Publish objects, which a live job stores; returns how many seconds each took to a table."""
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
                quote = PipelineQuote(
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
    """Wait until it is so; returns how long that took."""
    begun_s = time.perf_counter()
    while not is_so():
        time.sleep(0.02)
        if time.perf_counter() - begun_s > PATIENCE_S:
            raise TimeoutError(f"nothing came out of the pipeline for {PATIENCE_S:.0f} s")
    return time.perf_counter() - begun_s


def open_session(complaints: IO[bytes]) -> SparkSession:
    """A session on all cores of this machine. Spark's own messages go to that file."""
    from infobus.bench.pipeline.empty_source import NothingSource

    spark = session(
        "bench",
        settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(os.cpu_count())},
        complaints=complaints,
    )
    spark.dataSource.register(NothingSource)
    return spark
