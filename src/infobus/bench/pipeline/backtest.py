"""`infobus bench backtest`: subscriptions tried out over history, beside Spark's own conditions.

Both ways count how many events of one journal match each subscription. Spark's own way is one
condition per subscription. Its time grows with their number, so it gets fewer of them, and the
rates are compared: events times subscriptions in a second.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct

from infobus import Event, define_type
from infobus.bench.common.findings import Findings, perform_as_program
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import table_of
from infobus.bench.matching.loads import EQUAL, NUMBERS, filter_of
from infobus.stores.journal.journal import JournalWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBSCRIPTIONS_COUNT = 10_000
NATIVE_COUNT = 100
"""The number of conditions for Spark. It cannot plan many more in reasonable time."""
EVENTS_COUNT, EVENTS_COUNT_QUICK = 1_000_000, 50_000
_CHUNK_COUNT = 50_000
_BEGIN_S = 1_790_000_000.0


class BacktestCount(Struct, frozen=True, kw_only=True):
    """One way to count: how many events and subscriptions, and how long it took."""

    name: str
    events: int
    subscriptions: int
    matches: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events times subscriptions, in a second."""
        return self.events * self.subscriptions / self.seconds


def write_journal(folder: Path, count: int) -> None:
    """Fill a journal with events of the load. They are the same every time."""
    random = Random("infobus backtest")
    numbers = {
        name: ("float | None" if top < 1000 else "int | None") for name, top in NUMBERS.items()
    }
    kinds = {"symbol": "str | None", "side": "str | None", **numbers}
    cls = define_type("bench.Tick", [], {name: (kind, None) for name, kind in kinds.items()})
    with JournalWriter.open(folder) as writer:
        for start in range(0, count, _CHUNK_COUNT):
            chunk = []
            for number in range(start, min(count, start + _CHUNK_COUNT)):
                attributes = EQUAL.event(random)
                subject = f"market.{attributes.get('symbol', 'other')}"
                place = ("bench", number, _BEGIN_S + number * 0.001, number)
                chunk.append(Event(subject, cls(**attributes), *place))
            writer.append(chunk, now_s=_BEGIN_S + start)


def measure(spark: SparkSession, folder: Path, count: int) -> tuple[BacktestCount, BacktestCount]:
    """Count with infobus, then with Spark's own conditions, over the same journal.

    Raises:
        AssertionError: The two do not count the same.
    """
    from pyspark.sql import functions as F

    from infobus.pipeline import events
    from infobus.pipeline.jobs import backtest
    from infobus.pipeline.jobs.history import histories
    from infobus.pipeline.jobs.subscription import TrialSubscription

    filters = [filter_of(one) for one in EQUAL.subscriptions(SUBSCRIPTIONS_COUNT)]
    options = backtest.BacktestOptions(
        subscriptions=[TrialSubscription(where=one.text) for one in filters]
    )
    start_s = time.perf_counter()
    rows = backtest.over(histories(spark, folder), options).orderBy("subscription").collect()
    ours_s = time.perf_counter() - start_s

    frame = events(spark, folder, "bench.Tick")
    pushed = [one.to_spark(frame.schema) for one in filters[:NATIVE_COUNT]]
    assert all(one.residual is None for one in pushed)
    conditions = [F.count_if(one.condition) for one in pushed if one.condition is not None]
    start_s = time.perf_counter()
    [native] = frame.agg(*conditions).collect()
    native_s = time.perf_counter() - start_s

    counts = [row["events"] for row in rows]
    assert counts[:NATIVE_COUNT] == list(native)
    return (
        BacktestCount(
            name="infobus backtest",
            events=count,
            subscriptions=len(counts),
            matches=sum(counts),
            seconds=ours_s,
        ),
        BacktestCount(
            name="conditions of Spark",
            events=count,
            subscriptions=NATIVE_COUNT,
            matches=sum(native),
            seconds=native_s,
        ),
    )


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Write a journal of a million events, or of 50,000, and count in both ways."""
    from infobus.pipeline.jobs.session import session

    count = EVENTS_COUNT_QUICK if quick else EVENTS_COUNT
    with TemporaryDirectory() as folder:
        on_step(f"writing {count:,} events", 0, None)
        write_journal(Path(folder), count)
        on_step("counting", 0, None)
        spark = session("infobus bench backtest")
        try:
            ours, native = measure(spark, Path(folder), count)
        finally:
            spark.stop()
    rows = [
        (
            one.name,
            f"{one.subscriptions:,}",
            f"{one.events:,}",
            f"{one.matches:,}",
            f"{one.seconds:.1f} s",
            f"{one.rate:,.0f}",
        )
        for one in (ours, native)
    ]
    columns = ["subscriptions", "events", "matches", "took", "per second"]
    return Findings(
        name="backtest",
        tables=[table_of("Subscriptions tried out over history", ["by"], columns, rows)],
        values={"found": [ours, native]},
        notes=[f"{ours.rate / native.rate:.1f} times as fast"],
    )


if __name__ == "__main__":
    perform_as_program(run)
