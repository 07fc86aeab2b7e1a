"""`infobus rtt`: how long calls take, there and back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infobus import Bus
from infobus.cli.call import arguments_of
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.services import PATIENCE_S, operation_of
from infobus.cli.terminal import console, table, warn, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.services import Found

_TIMES = ("min_ms", "median_ms", "p95_ms", "max_ms")


@grouped
def command(
    which: WhichBus,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The service's subject.")],
    operation: Annotated[
        str, typer.Argument(metavar="OPERATION", help="What to call; it runs this often.")
    ] = "reply",
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT", help="name=text, name:=json, or one JSON object."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, help="Call each server this many times.")
    ] = 100,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long a call may take.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Call every server of a service, one call after the other, and show how long they took.

    \b
    infobus reply svc.echo &
    infobus rtt svc.echo
    infobus rtt svc.market listing symbol=GMC --count 1000

    A call before the first, which finds the server, does not count. The exit code is 1 if a call
    failed.
    """
    with which.join() as node:
        chosen = operation_of(node, subject, operation, PATIENCE_S)
        values = arguments_of(chosen, arguments or [])
        servers = sorted(node.who_is_out_there(subject, PATIENCE_S), key=lambda one: one.node)
        rows = [
            _row(node, one, operation, values, count=count, timeout_s=timeout_s) for one in servers
        ]
    if as_json:
        write_json(*rows)
    else:
        _print(rows)
    if any(row["failed"] for row in rows):
        raise typer.Exit(1)


def _row(
    bus: Bus, server: Found, name: str, values: dict[str, Any], *, count: int, timeout_s: float
) -> dict[str, Any]:
    """What the calls of one server took."""

    def same(found: Sequence[Found]) -> list[Found]:
        return [one for one in found if one.node == server.node]

    call = bus.service(server.subject, policy=same, timeout_s=timeout_s)[name]
    taken_ms: list[float] = []
    failed_count = 0
    for number in range(count + 1):
        begun_s = time.perf_counter()
        try:
            call(**values)
        except Exception as error:  # the service may raise anything
            failed_count += number > 0
            if not number:  # once is enough: the calls that count tell their number
                warn(f"{server.node}: {type(error).__name__}: {error}")
            continue
        if number:
            taken_ms.append((time.perf_counter() - begun_s) * 1000)
    return {"node": server.node, "calls": count, "failed": failed_count, **_times(taken_ms)}


def _times(taken_ms: Sequence[float]) -> dict[str, float | None]:
    """The least, the middle, the 95th of a hundred, and the most.

    >>> _times([3.0, 1.0, 2.0])
    {'min_ms': 1.0, 'median_ms': 2.0, 'p95_ms': 3.0, 'max_ms': 3.0}
    """
    if not taken_ms:
        return dict.fromkeys(_TIMES)
    ordered = sorted(taken_ms)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    found = (ordered[0], statistics.median(ordered), p95, ordered[-1])
    return dict(zip(_TIMES, (round(one, 4) for one in found), strict=True))


def _print(rows: Sequence[dict[str, Any]]) -> None:
    headings = ("calls", "failed", "min", "median", "p95", "max")
    drawn = table("server", *headings, numbers=headings)
    for row in rows:
        times = ["-" if row[one] is None else f"{row[one]:.2f} ms" for one in _TIMES]
        drawn.add_row(printable(row["node"]), str(row["calls"]), str(row["failed"]), *times)
    console().print(drawn)
