"""Looks into a checkpoint before Spark does, which would fail without saying what to do."""

from __future__ import annotations

import json
from pathlib import Path

from infobus.errors import StoreCorrupt

LOOKED_AT = 2
"""Spark reads the last entries of each log when a query starts."""


def check_checkpoint(folder: Path) -> None:
    """Check what Spark needs in order to continue from this checkpoint, if there is one.

    Raises:
        StoreCorrupt: A file is not as Spark has written it; the message says what to remove.
    """
    metadata = folder / "metadata"
    if metadata.exists():
        _check(folder, metadata, _is_metadata(metadata))
    for log in ("offsets", "commits"):
        numbered = [path for path in (folder / log).glob("*") if path.name.isdigit()]
        for path in sorted(numbered, key=lambda path: int(path.name))[-LOOKED_AT:]:
            _check(folder, path, _is_entry(path))


def _check(folder: Path, path: Path, is_sound: bool) -> None:
    if not is_sound:
        raise StoreCorrupt(
            f"the checkpoint cannot be continued: {path} is damaged. Bring it back from a copy, or "
            f"remove the folder {folder}; then the job reads from its startingOffset on, and "
            "results are published again",
            path=str(path),
            problems=("it is not as Spark has written it",),
        )


def _is_metadata(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text("utf-8"))["id"], str)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_entry(path: Path) -> bool:
    """Return whether a file is a version, such as `v1`, and lines of JSON."""
    try:
        version, *lines = path.read_text("utf-8").splitlines()
        for line in lines:
            if line != "-":  # a source that has no offset yet
                json.loads(line)
    except (OSError, ValueError):
        return False
    return version[:1] == "v" and version[1:].isdigit() and bool(lines)
