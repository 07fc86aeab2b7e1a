"""One SQLite file that must survive crashes: how to create, open and check it.

A file is created under another name and renamed when it is complete. So a file that lacks anything
is damaged, never just new, and is refused instead of being initialised again.

The write-ahead log is written and synced at each commit (`synchronous=FULL`). The owner of the file
copies it into the main file, not SQLite, because the owner must write some facts first.
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from infobus.errors import StoreCorrupt, StoreError, StoreFull
from infobus.stores.private import make_private_file, make_private_folder, repair
from infobus.stores.sqlite.wal_check import PAGE_BYTES, is_head_damaged, log_problems

Mode = Literal["ro", "rw"]

FACTS = "CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)"


_FILES_COUNT = 8  # that one database may need: for two connections, log, lock and others


class Damage(Exception):
    """Some part of a file is not as it was written."""


FAILURES = (sqlite3.Error, UnicodeDecodeError, Damage)
"""What working on a file may raise. `sqlite3` raises the second one for a message of SQLite that
quotes damaged text."""


@dataclass(frozen=True)
class DatabaseKind:
    """A kind of file: how it is marked, laid out and repaired."""

    name: str
    application_id: int
    format: int
    schema: tuple[str, ...]
    repair: str
    """The command that salvages a damaged file, with `{}` for the file's id."""


