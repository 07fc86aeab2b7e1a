"""`infobus backtest`: what subscriptions would have matched in the past."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infobus import UsageError
from infobus.cli.options import AsJson, JournalFolder, OnSpark, TestEvents
from infobus.cli.spark_output import quiet_session
from infobus.cli.terminal import console, table, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.pipeline.jobs.backtest import BacktestOptions
    from infobus.stores.journal.journal import Journal

_SUBSUMERS_COUNT_MAX = 5

SubscriptionFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="More subscriptions, one per line: a filter, or JSON with subject and where.",
    ),
]


def command(
    journal: JournalFolder,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="EXPR", help="A subscription's filter. May be repeated."),
    ] = None,
    subject: Annotated[
        str,
        typer.Option(
            "--subject", metavar="PATTERN", help="The subject of the filters given by --where."
        ),
    ] = ">",
    file: SubscriptionFile = None,
    test: TestEvents = False,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, help="Show this many, the busiest first; --json shows all."),
    ] = 20,
    as_json: AsJson = False,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Where Spark runs.")
    ] = "local[*]",
    on_spark: OnSpark = None,
) -> None:
    """Show how many events each subscription would have matched, and which others cover it.

    \b
    infobus backtest --where 'symbol == "GMC" && price > 40' --journal DIR
    infobus backtest --file subscriptions.txt --journal DIR --json

    One subscription subsumes another if it is certain to match everything the other matches.
    """
    from infobus.stores.journal.journal import Journal

    history = Journal.open(journal)
    if where is None and file is None:
        raise UsageError("what shall be tried out? Give --where EXPR or --file FILE")
    from infobus.pipeline.jobs.backtest import BacktestOptions
    from infobus.pipeline.jobs.subscription import TrialSubscription

    options = BacktestOptions(
        subscriptions=[TrialSubscription(subject=subject, where=one) for one in where or ()],
        file=None if file is None else str(file),
        journal=str(journal.absolute()),
        test=test,
    )
    from infobus.pipeline.jobs.history import is_small

    if on_spark or (on_spark is None and not is_small(history.select())):
        rows, told = _run(history, options, journal, master)
    else:
        rows, told = _run_here(history, options)
    if as_json:
        write_json(*rows)
        return
    _print(rows, limit)
    console().print(told, style="dim")


def _run_here(history: Journal, options: BacktestOptions) -> tuple[list[dict[str, Any]], str]:
    """As `_run`, without Spark."""
    from infobus.pipeline.jobs import backtest

    start_s = time.monotonic()
    rows = backtest.in_process(history, options)
    return rows, _told(history, options, start_s)


def _told(history: Journal, options: BacktestOptions, start_s: float) -> str:
    count = sum(segment.count for segment in history.manifest.segments)
    took_s = time.monotonic() - start_s
    return f"{len(options.all()):,} subscriptions, {count:,} events, {took_s:.1f} s"


def _run(
    history: Journal, options: BacktestOptions, folder: Path, master: str
) -> tuple[list[dict[str, Any]], str]:
    """The result, one row per subscription, and a line about what was done."""
    from infobus.pipeline.jobs import backtest
    from infobus.pipeline.jobs.history import histories

    asked = len(options.all())
    with quiet_session("infobus backtest", master=master) as (spark, status):
        start_s = time.monotonic()
        count = sum(segment.count for segment in history.manifest.segments)
        status.update(f"matching {asked:,} subscriptions with {count:,} events")
        result = backtest.over(histories(spark, folder), options)
        rows = result.orderBy("subscription").toArrow().to_pylist()
    return rows, _told(history, options, start_s)


def _print(rows: list[dict[str, Any]], limit: int) -> None:
    numbers = ("", "events", "bytes")
    drawn = table(*numbers, "first", "last", "subsumed by", "subject", "where", numbers=numbers)
    for row in sorted(rows, key=lambda row: -row["events"])[:limit]:
        above = row["subsumed_by"]
        more = f" and {len(above) - _SUBSUMERS_COUNT_MAX}" * (len(above) > _SUBSUMERS_COUNT_MAX)
        drawn.add_row(
            str(row["subscription"]),
            f"{row['events']:,}",
            f"{row['bytes']:,}",
            *(f"{row[name]:%m-%d %H:%M:%S}" if row[name] else "-" for name in ("first", "last")),
            ", ".join(map(str, above[:_SUBSUMERS_COUNT_MAX])) + more or "-",
            printable(row["subject"]),
            printable(row["where"] or "-"),
        )
    console().print(drawn)
