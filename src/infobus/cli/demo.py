"""`infobus demo`: the trading floor, the newsroom, and the city."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End by itself after so long.")
    ] = None,
) -> None:
    """Watch a trading floor: two news feeds, a monitor, and later a keyword generator.

    Two adapters parse two formats into two types of story that the monitor never heard of.

    Keys: up and down select a story, q ends.
    """
    if context.invoked_subcommand:
        return
    from infobus.demo.floor.floor import run

    raise typer.Exit(run(seconds))


@app.command("newsroom")
def newsroom(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="Close after so long; a minute.")
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
            help="Reuters SGML in place of the two feeds, until its end. May be repeated.",
        ),
    ] = None,
) -> None:
    """Watch a newsroom from end to end: feeds, bus, journal, Spark, repository, and a report.

    Two feeds publish stories. Spark reads them as they come, puts them into SQL tables, and
    publishes keywords for them; the monitor shows both. At the end, a query over all types of
    stories, and a report of the traffic with a plot. Needs Java and the extras spark and sql.
    """
    from infobus.demo.newsroom.newsroom import run

    raise typer.Exit(run(seconds, out, wire or []))


@app.command("city")
def city(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=3, help="End by itself after so long.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo-results"),
) -> None:
    """Watch a city under overload: emergencies, business orders and a library's updates.

    Emergencies arrive within three seconds, business events older than ten are discarded, and
    the library moves from time to time. In less than 30 seconds the ten are scaled down. The
    exit code is 0 if all of that was so.
    """
    from infobus.demo.city.city import run

    raise typer.Exit(run(seconds, out))
