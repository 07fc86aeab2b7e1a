"""What the commands share: how to say which bus, and joining it."""

from __future__ import annotations

import contextlib
import difflib
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

import infobus
from infobus import Bus, Type, UsageError
from infobus.objects import find_type

_PANEL = "Which bus"

BusName = Annotated[
    str | None,
    typer.Option(
        "--bus",
        envvar="INFOBUS_BUS",
        metavar="NAME",
        help="Name of the bus; others are not heard.",
        rich_help_panel=_PANEL,
    ),
]
Home = Annotated[
    str | None,
    typer.Option(
        "--home",
        envvar="INFOBUS_HOME",
        metavar="FOLDER",
        help="Folder for whatever must survive.",
        rich_help_panel=_PANEL,
    ),
]
Connect = Annotated[
    list[str] | None,
    typer.Option(
        "--connect",
        metavar="ENDPOINT",
        help="A further endpoint to reach, such as tcp/10.0.0.7:7500. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="ENDPOINT",
        help="A further endpoint to be reached at, such as tcp/0.0.0.0:7500. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]

Count = Annotated[int | None, typer.Option("--count", min=1, help="End after so many events.")]
Seconds = Annotated[
    float | None, typer.Option("--seconds", min=0, help="End after so many seconds.")
]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="CLASS",
        help="Such as [b]emergency[/b], [b]business[/b], [b]regular[/b]; higher ones overtake.",
    ),
]
MaxAge = Annotated[
    float | None,
    typer.Option(
        "--max-age", metavar="SECONDS", help="Let go what is older, wherever it waits then."
    ),
]


def join(
    bus: str | None, home: str | None, connect: list[str] | None, listen: list[str] | None
) -> Bus:
    """Join the bus that the options name; what they leave open is settled as by `connect`."""
    return infobus.connect(bus, home=home, connect=connect or None, listen=listen or None)


def stdin() -> TextIOWrapper:
    """Standard input, in which bytes that are no UTF-8 fail no earlier than in their own line."""
    if not isinstance(sys.stdin, TextIOWrapper):
        raise UsageError("there is nothing to read: standard input is closed")
    sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def type_on_bus(bus: Bus, name: str) -> Type:
    """The type of that name that some node on the bus knows."""
    names = [known.name for known in bus.types()]
    found = find_type(name)
    if found is None:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"no program on the bus {bus.name!r} knows a type {name!r}{hint}")
    return found


def complete_types(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the names of types on the bus that begin with what was typed."""
    named = (context.params.get(name) for name in ("bus", "home", "connect", "listen"))
    # Whatever is wrong is said when the command runs, not in the middle of typing it.
    with contextlib.suppress(infobus.BusError), join(*named) as bus:
        return [known.name for known in bus.types(0.5) if known.name.startswith(incomplete)]
    return []
