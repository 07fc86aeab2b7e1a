"""How long a rule of the job `correlate` takes, beside Spark's own count of the same events.

Both are streams over the same journal that read the same events in the same batches. Both keep a
state for each symbol: the rule remembers recent events, in Python; the count keeps a number. Their
results are thrown away.
"""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from infobus.bench.common.rounds import OnStep, Rounds, rounds_of, take_warm_turns
from infobus.bench.pipeline.measure import TYPE, run_to_end
from infobus.pipeline.jobs import options_for
from infobus.pipeline.jobs.correlate import correlate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLLOWED, RULE, COUNT = "followed by symbol", "a rule of correlate", "Spark's count"
EVENT_COUNT, BATCH_EVENTS = 200_000, 50_000
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def measure_rules(
    spark: SparkSession, folder: Path, *, rounds: int, on_step: OnStep
) -> list[Rounds]:
    """Run both over the journal in `folder`, in turns. The value `seconds` is for all batches."""
    # The job takes this store for its state; with it, both have the same.
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)

    def drain(by: str) -> dict[str, float]:
        checkpoint = f"{folder}.{secrets.token_hex(4)}"
        _, progress = run_to_end(_result(_events(spark, folder), by), checkpoint, mode="update")
        return {"seconds": sum(one["durationMs"]["triggerExecution"] for one in progress) / 1e3}

    turns = {(FOLLOWED, by): partial(drain, by) for by in (RULE, COUNT)}
    return rounds_of(take_warm_turns(turns, rounds=rounds, on_step=on_step))


def _events(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.format("infobus").option("journal", str(folder))
    reader = reader.option("type", TYPE).option("maxEventsPerTrigger", str(BATCH_EVENTS))
    return reader.load()


def _result(events: DataFrame, by: str) -> DataFrame:
    if by == COUNT:
        return events.groupBy("symbol").count()
    rule = {"kind": "repetition", "name": "often", "key": "{symbol}", "within_s": 30, "count": 20}
    options = options_for("correlate", {"rules": [{**rule, "step": {"subject": "quotes.>"}}]})
    return correlate.transform(events, options)
