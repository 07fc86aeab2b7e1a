"""`infobus tdl`: a TDL prompt, programs from files, and a host for programs that you send."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infobus import Bus, UsageError
from infobus.bus.settings import load_settings
from infobus.cli.options import WhichBus, grouped
from infobus.cli.terminal import warn
from infobus.errors import TdlError
from infobus.printable import printable_lines
from infobus.stores.private import repair

if TYPE_CHECKING:  # imported late otherwise: the other commands need none of it
    from infobus.adapters.tdl import Programs
    from infobus.tdl import ProgramLimits

app = typer.Typer(invoke_without_command=True)

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="The key shared by those who trust each other."),
]
ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="The program.")]


class _Later:
    """A bus that is joined when it is first needed."""

    def __init__(self, which: WhichBus) -> None:
        self._which = which
        self._lock = threading.Lock()
        self._bus: Bus | None = None

    def __call__(self) -> Bus:
        with self._lock:
            if self._bus is None:
                self._bus = self._which.join()
            return self._bus

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()


@dataclass(frozen=True)
class ProgramBounds:
    """What programs on a host may use."""

    within: Annotated[
        str, typer.Option(metavar="PATTERN", help="Programs may use only these subjects.")
    ] = ">"
    types: Annotated[
        str, typer.Option(metavar="PATTERN", help="Classes may have only these names.")
    ] = ">"
    fuel: Annotated[
        int, typer.Option(min=1, help="Steps that one program, event or call may take.")
    ] = 1_000_000
    memory: Annotated[
        int, typer.Option(metavar="MB", min=1, help="Memory that programs may allocate and keep.")
    ] = 64

    def limits(self) -> ProgramLimits:
        """The bounds that the interpreter enforces."""
        from infobus.tdl import ProgramLimits

        return ProgramLimits(
            fuel=self.fuel, memory_bytes=self.memory * 1024 * 1024, classes=(self.types,)
        )


@app.callback()
@grouped
def command(context: typer.Context, which: WhichBus) -> None:
    """TDL, the small language whose classes are types of the bus. Without a command: a prompt.

    \b
    infobus tdl                                   # try things; Tab completes, Ctrl-D ends
    infobus tdl run thermostat.tdl                # a program from a file
    infobus tdl host plant.host --key secret      # runs programs that others send
    infobus tdl send thermostat.tdl plant.host --key secret
    """
    if context.invoked_subcommand is not None:
        return
    later = _Later(which)
    programs = _own_programs(later, None)
    try:
        if sys.stdin.isatty():
            from infobus.cli.tdl_prompt import prompt_until_end

            settings = load_settings(bus=which.bus, home=which.home)
            prompt_until_end(programs, settings.home / "tdl_history")
        else:
            _run(programs, sys.stdin.read(), "stdin")
    finally:
        later.close()


@app.command()
@grouped
def run(which: WhichBus, file: ProgramFile, key: KeyFile = None) -> None:
    """Run a program. If it subscribes or serves, it keeps running until Ctrl-C.

    It may do anything on the bus. With --key, methods that travel with their classes are signed.
    """
    later = _Later(which)
    programs = _own_programs(later, _key(key))
    try:
        _run(programs, _text(file), file.name)
        if programs.is_at_work:
            warn("at work; Ctrl-C ends")
            _wait()
    finally:
        later.close()


@app.command()
@grouped
def host(
    bounds: ProgramBounds,
    which: WhichBus,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Where programs are sent.")],
    key: KeyFile = None,
    permit_all: Annotated[
        bool, typer.Option("--permit-all", help="Run programs of anyone on the bus.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ABILITY",
            help="What programs may do: publish, subscribe, serve, call. May be repeated. "
            "Default: serve.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Store the programs here and run them again at the next start."
        ),
    ] = None,
) -> None:
    """Run programs that are sent over the bus, and serve what they define, until Ctrl-C.

    You must choose: --key accepts only programs signed with the key, --permit-all accepts all.
    """
    from infobus.adapters.tdl import Programs, TdlHost
    from infobus.adapters.tdl_programs import KeptPrograms

    with which.join() as node:
        programs = Programs(
            lambda: node,
            allow=allow or ["serve"],
            within=bounds.within,
            write=_write,
            report=_tell,
            limits=bounds.limits(),
        )
        kept = None if keep is None else KeptPrograms(keep)
        trusting = TdlHost(programs, subject, key=_key(key), permit_all=permit_all, kept=kept)
        for error in trusting.failed:
            _tell(error)
        node.serve(subject, trusting)
        warn(f"ready for programs under {subject} (bus {node.name})")
        _wait()


@app.command("send")
@grouped
def send_file(
    which: WhichBus,
    file: ProgramFile,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject of the host.")],
    key: KeyFile = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the value.")
    ] = 10.0,
) -> None:
    """Send a program to a host, and print the value it has there."""
    from infobus.adapters.tdl import send

    source, secret = _text(file), _key(key)
    with which.join() as node:
        try:
            value = send(node, subject, source, file.name, secret, timeout_s=timeout_s)
            print(printable_lines(value))
        except TdlError as error:
            _tell(error)
            raise typer.Exit(2) from None


def _own_programs(bus: _Later, key: bytes | None) -> Programs:
    """For your own programs: generous limits, and the whole bus."""
    from infobus.adapters.tdl import Programs
    from infobus.tdl import ProgramLimits

    limits = ProgramLimits(fuel=100_000_000, memory_bytes=1024 * 1024 * 1024, depth=100_000)
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
    if file is None:
        return None
    if file.stat().st_mode & 0o007:  # a group may share a key on purpose, but not the whole host
        repair(file)
    return file.read_bytes().strip()


def _write(text: str) -> None:
    sys.stdout.write(printable_lines(text))
    sys.stdout.flush()


def _tell(error: TdlError) -> None:
    print(printable_lines(error.report()), file=sys.stderr)


def _wait() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
