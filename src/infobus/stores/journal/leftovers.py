"""Cleans up the files that a dead writer has left in a journal's folder.

It only touches files in the places, and with the names, of a writer's segments. It removes a file
that was never finished, or whose events are all in a listed file that is whole. Any other file may
be the only copy of accepted events, for example if the manifest was restored from an older backup;
such a file is renamed, and nothing in it is lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from infobus.errors import StoreCorrupt, StoreError
from infobus.stores.journal.manifest import NAME, Manifest
from infobus.stores.journal.parquet import decode_file
from infobus.stores.journal.selection import read_file

log = logging.getLogger("infobus")

ORPHAN = "orphan"
"""How the names of files end that nobody lists and that may hold events which nothing else has."""
DAMAGED = "damaged"
"""How the names of files end that repair has set aside."""
_PLACES = ("untyped/*", "types/*/*")
_SEGMENT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}\.parquet")
_UNFINISHED = re.compile(rf"\.{_SEGMENT.pattern}\.new")
_IDENTITY = ["_offset", "_event_id"]


def unfinished(path: Path) -> Path:
    """Return the name under which a file is written until all of it is on disk."""
    return path.with_name(f".{path.name}.new")


def refuse_without_manifest(folder: Path) -> None:
    """Check that a new journal can start in a folder that has no manifest.

    Raises:
        StoreCorrupt: The folder has segments, so the manifest was lost.
    """
    count = sum(1 for path in _files(folder) if _SEGMENT.fullmatch(path.name))
    if count:
        what = f"{count} segments are there, but no {NAME}"
        raise StoreCorrupt(
            f"the journal in {folder} has lost its manifest: {what}. Bring {NAME} back from a "
            f"backup, or move {folder / 'types'} and {folder / 'untyped'} away to begin a new "
            "journal; their Parquet files can be read one by one",
            path=str(folder / NAME),
            problems=(what,),
        )


def clear(folder: Path, manifest: Manifest) -> None:
    """Remove or rename files that are not listed; the caller is the journal's only writer.

    A crash on the way does no harm: each file is handled on its own, atomically.
    """
    listed = {one.path for one in manifest.segments} | {one.path for one in manifest.retired}
    repaired = {one.path for one in manifest.lost}
    for path in sorted(_files(folder)):
        name = str(path.relative_to(folder))
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)
        elif not _SEGMENT.fullmatch(path.name) or name in listed:
            continue
        elif f"{name}.{DAMAGED}" in repaired:  # a repair did not finish
            set_aside(path, DAMAGED)
        elif _is_elsewhere(folder, manifest, path):
            path.unlink(missing_ok=True)
        else:
            log.warning(
                "%s is not listed by the journal's manifest, and its events are nowhere else: it "
                "is now %s. A writer that was killed leaves such a file, and what is guaranteed "
                "in it comes again; many of them are a sign of an older manifest",
                path,
                set_aside(path, ORPHAN).name,
            )


def set_aside(path: Path, ending: str) -> Path:
    """Rename a file so that its name ends differently, without overwriting another one."""
    target, number = path.with_name(f"{path.name}.{ending}"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.{number}.{ending}")
    return path.rename(target)


def _files(folder: Path) -> Iterator[Path]:
    return (path for place in _PLACES for path in folder.glob(place) if path.is_file())


def _is_elsewhere(folder: Path, manifest: Manifest, path: Path) -> bool:
    """Return whether each event of a file is certainly in listed files that are whole."""
    dataset = path.parent.relative_to(folder)
    try:
        missing = _events(decode_file(path.read_bytes(), _IDENTITY))
        first, last = min(missing)[0], max(missing)[0]
        for segment in manifest.segments:
            is_near = segment.first <= last and first <= segment.last
            if is_near and Path(segment.path).parent == dataset:
                missing -= _events(read_file(folder, segment, _IDENTITY))
    except (pa.ArrowException, OSError, LookupError, ValueError, StoreError):
        return False
    return not missing


def _events(table: pa.Table) -> set[tuple[int, str]]:
    # Compare ids, too: after an older manifest, other events may have got the same offsets.
    offsets, ids = (table[name].to_pylist() for name in _IDENTITY)
    return set(zip(offsets, ids, strict=True))
