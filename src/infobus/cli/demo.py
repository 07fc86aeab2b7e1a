"""`infobus demo`: the trading floor."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End by itself after so long.")
    ] = None,
) -> None:
    """Watch a trading floor: two news feeds, a monitor, and later a keyword generator.

    Two adapters parse two formats into two types of story that the monitor never heard of.

    Keys: up and down select a story, q ends.
    """
    from infobus.demo.floor import run

    raise typer.Exit(run(seconds))
