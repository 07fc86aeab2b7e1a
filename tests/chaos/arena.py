"""Programs that work side by side while a nemesis, driven by a seed, does them harm."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from infobus.testing.hosts import NetworkHost
from tests.chaos.checker import Verdict, check

ROLES = {
    "publisher": 2,
    "listener": 2,
    "keeper": 1,
    "consumer": 2,
    "server": 2,
    "caller": 1,
    "enemy": 1,
}
PROGRAM = Path(__file__).with_name("program.py")
DISK_BYTES = 24 * 1024 * 1024
END_S = 120.0
"""A program that was told to end has so long, on a machine that has much else to do."""


class Program(Struct):
    """One place in the arena, and the process that fills it now."""

    role: str
    slot: str
    host: NetworkHost | None = None  # else this machine
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None
    frozen_until_s: float = 0.0
    back_at_s: float = 0.0  # when it starts again

    @property
    def name(self) -> str:
        """Of this life: what its diary is called."""
        return f"{self.role}.{self.slot}-{self.lives}"


class Arena(Struct):
    """The programs, and what was done to them."""

    folder: Path
    luck: random.Random
    programs: list[Program] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    filler: Path | None = None  # what fills the disk
    settings: dict[str, str] = field(default_factory=dict)  # of the environment of each program

    def command(self, program: Program) -> list[str]:
        """What fills a place."""
        return [sys.executable, str(PROGRAM), str(self.folder), *program.name.split(".")]

    def settings_of(self, program: Program) -> dict[str, str]:
        """What its environment says of the bus."""
        return self.settings

    def start(self, program: Program) -> None:
        """Give a place to a new process."""
        program.lives += 1
        errors = (self.folder / "errors" / program.name).open("wb")
        begin = subprocess.Popen if program.host is None else program.host.popen
        program.process = begin(
            self.command(program),
            stderr=errors,
            env={k: v for k, v in os.environ.items() if not k.startswith("INFOBUS_")}
            | self.settings_of(program),
        )
        errors.close()

    def look_after(self, now_s: float) -> None:
        """Wake up whoever was stopped for long enough, and start again whoever has died."""
        for program in self.programs:
            process = program.process
            assert process is not None
            if program.frozen_until_s and now_s >= program.frozen_until_s:
                process.send_signal(signal.SIGCONT)
                program.frozen_until_s = 0.0
            if process.poll() is not None:
                if not program.back_at_s:
                    self._note_end(program, process)
                    program.back_at_s = now_s + self.luck.uniform(0.0, 1.5)
                elif now_s >= program.back_at_s:
                    program.back_at_s = 0.0
                    self.start(program)

    def _note_end(self, program: Program, process: subprocess.Popen[bytes]) -> None:
        """A program ends when it is killed or told to, and never by itself."""
        # SIGTERM itself ends one that is still starting.
        if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM):
            errors = self.folder / "errors" / program.name
            said = errors.read_text(errors="replace").splitlines()
            self.crashes.append(
                f"{program.name} ended with {process.returncode}: {' | '.join(said[-3:])}"
            )

    def harm(self, now_s: float) -> None:
        """Do one thing that machines and enemies do."""
        program = self.luck.choice(self.programs)
        assert program.process is not None
        name = self.luck.choices(
            ["kill", "stop", "end", "fill the disk", "free the disk", "turn the clock", "stop all"],
            [6, 8, 2, 1, 2, 1, 1],
        )[0]
        is_alive = program.process.poll() is None and not program.frozen_until_s
        if name in ("kill", "stop", "end") and not is_alive:
            return
        if name == "kill":
            program.process.kill()
        elif name == "end":
            program.process.terminate()
        elif name == "stop":
            # Some for so long that others give them up.
            self._stop(program, now_s + self.luck.uniform(0.1, self.luck.choice([3.0, 3.0, 7.0])))
        elif name == "stop all":
            until_s = now_s + self.luck.uniform(0.5, 2.0)
            for one in self.programs:
                if one.process is not None and one.process.poll() is None:
                    self._stop(one, until_s)
        elif name == "turn the clock":
            shift_s = self.luck.choice([0.0, -3600.0, 60.0, 86_400.0 * 8])
            (self.folder / "clock").write_text(str(shift_s))
        elif not self._fill(name == "fill the disk"):
            return
        self.faults[name] += 1

    def _stop(self, program: Program, until_s: float) -> None:
        assert program.process is not None
        program.process.send_signal(signal.SIGSTOP)
        program.frozen_until_s = until_s

    def _fill(self, is_full: bool) -> bool:
        """Take the room that is left on the home's disk, or give it back."""
        if self.filler is None or is_full == self.filler.exists():
            return False
        if is_full:
            with contextlib.suppress(OSError), self.filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
        else:
            self.filler.unlink()
        return True

    def heal(self) -> None:
        """Let everything be as it should: all programs run, and nothing is in their way."""
        self._fill(False)
        (self.folder / "clock").write_text("0")
        for program in self.programs:
            program.frozen_until_s = min(program.frozen_until_s, 1e-9)
        deadline_s = time.monotonic() + END_S
        while time.monotonic() < deadline_s:
            self.look_after(time.monotonic())
            if all(self.is_up(program) for program in self.programs):
                return
            time.sleep(0.05)
        raise AssertionError("not all programs of the arena could be started again")

    def is_up(self, program: Program) -> bool:
        assert program.process is not None
        if program.frozen_until_s or program.process.poll() is not None:
            return False
        return _size(self.folder / "diaries" / program.name) > 0

    def end(self, *roles: str) -> None:
        """Have the programs of these roles end in good order."""
        ending = [program for program in self.programs if program.role in roles]
        for program in ending:
            assert program.process is not None
            program.process.terminate()
        deadline_s = time.monotonic() + END_S
        for program in ending:
            assert program.process is not None
            try:
                program.process.wait(max(1.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                # It is a finding, and its errors say where each of its threads is.
                program.process.send_signal(signal.SIGABRT)
                program.process.wait()
            self._note_end(program, program.process)


@contextlib.contextmanager
def small_disk(home: Path) -> Iterator[Path | None]:
    """Mount a small disk at `home`; None if this user may not."""
    home.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "infobus-chaos", str(home)],
        capture_output=True,
    )
    try:
        yield home / "filler" if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(home)], check=True)


