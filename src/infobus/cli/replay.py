"""`infobus replay`: publish the events of a journal again."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from infobus import Bus, UsageError
from infobus.cli.options import Guaranteed, JournalFolder, OnSpark, Where, WhichBus, grouped
from infobus.cli.spark_output import quiet_session
from infobus.cli.terminal import console, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.status import Status

    from infobus.pipeline.jobs.replay import DueEvent, ReplayOptions

_SHOWN_S = 0.2


@dataclass(frozen=True)
class ReplayedEvents:
    """Which events of a journal are replayed."""

    subject: Annotated[
        str | None, typer.Option("--subject", metavar="PATTERN", help="Only these subjects.")
    ] = None
    where: Where = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only events published at or after this time."
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only events published before this time."),
    ] = None


@grouped
def command(
    selection: ReplayedEvents,
    which: WhichBus,
    journal: JournalFolder,
    speed: Annotated[
        str,
        typer.Option(
            "--speed", metavar="N|full", help="Seconds of history to publish in one second."
        ),
    ] = "1",
    guaranteed: Guaranteed = False,
    on_spark: OnSpark = None,
) -> None:
    """Publish the events of a journal again, at their original speed or faster.

    \b
    infobus replay --journal DIR --speed 2
    infobus replay --journal DIR --speed full --subject 'news.>' --since 2026-11-16T08:00:00Z

    Events of one sender keep their order. Each carries the attribute `replayed`, which names the
    original event. If you want no replayed events, subscribe with --where '!exists(replayed)'.
    """
    from infobus.pipeline.source.options import SourceOptions
    from infobus.stores.journal.journal import Journal

    pace = _speed(speed)
    asked = {"journal": str(journal), **asdict(selection)}
    given = {name: value for name, value in asked.items() if value is not None}
    chosen = SourceOptions.of(given, is_stream=False).select(Journal.open(journal))
    from infobus.pipeline.jobs import replay
    from infobus.pipeline.jobs.history import is_small

    options = replay.ReplayOptions(
        speed=pace,  # type: ignore[arg-type]
        journal=str(journal.absolute()),
        guaranteed=guaranteed,
    )
    try:
        if on_spark or (on_spark is None and not is_small(chosen)):
            with quiet_session("infobus replay") as (spark, status):
                events = spark.read.format("infobus").options(**given).load()
                result = replay.transform(events, options)
                status.update("putting events in order")
                with which.join() as node:
                    told = _publish(node, result, options, status)
        else:
            with console(stderr=True).status("putting events in order") as status:
                found = replay.in_process(chosen, options)
                with which.join() as node:
                    told = _publish(node, found, options, status)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    note(told)


def _publish(
    node: Bus, events: DataFrame | list[DueEvent], options: ReplayOptions, status: Status
) -> str:
    """Publish the events when they are due; returns a line about what was done."""
    from infobus.pipeline.jobs import replay

    count, latest_s, shown_s = 0, 0.0, 0.0

    def on_event(late_s: float) -> None:
        nonlocal count, latest_s, shown_s
        count += 1
        latest_s = max(latest_s, late_s)
        if time.monotonic() >= shown_s:
            shown_s = time.monotonic() + _SHOWN_S
            status.update(f"{count:,} events replayed")

    replay.publish(node, events, options, on_event=on_event)
    quenched = node.stats().quenched
    unwanted = f", {quenched:,} of which nobody wanted" if quenched else ""
    late = "" if options.speed == "full" else f", at most {latest_s:.3f} s late"
    return f"{count:,} events replayed on the bus {node.name}{unwanted}{late}"


def _speed(text: str) -> float | str:
    if text == "full":
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--speed {text!r}: a number above 0, or full") from None
