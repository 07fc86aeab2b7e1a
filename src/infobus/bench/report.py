"""What was measured, as tables for a terminal and as JSON for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from infobus.bench.model import PEERS, Bar, Report, Run, Scenario
from infobus.bench.statistics import good_runs, middle, ratio


def print_report(report: Report, console: Console) -> None:
    """Rates, round trips, bars, and what could not be measured."""
    rates = [run for run in report.runs if run.scenario.kind == "rate"]
    trips = [run for run in report.runs if run.scenario.kind == "round trip"]
    if rates:
        console.print(rate_table(rates))
    if trips:
        console.print(round_trip_table(trips))
    console.print(bar_table(report.bars))
    console.print(", ".join(f"{fact}: {value}" for fact, value in report.machine.items()))
    for peer, reason in report.left_out.items():
        console.print(f"[yellow]{peer} left out:[/] {reason}")
    for run in report.runs:
        if run.failure:
            console.print(f"[red]failed:[/] {_title(run.scenario)}, {run.scenario.engine}:")
            console.print(f"  {run.failure}", markup=False)


def write_json(report: Report, folder: Path) -> Path:
    """The whole report, single runs included, in `folder`/bench.json."""
    plain = msgspec.to_builtins(report)
    for bar, row in zip(report.bars, plain["bars"], strict=True):
        row["ok"] = bar.ok
    path = folder / "bench.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    return path


def rate_table(runs: Sequence[Run]) -> Table:
    """One row for each engine and scenario, best read across: what, how fast, how much faster."""
    table = Table(title="Events delivered to each consumer (medians)")
    table.add_column("scenario")
    table.add_column("sent B", justify="right")
    table.add_column("engine")
    for column in ("events/s", "MB/s", "delivered", *(f"/ {peer}" for peer in PEERS)):
        table.add_column(column, justify="right")
    for group in _groups(runs):
        for scenario in group:
            good = good_runs(runs, scenario)
            table.add_row(
                _title(scenario),
                str(good[0].payload_bytes) if good else "-",
                scenario.engine,
                _number(middle(runs, scenario, lambda run: run.events_per_s), ",.0f"),
                _number(middle(runs, scenario, lambda run: run.bytes_per_s / 1e6), ",.1f"),
                _number(middle(runs, scenario, lambda run: run.delivered_share), ".2%"),
                *_ratios(runs, scenario, lambda run: run.events_per_s),
            )
        table.add_section()
    return table


def round_trip_table(runs: Sequence[Run]) -> Table:
    """Round trips: the median and the slowest hundredth."""
    table = Table(title="Round trips (medians of the runs; ratios of p50)")
    table.add_column("scenario")
    table.add_column("engine")
    for column in ("p50 µs", "p99 µs", *(f"/ {peer}" for peer in PEERS)):
        table.add_column(column, justify="right")
    for group in _groups(runs):
        for scenario in group:
            table.add_row(
                _title(scenario),
                scenario.engine,
                _number(middle(runs, scenario, lambda run: run.p50_s * 1e6), ",.0f"),
                _number(middle(runs, scenario, lambda run: run.p99_s * 1e6), ",.0f"),
                *_ratios(runs, scenario, lambda run: run.p50_s),
            )
        table.add_section()
    return table


def bar_table(bars: Iterable[Bar]) -> Table:
    """Each bar with a mark."""
    table = Table(title="Bars")
    table.add_column("what")
    for column in ("measured", "lowest to highest", "bar"):
        table.add_column(column, justify="right")
    table.add_column("ok")
    for bar in bars:
        measured = "-" if bar.measured is None else f"{bar.measured:.2f} {bar.unit}"
        limit = f"{'>=' if bar.at_least else '<='} {bar.bar:g} {bar.unit}"
        spread = "" if bar.spread is None else f"{bar.spread[0]:.2f} to {bar.spread[1]:.2f}"
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: "not measured"}[bar.ok]
        doubt = "" if bar.is_sure else " (repetitions disagree)"
        table.add_row(bar.what, measured, spread, limit, mark + doubt)
    return table


def _groups(runs: Sequence[Run]) -> list[list[Scenario]]:
    """Scenarios of the same work together, both in the order of their first run."""
    groups: dict[object, list[Scenario]] = {}
    for scenario in dict.fromkeys(run.scenario for run in runs):
        groups.setdefault(scenario.work, []).append(scenario)
    return list(groups.values())


def _ratios(runs: Sequence[Run], scenario: Scenario, value: Callable[[Run], float]) -> list[str]:
    """How many times each peer's value in the same work; a peer is not compared with itself."""
    return [
        ""
        if peer == scenario.engine
        else _number(
            ratio(runs, scenario, msgspec.structs.replace(scenario, engine=peer), value), ".2f"
        )
        for peer in PEERS
    ]


def _title(scenario: Scenario) -> str:
    parts = [f"1 to {scenario.consumers}", f"{scenario.size} B"]
    if scenario.subjects > 1:
        parts.append(f"{scenario.subjects:,} subjects")
    if scenario.subscriptions > 1:
        parts.append(f"{scenario.subscriptions:,} subscriptions")
    return ", ".join(parts)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
