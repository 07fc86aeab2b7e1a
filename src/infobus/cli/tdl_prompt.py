"""The prompt of `infobus tdl`: read a form, print its value, repeat."""

from __future__ import annotations

import contextlib
import readline
from pathlib import Path

from rich.console import Console

from infobus.adapters.tdl import Programs
from infobus.cli.terminal import complete_words, console
from infobus.errors import TdlError
from infobus.printable import printable_lines
from infobus.stores.private import make_private_folder
from infobus.tdl.reader import is_unfinished

HISTORY_COUNT_MAX = 10_000
QUIT = ("quit", "(quit)", "exit", "(exit)")


def prompt_until_end(programs: Programs, history: Path) -> None:
    """Read and run forms until `quit` or end of file (Ctrl-D); Ctrl-C abandons the current form."""
    out = console()
    out.print("TDL. Tab completes names, quit or Ctrl-D ends.", style="dim")
    _prepare(programs, history)
    try:
        while True:
            try:
                _turn(programs, out)
            except KeyboardInterrupt:
                out.print("\ngiven up", style="dim")
    except EOFError:
        out.print()
    finally:
        with contextlib.suppress(OSError):  # without a writable home, only the history is lost
            make_private_folder(history.parent)
            readline.write_history_file(history)


def _turn(programs: Programs, out: Console) -> None:
    text = input("tdl> ")
    while is_unfinished(text):
        text += "\n" + input("...> ")
    if text.strip() in QUIT:
        raise EOFError
    if not text.strip():
        return
    try:
        value = programs.run(text)
    except TdlError as error:
        out.print(printable_lines(error.report()), style="red")
    except Exception as error:  # a defect, but the definitions so far must not be lost with it
        told = f"infobus failed on this: {type(error).__name__}: {error}"
        out.print(printable_lines(told), style="red")
    else:
        out.print(printable_lines(value), soft_wrap=True)


def _prepare(programs: Programs, history: Path) -> None:
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_COUNT_MAX)
    complete_words(programs.names, " \t\n()'\"`;")
