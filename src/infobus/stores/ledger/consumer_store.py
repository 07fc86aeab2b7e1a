"""The state of a durable consumer: its registration, and its position in each ledger.

There is one small SQLite file for each name, with one owner at a time among the processes that
share a folder. `note` changes the state in memory; `flush` returns when everything noted is on
disk. Many settled events thus share one sync, at a moment that the caller chooses.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from infobus.errors import BadValue, BusClosed, DurableInUse, StoreCorrupt, StoreError
from infobus.stores.ledger.repair import replace_damaged, whole_fact
from infobus.stores.sqlite import database
from infobus.stores.sqlite.database import FACTS, Database, DatabaseKind, Facts
from infobus.stores.sqlite.group_commit import GroupCommit
from infobus.stores.sqlite.locks import FileLock
from infobus.stores.sqlite.salvage import Row

KIND = DatabaseKind(
    name="durable consumer",
    application_id=0x69624463,
    format=1,
    schema=(FACTS,),
    repair="infobus ledger repair --consumer {}",
)
CHECKPOINT_COUNT = 250  # commits, each of a page or a few
_NAME_BYTES_MAX = 200
_OPEN_PATIENCE_S = 0.2


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """The request of a durable consumer, and since when it is registered."""

    version: int
    """Grows with each change."""
    registered_at: float
    patterns: tuple[str, ...]
    where: str


class ConsumerProgress(msgspec.Struct, frozen=True, array_like=True):
    """The position of a durable consumer in one ledger."""

    position: int = -1
    """Everything up to this number is settled; -1 if the ledger is new to the consumer."""
    above: frozenset[int] = frozenset()
    """Numbers beyond it that are settled, too."""
    deliveries: dict[int, int] = {}
    """How often events that are not settled have been delivered, where that was noted."""


class ConsumerStore:
    """The file of one durable consumer. All methods may be called by any thread.

    The constructor expects that the caller holds the lock, and does not release it on failure;
    `open` acquires and releases it.
    """

    def __init__(
        self, path: Path, lock: FileLock, *, checkpoint_count: int = CHECKPOINT_COUNT
    ) -> None:
        self.name = unquote(path.stem)
        self.path = path
        self._lock = lock
        self._guard = threading.Lock()
        self._unsaved: dict[str, ConsumerProgress] = {}
        self._commit_count = 0
        self._checkpoint_count = checkpoint_count
        self._is_closed = False
        looked_at = Database(path, KIND, self.name)
        try:
            self._read(looked_at)
        finally:
            looked_at.close()
        self._database = Database(path, KIND, self.name, mode="rw")
        self._commits: GroupCommit[Registration | None] = GroupCommit(str(path), self._commit)

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        patterns: Sequence[str],
        where: str = "",
        *,
        now_s: float,
        checkpoint_count: int = CHECKPOINT_COUNT,
    ) -> ConsumerStore:
        """Open the file of a durable consumer, or register it at `now_s`.

        Patterns and filter may differ from those before: they apply from now on, also to earlier
        events; `registered_at` and the progress stay. After `checkpoint_count` commits, the log
        is copied into the main file.

        Raises:
            DurableInUse: The name is in use, in this or another process of the folder.
            StoreCorrupt: The file is damaged.
            StoreError: It cannot be written, or is of a newer format.
        """
        path = consumer_path(folder, name)
        database.make_folder(folder)
        lock = _locked(path, name)
        try:
            first = Registration(1, now_s, tuple(patterns), where)
            if not path.exists():
                database.create(path, KIND, lambda made: Facts(made).put("registration", first))
            store = cls(path, lock, checkpoint_count=checkpoint_count)
        except BaseException:
            lock.release()
            raise
        try:
            store._register(tuple(patterns), where)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def registered_at(self) -> float:
        """When the consumer was first registered, by the clock of this host."""
        return self._registration.registered_at

    @property
    def patterns(self) -> tuple[str, ...]:
        """The subjects that the consumer wants."""
        return self._registration.patterns

    @property
    def where(self) -> str:
        """The filter, or empty."""
        return self._registration.where

    def progress(self) -> dict[str, ConsumerProgress]:
        """Return the latest progress of the consumer in each ledger, noted or on disk."""
        with self._guard:
            return dict(self._progress)

    def position(self, ledger: str) -> int:
        """Return up to which number everything is settled in a ledger; -1 if it is unknown."""
        with self._guard:
            return self._progress.get(ledger, _NOWHERE).position

    def note(
        self,
        ledger: str,
        position: int,
        above: Collection[int] = (),
        deliveries: Mapping[int, int] | None = None,
    ) -> None:
        """Note the position of the consumer in a ledger, replacing the previous note.

        It is on disk when `flush` has returned.

        Raises:
            BadValue: The position would go back, or a number above it is not.
        """
        news = ConsumerProgress(position, frozenset(above), dict(deliveries or {}))
        if any(number <= position for number in news.above):
            raise BadValue(f"{min(news.above)} is settled twice: it is not above {position}")
        with self._guard:
            known = self._progress.get(ledger, _NOWHERE).position
            if position < known:
                raise BadValue(
                    f"consumer {self.name!r} has settled ledger {ledger} up to {known}, "
                    f"and cannot go back to {position}"
                )
            self._progress[ledger] = self._unsaved[ledger] = news

    def flush(self) -> None:
        """Return when everything noted before is on disk.

        Raises:
            StoreFull: The disk is full; everything is still noted, so trying again is safe.
        """
        if self._unsaved or self._is_closed:
            self._commits.run(None)

    def close(self) -> None:
        """Write everything noted, and release the name. Closing twice is fine.

        Raises:
            StoreFull: There is no room for the latest notes; it is closed nevertheless.
        """
        try:
            self._commits.run(None, is_last=True)
        except BusClosed:
            return
        finally:
            self._is_closed = True
            self._database.close()
            self._lock.release()

    def __enter__(self) -> ConsumerStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, opened: Database) -> None:
        with opened.errors():
            found = opened.facts.get("registration")
            problems = opened.structure_problems() or opened.log_problems()
            if problems or found is None:
                raise opened.corrupt(problems or ["its registration is missing"])
            self._registration = msgspec.convert(found, Registration)
            self._progress = {
                ledger: msgspec.convert(value, ConsumerProgress)
                for ledger, value in opened.facts.under("progress/").items()
            }

    def _register(self, patterns: tuple[str, ...], where: str) -> None:
        known = self._registration
        if (known.patterns, known.where) != (patterns, where):
            changed = Registration(known.version + 1, known.registered_at, patterns, where)
            self._commits.run(changed)
            self._registration = changed

    def _commit(self, works: Iterable[Registration | None]) -> None:
        connection, facts = self._database.connection, self._database.facts
        with self._guard:
            unsaved, self._unsaved = self._unsaved, {}
        try:
            with self._database.errors():
                connection.execute("BEGIN IMMEDIATE")
                for registration in works:
                    if registration is not None:
                        facts.put("registration", registration)
                for ledger, progress in unsaved.items():
                    facts.put(f"progress/{ledger}", progress)
                connection.execute("COMMIT")
                self._commit_count += 1
                if self._commit_count % self._checkpoint_count == 0:
                    self._database.checkpoint()
        except BaseException:
            database.roll_back(connection)
            with self._guard:
                self._unsaved = {**unsaved, **self._unsaved}
            raise


_NOWHERE = ConsumerProgress()


def consumer_path(folder: Path, name: str) -> Path:
    """Return the path of a consumer's file. Any name is valid that is not too long.

    >>> consumer_path(Path("home"), "billing/Köln").name
    'billing%2FK%C3%B6ln.db'
    """
    quoted = quote(name, safe="").replace(".", "%2E")
    if not 0 < len(quoted) <= _NAME_BYTES_MAX:
        raise BadValue(
            f"a durable name has 1 to {_NAME_BYTES_MAX} characters (letters outside ASCII count "
            f"several times), got {name!r}"
        )
    return folder / f"{quoted}.db"


def consumer_names(folder: Path) -> list[str]:
    """Return the names of all durable consumers of a folder, which need not exist."""
    return sorted(unquote(path.stem) for path in database.database_files(folder))


def registered_at(folder: Path, name: str) -> float:
    """Return since when a durable consumer is registered; it may be in use.

    Raises:
        StoreError: It does not exist, or cannot be read.
    """
    opened = Database(consumer_path(folder, name), KIND, name)
    try:
        with opened.errors():
            if (found := opened.facts.get("registration")) is None:
                raise opened.corrupt(["its registration is missing"])
            return msgspec.convert(found, Registration).registered_at
    finally:
        opened.close()


def forget(folder: Path, name: str) -> None:
    """Remove the file of a durable consumer that will never return.

    Raises:
        DurableInUse: It is in use.
    """
    path = consumer_path(folder, name)
    with _locked(path, name):
        for one in (path, *database.companions(path)):
            one.unlink(missing_ok=True)


def repair_consumer(folder: Path, name: str) -> Path | None:
    """Salvage a damaged file; return where the damaged one is, None if it was sound.

    If the progress in a ledger cannot be read, that ledger is new to the consumer: events published
    since the registration are delivered again, and none is left out.

    Raises:
        StoreError: It does not exist, or the registration itself cannot be read.
    """
    path = consumer_path(folder, name)
    if not path.exists():
        raise StoreError(f"there is no durable consumer {name!r} in {folder}", path=str(path))
    with _locked(path, name) as lock:
        try:
            ConsumerStore(path, lock).close()
        except StoreCorrupt:
            return replace_damaged(path, KIND, _refill)
        return None


def _locked(path: Path, name: str) -> FileLock:
    lock = FileLock(path.with_suffix(".lock"))
    if not lock.acquire(patience_s=_OPEN_PATIENCE_S):
        raise DurableInUse(
            f"the durable name {name!r} is in use by a live subscription of this home", name=name
        )
    return lock


def _refill(connection: Connection, rows: Iterator[Row]) -> None:
    found: dict[str, list[Any]] = {}
    for _, values in rows:
        if fact := whole_fact(values):
            found.setdefault(fact[0], []).append(fact[1])
    if "registration" not in found:
        path = connection.execute("PRAGMA database_list").fetchone()[2]
        raise StoreError("the registration cannot be read; subscribe anew", path=path)
    for key, versions in found.items():
        # The registration with the highest version, and the highest progress.
        Facts(connection).put(key, max(versions, key=lambda value: value[0]))
