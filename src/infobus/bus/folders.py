"""Where a bus keeps what must survive, in its home folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def ledgers_folder(home: Path, bus: str) -> Path:
    """The folder of the ledgers of all processes that share a home."""
    return _folder(home, bus) / "ledgers"


def consumers_folder(home: Path, bus: str) -> Path:
    """The folder of the durable consumers of all processes that share a home."""
    return _folder(home, bus) / "consumers"


def replies_folder(home: Path, bus: str) -> Path:
    """The folder of the replies of calls that must run once, of all processes of a home."""
    return _folder(home, bus) / "replies"


def _folder(home: Path, bus: str) -> Path:
    from urllib.parse import quote  # seldom needed, and `import infobus` is to be quick

    return home / "buses" / quote(bus, safe="")
