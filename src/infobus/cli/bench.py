"""`infobus bench`: how fast the bus is beside its peers, on this machine, now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from infobus.bench.model import Report, Run, Scenario


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Only what the bars need.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and the plots.")] = Path(
        "bench-results"
    ),
    repeat: Annotated[int, typer.Option(min=1, help="Times that each thing is measured.")] = 3,
    profile: Annotated[
        bool, typer.Option("--profile", help="Count calls and memory per event instead.")
    ] = False,
) -> None:
    """Measure throughput and latency beside raw zenoh, nats and zmq, as ratios in one run."""
    console = Console()
    if profile:
        from infobus.bench import profile as profiling

        profiling.print_profile(profiling.profile(), console)
        return
    from infobus.bench import plan, report

    scenarios = plan.quick_scenarios() if quick else plan.full_scenarios()
    found = _run_with_progress(scenarios, repeat, console)
    out.mkdir(parents=True, exist_ok=True)
    report.print_report(found, console)
    console.print(f"Numbers: {report.write_json(found, out)}")
    _write_plots(found, out, console)


def _run_with_progress(scenarios: list[Scenario], repeat: int, console: Console) -> Report:
    from infobus.bench import peers, plan

    count = sum(not peers.missing(scenario.engine) for scenario in scenarios)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=count * repeat)

        def on_run(run: Run) -> None:
            what = f"{run.scenario.engine}, {run.scenario.size} B, 1 to {run.scenario.consumers}"
            progress.update(task, advance=1, description=what)

        return plan.run_all(scenarios, repeat=repeat, on_run=on_run)


def _write_plots(found: Report, out: Path, console: Console) -> None:
    try:
        from infobus.bench import plots
    except ImportError:
        console.print("No plots: matplotlib not installed: pip install 'information-bus[bench]'")
        return
    for path in plots.write_plots(found, out):
        console.print(f"Plot: {path}")
