"""`infobus sub`: watch what is published."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import infobus
from infobus import Bus, UsageError
from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
from infobus.cli.lines import event_heading, event_json, event_line, headers_text
from infobus.cli.options import (
    AsJson,
    OpeningKeys,
    Patterns,
    Quality,
    Until,
    Where,
    WhichBus,
    grouped,
)
from infobus.cli.terminal import console, note, write
from infobus.printable import printable

if TYPE_CHECKING:  # a command loads the filter language only when it needs it
    from infobus.filters import Filter


@grouped
def command(
    until: Until,
    quality: Quality,
    keys: OpeningKeys,
    which: WhichBus,
    patterns: Patterns,
    where: Where = None,
    as_json: AsJson = False,
    full: Annotated[
        bool, typer.Option("--full", help="Show each object in full, nested objects included.")
    ] = False,
    format_text: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-F",
            metavar="TEXT",
            help="Print this for each event, such as '{time} {subject} {data\\[headline]}'.",
        ),
    ] = None,
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable",
            metavar="NAME",
            help="Only guaranteed events, including those published while nobody used this name.",
        ),
    ] = None,
) -> None:
    """Show what is published under the patterns, from now on.

    Once you see "listening on ..." (on stderr), you miss nothing that is published.

    With --durable, events that were shown do not come again when you restart the command. Events
    wait for the name until [b]infobus ledger drop NAME[/b].

    With --format, {subject}, {type}, {data}, {headers}, {time}, {priority}, {id}, {sender}, {seq}
    are filled in; {data\\[headline]} is one attribute, and {headers\\[trace]} one header. What an
    event lacks is [b]-[/b].

    Quote the patterns: shells have their own * and >.
    """
    if sum((as_json, full, format_text is not None)) > 1:
        raise UsageError("--json, --full and --format exclude each other")
    shown = _shower(as_json, full, format_text)
    wanted = None
    if where is not None:
        from infobus.filters import compile

        wanted = compile(where)  # before joining, so that a mistake in it is reported at once
    with which.join() as node:
        subscription = _subscribe(node, patterns, wanted, durable, quality, keys.options())
        filtered = "" if wanted is None else f" where {wanted}"
        note(f"listening on {', '.join(patterns)}{filtered} (bus {node.name})")
        for event in _events(subscription, until):
            shown(event)


def _shower(as_json: bool, full: bool, format_text: str | None) -> Callable[[infobus.Event], None]:
    """What prints an event."""
    if as_json:
        described = set[int]()
        return lambda event: write(event_json(event, described))
    if format_text is not None:
        from infobus.cli.event_format import EventFormat

        line = EventFormat(format_text).line
        return lambda event: write(line(event))
    out = console()
    return lambda event: _show(event, out, full)


def _subscribe(
    node: Bus,
    patterns: list[str],
    where: Filter | None,
    durable: str | None,
    quality: Quality,
    keys: dict[str, Any],
) -> infobus.Subscription | DurableSubscription:
    if durable is None:
        return node.subscribe_many(
            patterns,
            where=where,
            on_mismatch="generic",
            **quality.options(),
            **keys,
        )
    if quality != Quality():
        raise UsageError("--priority and --max-age are not for --durable: it gets all")
    return node.subscribe_durable(
        patterns, None, durable, where=where, on_mismatch="generic", acknowledge="explicit", **keys
    )


def _show(event: infobus.Event, out: Console, full: bool) -> None:
    if full:
        out.print(event_heading(event).append(headers_text(event), "dim"), soft_wrap=True)
        infobus.describe(event.data)
    elif out.is_terminal:
        out.print(event_line(event), no_wrap=True, overflow="ellipsis")
    else:
        out.print(event_line(event), soft_wrap=True)
    sys.stdout.flush()


def _events(
    subscription: infobus.Subscription | DurableSubscription, until: Until
) -> Iterator[infobus.Event]:
    """The events until one of the limits is reached; losses are reported as they happen.

    A transaction counts as one event, and its events follow one after the other.
    """
    end_s = None if until.seconds is None else time.monotonic() + until.seconds
    left_count = until.count
    while left_count != 0:
        try:
            left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            event = subscription.receive(left_s)
        except TimeoutError:
            return
        except infobus.LossError as loss:
            console(stderr=True).print(f"loss: {printable(str(loss))}", style="bold red")
            continue
        yield from event.data if isinstance(event.data, infobus.Transaction) else (event,)
        if isinstance(event, DurableEvent):
            event.ack()
        left_count = None if left_count is None else left_count - 1
