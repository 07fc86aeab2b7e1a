"""`infobus bench pipeline`: Spark through the bus's source beside Spark alone, and captures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import Drawing, rounds_figure
from infobus.bench.common.rounds import OnStep, Rounds, ratios
from infobus.bench.common.tables import table_of
from infobus.bench.pipeline import measure, rules
from infobus.bench.pipeline.measure import BATCHES, FULL, NARROW, NATIVE, OURS
from infobus.bench.pipeline.rules import COUNT, FOLLOWED, RULE
from infobus.bench.repository import benchmark as repository

EVENTS_COUNT, EVENTS_COUNT_QUICK = 5_000_000, 200_000
BARS = {FULL: 0.8, NARROW: 0.35, BATCHES: 1 / 1.3}
"""Our source is at least this many times as fast as Spark's own."""
RULE_TIMES_MAX = 4.0
"""A rule may take this many times as long as Spark's count."""


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure on the disk of `out`; Spark's own messages go to `spark.log` there."""
    count = EVENTS_COUNT_QUICK if quick else EVENTS_COUNT
    with TemporaryDirectory(dir=out.absolute()) as scratch:
        folder = Path(scratch)
        journal_per_s = measure.write_journal(
            folder / "journal", count, lambda done: on_step("writing a journal", done, count)
        )
        stored, left_out = repository.measure(folder, rounds=3 if quick else 9, on_step=on_step)
        on_step("starting Spark", 0, None)
        with (out / "spark.log").open("w+b") as complaints:
            spark = measure.open_session(complaints)
        try:
            read = measure.measure_reading(spark, folder / "journal", rounds=3, on_step=on_step)
            measure.write_journal(folder / "rules", rules.EVENT_COUNT, lambda done: None)
            took = rules.measure_rules(spark, folder / "rules", rounds=3, on_step=on_step)
            on_step("from the bus to a table", 0, None)
            latencies_s = measure.measure_latency(spark, folder, count=5 if quick else 30)
        finally:
            spark.stop()
    p50_s, p90_s = quantiles(latencies_s, n=10)[4], quantiles(latencies_s, n=10)[8]
    return Findings(
        name="pipeline",
        tables=[
            read_table(read, count),
            stream_table(read),
            rule_table(took),
            repository.table(stored),
        ],
        values={
            "events": count,
            "found": [one for one in read if "rate" in one.values],
            "streams": [one for one in read if one.load == BATCHES],
            "rules": took,
            "journal_per_s": journal_per_s,
            "latencies_s": latencies_s,
            "stored": stored,
        },
        bars=bars_of(read, stored, took),
        notes=[
            f"Captured by the journal: {journal_per_s:,.0f} events per s",
            f"From the bus to a table: p50 {p50_s:.2f} s, p90 {p90_s:.2f} s",
        ],
        left_out=left_out,
        drawings=drawings_of(read),
    )


def bars_of(read: Sequence[Rounds], stored: Sequence[Rounds], took: Sequence[Rounds]) -> list[Bar]:
    """Against Spark's own source, against SQLAlchemy, and against Spark's own count."""
    reading = [
        Bar.over_rounds(f"{load}: {OURS} / {NATIVE}", _times(read, load), bar)
        for load, bar in BARS.items()
    ]
    times = ratios(took, (FOLLOWED, RULE), (FOLLOWED, COUNT), "seconds")
    rule = Bar.over_rounds(f"{RULE} / {COUNT}", times, RULE_TIMES_MAX, at_least=False)
    return [*reading, *repository.bars_of(stored), rule]


def _times(read: Sequence[Rounds], load: str) -> list[float]:
    return ratios(read, (load, OURS), (load, NATIVE), "rate")


def read_table(read: Sequence[Rounds], count: int) -> Table:
    """One row for each way of reading."""
    rates = {(one.load, one.engine): one.median("rate") for one in read if "rate" in one.values}
    rows = [
        (
            load,
            f"{rates[load, OURS]:,.0f}/s",
            f"{rates[load, NATIVE]:,.0f}/s",
            f"{median(_times(read, load)):.2f}",
        )
        for load in dict.fromkeys(load for load, _ in rates)
    ]
    title = f"{count:,} events read by Spark (medians)"
    return table_of(title, ["what"], [OURS, NATIVE, "ratio"], rows)


def stream_table(read: Sequence[Rounds]) -> Table:
    """What streams took, one row for each source."""
    rows = [
        (one.engine, f"{one.median('batch_s'):.2f} s", f"{one.median('start_s'):.2f} s")
        for one in read
        if one.load == BATCHES
    ]
    columns = ["one batch", "to begin and to end"]
    return table_of("Streams (medians)", ["source"], columns, rows)


def rule_table(took: Sequence[Rounds]) -> Table:
    """What a rule took, beside Spark's count."""
    title = f"{rules.EVENT_COUNT:,} events followed by symbol (medians)"
    rows = [(one.engine, f"{one.median('seconds'):.2f} s") for one in took]
    return table_of(title, ["by"], ["all batches"], rows)


def drawings_of(read: Sequence[Rounds]) -> dict[str, Drawing]:
    """The rates of both sources."""
    rows = [
        (
            f"{one.load}, {one.engine}",
            one.engine == OURS,
            [rate / 1e6 for rate in one.values["rate"]],
        )
        for one in read
        if "rate" in one.values
    ]
    label = "Million events read per second"
    return {"pipeline": lambda: rounds_figure(rows, label, row_height=0.4)}
