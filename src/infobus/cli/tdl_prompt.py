"""The prompt of `infobus tdl`: reads a form, shows its value, and goes on."""

from __future__ import annotations

import contextlib
import readline
from pathlib import Path

from rich.console import Console

from infobus.adapters.tdl import Programs
from infobus.cli.lines import printable
from infobus.errors import TdlError
from infobus.tdl.reader import is_unfinished

HISTORY_COUNT_MAX = 10_000


def prompt_until_end(programs: Programs, history: Path) -> None:
    """Read and run forms until end of file (Ctrl-D); Ctrl-C gives up what was begun."""
    console = Console(highlight=False)
    console.print("TDL. Tab completes names, Ctrl-D ends.", style="dim")
    _prepare(programs, history)
    try:
        while True:
            try:
                _turn(programs, console)
            except KeyboardInterrupt:
                console.print("\ngiven up", style="dim")
    except EOFError:
        console.print()
    finally:
        with contextlib.suppress(OSError):  # a home that cannot be written costs the history only
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def _turn(programs: Programs, console: Console) -> None:
    text = input("tdl> ")
    while is_unfinished(text):
        text += "\n" + input("...> ")
    if not text.strip():
        return
    try:
        value = programs.run(text)
    except TdlError as error:
        console.print(_lines(error.report()), style="red", markup=False)
    else:
        console.print(_lines(value), markup=False, soft_wrap=True)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _prepare(programs: Programs, history: Path) -> None:
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_COUNT_MAX)
    found: list[str] = []

    def complete(begun: str, index: int) -> str | None:
        if index == 0:
            found[:] = [name for name in programs.names() if name.startswith(begun)]
        return found[index] if index < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n()'\"`;")
    readline.parse_and_bind("tab: complete")
