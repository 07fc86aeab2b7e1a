"""Stores the replies of calls that must run exactly once, until their callers have them.

All processes that share a home share one SQLite file. The process that inserts the row of a call
has begun it, and no other will. A reply is on disk before it is sent. Threads that write at the
same time share a sync.

Rows are old by a clock of the file's own, which a wall clock set ahead cannot speed up: it counts
the time for which processes have the file open, and little of the time between.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection

from infobus.errors import BusError, StoreError, UsageError
from infobus.stores.sqlite import database
from infobus.stores.sqlite.database import FACTS, Damage, Database, DatabaseKind, roll_back
from infobus.stores.sqlite.group_commit import GroupCommit
from infobus.stores.sqlite.locks import FileLock

KIND = DatabaseKind(
    name="store of replies",
    application_id=0x69625270,
    format=1,
    schema=(
        FACTS,
        "CREATE TABLE replies (call TEXT PRIMARY KEY, owner TEXT NOT NULL, began REAL NOT NULL, "
        "answer BLOB, crc INTEGER) WITHOUT ROWID",
    ),
    repair="stop all services of this home, and move {} away, with -wal and -shm beside it",
)
# A table of its own: files of older versions lack it, and their processes need not know of it.
_USES = "CREATE TABLE IF NOT EXISTS uses (call TEXT PRIMARY KEY, use TEXT NOT NULL) WITHOUT ROWID"
KEEP_S = 7 * 24 * 3600.0
"""How long a reply is kept whose caller does not say that it has it."""
KEEP_ACKNOWLEDGED_S = 3600.0
"""How long it is kept that a call has run whose caller has the reply."""
AWAY_S_MAX = 3600.0
"""How much of the time for which nobody had the file open makes its rows older."""
CHECKPOINT_COUNT = 250
_MAKE_PATIENCE_S = 5.0

Work = Callable[[Connection], object]


class Replies:
    """An open store; all methods may be called by any thread. See `services.node.ReplyStore`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, KIND, str(path), mode="rw")
        with self._database.errors():
            self._database.connection.execute("PRAGMA busy_timeout = 5000")
            self._database.connection.execute(_USES)
            self.id: str = self._database.facts.get("id")
            self._opened_s = self._last_clock_s() - time.monotonic()
        self._guard = threading.Lock()  # one connection; threads take turns
        self._commits: GroupCommit[Work] = GroupCommit(str(path), self._commit)
        self._commit_count = 0

    @classmethod
    def open(cls, folder: Path) -> Replies:
        """Open the store of a folder, or create it.

        Raises:
            StoreError: It cannot be created, is damaged, or is of a newer format.
        """
        path = folder / "replies.sqlite"
        if not path.exists():
            database.make_folder(folder)
            with FileLock(folder / "replies.lock") as lock:
                if not lock.acquire(patience_s=_MAKE_PATIENCE_S):
                    raise StoreError(f"somebody else is making {path}", path=str(path))
                if not path.exists():
                    name = os.urandom(16).hex()
                    database.create(path, KIND, lambda made: database.Facts(made).put("id", name))
        store = cls(path)
        store.prune(store.clock_s() - KEEP_S)
        return store

    def clock_s(self) -> float:
        """Return the time by which rows are old; at first it is that of the wall clock."""
        return self._opened_s + time.monotonic()

    def claim(self, call: str, owner: str, use: str = "") -> tuple[str, bytes]:
        """Begin a call, unless somebody has: then return ("", b""), and this is on disk.

        Otherwise return who has begun it, and its answer if there is one. `use` says what is
        called, and with what.

        Raises:
            UsageError: The id has another use.
            StoreError: It cannot be written or read.
        """
        found: list[tuple[str, bytes]] = []
        other_uses: list[str] = []

        def work(connection: Connection) -> None:
            row = connection.execute(
                "SELECT owner, answer, crc FROM replies WHERE call = ?", (call,)
            ).fetchone()
            if row is None:
                connection.execute(
                    "INSERT INTO replies VALUES (?, ?, ?, NULL, NULL)",
                    (call, owner, self.clock_s()),
                )
                connection.execute("INSERT OR REPLACE INTO uses VALUES (?, ?)", (call, use))
                found[:] = [("", b"")]
                return
            known = connection.execute("SELECT use FROM uses WHERE call = ?", (call,)).fetchone()
            other_uses[:] = [known[0]] if known is not None and known[0] != use else []
            holder, answer, crc = row
            if answer is not None and zlib.crc32(answer) != crc:
                raise Damage(f"the checksum of the reply to call {call} is wrong")
            found[:] = [(holder, answer or b"")]

        self._commits.run(work)
        if other_uses:
            raise UsageError(
                f"the id {call!r} is that of another call, {other_uses[0]}; this is {use}: give it "
                "an id of its own"
            )
        return found[0]

    def take_over(self, call: str, owner: str, new_owner: str) -> bool:
        """Take over a call that `owner` had begun; False if another process was quicker."""
        counts: list[int] = []

        def work(connection: Connection) -> None:
            counts[:] = [
                connection.execute(
                    "UPDATE replies SET owner = ? WHERE call = ? AND owner = ? AND answer IS NULL",
                    (new_owner, call, owner),
                ).rowcount
            ]

        self._commits.run(work)
        return counts == [1]

    def keep(self, call: str, answer: bytes) -> None:
        """Store the answer of a call. Returning means that it is on disk.

        Raises:
            StoreError: It cannot be written.
        """
        crc = zlib.crc32(answer)
        self._commits.run(
            lambda connection: connection.execute(
                "UPDATE replies SET answer = ?, crc = ? WHERE call = ?", (answer, crc, call)
            )
        )

    def forget(self, calls: Collection[str], instead: bytes) -> None:
        """Replace answers that callers have by `instead`, for copies still on their way.

        It does not raise: a failure only leaves the answers in the file.
        """
        until = self.clock_s() - KEEP_S + KEEP_ACKNOWLEDGED_S
        rows = [(instead, zlib.crc32(instead), until, call) for call in calls]
        with suppress(BusError):
            self._commits.run(
                lambda connection: connection.executemany(
                    "UPDATE replies SET answer = ?, crc = ?, began = ? "
                    "WHERE call = ? AND answer IS NOT NULL",
                    rows,
                )
            )

    def prune(self, before: float) -> None:
        """Forget calls that were begun before that time."""
        self._commits.run(lambda connection: self._prune(connection, before))

    def close(self) -> None:
        """Close the file; answers that were stored stay on disk."""
        with suppress(BusError):
            self._commits.run(lambda connection: self._note_clock(), is_last=True)
        with self._guard:
            self._database.close()

    def _commit(self, batch: Sequence[Work]) -> None:
        connection = self._database.connection
        with self._guard, self._database.errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                for work in batch:
                    work(connection)
                connection.execute("COMMIT")
            except BaseException:
                roll_back(connection)
                raise
            self._commit_count += 1
            if self._commit_count >= CHECKPOINT_COUNT:
                self._commit_count = 0
                self._database.checkpoint()
                self._prune(connection, self.clock_s() - KEEP_S)

    def _prune(self, connection: Connection, before: float) -> None:
        connection.execute("DELETE FROM replies WHERE began < ?", (before,))
        connection.execute("DELETE FROM uses WHERE call NOT IN (SELECT call FROM replies)")
        self._note_clock()

    def _last_clock_s(self) -> float:
        """Go on from where the clock of the file was when it was last noted."""
        now_s = time.time()
        last: tuple[float, float] | None = self._database.facts.get("clock")
        if last is None:  # the file is new, or an older version wrote it
            ask = self._database.connection.execute
            (youngest,) = ask("SELECT max(began) FROM replies").fetchone()
            last = (now_s, now_s) if youngest is None else (youngest, youngest)
        clock_s, wall_s = last
        return clock_s + min(max(0.0, now_s - wall_s), AWAY_S_MAX)

    def _note_clock(self) -> None:
        facts = self._database.facts
        noted_s, _ = facts.get("clock") or (0.0, 0.0)  # another process may be ahead
        facts.put("clock", [max(self.clock_s(), noted_s), time.time()])
