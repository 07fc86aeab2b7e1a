"""What a member of a group must not forget: few values in one SQLite file, changed all at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infobus.errors import StoreError
from infobus.stores.private import make_private_folder
from infobus.stores.sqlite.database import FACTS, Database, DatabaseKind, Facts, create, roll_back
from infobus.stores.sqlite.locks import FileLock

_KIND = DatabaseKind(
    name="state of a member",
    application_id=0x49424D53,
    format=1,
    schema=(FACTS,),
    repair="rm -r of its folder: the daemon then joins its group as a new member ({})",
)
_CHECKPOINT_COUNT = 256  # changes between copies of the log into the file


class MemberStateFile:
    """The state of one member in a folder of its own, which only one process has open.

    Raises:
        StoreError: The folder cannot be used, or another process has it open.
        StoreCorrupt: The file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        make_private_folder(folder)
        self._lock = FileLock(folder / "member.lock")
        if not self._lock.acquire(patience_s=0.5):
            raise StoreError(
                f"{folder} is in use by another process: a daemon keeps its state there, and two "
                "daemons need two folders",
                path=str(folder),
            )
        path = folder / "member.db"
        try:
            if not path.exists():
                create(path, _KIND)
            self._database = Database(path, _KIND, str(folder), mode="rw")
        except BaseException:
            self._lock.release()
            raise
        self._facts: Facts = self._database.facts
        self._saves_count = 0

    def load(self) -> dict[str, bytes]:
        """All of it."""
        with self._database.errors():
            return self._facts.all("", chr(0x10FFFF))

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Change it all at once; returning means that it is on disk.

        Raises:
            StoreFull: It is not, and nothing has changed.
        """
        connection = self._database.connection
        with self._database.errors():
            connection.execute("BEGIN")
            try:
                for key, value in changes.items():
                    if value is None:
                        self._facts.delete(key)
                    else:
                        self._facts.put(key, value)
                connection.execute("COMMIT")
            except BaseException:
                roll_back(connection)
                raise
            self._saves_count += 1
            if self._saves_count % _CHECKPOINT_COUNT == 0:
                self._database.checkpoint()

    def close(self) -> None:
        """Let another process have it."""
        self._database.close()
        self._lock.release()
