"""The options `--count` and `--sleep` of `infobus pub`, and the templates that they fill in."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from infobus import UsageError

RANDOM_MAX = 999_999


@dataclass(frozen=True)
class Repeats:
    """How often something is published."""

    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Publish this many, with {n}, {time}, {random} in it."),
    ] = None
    sleep: Annotated[
        float,
        typer.Option("--sleep", metavar="SECONDS", min=0, help="With --count, wait in between."),
    ] = 0.0

    def check(self) -> None:
        """Raise `UsageError` for a `--sleep` alone."""
        if self.sleep and self.count is None:
            raise UsageError("--sleep is the time between events: say how many by --count")

    def fillers(self) -> Iterator[Callable[[str], str]]:
        """For each event, when its time has come, what fills in the templates of a text."""
        if self.count is None:
            yield str  # a single event is what was typed, braces included
            return
        for number in range(1, self.count + 1):
            if number > 1:
                time.sleep(self.sleep)
            yield lambda text, number=number: filled(text, number)  # type: ignore[misc]


def filled(text: str, number: int) -> str:
    """`text` for the event of that number; any other brace means itself.

    What is filled in holds no quotes, so it may stand in JSON.

    >>> filled('{"n": {n}, "name": "oven {n}"}', 7)
    '{"n": 7, "name": "oven 7"}'
    """
    return re.sub(r"\{(n|time|random)\}", lambda found: _value(found[1], number), text)


def _value(name: str, number: int) -> str:
    match name:
        case "n":
            return str(number)
        case "time":
            return datetime.now(UTC).isoformat(timespec="microseconds")
    return str(random.randint(0, RANDOM_MAX))
