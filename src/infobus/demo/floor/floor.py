"""Start the programs of a demo on their own bus, watch them, and end them all."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO

KEYWORDS_AFTER_S = 9.0
PATIENCE_S = 5.0  # for programs to end by themselves

_LEAVE_SCREEN = "\x1b[?1049l\x1b[?25h"


@dataclass
class RunningProgram:
    """One program of the demo, and the file that holds its standard error."""

    name: str
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]


class Floor:
    """The programs of one demo. They end when you leave the context, or when this process dies."""

    def __init__(self) -> None:
        self.bus_name = f"demo-{os.getpid()}-{secrets.token_hex(4)}"
        self._programs: list[RunningProgram] = []
        # Programs hold the reading end; they end when the writing end is closed.
        self._lifeline, self._held = os.pipe()
        self._terminal = termios.tcgetattr(0) if os.isatty(0) else None

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Start a program; `arguments` follow those that every program gets."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  read when the program has ended
        common = (self.bus_name, str(self._lifeline))
        process = subprocess.Popen(
            [sys.executable, "-m", f"infobus.demo.{module}", *common, *arguments],
            pass_fds=[self._lifeline],
            stderr=complaints,
        )
        self._programs.append(RunningProgram(name, process, complaints))

    def watch(self, seconds: float | None) -> RunningProgram | None:
        """Wait for `seconds`, or until a program ends; returns that program."""
        until_s = None if seconds is None else time.monotonic() + seconds
        while True:
            for program in self._programs:
                if program.process.poll() is not None:
                    return program
            if until_s is not None and time.monotonic() >= until_s:
                return None
            time.sleep(0.05)

    def wait_for(self, name: str, seconds: float) -> RunningProgram | None:
        """Wait up to `seconds` for a program to end well; returns it if it does not."""
        program = next(one for one in self._programs if one.name == name)
        try:
            return None if program.process.wait(seconds) == 0 else program
        except subprocess.TimeoutExpired:
            return program

    def __enter__(self) -> Floor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._held)
        until_s = time.monotonic() + PATIENCE_S
        for program in self._programs:
            try:
                program.process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()
        os.close(self._lifeline)
        if self._terminal is not None:  # a killed monitor did not restore it
            termios.tcsetattr(0, termios.TCSADRAIN, self._terminal)


def run(seconds: float | None) -> int:
    """Run the demo for `seconds`, or until someone ends it; returns the exit code."""
    ended = None
    try:
        with Floor() as floor:
            floor.start("news monitor", "floor.monitor")
            floor.start("Meridian Wire adapter", "floor.meridian")
            floor.start("Harbor News adapter", "floor.harbor")
            before_s = KEYWORDS_AFTER_S if seconds is None else min(KEYWORDS_AFTER_S, seconds / 2)
            ended = floor.watch(before_s)
            if ended is None:
                floor.start("keyword generator", "floor.keywords")
                ended = floor.watch(None if seconds is None else seconds - before_s)
    except KeyboardInterrupt:
        pass  # the usual way to leave a demo
    return _farewell(ended)


def _farewell(ended: RunningProgram | None) -> int:
    if ended is None or (ended.name == "news monitor" and ended.process.returncode == 0):
        print("The trading floor is closed; all of its programs have ended.", flush=True)
        return 0
    if sys.stdout.isatty():
        print(_LEAVE_SCREEN, end="")
    return tell_of(ended, "so the trading floor is closed")


def tell_of(ended: RunningProgram, consequence: str) -> int:
    """Report that a program has ended, with its standard error; returns the exit code."""
    ended.complaints.seek(0)
    print(ended.complaints.read().decode(errors="replace"), end="", file=sys.stderr)
    what = f"The {ended.name} ended with code {ended.process.returncode}"
    print(f"{what}, {consequence}.", file=sys.stderr)
    return 1
