"""`infobus bench`: publish and subscribe beside raw zenoh, nats and zmq."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from infobus.bench.common.engines import missing
from infobus.bench.common.findings import Findings
from infobus.bench.common.rounds import OnStep, ignore_step
from infobus.bench.common.tables import number, table_of
from infobus.bench.pubsub.bars import pubsub_bars
from infobus.bench.pubsub.figures import drawings_of
from infobus.bench.pubsub.harness import measure
from infobus.bench.pubsub.plan import full_scenarios, import_seconds, in_order, quick_scenarios
from infobus.bench.pubsub.scenario import (
    PEERS,
    BenchRun,
    RunValue,
    Scenario,
    good_runs,
    middle,
    run_ratio,
)


def run(quick: bool, out: Path, on_step: OnStep, *, repeat: int = 3) -> Findings:
    """Measure what the bars need, or everything, `repeat` times."""
    scenarios = quick_scenarios() if quick else full_scenarios()
    return findings_of(*measure_all(scenarios, repeat=repeat, on_step=on_step))


def measure_all(
    scenarios: list[Scenario], *, repeat: int, seconds: float = 1.0, on_step: OnStep = ignore_step
) -> tuple[list[BenchRun], float, dict[str, str]]:
    """All runs, the time to import infobus, and the peers that were left out with the reason."""
    left_out = {peer: reason for peer in PEERS if (reason := missing(peer))}
    wanted = [scenario for scenario in scenarios if scenario.engine not in left_out]
    runs: list[BenchRun] = []
    for scenario, repetition in in_order(wanted, repeat):
        what = f"{scenario.engine}, {scenario.size} B, 1 to {scenario.consumers}"
        on_step(what, len(runs), len(wanted) * repeat)
        runs.append(measure(scenario, repetition, seconds))
    return runs, import_seconds(), left_out


def findings_of(
    runs: Sequence[BenchRun], import_s: float, left_out: dict[str, str] | None = None
) -> Findings:
    """Tables, bars and figures from runs."""
    bars = pubsub_bars(runs, import_s)
    rates = [run for run in runs if run.scenario.kind == "rate"]
    trips = [run for run in runs if run.scenario.kind == "round trip"]
    return Findings(
        name="bench",
        tables=[*([rate_table(rates)] if rates else []), *([trip_table(trips)] if trips else [])],
        values={"runs": runs, "import_s": import_s},
        bars=bars,
        notes=[
            f"failed: {_title(run.scenario)}, {run.scenario.engine}:\n  {run.failure}"
            for run in runs
            if run.failure
        ],
        left_out=left_out or {},
        drawings=drawings_of(runs, bars),
    )


def rate_table(runs: Sequence[BenchRun]) -> Table:
    """One row for each engine and scenario; read across: what, how fast, how much faster."""

    def row(scenario: Scenario) -> list[str]:
        good = good_runs(runs, scenario)
        return [
            _title(scenario),
            scenario.engine,
            str(good[0].payload_bytes) if good else "-",
            number(middle(runs, scenario, lambda run: run.events_per_s), ",.0f"),
            number(middle(runs, scenario, lambda run: run.bytes_per_s / 1e6), ",.1f"),
            number(middle(runs, scenario, lambda run: run.delivered_share), ".2%"),
            *_ratios(runs, scenario, lambda run: run.events_per_s),
        ]

    columns = ["sent B", "events/s", "MB/s", "delivered", *(f"/ {peer}" for peer in PEERS)]
    rows = map(row, _by_work(runs))
    title = "Events delivered to each consumer (medians)"
    return table_of(title, ["scenario", "engine"], columns, rows, grouped=True)


def trip_table(runs: Sequence[BenchRun]) -> Table:
    """Round trips: the median, and the time that one in a hundred exceeds."""

    def row(scenario: Scenario) -> list[str]:
        return [
            _title(scenario),
            scenario.engine,
            number(middle(runs, scenario, lambda run: run.p50_s * 1e6), ",.0f"),
            number(middle(runs, scenario, lambda run: run.p99_s * 1e6), ",.0f"),
            *_ratios(runs, scenario, lambda run: run.p50_s),
        ]

    columns = ["p50 µs", "p99 µs", *(f"/ {peer}" for peer in PEERS)]
    rows = map(row, _by_work(runs))
    title = "Round trips (medians of the runs; ratios of p50)"
    return table_of(title, ["scenario", "engine"], columns, rows, grouped=True)


def _by_work(runs: Sequence[BenchRun]) -> list[Scenario]:
    """All scenarios, those of the same work together, in the order of their first run."""
    scenarios = list(dict.fromkeys(run.scenario for run in runs))
    works = [scenario.work for scenario in scenarios]
    return sorted(scenarios, key=lambda scenario: works.index(scenario.work))


def _ratios(runs: Sequence[BenchRun], scenario: Scenario, value: RunValue) -> list[str]:
    """The value divided by each peer's for the same work. A peer is not compared with itself."""
    return [
        ""
        if peer == scenario.engine
        else number(
            run_ratio(runs, scenario, msgspec.structs.replace(scenario, engine=peer), value), ".2f"
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
