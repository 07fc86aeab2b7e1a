"""`infobus demo`: the trading floor, the newsroom and the city."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")
    ] = None,
) -> None:
    """Watch a trading floor: two news feeds, a monitor, and later a keyword generator.

    Two adapters parse two formats into two types of story that the monitor has never seen.

    Keys: up and down select a story, q ends.
    """
    if context.invoked_subcommand:
        return
    from infobus.demo.floor.floor import run

    raise typer.Exit(run(seconds))


@app.command("newsroom")
def newsroom(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, help="Close after this many seconds; default 60."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the database, the journal, the report and its plot.")
    ] = Path("demo-results/newsroom"),
    wire: Annotated[
        list[Path] | None,
        typer.Option(
            "--wire",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Publish this Reuters SGML instead of the two feeds. May be repeated.",
        ),
    ] = None,
) -> None:
    """Watch a newsroom from end to end: feeds, bus, journal, Spark, repository, and a report.

    Two feeds publish stories. Spark reads them as they arrive, stores them in SQL tables, and
    publishes keywords for them; the monitor shows both. The demo ends with a query over all
    types of stories, and a traffic report with a plot. It needs Java and the extras spark and
    sql.
    """
    from infobus.demo.newsroom.newsroom import run

    raise typer.Exit(run(seconds, out, wire or []))


@app.command("city")
def city(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=3, help="End after this many seconds.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo-results"),
) -> None:
    """Watch a city under overload: emergencies, business orders and a library's updates.

    Emergencies arrive within three seconds, business events older than ten seconds are
    discarded, and the library still makes progress. In runs shorter than 30 seconds, the ten
    seconds are scaled down. The exit code is 0 if all of this held.
    """
    from infobus.demo.city.city import run

    raise typer.Exit(run(seconds, out))
