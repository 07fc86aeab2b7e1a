"""`infobus pipeline`: run the jobs that a TOML file describes, look after them, end them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner

from infobus import UsageError
from infobus.cli.lines import printable

if TYPE_CHECKING:
    from infobus.pipeline.runner.progress import Status
    from infobus.pipeline.runner.runner import OnStatus

LOOK_S = 0.2

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="Describes the pipeline.")]


@app.callback()
def pipeline() -> None:
    """Run jobs on Spark over what is and was published."""


@app.command("run")
def run(
    file: File,
    master: Annotated[
        str | None,
        typer.Option(help="In place of the file's: local[*], spark://HOST:PORT, sc://HOST:PORT."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End after so long, as by Ctrl-C.")
    ] = None,
) -> None:
    """Run a pipeline until Ctrl-C, `infobus pipeline stop`, or the end of its jobs.

    At the end, jobs read what has come until then. What was killed goes on where it was.

    Exit code: 1 if a job has failed.
    """
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.runner import Pipeline

    plan = load_plan(file)
    if master is not None:
        plan = msgspec.structs.replace(plan, master=master)
    pipeline = Pipeline(plan)
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: pipeline.stop())
    if seconds is not None:
        timer = threading.Timer(seconds, pipeline.stop)
        timer.daemon = True
        timer.start()
    with _shown() as show:
        is_well = pipeline.run(show)
    if not is_well:
        raise typer.Exit(1)


@contextmanager
def _shown() -> Iterator[OnStatus]:
    """Shows the status as it changes: on a terminal as a table, elsewhere as lines."""
    from infobus.pipeline.runner.progress import draw, summary

    # On a descriptor of its own: while Spark starts, the usual one leads to a file.
    with os.fdopen(os.dup(2), "w", errors="backslashreplace") as out:
        console = Console(file=out, highlight=False)
        if console.is_terminal:
            spinner = Spinner("dots")
            with Live(spinner, console=console, refresh_per_second=4) as live:
                yield lambda status: live.update(Group(draw(status), spinner))
            return
    told = ""

    def tell(status: Status) -> None:
        nonlocal told
        line = summary(status)
        if line != told:
            told = line
            print(printable(line), file=sys.stderr, flush=True)

    yield tell


@app.command("status")
def status(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until the pipeline ends.")] = False,
) -> None:
    """Show how far the jobs of a pipeline are.

    Exit code: 3 if it does not run.
    """
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.progress import draw, is_running, read_status

    folder = load_plan(file).state_folder
    found = read_status(folder)
    if found is None:
        raise UsageError(f"{file} was never run: there is no status in {folder}")
    runs = is_running(folder)
    if as_json:
        told = msgspec.to_builtins(found) | {"running": runs}
        print(msgspec.json.encode(told).decode())
    else:
        console = Console(highlight=False)
        with Live(draw(found), console=console, auto_refresh=False) as live:
            while watch and (runs := is_running(folder)):
                time.sleep(LOOK_S)
                found = read_status(folder) or found
                live.update(draw(found), refresh=True)
        if not runs:
            console.print("It does not run now.", style="dim")
    if not runs:
        raise typer.Exit(3)


@app.command("stop")
def stop(
    file: File,
    seconds: Annotated[float, typer.Option(min=0, help="How long to wait for it to end.")] = 180.0,
) -> None:
    """End a pipeline after its jobs have read what has come; returns when it has ended."""
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.progress import is_running
    from infobus.pipeline.runner.runner import request_stop

    folder = load_plan(file).state_folder
    if not is_running(folder):
        raise UsageError(f"{file} does not run: nothing holds its state in {folder}")
    request_stop(folder)
    deadline_s = time.monotonic() + seconds
    with Console(stderr=True).status("ending"):
        while is_running(folder):
            if time.monotonic() > deadline_s:
                raise UsageError(f"it was asked to end, and still runs after {seconds:.0f} s")
            time.sleep(LOOK_S)
