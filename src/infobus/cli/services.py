"""`infobus services`: the services on the bus and their operations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from infobus import Bus, NoServer, UsageError
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import console, suggestion, table, warn, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.objects.members import Members
    from infobus.services import Found, ServiceOperation

PATIENCE_S = 1.0
_WIDTH_MAX = 100_000  # as if lines never ended


@grouped
def command(
    which: WhichBus,
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN", help="Subjects; [b]*[/b] and [b]>[/b] are wildcards."),
    ] = ">",
    where: Annotated[
        str,
        typer.Option(
            "--where", metavar="EXPR", help="Only services whose description of themselves matches."
        ),
    ] = "",
    role: Annotated[
        str, typer.Option("--role", help="A role other than [b]server[/b]; [b]any[/b] for all.")
    ] = "server",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running; show which services come and go.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the services on the bus, with their operations."""
    wanted = None if role == "any" else role
    with which.join() as node:
        if watch:
            _watch(node, pattern, wanted, as_json)
            return
        found = node.who_is_out_there(pattern, PATIENCE_S, role=wanted, where=where)
    found.sort(key=lambda one: (one.subject, one.since))
    if as_json:
        write_json(*map(_record, found))
    elif found:
        _print(found)
    else:
        warn(f"nobody serves {pattern}")


def _watch(bus: Bus, pattern: str, role: str | None, as_json: bool) -> None:
    out = console()
    styles = {"arrived": "green", "changed": "yellow", "departed": "red"}
    with bus.watch(pattern, role=role) as changes:
        for change in changes:
            if as_json:
                write_json({"what": change.what, **_record(change.found)})
                continue
            line = Text(f"{change.what:9}", styles[change.what])
            line.append(f" {printable(change.found.subject)}", "bold cyan")
            line.append(f" {printable(change.found.version)}")
            out.print(line.append(f" {printable(change.found.node)}", "dim"))


def _print(found: Sequence[Found]) -> None:
    """Print a table; where lines are too short for it, the operations are below each service."""
    out = console()
    whole = _table(found)
    if Measurement.get(out, out.options.update(width=_WIDTH_MAX), whole).maximum <= out.width:
        out.print(whole)
        return
    for one in found:
        line = Text(printable(one.subject), "bold cyan")
        up = _duration(time.time() - one.since)
        about = [printable(one.version), f"load {one.load}", f"up {up}", _who(one)]
        line.append(f"  {'  '.join(filter(None, about))}", "not bold default")
        out.print(line, soft_wrap=True)
        for text in _operations(one):
            out.print(f"    {text}", soft_wrap=True)


def _table(found: Iterable[Found]) -> Table:
    drawn = table("subject", "version", "load", "up", "node", "operations")
    drawn.columns[0].style = "bold cyan"
    now = time.time()
    for one in found:
        drawn.add_row(
            printable(one.subject),
            printable(one.version),
            str(one.load),
            _duration(now - one.since),
            _who(one),
            "\n".join(_operations(one)),
        )
    return drawn


def _who(one: Found) -> str:
    return printable(f"{one.application} ({one.node})" if one.application else one.node)


def _operations(one: Found) -> list[str]:
    return [printable(o.signature) for o in one.interface.operations] or [printable(one.role)]


def _duration(seconds: float) -> str:
    """A duration in one unit.

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
        "application": one.application,
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


def operations_of(bus: Bus, subject: str, timeout_s: float) -> Members[ServiceOperation]:
    """The operations of a service on the bus.

    Raises:
        NoServer: Nobody serves it within the time; the message names what is served instead.
    """
    try:
        return bus.service(subject, timeout_s=timeout_s).operations
    except NoServer as error:
        served = {one.subject for one in bus.who_is_out_there(">", PATIENCE_S)}
        text = f"{error}{suggestion(subject, served)}"
        raise NoServer(text, subject=subject, operation="") from None


def operation_of(bus: Bus, subject: str, name: str, timeout_s: float) -> ServiceOperation:
    """An operation of a service on the bus."""
    operations = operations_of(bus, subject, timeout_s)
    if name not in operations.names:
        hint = suggestion(name, operations.names)
        known = ", ".join(operations.names)
        raise UsageError(f"{subject!r} has no operation {name!r}, only {known}{hint}")
    return operations[name]
