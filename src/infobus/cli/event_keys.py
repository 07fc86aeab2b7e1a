"""`infobus keys event`: the keys that sign events, and those for which they are sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infobus import UsageError
from infobus.cli.options import WhichHome, grouped
from infobus.cli.terminal import note, stdin, write
from infobus.stores.event_keys import EventKeyFolder


@grouped
def command(
    home: WhichHome,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="What the key is called in this home.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print the public half, to be given to others.")
    ] = False,
    add: Annotated[
        str | None,
        typer.Option(
            "--import", metavar="FILE", help="Add a key that others gave you; - reads stdin."
        ),
    ] = None,
) -> None:
    """Make a pair of keys for events, or list those that this home has.

    \b
    infobus keys event desk                          # makes a pair
    infobus keys event desk --export > desk.pub      # what others need of it
    infobus keys event --import desk.pub             # at the others
    infobus keys event                               # lists them

    A pair signs what you publish (--sign desk) and opens what others sealed for it
    (--holds desk). Its public half checks signatures (--signed-by desk) and seals
    (--seal-to desk).
    """
    folder = EventKeyFolder(home.settings().home)
    if add is not None:
        if export:
            raise UsageError("--import and --export are not for one command")
        added = folder.add(_text(add), name or "")
        note(f"added {added.name} {added.id.hex()}")
    elif name is None:
        if export:
            raise UsageError("--export needs the NAME of a key")
        for known, is_pair in folder.names().items():
            kind = "pair" if is_pair else "public"
            write(f"{known} {folder.public(known).id.hex()} {kind}")
    elif export:
        write(folder.public(name).to_text().rstrip("\n"))
    else:
        key = folder.make(name)
        note(f"made {key.name} {key.id.hex()} in {folder.path}")


def _text(file: str) -> str:
    if file == "-":
        return stdin().read(1000)
    with Path(file).open(encoding="ascii", errors="replace") as told:
        return told.read(1000)
