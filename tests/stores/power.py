"""A disk whose power can fail: it knows which writes were synced, and may lose any others.

SQLite runs on it by way of a VFS of `apsw`. Everything it does to its files is noted in order,
and `Disk.after` makes the folder that a power failure at any moment could leave behind.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

SECTOR_BYTES = 512


@dataclass(frozen=True)
class Write:
    name: str
    offset: int
    content: bytes


@dataclass(frozen=True)
class Truncate:
    name: str
    size: int


@dataclass(frozen=True)
class Sync:
    name: str


@dataclass(frozen=True)
class Delete:
    name: str


class Disk:
    """Notes what happens to the files below it; `full` makes every write fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[Write | Truncate | Sync | Delete] = []
        self.is_full = False
        self._vfs = _NotingVFS(self)

    def connect(self, path: Path, mode: str) -> Connection:
        """Open a database on this disk, in place of `database.open_connection`."""
        return Connection(path, mode, self.name)

    def after(
        self, start: dict[str, bytes], count: int, chance: random.Random | None
    ) -> dict[str, bytes]:
        """Return the files after the first `count` steps and a power failure.

        Of the writes that were not synced, any may be lost; without `chance`, all are.
        """
        files = {name: bytearray(content) for name, content in start.items()}
        waiting: dict[str, list[Write | Truncate]] = {}
        for step in self.steps[:count]:
            match step:
                case Sync(name):
                    for one in waiting.pop(name, ()):
                        _apply(files, one)
                case Delete(name):
                    waiting.pop(name, None)
                    files.pop(name, None)
                case _:
                    waiting.setdefault(step.name, []).append(step)
        for steps in waiting.values():
            for one in steps:
                if chance is not None and chance.random() < 0.5:
                    _apply(files, _torn(one, chance))
        return {name: bytes(content) for name, content in files.items()}


def _apply(files: dict[str, bytearray], step: Write | Truncate) -> None:
    content = files.setdefault(step.name, bytearray())
    if isinstance(step, Truncate):
        del content[step.size :]
        return
    content.extend(bytes(max(0, step.offset - len(content))))
    content[step.offset : step.offset + len(step.content)] = step.content


def _torn(step: Write | Truncate, chance: random.Random) -> Write | Truncate:
    """A write of several sectors may come to an end after any of them."""
    if isinstance(step, Truncate) or chance.random() < 0.5:
        return step
    to_edge = -step.offset % SECTOR_BYTES
    sectors = max(0, len(step.content) - to_edge) // SECTOR_BYTES
    end = to_edge + chance.randint(0, sectors) * SECTOR_BYTES
    return Write(step.name, step.offset, step.content[:end])


class _NotingVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, "")

    def xOpen(self, name, flags):
        return _NotingFile(self._disk, name, flags)

    def xDelete(self, filename, syncdir):
        super().xDelete(filename, syncdir)
        self._disk.steps.append(Delete(Path(filename).name))


class _NotingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name, flags) -> None:
        self._disk = disk
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        super().__init__("", name, flags)

    def excepthook(self, *_):
        """A full disk is no news, even where SQLite does not pass it on."""
        return True

    def xWrite(self, data, offset):
        if self._disk.is_full:
            raise apsw.FullError("the disk is full, for a test")
        super().xWrite(data, offset)
        self._disk.steps.append(Write(self._name, offset, bytes(data)))

    def xTruncate(self, newsize):
        super().xTruncate(newsize)
        self._disk.steps.append(Truncate(self._name, newsize))

    def xSync(self, flags):
        super().xSync(flags)
        self._disk.steps.append(Sync(self._name))


class Connection:
    """As much of `sqlite3.Connection` as the stores use, on `apsw`."""

    def __init__(self, path: Path, mode: str, vfs: str) -> None:
        flags = apsw.SQLITE_OPEN_READONLY if mode == "ro" else apsw.SQLITE_OPEN_READWRITE
        self._connection = apsw.Connection(str(path), flags=flags, vfs=vfs)

    def execute(self, statement, values=()):
        try:
            return self._connection.execute(statement, values)
        except apsw.Error as error:
            told = sqlite3.OperationalError(str(error))
            # What was raised by a file here has no code of its own.
            told.sqlite_errorcode = getattr(error, "extendedresult", sqlite3.SQLITE_FULL)
            raise told from error

    def close(self) -> None:
        # SQLite overlooks that it cannot empty the log now; apsw does not.
        with suppress(apsw.Error):
            self._connection.close()
