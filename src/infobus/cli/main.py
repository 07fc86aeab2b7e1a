"""The command `infobus`: puts the commands together and says what went wrong in one line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import infobus
from infobus.cli import (
    backtest,
    bench,
    call,
    capture,
    demo,
    describe,
    feed,
    filter,
    journal,
    ledger,
    pipeline,
    pub,
    quench,
    query,
    replay,
    services,
    sub,
    tdl,
    types,
    watch,
)
from infobus.cli.lines import printable

app = typer.Typer(
    name="infobus",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("pub")(pub.command)
app.command("sub")(sub.command)
app.command("types")(types.command)
app.command("describe")(describe.command)
app.add_typer(filter.app, name="filter")
app.command("quench")(quench.command)
app.command("watch")(watch.command)
app.command("services")(services.command)
app.command("call")(call.command)
app.add_typer(ledger.app, name="ledger")
app.add_typer(journal.app, name="journal")
app.add_typer(tdl.app, name="tdl")
app.command("capture")(capture.command)
app.command("query")(query.command)
app.command("backtest")(backtest.command)
app.command("replay")(replay.command)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(feed.app, name="feed")
app.add_typer(demo.app, name="demo")
app.add_typer(bench.app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"infobus {infobus.__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Publish objects under subjects, and watch what others publish. No server needed.

    \b
    In one terminal    infobus sub 'news.>'
    In another         infobus pub news.equity.gmc headline="GM up" price:=41.5
    For programs       infobus sub 'news.>' --json --count 10
    What is there      infobus types
    What is wanted     infobus quench 'news.>'
    See it all work    infobus demo

    Programs meet on the bus named by --bus, INFOBUS_BUS or infobus.toml.
    """


def main() -> None:
    """Run the command line; errors of the bus become one line and an exit code."""
    try:
        app()
    except infobus.BadFilter as error:  # several lines: what is wrong, where, and a hint
        lines = map(printable, str(error).split("\n"))
        print("infobus:", "\n".join(lines), file=sys.stderr)
        sys.exit(2)
    except infobus.BusError as error:
        print(f"infobus: {printable(str(error))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, infobus.UsageError) else 1)
    except OSError as error:  # a full disk behind the output, for example
        print(f"infobus: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)
