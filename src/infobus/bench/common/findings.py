"""What a benchmark found, and the one way to show it: a terminal, a JSON file, plots."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.plots import Drawing, save
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import bar_table
from infobus.extras import advice

OUT = Path("bench-results")
"""The folder for numbers and plots, unless the user names another."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that one run of a benchmark found."""

    name: str
    """The name of the JSON file."""
    tables: Sequence[Table]
    values: Mapping[str, Any]
    """All measured values. They go to the JSON file as they are."""
    bars: Sequence[Bar] = ()
    notes: Sequence[str] = ()
    """Sentences to print below the tables."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What was not measured, and why."""
    drawings: Mapping[str, Drawing] = field(default_factory=dict)
    """The plots, each by the name of its file."""


Benchmark = Callable[[bool, Path, OnStep], Findings]
"""Measures, either quickly or in full, and reports its progress to `OnStep`. It may write logs into
the folder, and data if it measures a disk."""


def perform(
    benchmark: Benchmark, *, quick: bool, out: Path = OUT, console: Console | None = None
) -> None:
    """Run a benchmark, print what it found, and write numbers and plots into `out`."""
    console = console or Console()
    # Looked at first: afterwards the load would be this program's own.
    facts = machine()
    out.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        findings = benchmark(
            quick,
            out,
            lambda what, done, total: progress.update(
                task, description=what, completed=done, total=total
            ),
        )
    print_findings(findings, facts, console)
    console.print(f"Numbers: {write_json(findings, facts, out)}")
    try:
        paths = save(findings.drawings, out)
    except ImportError:
        console.print(f"No plots: matplotlib is not installed; {advice('bench')}", markup=False)
        return
    for path in paths:
        console.print(f"Plot: {path}")


def perform_as_program(benchmark: Benchmark) -> None:
    """What `python -m` does with a benchmark: `--quick` is its only argument."""
    perform(benchmark, quick="--quick" in sys.argv[1:])


def print_findings(findings: Findings, facts: Mapping[str, str], console: Console) -> None:
    """Print tables, notes, bars, facts about the machine, and what was left out."""
    for table in findings.tables:
        console.print(table)
    for note in findings.notes:
        console.print(note, markup=False)
    if findings.bars:
        console.print(bar_table(findings.bars))
    console.print(", ".join(f"{fact}: {value}" for fact, value in facts.items()))
    for what, reason in findings.left_out.items():
        console.print(f"{what} left out: {reason}", markup=False)


def write_json(findings: Findings, facts: Mapping[str, str], folder: Path) -> Path:
    """Write every value, single rounds included, and the verdict on every bar."""
    bars = [{**msgspec.to_builtins(bar), "ok": bar.ok} for bar in findings.bars]
    everything = {
        "machine": facts,
        **findings.values,
        "bars": bars,
        "left_out": findings.left_out,
    }
    path = folder / f"{findings.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(everything), indent=1) + b"\n")
    return path


def machine() -> dict[str, str]:
    """The facts about this machine that a reader needs to make sense of the numbers."""
    facts = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }
    for name in ("information-bus", "eclipse-zenoh", "msgspec", "nats-py", "pyzmq"):
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts
