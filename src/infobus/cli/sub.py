"""`infobus sub`: watch what is published."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

import infobus
from infobus import UsageError
from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
from infobus.cli.lines import event_heading, event_json, event_line
from infobus.cli.options import (
    BusName,
    Connect,
    Count,
    Home,
    Listen,
    MaxAge,
    Priority,
    Seconds,
    join,
)


def command(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="PATTERN...",
            help="Subjects; [b]*[/b] stands for one element, a last [b]>[/b] for one or more.",
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="EXPR",
            help="Only what this is true of, such as 'symbol == \"GMC\" && price > 40'.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, for other programs.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Show all of each object.")] = False,
    count: Count = None,
    seconds: Seconds = None,
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable",
            metavar="NAME",
            help="Only guaranteed events, also those of while nobody used this name.",
        ),
    ] = None,
    priority: Priority = None,
    max_age: MaxAge = None,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Show what is published under the patterns, from now on.

    After "listening on ..." (on stderr), nothing that is published is missed.

    With --durable, what was shown does not come again, and events wait for the name until
    [b]infobus ledger drop NAME[/b].

    Quote the patterns: shells have their own * and >.
    """
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    told, wanted = ", ".join(patterns), None
    if where is not None:
        from infobus.filters import compile

        wanted = compile(where)  # what is wrong with it is said before joining the bus
        told = f"{told} where {wanted}"
    with join(bus, home, connect, listen) as node:
        subscription: infobus.Subscription | DurableSubscription
        if durable is None:
            subscription = node.subscribe_many(
                patterns, where=wanted, priority=priority, max_age=max_age
            )
        else:
            if priority is not None or max_age is not None:
                raise UsageError("--priority and --max-age are not for --durable: it gets all")
            subscription = node.subscribe_durable(
                patterns, None, durable, where=wanted, acknowledge="explicit"
            )
        err.print(f"listening on {told} (bus {node.name})", style="dim", markup=False)
        for event in _events(subscription, count, seconds, err):
            if as_json:
                print(event_json(event))
            elif full:
                out.print(event_heading(event), soft_wrap=True)
                infobus.describe(event.data)
            elif out.is_terminal:
                out.print(event_line(event), no_wrap=True, overflow="ellipsis")
            else:
                out.print(event_line(event), soft_wrap=True)
            sys.stdout.flush()


def _events(
    subscription: infobus.Subscription | DurableSubscription,
    count: int | None,
    seconds: float | None,
    err: Console,
) -> Iterator[infobus.Event]:
    """Events until there were enough of them, or it is late; losses are told on the way.

    A transaction counts as one, and its events are shown one after the other.
    """
    end_s = None if seconds is None else time.monotonic() + seconds
    while count is None or count > 0:
        try:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            event = subscription.receive(left_s)
        except TimeoutError:
            return
        except infobus.LossError as loss:
            err.print(f"loss: {loss}", style="bold red", markup=False)
            continue
        yield from event.data if isinstance(event.data, infobus.Transaction) else (event,)
        if isinstance(event, DurableEvent):
            event.ack()
        count = None if count is None else count - 1
