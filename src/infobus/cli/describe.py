"""`infobus describe`: show a type, or the next object, in full."""

from __future__ import annotations

from typing import Annotated

import typer

import infobus
from infobus import DeliveryError
from infobus.cli.lines import event_heading, event_json
from infobus.cli.options import AsJson, WhichBus, complete_types, grouped
from infobus.cli.terminal import console, note, write, write_json
from infobus.objects import find_type


@grouped
def command(
    which: WhichBus,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TYPE | PATTERN",
            help="The name of a type on the bus, or a subject or pattern.",
            autocompletion=complete_types,
        ),
    ],
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to wait for an object under the pattern.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Describe a type known on the bus, or the next object under a pattern.

    If no type has the name, it is taken as a pattern. Objects are shown in full, with the
    objects inside them.
    """
    with which.join() as node:
        node.types()
        known = find_type(what)
        if known is not None:
            if as_json:
                write_json(known.to_dict())
            else:
                infobus.describe(known)
            return
        subscription = node.subscribe(what, on_loss="ignore", on_mismatch="generic")
        note(f"no type is called {what}; listening on {what}")
        try:
            event = subscription.receive(seconds)
        except TimeoutError as error:
            raise DeliveryError(str(error)) from None
    if as_json:
        write(event_json(event))
        return
    console().print(event_heading(event), soft_wrap=True)
    infobus.describe(event.data)
