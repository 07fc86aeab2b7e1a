"""`infobus watch`: publish changes to the files that somebody subscribed to."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import note, write, write_json
from infobus.printable import printable

SHOWN_COUNT_MAX = 5


@grouped
def command(
    which: WhichBus,
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Nothing outside this directory is ever watched.",
        ),
    ],
    subject: Annotated[
        str, typer.Option("--subject", help="The subject to publish under.")
    ] = "files.changed",
    as_json: AsJson = False,
) -> None:
    """Publish changes to the files below DIR that somebody subscribed to.

    \b
    infobus watch /var/log
    infobus sub files.changed --where 'path == "/var/log/syslog"'
    infobus sub files.changed --where 'directory == "/var/log" && change == "created"'

    While nobody subscribes, nothing is watched. The command prints the watched paths whenever
    they change.

    Objects are of type files.FileChanged: path, directory, filename, change, size, mtime.
    """
    from infobus.adapters.files import FileMonitor

    def tell(watching: frozenset[str]) -> None:
        if as_json:
            write_json({"watching": sorted(watching)})
        else:
            write(_line(watching))

    with which.join() as node:
        tell(frozenset())
        with FileMonitor(node, directory, subject=subject, on_watching=tell) as monitor:
            note(f"publishing changes below {monitor.directory} under {subject} (bus {node.name})")
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
