"""`infobus backtest`: what subscriptions would have matched over history."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from infobus import UsageError
from infobus.cli.lines import printable, to_json
from infobus.cli.spark_output import quiet_session

_SUBSUMERS_COUNT_MAX = 5


def command(
    journal: Annotated[Path, typer.Option("--journal", metavar="DIR", help="The history.")],
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="EXPR", help="A subscription's filter. May be repeated."),
    ] = None,
    subject: Annotated[
        str, typer.Option("--subject", metavar="PATTERN", help="The subject of these filters.")
    ] = ">",
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="More subscriptions: in each line a filter, or JSON with subject and where.",
        ),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Test events, too.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show so many, the busiest first.")
    ] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each subscription, all of them.")
    ] = False,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Where Spark runs.")
    ] = "local[*]",
) -> None:
    """Show how often subscriptions would have matched, how much that is, and who wants more.

    \b
    infobus backtest --where 'symbol == "GMC" && price > 40' --journal DIR
    infobus backtest --file subscriptions.txt --journal DIR --json

    A subscription is subsumed by another that certainly matches whatever it matches.
    """
    from infobus.stores.journal.journal import Journal

    history = Journal.open(journal)
    if where is None and file is None:
        raise UsageError("what shall be tried out? Give --where EXPR or --file FILE")
    from infobus.pipeline.jobs import backtest
    from infobus.pipeline.jobs.history import histories
    from infobus.pipeline.jobs.subscription import Subscription

    options = backtest.Options(
        subscriptions=[Subscription(subject=subject, where=one) for one in where or ()],
        file=None if file is None else str(file),
        journal=str(journal.absolute()),
        test=test,
    )
    asked = len(options.all())
    with quiet_session("infobus backtest", master=master) as (spark, status):
        start_s = time.monotonic()
        count = sum(segment.count for segment in history.manifest.segments)
        status.update(f"matching {asked:,} subscriptions with {count:,} events")
        result = backtest.over(histories(spark, journal), options)
        rows = result.orderBy("subscription").toArrow().to_pylist()
    took_s = time.monotonic() - start_s
    if as_json:
        for row in rows:
            print(to_json(row))
        return
    _print(rows, limit)
    told = f"{asked:,} subscriptions, {count:,} events, {took_s:.1f} s"
    Console(highlight=False).print(told, style="dim")


def _print(rows: list[dict[str, Any]], limit: int) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("", "events", "bytes", "first", "last", "subsumed by", "subject", "where"):
        is_number = heading in ("", "events", "bytes")
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in sorted(rows, key=lambda row: -row["events"])[:limit]:
        above = row["subsumed_by"]
        more = f" and {len(above) - _SUBSUMERS_COUNT_MAX}" * (len(above) > _SUBSUMERS_COUNT_MAX)
        table.add_row(
            str(row["subscription"]),
            f"{row['events']:,}",
            f"{row['bytes']:,}",
            *(f"{row[name]:%m-%d %H:%M:%S}" if row[name] else "-" for name in ("first", "last")),
            ", ".join(map(str, above[:_SUBSUMERS_COUNT_MAX])) + more or "-",
            printable(row["subject"]),
            printable(row["where"] or "-"),
        )
    Console(highlight=False, markup=False).print(table)
