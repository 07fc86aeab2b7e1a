"""What commands print and read: lines, JSON, tables and notes out; standard input in."""

from __future__ import annotations

import difflib
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from infobus import UsageError
from infobus.cli.lines import to_json
from infobus.printable import printable


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: names from the bus hold no markup and no emoji."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def write(line: str) -> None:
    """Print a line at once, even into a pipe: the reader may be waiting for it."""
    print(line, flush=True)


def write_json(*values: Any) -> None:
    """Print each value as one line of JSON."""
    for value in values:
        write(to_json(value))


def table(*headings: str, title: str | None = None, numbers: Iterable[str] = ()) -> Table:
    """An empty table whose long cells wrap; the columns in `numbers` are aligned to the right."""
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in headings:
        drawn.add_column(
            heading, justify="right" if heading in numbers else "left", overflow="fold"
        )
    return drawn


def note(text: str) -> None:
    """Print a dim line on standard error: what the command is doing, or has done."""
    console(stderr=True).print(printable(text), style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Print a plain line on standard error."""
    print(printable(text), file=sys.stderr)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name closest to `name`, if one is close.

    >>> suggestion("Stroy", ["Story", "Quote"])
    '; did you mean Story?'
    """
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def stdin() -> TextIOWrapper:
    """Standard input; bytes that are not UTF-8 spoil only the line that holds them."""
    if not isinstance(sys.stdin, TextIOWrapper):
        raise UsageError("there is nothing to read: standard input is closed")
    sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def complete_words(words: Callable[[], Iterable[str]], delimiters: str) -> None:
    """Let Tab complete these words; importing readline also gives the prompt its history."""
    import readline

    found: list[str] = []

    def complete(begun: str, index: int) -> str | None:
        if index == 0:
            found[:] = [word for word in words() if word.startswith(begun)]
        return found[index] if index < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(delimiters)
    readline.parse_and_bind("tab: complete")


def stop_when_asked(stop: Callable[[], None], seconds: float | None) -> None:
    """Call `stop` on Ctrl-C, on SIGTERM, and after `seconds`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())
    if seconds is not None:
        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
