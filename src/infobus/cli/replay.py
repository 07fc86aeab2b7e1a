"""`infobus replay`: history back onto the bus."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infobus import UsageError
from infobus.cli.lines import printable
from infobus.cli.options import BusName, Connect, Home, Listen, join
from infobus.cli.spark_output import quiet_session

_SHOWN_S = 0.2


def command(
    journal: Annotated[Path, typer.Option("--journal", metavar="DIR", help="The history.")],
    speed: Annotated[
        str,
        typer.Option("--speed", metavar="N|full", help="Seconds of history in one second."),
    ] = "1",
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="PATTERN", help="Only these subjects.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="EXPR", help="Only what this is true of.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Not published before.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Published before.")
    ] = None,
    guaranteed: Annotated[
        bool, typer.Option("--guaranteed", help="For durable consumers, too.")
    ] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Publish the events of a journal again, at their own speed, faster, or at full speed.

    \b
    infobus replay --journal DIR --speed 2
    infobus replay --journal DIR --speed full --subject 'news.>' --since 2026-11-16T08:00:00Z

    Events of one sender keep their order. Each carries the attribute `replayed`, which says what
    event it was: whoever wants none of them subscribes with --where '!exists(replayed)'.
    """
    from infobus.pipeline.source.options import SourceOptions
    from infobus.stores.journal.journal import Journal

    pace = _speed(speed)
    asked = {"journal": str(journal), "subject": subject, "where": where}
    asked |= {"since": since, "until": until}
    given = {name: value for name, value in asked.items() if value is not None}
    SourceOptions.of(given, is_stream=False).select(Journal.open(journal))
    from infobus.pipeline.jobs import replay

    options = replay.Options(
        speed=pace,  # type: ignore[arg-type]
        journal=str(journal.absolute()),
        guaranteed=guaranteed,
    )
    count, latest_s, shown_s = 0, 0.0, 0.0

    def on_event(late_s: float) -> None:
        nonlocal count, latest_s, shown_s
        count += 1
        latest_s = max(latest_s, late_s)
        if time.monotonic() >= shown_s:
            shown_s = time.monotonic() + _SHOWN_S
            status.update(f"{count:,} events replayed")

    try:
        with quiet_session("infobus replay") as (spark, status):
            events = spark.read.format("infobus").options(**given).load()
            result = replay.transform(events, options)
            status.update("putting events in order")
            with join(bus, home, connect, listen) as node:
                replay.publish(node, result, options, on_event=on_event)
                quenched = node.stats().quenched
                name = node.name
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    told = f"{count:,} events replayed on the bus {name}"
    told += f", {quenched:,} of which nobody wanted" if quenched else ""
    told += "" if pace == "full" else f", at most {latest_s:.3f} s late"
    err = Console(stderr=True, highlight=False)
    err.print(printable(told), style="dim", markup=False, soft_wrap=True)


def _speed(text: str) -> float | str:
    if text == "full":
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--speed {text!r}: a number above 0, or full") from None