class Database:
    """An open file of a stated kind, with one connection that its users share in turns.

    A `Database` that only reads leaves the file and its log unchanged, even if both are damaged.
    """

    def __init__(self, path: Path, kind: DatabaseKind, id: str, *, mode: Mode = "ro") -> None:
        self.path = path
        self.kind = kind
        self.id = id
        with self.errors():
            # This must be first: SQLite takes such a log for an empty one, and removes
            # it on closing.
            with self._reading_log():
                if is_head_damaged(companions(path)[0]):
                    raise Damage("the head of its log is damaged")
            self.connection = connect(path, mode)
            try:
                if mode == "rw":
                    self._shut_others_out()
                self._check_kind()
            except BaseException:
                self.connection.close()
                raise
        self.facts = Facts(self.connection)

    def _check_kind(self) -> None:
        ask = self.connection.execute
        application_id = ask("PRAGMA application_id").fetchone()[0]
        version = ask("PRAGMA user_version").fetchone()[0]
        if application_id != self.kind.application_id:
            raise Damage(f"it is not marked as a {self.kind.name}")
        if version > self.kind.format:
            raise StoreError(
                f"{self.path} was written by a newer version of infobus: it has format {version} "
                f"of a {self.kind.name}, and this version knows up to {self.kind.format}",
                path=str(self.path),
            )
        if version < 1:
            raise Damage(f"format {version} does not exist")
        if ask("PRAGMA journal_mode").fetchone()[0] != "wal":
            raise Damage("its write-ahead log is switched off")

    def _shut_others_out(self) -> None:
        for path in (self.path, *companions(self.path)):
            with suppress(OSError):  # some need not be there
                repair(path)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate SQLite's errors to errors that a user can act on."""
        try:
            yield
        except FAILURES as error:
            raise self.complaint(error) from error

    def complaint(self, error: Exception) -> StoreError:
        """Return the bus's error that corresponds to one of the `FAILURES`."""
        path = str(self.path)
        if isinstance(error, UnicodeDecodeError):
            return self.corrupt([error.object.decode(errors="replace")])
        code = getattr(error, "sqlite_errorcode", None) or 0
        if isinstance(error, Damage) or code & 0xFF in _DAMAGED:
            return self.corrupt([str(error)])
        if code & 0xFF == sqlite3.SQLITE_FULL or (
            code & 0xFF == sqlite3.SQLITE_IOERR and code not in _READING
        ):
            return StoreFull(
                f"{path}: the disk is full or fails to write ({error}); nothing was accepted now, "
                "nothing accepted before is lost, and trying again later is safe",
                path=path,
            )
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN and (too_many := _too_many_files()):
            return StoreError(f"{path} cannot be opened: {too_many}", path=path)
        if code & 0xFF in _UNWRITABLE:
            return StoreError(f"{path} cannot be opened for writing: {error}", path=path)
        return StoreError(f"{path}: {error}", path=path)

    def corrupt(self, problems: list[str]) -> StoreCorrupt:
        """Return the error that says what is damaged, and how to proceed."""
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" * (len(problems) > 3))
        return StoreCorrupt(
            f"{self.kind.name} {self.path} is damaged: {shown}. Nothing of it is served. "
            f"Salvage what is whole with: {self.kind.repair.format(self.id)}",
            path=str(self.path),
            problems=tuple(problems),
        )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the file, even if others write meanwhile."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            roll_back(self.connection)

    def structure_problems(self) -> list[str]:
        """Return the problems that SQLite finds in the file's structure; it reads all of it."""
        # The quick check would miss facts that a damaged index hides.
        found = [row[0] for row in self.connection.execute("PRAGMA integrity_check(20)")]
        return [] if found == ["ok"] else found

    def log_problems(self) -> list[str]:
        """Return the problems of the write-ahead log; nobody may write to it meanwhile."""
        with self._reading_log():
            return log_problems(companions(self.path)[0])

    @contextmanager
    def _reading_log(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = _too_many_files() or error.strerror
            raise StoreError(
                f"the log of {self.path} cannot be read: {what}", path=str(self.path)
            ) from error

    def used_bytes(self) -> int:
        """Return the size of the file, without its free pages."""
        ask = self.connection.execute
        (pages,), (free,) = (
            ask(f"PRAGMA {of}").fetchone() for of in ("page_count", "freelist_count")
        )
        return int(pages - free) * PAGE_BYTES

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the main file, so that it can be written anew.

        Return whether all of it was copied: a reader may be in the way.
        """
        return is_all_copied(self.connection, "PASSIVE")

    def has_log(self) -> bool:
        """Return whether there is a log with content."""
        with suppress(OSError):
            return companions(self.path)[0].stat().st_size > 0
        return False

    def close(self) -> None:
        """Close the connection; the last one also empties the write-ahead log."""
        self.connection.close()


class Facts:
    """A few named values, each with a checksum."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, key: str) -> Any:
        """Return the value, or None if there is none."""
        return self.all(key, f"{key}\0").get(key)

    def put(self, key: str, value: Any) -> None:
        """Set a value that MessagePack can hold."""
        encoded = msgspec.msgpack.encode(value)
        self._connection.execute(
            "INSERT OR REPLACE INTO facts VALUES (?, ?, ?)",
            (key, encoded, fact_checksum(key, encoded)),
        )

    def delete(self, key: str) -> None:
        """Forget a value, if there is one."""
        self._connection.execute("DELETE FROM facts WHERE key = ?", (key,))

    def all(self, first: str, end: str) -> dict[str, Any]:
        """Return the values of all keys in `first <= key < end`."""
        rows = self._connection.execute(
            "SELECT key, value, crc FROM facts WHERE key >= ? AND key < ?", (first, end)
        )
        return {key: self._checked(key, value, crc) for key, value, crc in rows.fetchall()}

    def under(self, prefix: str) -> dict[str, Any]:
        """Return the values of all keys in a folder, such as `type/`, by the rest of the key."""
        found = self.all(prefix, prefix[:-1] + chr(ord("/") + 1))
        return {key[len(prefix) :]: value for key, value in found.items()}

    def _checked(self, key: str, value: bytes, crc: int) -> Any:
        if not isinstance(value, bytes) or fact_checksum(key, value) != crc:
            raise Damage(f"the checksum of {key!r} is wrong")
        return msgspec.msgpack.decode(value)


def fact_checksum(key: str, encoded: bytes) -> int:
    """Return the CRC-32 over a fact's name and value."""
    return zlib.crc32(encoded, zlib.crc32(key.encode() + b"\0"))


def connect(path: Path, mode: Mode) -> sqlite3.Connection:
    """Open an existing file for reading or writing, as durable as SQLite can be."""
    connection = open_connection(path, mode)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_connection(path: Path, mode: Mode) -> sqlite3.Connection:
    """Open an existing file; transactions are begun and ended by the caller."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def create(
    path: Path, kind: DatabaseKind, fill: Callable[[sqlite3.Connection], object] = lambda _: None
) -> None:
    """Create a complete file with the content that `fill` writes, replacing an existing one.

    Raises:
        StoreError: The file cannot be created here; `StoreFull` if only the space is missing.
    """
    young = path.with_name(f"{path.name}.new")
    try:
        for left_over in (young, *companions(young)):
            left_over.unlink(missing_ok=True)
        make_private_file(young)  # its log and index get the same mode
        connection = connect(young, "rw")
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # If the disk fails now, SQLite does not raise, but answers with the old mode.
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise OSError(errno.EIO, "its log could not be begun")
            connection.execute("BEGIN")
            for statement in kind.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {kind.application_id}")
            connection.execute(f"PRAGMA user_version = {kind.format}")
            fill(connection)
            connection.execute("COMMIT")
            # Closing would do this as well, but would say nothing if it failed; then all of
            # the content is in a log that does not come along.
            if not is_all_copied(connection, "TRUNCATE"):
                raise OSError(errno.EIO, "its log could not be copied")
        finally:
            connection.close()
        os.replace(young, path)
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        no_room = getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) or (
            getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        )
        raise (StoreFull if no_room else StoreError)(
            f"cannot make the {kind.name} {path}: {_too_many_files() or error}", path=str(path)
        ) from error


def companions(path: Path) -> tuple[Path, Path]:
    """Return the paths of the write-ahead log and of its index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def database_files(folder: Path) -> list[Path]:
    """Return the database files of a folder, which need not exist.

    Raises:
        StoreError: The folder cannot be read.
    """
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(".db")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(
            f"cannot read the folder {folder}: {_too_many_files() or error.strerror}",
            path=str(folder),
        ) from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, so that they survive a crash.

    Raises:
        StoreError: It cannot be created.
    """
    try:
        for one in make_private_folder(folder):
            sync_folder(one.parent)
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {folder}: {error.strerror}", path=str(folder)
        ) from error


def sync_folder(folder: Path) -> None:
    """Make sure that names made or changed in `folder` survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _too_many_files() -> str:
    """Return a note if this process can hardly open more files; SQLite does not report that."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        is_near = len(os.listdir("/dev/fd")) + _FILES_COUNT > limit
    except OSError as error:
        is_near = error.errno == errno.EMFILE
    if not is_near:
        return ""
    return f"this process may have {limit} files open, and has: raise its limit (ulimit -n)"


def is_all_copied(connection: sqlite3.Connection, mode: Literal["PASSIVE", "TRUNCATE"]) -> bool:
    """Copy the log into the main file, and return whether that is complete."""
    busy, in_log, copied = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not busy and in_log == copied


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo an open transaction; SQLite may have done so by itself."""
    with suppress(*FAILURES):
        connection.execute("ROLLBACK")


_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR,
            sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_CONSTRAINT}  # fmt: skip
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_READING = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ,
            sqlite3.SQLITE_IOERR_CORRUPTFS}  # fmt: skip
