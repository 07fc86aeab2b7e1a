"""`infobus bench`: how fast the bus is beside its peers, on this machine, now."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from infobus.bench.model import Bar, Report, Run, Scenario

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
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
    if context.invoked_subcommand:
        return
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
    _write_plots("plots", found, out, console)


@app.command("match")
def match(
    quick: Annotated[
        bool, typer.Option("--quick", help="Without the largest numbers; about a minute.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for match.json and the plots.")] = Path(
        "bench-results"
    ),
) -> None:
    """Measure how fast events find their subscriptions, beside one compiled lambda for each."""
    from infobus.bench import matching, matching_report
    from infobus.bench.plan import machine

    console, facts = Console(), machine()
    work = matching.plan(quick)
    found = []
    with _progress(console) as progress:
        task = progress.add_task("measuring", total=len(work))
        for load, count in work:
            progress.update(task, description=f"{load.name}, {count:,} subscriptions")
            turns, seconds = (3, 0.15) if quick else (5, 0.5)
            found.append(matching.measure_apart(load, count, turns=turns, seconds=seconds))
            progress.advance(task)
    bars = matching.judge(found)
    out.mkdir(parents=True, exist_ok=True)
    _print_found(console, matching_report.found_table(found), bars, facts)
    console.print(f"Numbers: {matching_report.write_json(found, bars, facts, out)}")
    _write_plots("matching_plots", found, out, console)


@app.command("guaranteed")
def guaranteed(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter turns.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for guaranteed.json; its disk is the one measured.")
    ] = Path("bench-results"),
) -> None:
    """Measure how fast guaranteed events are kept, beside single commits and JetStream."""
    from infobus.bench import guaranteed, guaranteed_report
    from infobus.bench.plan import machine

    console, facts = Console(), machine()
    rounds, turn_s = (6, 0.1) if quick else (24, 0.2)
    out.mkdir(parents=True, exist_ok=True)
    with (
        _progress(console) as progress,
        TemporaryDirectory(dir=out.absolute()) as folder,
    ):
        task = progress.add_task("measuring", total=None)
        found, left_out = guaranteed.measure(
            Path(folder),
            rounds=rounds,
            turn_s=turn_s,
            on_turn=lambda done, all: progress.update(task, completed=done, total=all),
        )
    bars = guaranteed.judge(found)
    report = guaranteed.Report(machine=facts, found=found, bars=bars, left_out=left_out)
    _print_found(console, guaranteed_report.found_table(found), bars, facts)
    for engine, reason in left_out.items():
        console.print(f"[yellow]{engine} left out:[/] {reason}")
    console.print(f"Numbers: {guaranteed_report.write_json(report, out)}")


@app.command("qos")
def qos(
    quick: Annotated[bool, typer.Option("--quick", help="One short round.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for qos.json and the plot.")] = Path(
        "bench-results"
    ),
) -> None:
    """Measure how long emergencies take, without and with a flood of regular events."""
    from infobus.bench import qos, qos_report
    from infobus.bench.plan import machine

    console, facts = Console(), machine()
    rounds, seconds = (1, 2.0) if quick else (5, 5.0)
    found = []
    with _progress(console) as progress:
        task = progress.add_task("measuring", total=rounds * len(qos.LOADS))
        for load in qos.LOADS * rounds:
            progress.update(task, description=load.name)
            found.append(qos.measure(load, seconds=seconds))
            progress.advance(task)
    bars = qos.judge(found)
    out.mkdir(parents=True, exist_ok=True)
    _print_found(console, qos_report.found_table(found), bars, facts)
    report = qos.Report(machine=facts, found=found, bars=bars)
    console.print(f"Numbers: {qos_report.write_json(report, out)}")
    _write_plots("qos_plots", found, out, console)


@app.command("call")
def call(
    quick: Annotated[bool, typer.Option("--quick", help="A single short round.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for calls.json and the plot.")] = Path(
        "bench-results"
    ),
) -> None:
    """Measure calls of a service beside zenoh queries, nats requests and gRPC, in turns."""
    from infobus.bench import calls, calls_report
    from infobus.bench.plan import machine

    console, facts = Console(), machine()
    rounds, turn_s = (1, 0.3) if quick else (15, 1.0)
    with _progress(console) as progress:
        task = progress.add_task("measuring", total=None)
        found, (held, held_s), left_out = calls.measure(
            rounds=rounds,
            turn_s=turn_s,
            on_turn=lambda done, all: progress.update(task, completed=done, total=all),
        )
    bars = calls.judge(found, held)
    out.mkdir(parents=True, exist_ok=True)
    _print_found(console, calls_report.found_table(found), bars, facts)
    console.print(f"{held:,} calls were outstanding at once, and returned in {held_s:.1f} s.")
    for engine, reason in left_out.items():
        console.print(f"{engine} left out: {reason}", markup=False)
    report = calls.Report(
        machine=facts,
        found=found,
        outstanding=held,
        outstanding_s=held_s,
        bars=bars,
        left_out=left_out,
    )
    console.print(f"Numbers: {calls_report.write_json(report, out)}")
    _write_plots("calls_report", found, out, console)


@app.command("pipeline")
def pipeline(
    quick: Annotated[
        bool, typer.Option("--quick", help="200,000 events in place of five million.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for pipeline.json and the plot; its disk is measured.")
    ] = Path("bench-results"),
) -> None:
    """Measure Spark reading a journal through the bus's source and by itself, and captures."""
    from infobus.bench import pipeline_report

    pipeline_report.run(quick, out, Console())


def _run_with_progress(scenarios: list[Scenario], repeat: int, console: Console) -> Report:
    from infobus.bench import peers, plan

    count = sum(not peers.missing(scenario.engine) for scenario in scenarios)
    with _progress(console) as progress:
        task = progress.add_task("measuring", total=count * repeat)

        def on_run(run: Run) -> None:
            what = f"{run.scenario.engine}, {run.scenario.size} B, 1 to {run.scenario.consumers}"
            progress.update(task, advance=1, description=what)

        return plan.run_all(scenarios, repeat=repeat, on_run=on_run)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _print_found(console: Console, table: Table, bars: list[Bar], facts: dict[str, str]) -> None:
    from infobus.bench.report import bar_table

    console.print(table)
    console.print(bar_table(bars))
    console.print(", ".join(f"{fact}: {value}" for fact, value in facts.items()))


def _write_plots(module: str, found: object, out: Path, console: Console) -> None:
    """Draw what was found, with the `write_plots` of a module of the bench."""
    try:
        paths = import_module(f"infobus.bench.{module}").write_plots(found, out)
    except ImportError:
        console.print("No plots: matplotlib not installed: pip install 'information-bus[bench]'")
        return
    for path in paths:
        console.print(f"Plot: {path}")
