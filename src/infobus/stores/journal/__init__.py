"""The journal: events in columns, with their types, in files that anyone can read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infobus.stores.journal.journal import Journal
    from infobus.stores.journal.writer import JournalWriter

__all__ = ["Journal", "JournalWriter"]

# Imported when asked for: a module of this folder may be all that somebody needs.
_LATE = {"Journal": "journal", "JournalWriter": "writer"}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
