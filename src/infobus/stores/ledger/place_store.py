"""The positions of durable names of a whole site, in one file, beside those in their homes.

They are copies: the user of a name keeps its positions, too. So a damaged file is set aside, and
another one begun.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infobus.errors import StoreCorrupt
from infobus.stores.sqlite import database
from infobus.stores.sqlite.database import FACTS, Database, DatabaseKind

_log = logging.getLogger("infobus")

KIND = DatabaseKind(
    name="site's durable names",
    application_id=0x69624473,
    format=1,
    schema=(FACTS,),
    repair="infobus daemon run (with that file removed)",
)
CHECKPOINT_COUNT = 250  # commits


class PlaceStore:
    """The file; it has one owner, who sees to that. Not for several threads at a time."""

    def __init__(self, path: Path) -> None:
        database.make_folder(path.parent)
        self._path = path
        self._commit_count = 0
        try:
            self._database = self._opened()
        except StoreCorrupt as error:
            _log.error("%s. Positions are learned anew from those who use the names", error)
            for one in (path, *database.companions(path)):
                if one.exists():
                    one.replace(one.with_name(f"{one.name}.damaged"))
            self._database = self._opened()

    def load(self) -> dict[str, Any]:
        """All that was saved, by name."""
        return self._loaded

    def save(self, changes: Mapping[str, Any]) -> None:
        """Save values by name, None for those that are to go; returning means they are on disk.

        Raises:
            StoreFull: The disk is full; nothing was changed, and trying again is safe.
        """
        connection, facts = self._database.connection, self._database.facts
        try:
            with self._database.errors():
                connection.execute("BEGIN IMMEDIATE")
                for name, value in changes.items():
                    if value is None:
                        facts.delete(f"name/{name}")
                    else:
                        facts.put(f"name/{name}", value)
                connection.execute("COMMIT")
                self._commit_count += 1
                if self._commit_count % CHECKPOINT_COUNT == 0:
                    self._database.checkpoint()
        except BaseException:
            database.roll_back(connection)
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _opened(self) -> Database:
        if not self._path.exists():
            database.create(self._path, KIND)
        opened = Database(self._path, KIND, self._path.stem, mode="rw")
        try:
            with opened.errors():
                self._loaded = opened.facts.under("name/")
        except BaseException:
            opened.close()
            raise
        return opened
