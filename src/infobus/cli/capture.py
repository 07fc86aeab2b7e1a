"""`infobus capture`: store everything that is published under some subjects in a database."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from infobus.cli.options import DEFAULT_DB, Database, Patterns, Until, WhichBus, grouped
from infobus.cli.terminal import console, note
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.repository.capture import Capture

LOOK_S = 0.2

KeepDays = Annotated[
    float | None,
    typer.Option(
        "--keep-days",
        metavar="N",
        min=0,
        help="Delete from the database what was published longer ago.",
    ),
]


@grouped
def command(
    until: Until,
    which: WhichBus,
    patterns: Patterns,
    db: Database = DEFAULT_DB,
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name of the durable consumer; one program at a time can use it."
        ),
    ] = "capture",
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="SUBJECT",
            help="Answer queries under this subject ([b]infobus query --remote SUBJECT[/b]).",
        ),
    ] = None,
    keep_days: KeepDays = None,
) -> None:
    """Store every object that is published under the patterns, in one table per type.

    \b
    infobus capture 'news.>'                                  # into infobus.db
    infobus capture 'news.>' --db postgresql://me@host/news
    infobus query Story --where '"oil" in topics'

    Once you see "capturing ..." (on stderr), nothing that is published is missed. Guaranteed
    events are stored exactly once, and wait while nobody captures, until you drop the consumer
    with [b]infobus ledger drop[/b].

    Exit code: 1 if the database refused objects, which are then set aside.
    """
    from infobus.repository import Repository

    err = console(stderr=True)
    with Repository(db) as repository, which.join() as node:
        asked = _asked_to_stop()
        if serve is not None:
            from infobus.repository.query_server import QueryServer

            node.serve(serve, QueryServer(repository))
        keep_s = None if keep_days is None else keep_days * 24 * 3600
        with repository.capture(node, patterns, name=name, keep_s=keep_s) as capture:
            note(f"capturing {', '.join(patterns)} into {repository.url} (bus {node.name})")
            _watch(capture, err, until, asked)
    err.print(_status(capture), soft_wrap=True)
    if capture.set_aside:
        raise typer.Exit(1)


def _asked_to_stop() -> threading.Event:
    """Set by Ctrl-C or SIGTERM, once: whatever has arrived is stored before the end.

    An exception would end whichever line it meets. A second signal is one: its sender does not
    want to wait for a database.
    """
    asked = threading.Event()

    def stop(*_: object) -> None:
        asked.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)

    # Also where a script has started this with `&`, and so had it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return asked


def _watch(capture: Capture, err: Console, until: Until, asked: threading.Event) -> None:
    end_s = None if until.seconds is None else time.monotonic() + until.seconds
    with err.status(_status(capture)) as shown:
        while end_s is None or time.monotonic() < end_s:
            if until.count is not None and capture.stored + capture.set_aside >= until.count:
                return
            if asked.wait(LOOK_S):
                return
            shown.update(_status(capture))


def _status(capture: Capture) -> Text:
    line = Text(f"{capture.stored:,} stored")
    if capture.set_aside:
        line.append(f", {capture.set_aside:,} set aside", "bold red")
    if capture.lost:
        line.append(f", {capture.lost:,} losses reported", "bold red")
    if capture.problem:
        line.append(f"; waiting: {printable(capture.problem)}", "bold yellow")
    return line
