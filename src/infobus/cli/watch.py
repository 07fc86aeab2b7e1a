"""`infobus watch`: publishes changes to the files that somebody subscribed to."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Connect, Home, Listen, join

SHOWN_COUNT_MAX = 5


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Nothing outside of it is ever watched.",
        ),
    ],
    subject: Annotated[
        str, typer.Option("--subject", help="What to publish under.")
    ] = "files.changed",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object whenever other paths are watched.")
    ] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Publish changes to files below DIR: those that somebody subscribed to, and no others.

    \b
    infobus watch /var/log
    infobus sub files.changed --where 'path == "/var/log/syslog"'
    infobus sub files.changed --where 'directory == "/var/log" && change == "created"'

    Nobody subscribed: nothing is watched. What is watched is shown whenever it changes.

    Objects are of type files.FileChanged: path, directory, filename, change, size, mtime.
    """
    from infobus.adapters.files import FileMonitor

    def tell(watching: frozenset[str]) -> None:
        print(to_json({"watching": sorted(watching)}) if as_json else _line(watching))
        sys.stdout.flush()

    with join(bus, home, connect, listen) as node:
        tell(frozenset())
        with FileMonitor(node, directory, subject=subject, on_watching=tell) as monitor:
            err = Console(stderr=True, highlight=False)
            told = f"publishing changes below {monitor.directory} under {subject} (bus {node.name})"
            err.print(printable(told), style="dim", markup=False, soft_wrap=True)
            threading.Event().wait()  # until Ctrl-C


def _line(watching: frozenset[str]) -> str:
    if not watching:
        return "watching nothing: nobody subscribed to a file"
    directory_count = sum(map(os.path.isdir, watching))
    counts = {"file": len(watching) - directory_count, "directory": directory_count}
    plural = {"file": "files", "directory": "directories"}
    told = [f"{n} {kind if n == 1 else plural[kind]}" for kind, n in counts.items() if n]
    paths = sorted(watching)[:SHOWN_COUNT_MAX]
    more = ", ..." if len(watching) > SHOWN_COUNT_MAX else ""
    return printable(f"watching {' and '.join(told)}: {', '.join(paths)}{more}")
