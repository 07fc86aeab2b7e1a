"""Store the programs of a TDL host in a file, for its next start."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from infobus.errors import StoreError, UsageError
from infobus.stores.private import private_opener

KEPT_BYTES_MAX = 64 * 1024 * 1024


class Program(Struct):
    """One program as it was sent."""

    source: str
    origin: str = ""


class KeptPrograms:
    """One JSON object per line, the oldest first.

    The origin of a program is the name of its file. Of programs with the same origin, only the
    last is kept: it is the author's latest version.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.programs = _latest(_read(file))
        # This drops a line that a crash cut off, and programs that were replaced.
        self._write(b"".join(map(_line, self.programs)))
        self._size = file.stat().st_size

    def add(self, program: Program) -> None:
        """Keep one more. Returning means that it is on disk.

        Raises:
            UsageError: There is no room for it.
        """
        line = _line(program)
        if self._size + len(line) > KEPT_BYTES_MAX:
            raise UsageError(
                f"the host keeps {KEPT_BYTES_MAX} bytes of programs at most: the program has run, "
                "but is forgotten when the host ends"
            )
        self._size += len(line)
        with open(self.file, "ab", opener=private_opener) as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _write(self, lines: bytes) -> None:
        fresh = self.file.with_name(f"{self.file.name}.new")
        with open(fresh, "wb", opener=private_opener) as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.file)


def _line(program: Program) -> bytes:
    return msgspec.json.encode(program) + b"\n"


def _read(file: Path) -> list[Program]:
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    programs = []
    for number, line in enumerate(lines, 1):
        try:
            programs.append(msgspec.json.decode(line, type=Program))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if number < len(lines) or line.endswith(b"\n"):
                text = f"{file}, line {number}, is not a program: {error}"
                raise StoreError(text, path=str(file)) from None
    return programs


def _latest(programs: list[Program]) -> list[Program]:
    last = {program.origin: program for program in programs}
    return [one for one in programs if not one.origin or last[one.origin] is one]
