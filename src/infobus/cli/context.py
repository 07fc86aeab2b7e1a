"""`infobus context`: named settings, so that you need not repeat options."""

from __future__ import annotations

from typing import Annotated

import typer

from infobus import UsageError
from infobus.bus.settings import load_settings
from infobus.cli import contexts
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import console, note, table, warn, write_json
from infobus.printable import printable

app = typer.Typer(no_args_is_help=True, help="Name settings, and use them without repeating them.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="What the context is called.")]


@app.callback()
def context() -> None:
    """Name settings, and use them without repeating them."""


@app.command("add")
@grouped
def add(which: WhichBus, name: Name) -> None:
    """Name the bus, home and endpoints given here.

    \b
    infobus context add paris --bus news --connect tls/10.0.0.7:7500
    infobus context use paris
    infobus sub 'news.>'                       # joins that bus
    INFOBUS_CONTEXT=lyon infobus sub 'news.>'  # another, this once
    """
    given = {
        "bus": which.bus,
        "home": which.home,
        "connect": which.connect,
        "listen": which.listen,
        "insecure": which.insecure,
    }
    settings = {key: value for key, value in given.items() if value is not None and value != []}
    if not settings:
        raise UsageError("a context without settings: give --bus, --home, --connect or --listen")
    load_settings(**settings)  # refuses what could not be used
    note(f"written to {contexts.add(name, settings)}")


@app.command("use")
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Leave it out to use none.")
    ] = None,
) -> None:
    """Let commands have the settings of this context, wherever options say nothing else."""
    contexts.use(name)


@app.command("list")
def show(as_json: AsJson = False) -> None:
    """List the contexts; the one in use has a star."""
    used = contexts.used()
    rows = {name: contexts.read(name) for name in contexts.known()}
    if as_json:
        for name, settings in rows.items():
            write_json({"name": name, "used": name == used, "settings": settings})
        return
    if not rows:
        warn("there are no contexts: infobus context add NAME --bus ...")
        return
    drawn = table("", "context", "settings")
    for name, settings in rows.items():
        told = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        drawn.add_row("*" if name == used else "", printable(name), printable(told))
    console().print(drawn)


@app.command("remove")
def remove(name: Name) -> None:
    """Remove a context. If it was in use, none is."""
    contexts.remove(name)
