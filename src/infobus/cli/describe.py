"""`infobus describe`: a type, or the next object, all the way down."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

import infobus
from infobus import DeliveryError
from infobus.cli.lines import event_heading
from infobus.cli.options import BusName, Connect, Home, Listen, complete_types, join
from infobus.objects import find_type


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TYPE | PATTERN",
            help="Name of a type on the bus, or else a subject or pattern.",
            autocompletion=complete_types,
        ),
    ],
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to wait for an object under the pattern.")
    ] = 60.0,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Describe a type known on the bus, or the next object under a pattern.

    A name that is no type's is taken for a pattern. Objects are shown all the way down.
    """
    with join(bus, home, connect, listen) as node:
        node.types()
        known = find_type(what)
        if known is not None:
            infobus.describe(known)
            return
        subscription = node.subscribe(what, on_loss="ignore")
        err = Console(stderr=True, highlight=False)
        err.print(f"no type is called {what}; listening on {what}", style="dim", markup=False)
        try:
            event = subscription.receive(seconds)
        except TimeoutError as error:
            raise DeliveryError(str(error)) from None
    Console(highlight=False).print(event_heading(event), soft_wrap=True)
    infobus.describe(event.data)
