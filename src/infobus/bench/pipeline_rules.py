"""How long a rule of the job `correlate` takes, beside Spark's own count of the same events.

Both are streams over the same journal, take the same events in the same batches, and keep
something for each symbol: one the memory of a rule (so many events within so many seconds), in
Python, the other a number. What they find is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from infobus.bench.model import Bar
from infobus.pipeline.jobs import options_for
from infobus.pipeline.jobs.correlate import correlate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULE, COUNT = "a rule of correlate", "Spark's count"
TIMES_MAX = 4.0
"""So many times as long as Spark's count the rule shall take, at most."""
EVENT_COUNT, BATCH_EVENTS = 200_000, 50_000
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a stream took for all of its batches, in each round."""

    by: str
    rounds_s: list[float] = []


def measure(
    spark: SparkSession, folder: Path, *, rounds: int, on_turn: Callable[[str], object]
) -> list[Took]:
    """Run both over the journal in `folder`, in turns; the first round only warms up."""
    # What the job takes for its state, so that both have the same.
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    took = [Took(by=RULE), Took(by=COUNT)]
    for number in range(rounds + 1):
        for one in took:
            on_turn(one.by)
            checkpoint = f"{folder}.{one.by.replace(' ', '-')}-{number}"
            seconds = _drain(_result(_events(spark, folder), one.by), checkpoint)
            if number:
                one.rounds_s.append(seconds)
    return took


def _events(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.format("infobus").option("journal", str(folder))
    reader = reader.option("type", "bench.Quote").option("maxEventsPerTrigger", str(BATCH_EVENTS))
    return reader.load()


def _result(events: DataFrame, by: str) -> DataFrame:
    if by == COUNT:
        return events.groupBy("symbol").count()
    rule = {"kind": "repetition", "name": "often", "key": "{symbol}", "within_s": 30, "count": 20}
    options = options_for("correlate", {"rules": [{**rule, "step": {"subject": "quotes.>"}}]})
    return correlate.transform(events, options)


def _drain(result: DataFrame, checkpoint: str) -> float:
    """Run a stream to its end; seconds that it took for its batches."""
    writer = result.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.outputMode("update").trigger(availableNow=True).start()
    query.awaitTermination()
    took_ms: list[int] = [one["durationMs"]["triggerExecution"] for one in query.recentProgress]
    return sum(took_ms) / 1e3


def times(took: list[Took]) -> list[float]:
    """How many times as long as Spark's count the rule took, in each round."""
    by = {one.by: one.rounds_s for one in took}
    return [a / b for a, b in zip(by.get(RULE, ()), by.get(COUNT, ()), strict=True)]


def judge(took: list[Took]) -> Bar:
    """The bar."""
    found = times(took)
    return Bar(
        what=f"{RULE} / {COUNT}",
        measured=median(found) if found else None,
        bar=TIMES_MAX,
        at_least=False,
        spread=(min(found), max(found)) if found else None,
    )
