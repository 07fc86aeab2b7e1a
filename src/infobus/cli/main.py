"""The command `infobus`: all commands together; an error becomes one line and an exit code."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Annotated

import typer
from typer.core import TyperOption

import infobus
from infobus.cli import contexts
from infobus.extras import missing
from infobus.printable import printable, printable_lines

app = typer.Typer(
    name="infobus",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order of the help. A module has one `command`, or several in an `app`.
for name in (
    "pub sub types describe filter quench watch stats topology services call reply rtt daemon "
    "router members tags keys ledger journal tdl capture query repository backtest replay pipeline "
    "feed context demo bench"
).split():
    module = import_module(f"infobus.cli.{name}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        app.command(name)(module.command)


_display_type = getattr(TyperOption, "display_type_rich", None)


def _display_no_flag(option: TyperOption, ctx: typer.Context) -> str | None:
    return None if option.is_flag or _display_type is None else _display_type(option, ctx)


# Typer 0.29 shows <bool> behind every flag, as if one had to give it a value.
TyperOption.display_type_rich = _display_no_flag  # type: ignore[method-assign, assignment]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"infobus {infobus.__version__}")
        raise typer.Exit


@app.callback()
def top(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Publish objects under subjects, and watch what others publish. You need no server.

    \b
    In one terminal    infobus sub 'news.>'
    In another         infobus pub news.equity.gmc headline="GM up" price:=41.5
    For programs       infobus sub 'news.>' --json --count 10
    Types in use       infobus types
    What is wanted     infobus quench 'news.>'
    See it all work    infobus demo

    Programs meet on the bus that --bus, INFOBUS_BUS, the context in use or infobus.toml names.
    """
    if context.invoked_subcommand != "context":  # which must work to choose another one
        contexts.enter()


def main() -> None:
    """Run the command line; an error of the bus becomes one line and an exit code."""
    # As by Ctrl-C, every `with` block ends: the bus is closed, and waits for callbacks that run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except infobus.BadFilter as error:  # several lines: what is wrong, where, and a hint
        print(f"infobus: {printable_lines(str(error))}", file=sys.stderr)
        sys.exit(2)
    except infobus.BusError as error:
        print(f"infobus: {printable(str(error))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, infobus.UsageError) else 1)
    except ImportError as error:
        if (lacking := missing(error)) is None:
            raise
        print(f"infobus: {lacking}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk behind the output, for example
        print(f"infobus: {printable(str(error))}", file=sys.stderr)
        sys.exit(1)
