"""`infobus feed`: publish the contents of a news feed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from infobus.cli.options import Guaranteed, WhichBus, grouped
from infobus.cli.terminal import console, warn

app = typer.Typer(no_args_is_help=True, help="Publish the contents of a news feed.")


@app.callback()
def feed() -> None:
    """Publish the contents of a news feed."""


@app.command("reuters")
@grouped
def reuters(
    which: WhichBus,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, help="SGML, such as reut2-000.sgm."
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, help="Publish at most this many stories per second."),
    ] = None,
    guaranteed: Guaranteed = False,
) -> None:
    """Publish the stories of the Reuters newswire, each under its topic.

    \b
    infobus sub 'news.topic.*' --where '"usa" in places'
    infobus feed reuters reut2-000.sgm reut2-001.sgm

    Objects are of type ReutersStory, a subtype of Story. Subjects are news.topic.NAME, or
    news.place.NAME if a story has no topic, or news.other.

    Stories that cannot be read are skipped and reported on stderr. The exit code is then 1.
    """
    from infobus.adapters.reuters import read_files
    from infobus.adapters.stories import Bulletin

    published_count = skipped_count = 0
    with which.join() as node:
        quenched_before = node.stats().quenched
        columns = (SpinnerColumn(), TextColumn("{task.completed:,} stories"), TimeElapsedColumn())
        with Progress(*columns, console=console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None)
            beats = _beats(rate)
            for found in read_files(files):
                if not isinstance(found, Bulletin):
                    skipped_count += 1
                    warn(f"skipped the story at line {found.line}: {found.why}")
                    continue
                next(beats)
                node.publish(*found, guaranteed=guaranteed)
                published_count += 1
                progress.advance(task)
        unwanted_count = node.stats().quenched - quenched_before
    told = f"{published_count} stories published"
    if unwanted_count:
        told += f", {unwanted_count} of them heard by nobody"
    warn(f"{told}, {skipped_count} skipped" if skipped_count else told)
    if skipped_count:
        raise typer.Exit(1)


def _beats(rate: float | None) -> Iterator[None]:
    """Yields at most `rate` times per second."""
    begun_s, count = time.monotonic(), 0
    while True:
        if rate is not None:
            time.sleep(max(0.0, begun_s + count / rate - time.monotonic()))
        count += 1
        yield
