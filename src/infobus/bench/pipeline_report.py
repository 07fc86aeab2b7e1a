"""`infobus bench pipeline`: measures, and shows what came of it as tables, JSON and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from infobus.bench import pipeline, pipeline_rules, repository
from infobus.bench.pipeline import NATIVE, OURS, Found, Report, Stream
from infobus.bench.pipeline_rules import Took
from infobus.bench.plan import machine
from infobus.bench.report import bar_table

COUNT, COUNT_QUICK = 5_000_000, 200_000


def run(quick: bool, out: Path, console: Console) -> None:
    """Measure everything, and write it to the terminal and into `out`."""
    facts = machine()
    out.mkdir(parents=True, exist_ok=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, transient=True) as progress,
        TemporaryDirectory(dir=out.absolute()) as scratch,
    ):
        report = measure(Path(scratch), quick, facts, progress, log=out / "spark.log")
    console.print(found_table(report.found, report.events))
    console.print(stream_table(report.streams))
    console.print(rules_table(report.rules))
    console.print(repository.found_table(report.stored))
    console.print(f"Captured by the journal: {report.journal_per_s:,.0f} events per s")
    p50_s, p90_s = quantiles(report.latencies_s, n=10)[4], quantiles(report.latencies_s, n=10)[8]
    console.print(f"From the bus to a table: p50 {p50_s:.2f} s, p90 {p90_s:.2f} s")
    console.print(bar_table(report.bars))
    console.print(", ".join(f"{fact}: {value}" for fact, value in facts.items()))
    for what, reason in report.left_out.items():
        console.print(f"{what} left out: {reason}", markup=False)
    path = out / "pipeline.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    console.print(f"Numbers: {path}")
    try:
        plots = write_plots(report.found, out)
    except ImportError:
        console.print("No plots: matplotlib not installed: pip install 'information-bus[bench]'")
        return
    for path in plots:
        console.print(f"Plot: {path}")


def measure(
    folder: Path, quick: bool, facts: dict[str, str], progress: Progress, *, log: Path
) -> Report:
    """All of it, with what is on at the moment shown; what Spark says goes to `log`."""
    count = COUNT_QUICK if quick else COUNT
    task = progress.add_task("writing a journal", total=count)
    journal_per_s = pipeline.write_journal(
        folder / "journal", count, lambda done: progress.update(task, completed=done)
    )
    progress.update(task, description="storing objects", total=None)
    stored, left_out = repository.measure(folder, rounds=3 if quick else 9)
    progress.update(task, description="starting Spark")
    with log.open("w+b") as complaints:
        spark = pipeline.open_session(complaints)
    try:
        found, streams = pipeline.measure_reading(
            spark,
            folder / "journal",
            rounds=3,
            on_turn=lambda what: progress.update(task, description=f"reading: {what}"),
        )
        pipeline.write_journal(folder / "rules", pipeline_rules.EVENT_COUNT, lambda done: None)
        rules = pipeline_rules.measure(
            spark,
            folder / "rules",
            rounds=3,
            on_turn=lambda what: progress.update(task, description=f"following: {what}"),
        )
        progress.update(task, description="from the bus to a table")
        latencies_s = pipeline.measure_latency(spark, folder, count=5 if quick else 30)
    finally:
        spark.stop()
    return Report(
        machine=facts,
        events=count,
        found=found,
        streams=streams,
        rules=rules,
        journal_per_s=journal_per_s,
        latencies_s=latencies_s,
        stored=stored,
        bars=[*pipeline.judge(found, stored), pipeline_rules.judge(rules)],
        left_out=left_out,
    )


def found_table(found: Sequence[Found], count: int) -> Table:
    """One row for each way of reading."""
    table = Table(title=f"{count:,} events read by Spark (medians)", box=box.SIMPLE)
    table.add_column("what")
    for column in (OURS, NATIVE, "ratio"):
        table.add_column(column, justify="right")
    for what in dict.fromkeys(one.what for one in found):
        rates = {one.by: median(one.rates) for one in found if one.what == what}
        ratio = median(pipeline.ratios(found, what))
        table.add_row(what, f"{rates[OURS]:,.0f}/s", f"{rates[NATIVE]:,.0f}/s", f"{ratio:.2f}")
    return table


def stream_table(streams: Sequence[Stream]) -> Table:
    """What streams took, one row for each source."""
    table = Table(title="Streams (medians)", box=box.SIMPLE)
    table.add_column("source")
    for column in ("one batch", "to begin and to end"):
        table.add_column(column, justify="right")
    for one in streams:
        table.add_row(one.by, f"{median(one.batches_s):.2f} s", f"{median(one.starts_s):.2f} s")
    return table


def rules_table(took: Sequence[Took]) -> Table:
    """What a rule took, beside Spark's count."""
    title = f"{pipeline_rules.EVENT_COUNT:,} events followed by symbol (medians)"
    table = Table(title=title, box=box.SIMPLE)
    table.add_column("by")
    table.add_column("all batches", justify="right")
    for one in took:
        table.add_row(one.by, f"{median(one.rounds_s):.2f} s")
    return table


def write_plots(found: Sequence[Found], folder: Path) -> list[Path]:
    """Draw the rates of both sources; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    from infobus.bench.plots import save

    def figure() -> Figure | None:
        drawn = Figure(figsize=(6.4, 0.4 * len(found) + 1.4), layout="constrained")
        axes = drawn.subplots()
        for place, one in enumerate(reversed(found)):
            rates = [rate / 1e6 for rate in one.rates]
            axes.barh(place, median(rates), color="#0b6e99" if one.by == OURS else "#9aa5ad")
            axes.plot(rates, [place] * len(rates), "k|", markersize=7)
        labels = [f"{one.what}, {one.by}" for one in reversed(found)]
        axes.set_yticks(range(len(found)), labels)
        axes.set_xlabel("Million events read per second")
        return drawn if found else None

    return save({"pipeline": figure}, folder)
