"""`infobus capture`: everything that is published under some subjects, into a database."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from infobus.cli.lines import printable
from infobus.cli.options import BusName, Connect, Count, Home, Listen, Seconds, join

if TYPE_CHECKING:
    from infobus.repository.capture import Capture

DEFAULT_DB = "sqlite:///infobus.db"
LOOK_S = 0.2

Db = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="INFOBUS_DB",
        metavar="URL",
        help="sqlite:///FILE or postgresql://USER@HOST/NAME.",
    ),
]


def command(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="Subjects; [b]*[/b] stands for one element, a last [b]>[/b] for one or more.",
        ),
    ],
    db: Db = DEFAULT_DB,
    name: Annotated[
        str, typer.Option("--name", help="Name of the durable consumer; one at a time may use it.")
    ] = "capture",
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="SUBJECT",
            help="Answer queries under this subject ([b]infobus query --remote SUBJECT[/b]).",
        ),
    ] = None,
    count: Count = None,
    seconds: Seconds = None,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Store every object that is published under the subjects, in tables made for their types.

    \b
    infobus capture 'news.>'                                  # into infobus.db
    infobus capture 'news.>' --db postgresql://me@host/news
    infobus query Story --where '"oil" in topics'

    After "capturing ..." (on stderr), nothing that is published is missed. Guaranteed events
    also wait while nobody captures, and are stored exactly once; to have them wait no more,
    see [b]infobus ledger drop[/b].

    Exit code: 1 if objects had to be set aside, because the database refused them.
    """
    from infobus.repository import Repository

    err = Console(stderr=True, highlight=False)
    with Repository(db) as repository, join(bus, home, connect, listen) as node:
        # As Ctrl-C: what has come is stored before the end.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if serve is not None:
            from infobus.repository.query_server import QueryServer

            node.serve(serve, QueryServer(repository))
        with repository.capture(node, patterns, name=name) as capture:
            told = f"capturing {', '.join(patterns)} into {repository.url} (bus {node.name})"
            err.print(printable(told), style="dim", markup=False, soft_wrap=True)
            with contextlib.suppress(KeyboardInterrupt):
                _watch(capture, err, count, seconds)
    err.print(_status(capture), soft_wrap=True)
    if capture.set_aside:
        raise typer.Exit(1)


def _watch(capture: Capture, err: Console, count: int | None, seconds: float | None) -> None:
    end_s = None if seconds is None else time.monotonic() + seconds
    with err.status(_status(capture)) as shown:
        while end_s is None or time.monotonic() < end_s:
            if count is not None and capture.stored + capture.set_aside >= count:
                return
            time.sleep(LOOK_S)
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
