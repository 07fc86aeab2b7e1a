"""`infobus services`: who is out there, and what it can be asked to do."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infobus import Bus, UsageError
from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Connect, Home, Listen, join

if TYPE_CHECKING:
    from infobus.services import Found, ServiceOperation

PATIENCE_S = 1.0


def command(
    pattern: Annotated[str, typer.Argument(help="Subjects; `*` and `>` are wildcards.")] = ">",
    where: Annotated[
        str, typer.Option("--where", help="Only those whose words about themselves fit.")
    ] = "",
    role: Annotated[
        str, typer.Option("--role", help="Another role than `server`; `any` for all.")
    ] = "server",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on, and tell who comes and goes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object each.")] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """List the services on the bus, with their operations."""
    wanted = None if role == "any" else role
    with join(bus, home, connect, listen) as node:
        if watch:
            _watch(node, pattern, wanted, as_json)
            return
        found = node.who_is_out_there(pattern, PATIENCE_S, role=wanted, where=where)
    found.sort(key=lambda one: (one.subject, one.since))
    if as_json:
        for one in found:
            print(to_json(_record(one)))
    elif found:
        Console(highlight=False).print(_table(found))
    else:
        typer.echo(f"nobody serves {pattern}", err=True)


def _watch(bus: Bus, pattern: str, role: str | None, as_json: bool) -> None:
    console = Console(highlight=False)
    styles = {"arrived": "green", "changed": "yellow", "departed": "red"}
    with bus.watch(pattern, role=role) as changes:
        for change in changes:
            if as_json:
                print(to_json({"what": change.what, **_record(change.found)}), flush=True)
                continue
            line = Text(f"{change.what:9}", styles[change.what])
            line.append(f" {printable(change.found.subject)}", "bold cyan")
            line.append(f" {printable(change.found.version)}").append(
                f" {change.found.node}", "dim"
            )
            console.print(line)


def _table(found: Iterable[Found]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("subject", style="bold cyan", no_wrap=True)
    for column in ("version", "load", "up", "node"):
        table.add_column(column, no_wrap=True)
    table.add_column("operations", overflow="fold")
    now = time.time()
    for one in found:
        operations = "\n".join(printable(o.signature) for o in one.interface.operations)
        table.add_row(
            Text(printable(one.subject)),
            Text(printable(one.version)),
            str(one.load),
            _duration(now - one.since),
            Text(printable(one.node)),
            Text(operations or printable(one.role)),
        )
    return table


def _duration(seconds: float) -> str:
    """A time in one unit.

    >>> _duration(5.2), _duration(600), _duration(9000)
    ('5 s', '10 min', '2 h')
    """
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _record(one: Found) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "role": one.role,
        "node": one.node,
        "load": one.load,
        "since": one.since,
        "info": one.info,
        "operations": [_operation(o) for o in one.interface.operations],
    }


def _operation(operation: ServiceOperation) -> dict[str, Any]:
    return {
        "name": operation.name,
        "signature": operation.signature,
        "doc": operation.doc,
        "parameters": [
            {"name": p.name, "type": p.type, **({"default": p.default} if p.has_default else {})}
            for p in operation.parameters
        ],
        "result": str(operation.result),
        "stream": operation.is_stream,
        "idempotent": operation.is_idempotent,
    }


def operation_of(bus: Bus, subject: str, name: str) -> ServiceOperation:
    """An operation of a service on the bus."""
    operations = bus.service(subject, timeout_s=PATIENCE_S).operations
    if name not in operations.names:
        close = difflib.get_close_matches(name, operations.names, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        known = ", ".join(operations.names)
        raise UsageError(f"{subject!r} has no operation {name!r}, only {known}{hint}")
    return operations[name]
