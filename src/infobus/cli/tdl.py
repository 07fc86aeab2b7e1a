"""`infobus tdl`: a prompt for TDL, programs from files, and a host that runs what is sent to it."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infobus import Bus, UsageError
from infobus.bus.settings import load_settings
from infobus.cli.lines import printable
from infobus.cli.options import BusName, Connect, Home, Listen, join
from infobus.errors import TdlError

if TYPE_CHECKING:  # else late: the other commands need none of it
    from infobus.adapters.tdl import Programs

app = typer.Typer(invoke_without_command=True)

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The key shared by those who trust each other."),
]


class _Later:
    """A bus that is joined when it is first needed."""

    def __init__(self, *options: str | list[str] | None) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._bus: Bus | None = None

    def __call__(self) -> Bus:
        with self._lock:
            if self._bus is None:
                self._bus = join(*self._options)  # type: ignore[arg-type]
            return self._bus

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()


@app.callback()
def command(
    context: typer.Context,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """TDL, the small language whose classes are types of the bus. Without a command, a prompt.

    \b
    infobus tdl                                   # try things; Tab completes, Ctrl-D ends
    infobus tdl run thermostat.tdl                # a program from a file
    infobus tdl host plant.host --key secret      # runs what others send it
    infobus tdl send thermostat.tdl plant.host --key secret
    """
    if context.invoked_subcommand is not None:
        return
    later = _Later(bus, home, connect, listen)
    programs = _own_programs(later, None)
    try:
        if sys.stdin.isatty():
            from infobus.cli.tdl_prompt import prompt_until_end

            prompt_until_end(programs, load_settings(bus=bus, home=home).home / "tdl_history")
        else:
            _run(programs, sys.stdin.read(), "stdin")
    finally:
        later.close()


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The program.")],
    key: KeyFile = None,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Run a program. If it subscribes or serves, this goes on until Ctrl-C.

    It may do on the bus whatever it likes. With --key, methods that travel with their classes
    are signed.
    """
    later = _Later(bus, home, connect, listen)
    programs = _own_programs(later, _key(key))
    try:
        _run(programs, _text(file), file.name)
        if programs.is_at_work:
            print("at work; Ctrl-C ends", file=sys.stderr)
            _wait()
    finally:
        later.close()


@app.command()
def host(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Where programs are sent.")],
    key: KeyFile = None,
    permit_all: Annotated[
        bool, typer.Option("--permit-all", help="Run programs of anyone on the bus.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ABILITY",
            help="What programs may do: publish, subscribe, serve, call. May be repeated; "
            "if it is not given: serve.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the programs here, and run them again at the next start."
        ),
    ] = None,
    within: Annotated[
        str, typer.Option(metavar="PATTERN", help="Programs may use no other subjects.")
    ] = ">",
    types: Annotated[
        str, typer.Option(metavar="PATTERN", help="Classes may have no other names.")
    ] = ">",
    fuel: Annotated[
        int, typer.Option(min=1, help="Steps that one program, event or call may take.")
    ] = 1_000_000,
    memory: Annotated[
        int, typer.Option(metavar="MB", min=1, help="What programs may allocate and keep.")
    ] = 64,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Run programs that are sent over the bus, and serve what they define, until Ctrl-C.

    Either they are signed with the key, or all are permitted: one of the two must be said.
    """
    from infobus.adapters.tdl import Programs, TdlHost
    from infobus.adapters.tdl_programs import KeptPrograms
    from infobus.tdl import Limits

    limits = Limits(fuel=fuel, memory_bytes=memory * 1024 * 1024, classes=(types,))
    with join(bus, home, connect, listen) as node:
        programs = Programs(
            lambda: node,
            allow=allow or ["serve"],
            within=within,
            write=_write,
            report=_tell,
            limits=limits,
        )
        kept = None if keep is None else KeptPrograms(keep)
        trusting = TdlHost(programs, subject, key=_key(key), permit_all=permit_all, kept=kept)
        for error in trusting.failed:
            _tell(error)
        node.serve(subject, trusting)
        print(f"ready for programs under {printable(subject)} (bus {node.name})", file=sys.stderr)
        _wait()


@app.command("send")
def send_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The program.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The host's.")],
    key: KeyFile = None,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Send a program to a host, and show its value there."""
    from infobus.adapters.tdl import send

    source, secret = _text(file), _key(key)
    with join(bus, home, connect, listen) as node:
        try:
            print(_shown(send(node, subject, source, file.name, secret)))
        except TdlError as error:
            _tell(error)
            raise typer.Exit(2) from None


def _own_programs(bus: _Later, key: bytes | None) -> Programs:
    """For programs of the person who starts them: they may take their time."""
    from infobus.adapters.tdl import Programs
    from infobus.tdl import Limits

    limits = Limits(fuel=100_000_000, memory_bytes=1024 * 1024 * 1024, depth=100_000)
    return Programs(bus, write=_write, report=_tell, limits=limits, key=key)


def _run(programs: Programs, source: str, origin: str) -> None:
    try:
        programs.run(source, origin)
    except TdlError as error:
        _tell(error)
        raise typer.Exit(2) from None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not a text: {error}") from None


def _key(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes().strip()


def _shown(text: str) -> str:
    """`text` with line ends, but without anything else that a terminal would obey."""
    return "\n".join(map(printable, text.split("\n")))


def _write(text: str) -> None:
    sys.stdout.write(_shown(text))
    sys.stdout.flush()


def _tell(error: TdlError) -> None:
    print(_shown(error.report()), file=sys.stderr)


def _wait() -> None:
    """Wait for Ctrl-C, or for whoever ends this process in good order."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
