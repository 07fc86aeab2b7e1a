"""`infobus reply`: a small service, for trying calls."""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
import threading
from typing import Annotated

import typer

from infobus import Service, UsageError, current_call
from infobus.cli.options import WhichBus, grouped
from infobus.cli.terminal import note, stop_when_asked, warn, write
from infobus.printable import printable

LOOK_S = 0.1


@grouped
def command(
    which: WhichBus,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as [b]svc.echo[/b].")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Answer this to every call.")
    ] = None,
    command_line: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="CMD",
            help="Answer what this command prints; it reads the text of the call.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")
    ] = None,
) -> None:
    """Serve one operation, reply(text: str = "") -> str, and show each call of it.

    \b
    infobus reply svc.echo                     # answers the text of the call
    infobus reply svc.hello "hello there"
    infobus reply svc.sort --command sort
    infobus call svc.echo reply text=hello     # in another terminal
    infobus rtt svc.echo

    CMD runs without a shell, once for each call; several may run at a time. The call fails if it
    ends with another exit code than 0. If the caller gives up, it is killed.
    """
    if text is not None and command_line is not None:
        raise UsageError("TEXT and --command exclude each other")
    arguments = None if command_line is None else _split(command_line)
    ended = threading.Event()
    with which.join() as node:
        stop_when_asked(ended.set, seconds)
        logging.getLogger("infobus").addFilter(_is_news)
        node.serve(subject, Replier(text, arguments))
        note(f"serving {subject} (bus {node.name})")
        ended.wait()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it is not about a command that failed, which was told in one line."""
    return not (record.exc_info and isinstance(record.exc_info[1], ChildProcessError))


def _split(command_line: str) -> list[str]:
    try:
        found = shlex.split(command_line)
    except ValueError as error:
        raise UsageError(f"--command {command_line!r}: {error}") from None
    if not found:
        raise UsageError("--command names no command")
    if shutil.which(found[0]) is None:
        raise UsageError(f"--command: there is no command {found[0]!r}")
    return found


class Replier(Service):
    """Answers every call with a text, with what a command prints, or with what it was told."""

    def __init__(self, text: str | None, arguments: list[str] | None) -> None:
        self._text, self._arguments = text, arguments

    def reply(self, text: str = "") -> str:
        """The same for everyone, or what becomes of the text."""
        write(f"{printable(current_call().caller)}: {printable(text)}")
        if self._arguments is not None:
            return _run(self._arguments, text)
        return text if self._text is None else self._text


def _run(arguments: list[str], text: str) -> str:
    """What a command prints; it is killed when nobody waits for it any more."""
    call = current_call()
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe) as process:
        told: bytes | None = text.encode()
        while True:
            try:
                out, _ = process.communicate(told, timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                told = None  # it goes on with what it was given
                if call.is_cancelled:
                    process.kill()
    if process.returncode and not call.is_cancelled:
        problem = f"{arguments[0]} ended with exit code {process.returncode}"
        warn(problem)
        raise ChildProcessError(problem)
    return out.decode(errors="replace")