def fight(folder: Path, seed: int, seconds: float, pause_s: float = 0.4) -> tuple[Verdict, Arena]:
    """Let the programs work for so long under harm, then heal and judge them."""
    for name in ("diaries", "errors"):
        (folder / name).mkdir(parents=True)
    (folder / "clock").write_text("0")
    with small_disk(folder / "home") as filler:
        arena = Arena(folder, random.Random(seed), filler=filler)
        arena.programs = [
            Program(role, f"{role[0]}{role[1]}{number}")
            for role, count in ROLES.items()
            for number in range(count)
        ]
        try:
            for program in arena.programs:
                arena.start(program)
            _fight(arena, seconds, pause_s)
            verdict = check(folder / "diaries")
            verdict.violations += arena.crashes
            return verdict, arena
        finally:
            for program in arena.programs:
                if program.process is not None and program.process.poll() is None:
                    program.process.kill()
                    program.process.wait()


def _fight(arena: Arena, seconds: float, pause_s: float) -> None:
    arena.heal()
    end_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        arena.look_after(now_s)
        if arena.luck.random() < 0.1 / pause_s:
            arena.harm(now_s)
        time.sleep(0.1)
    end_quietly(arena)


def end_quietly(arena: Arena) -> None:
    """Heal, let nobody publish any more, and end the others when they have seen everything."""
    arena.heal()
    arena.end("enemy", "publisher", "keeper", "caller")
    _wait_until_quiet(arena.folder / "diaries")
    arena.end("listener", "consumer", "server")


def _wait_until_quiet(diaries: Path) -> None:
    """Wait until nothing new was seen for a while: longer than any queue or repair needs."""
    quiet_s, sizes, since_s = 6.0, -1, time.monotonic()
    while time.monotonic() - since_s < quiet_s:
        now = sum(path.stat().st_size for path in diaries.iterdir())
        if now != sizes:
            sizes, since_s = now, time.monotonic()
        time.sleep(0.2)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
