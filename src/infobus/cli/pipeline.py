"""`infobus pipeline`: run, watch and stop the jobs that a TOML file describes."""

from __future__ import annotations

import os
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
from infobus.cli.options import AsJson
from infobus.cli.terminal import console, stop_when_asked, warn, write_json

if TYPE_CHECKING:
    from infobus.pipeline.runner.progress import Status
    from infobus.pipeline.runner.runner import OnStatus

LOOK_S = 0.2

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="The file that describes the pipeline.")
]


@app.callback()
def pipeline() -> None:
    """Run Spark jobs over live events and over history."""


@app.command("run")
def run(
    file: File,
    master: Annotated[
        str | None,
        typer.Option(help="Instead of the file's: local[*], spark://HOST:PORT, sc://HOST:PORT."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End after this many seconds, as with Ctrl-C.")
    ] = None,
) -> None:
    """Run a pipeline until Ctrl-C, `infobus pipeline stop`, or the end of its jobs.

    Before the end, jobs process what has arrived. After a crash, they continue where they were.

    Exit code: 1 if a job has failed.
    """
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.runner import Pipeline

    plan = load_plan(file)
    if master is not None:
        plan = msgspec.structs.replace(plan, master=master)
    pipeline = Pipeline(plan)
    stop_when_asked(pipeline.stop, seconds)
    with _shown() as show:
        is_well = pipeline.run(show)
    if not is_well:
        raise typer.Exit(1)


@contextmanager
def _shown() -> Iterator[OnStatus]:
    """Shows the status as it changes: a table on a terminal, lines elsewhere."""
    from infobus.pipeline.runner.progress import draw, summary

    # On its own descriptor: while Spark starts, the usual one leads to a file.
    with os.fdopen(os.dup(2), "w", errors="backslashreplace") as out:
        screen = Console(file=out, highlight=False)
        if screen.is_terminal:
            spinner = Spinner("dots")
            with Live(spinner, console=screen, refresh_per_second=4) as live:
                yield lambda status: live.update(Group(draw(status), spinner))
            return
    told = ""

    def tell(status: Status) -> None:
        nonlocal told
        line = summary(status)
        if line != told:
            told = line
            warn(line)

    yield tell


@app.command("status")
def status(
    file: File,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep showing the status until the pipeline ends.")
    ] = False,
) -> None:
    """Show the progress of the jobs of a pipeline.

    Exit code: 3 if it is not running.
    """
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.progress import draw, is_running, read_status

    folder = load_plan(file).state_folder
    found = read_status(folder)
    if found is None:
        raise UsageError(f"{file} was never run: there is no status in {folder}")
    runs = is_running(folder)
    if as_json:
        write_json(msgspec.to_builtins(found) | {"running": runs})
    else:
        out = console()
        with Live(draw(found), console=out, auto_refresh=False) as live:
            while watch and (runs := is_running(folder)):
                time.sleep(LOOK_S)
                found = read_status(folder) or found
                live.update(draw(found), refresh=True)
        if not runs:
            out.print("It does not run now.", style="dim")
    if not runs:
        raise typer.Exit(3)


@app.command("stop")
def stop(
    file: File,
    seconds: Annotated[float, typer.Option(min=0, help="How long to wait for it to end.")] = 180.0,
) -> None:
    """Stop a pipeline once its jobs have processed what has arrived, and wait for its end."""
    from infobus.pipeline.runner.plan import load_plan
    from infobus.pipeline.runner.progress import is_running
    from infobus.pipeline.runner.runner import request_stop

    folder = load_plan(file).state_folder
    if not is_running(folder):
        raise UsageError(f"{file} does not run: nothing holds its state in {folder}")
    request_stop(folder)
    deadline_s = time.monotonic() + seconds
    with console(stderr=True).status("ending"):
        while is_running(folder):
            if time.monotonic() > deadline_s:
                raise UsageError(f"it was asked to end, and still runs after {seconds:.0f} s")
            time.sleep(LOOK_S)
