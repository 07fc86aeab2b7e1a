"""`infobus pub`: publish from the shell."""

from __future__ import annotations

from typing import Annotated

import typer

from infobus import Type, UsageError
from infobus.cli.options import (
    BusName,
    Connect,
    Home,
    Listen,
    MaxAge,
    Priority,
    complete_types,
    join,
    stdin,
    type_on_bus,
)
from infobus.cli.publication import Publisher, warn
from infobus.cli.values import object_from_items, object_from_json


def command(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBJECT",
            help="Such as [b]news.equity.gmc[/b]; [b]-[/b] reads them from stdin.",
        ),
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OBJECT",
            help="JSON, or KEY=TEXT and KEY:=JSON ..., or [b]-[/b] to read objects from stdin.",
        ),
    ] = None,
    type_name: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            autocompletion=complete_types,
            help="Publish an object of this type, which some program on the bus must know.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="Wait up to so long until somebody subscribes."
        ),
    ] = 0.0,
    guaranteed: Annotated[
        bool,
        typer.Option("--guaranteed", help="Keep it on disk until every durable consumer has it."),
    ] = False,
    priority: Priority = None,
    max_age: MaxAge = None,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Publish one object, or a line of stdin each, or what you type at a prompt.

    \b
    infobus pub news.equity.gmc headline="GM up" price:=41.5
    infobus pub news.equity.gmc '{"headline": "GM up", "price": 41.5}'
    infobus pub news.equity.gmc --type Story headline="GM up"
    infobus pub news.equity.gmc -  < objects     # each line: JSON
    infobus pub -                  < events      # each line: SUBJECT JSON
    infobus pub                                  # asks for everything

    KEY=TEXT is text, or what the attribute's type makes of it. KEY:=JSON is any value.

    What nobody subscribes to is not sent, which is said on stderr; with --guaranteed it is kept
    in the home's ledger all the same, for durable consumers that are away.

    Exit codes: 1 if --wait was in vain, 2 if a line of stdin was bad (and skipped).
    """
    if wait and guaranteed:
        raise UsageError("--wait is not for --guaranteed: what is kept waits for its consumers")
    with join(bus, home, connect, listen) as node:
        publisher = Publisher(node, wait, guaranteed=guaranteed, priority=priority, max_age=max_age)
        if subject is None and stdin().isatty():
            from infobus.cli.prompt import prompt_until_end

            prompt_until_end(node, publisher)
            return
        type_ = None if type_name is None else type_on_bus(node, type_name)
        bad_count = 0
        if subject is None or subject == "-":
            bad_count = _publish_lines(publisher, None, type_)
        elif items == ["-"]:
            bad_count = _publish_lines(publisher, subject, type_)
        elif items or type_ is not None:
            publisher.publish(subject, object_from_items(items or [], type_))
        else:
            raise UsageError(f"nothing to publish under {subject}: give KEY=TEXT, JSON, or -")
    publisher.tell_unwanted()
    if bad_count:
        raise typer.Exit(2)
    if wait and publisher.unwanted:
        raise typer.Exit(1)


def _publish_lines(publisher: Publisher, subject: str | None, type_: Type | None) -> int:
    """Publish each line of stdin; returns how many were bad, each of which was reported."""
    bad_count = 0
    for number, line in enumerate(stdin(), 1):
        if not line.strip():
            continue
        try:
            target, text = (subject, line) if subject is not None else _split_line(line)
            publisher.publish(target, object_from_json(text, type_))
        except UsageError as error:
            bad_count += 1
            warn(f"line {number}: {error}")
    return bad_count


def _split_line(line: str) -> tuple[str, str]:
    # A subject may hold spaces, so it ends where the object begins.
    subject, brace, rest = line.partition("{")
    if not brace or not subject.strip():
        raise UsageError(f"expected SUBJECT and a JSON object, got {line.strip()[:60]!r}")
    return subject.strip(), brace + rest
