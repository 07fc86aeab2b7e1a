"""The manifest of a journal: the list of its files, in one file that is replaced as a whole.

A segment counts from the moment the manifest lists it, and a file that was ever listed never
changes. So a reader sees a consistent journal at any instant, and a writer that is killed leaves at
most unlisted files.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field, structs

from infobus.errors import StoreCorrupt, StoreError, StoreFull, UsageError
from infobus.stores.private import private_opener

NAME = "manifest.json"
FORMAT = 1
_OWN_FILE = re.compile(r"(untyped|types/(?!\.\.?/)[^/\0]+)/(?!\.\.?$)[^/\0]+\.parquet")
_PREFIX = b'{"checksum":"%08x",'
_PREFIX_LENGTH = len(_PREFIX % 0)

Limits = tuple[Any, Any, int]
"""Of one column of a segment: least value, greatest value (None: not known), count of nulls."""


Positions = Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]
"""By durable consumer and ledger: ranges of numbers, each with its first and its last."""


class Segment(Struct, frozen=True, kw_only=True):
    """One Parquet file: events of one version of one type, in order of their offsets."""

    path: str
    """Relative to the journal's folder."""
    type: str
    """The name of the type; empty for untyped events."""
    fingerprint: str
    """Which version of the type, as 16 hexadecimal digits; empty for untyped events."""
    schema: str
    """The key of the file's columns in `Manifest.schemas`."""
    count: int
    first: int
    last: int
    """The offsets of the first and of the last event; those between may be elsewhere."""
    bytes: int
    crc: int
    """Size and CRC-32 of the file."""
    written_at: float
    subjects: tuple[str, ...] = ()
    """The different subjects; none if there are too many."""
    limits: dict[str, Limits] = {}
    """By column; times in microseconds since 1970."""
    has_rest: bool = False
    """Whether some events have attributes that have no column."""


class Retired(Struct, frozen=True):
    """A file that is no longer listed, and stays on disk for a while for its readers."""

    path: str
    at: float


class LostPart(Struct, frozen=True):
    """Events or a type's descriptor, lost because the file was damaged or missing."""

    type: str
    first: int
    last: int
    count: int
    path: str
    """Where it is kept; its own path if it was missing."""

    @property
    def descriptor(self) -> str | None:
        """The fingerprint of the type whose descriptor was lost; None for events."""
        name = self.path.removeprefix("descriptors/")
        return None if name == self.path else name[:16]

    @property
    def is_kept(self) -> bool:
        return self.path.endswith(".damaged")


class Era(Struct, frozen=True, array_like=True):
    """What one writer has written, from this offset on."""

    id: str
    first: int


class Manifest(Struct, frozen=True, kw_only=True):
    """The complete state of a journal at one moment."""

    format: int = FORMAT
    journal: str
    """The journal's own id, by which a position in another journal is told."""
    generation: int = 0
    """Grows with every replacement."""
    next_offset: int = 0
    first_offset: int = 0
    """Retention has taken nothing from here on."""
    taken: dict[str, int] = {}
    """The same by type; empty if only `first_offset` is known."""
    eras: tuple[Era, ...] = ()
    """The writers, by which offsets of a restored copy are told from those before."""
    segments: tuple[Segment, ...] = ()
    schemas: dict[str, str] = {}
    """Arrow schemas (IPC, base64) by key."""
    types: dict[str, tuple[str, ...]] = {}
    """By name: the fingerprints of the versions, in order of their coming."""
    positions: Positions = {}
    """Which events of durable consumers are in the journal, at least the latest ones."""
    retired: tuple[Retired, ...] = ()
    lost: tuple[LostPart, ...] = field(default=())


_decode = msgspec.json.Decoder(Manifest).decode


def local_folder(name: str | Path) -> Path:
    """Return the folder that is meant by a path, or by a `file:` address of this host.

    >>> local_folder("file:///srv/news")
    PosixPath('/srv/news')

    Raises:
        UsageError: The address is of another kind, such as `s3a://`.
    """
    scheme, colon, path = str(name).partition(":")
    if not (colon and path.startswith("/") and scheme.isascii() and scheme[:1].isalpha()):
        return Path(name)
    host, slash, rest = path[2:].partition("/") if path.startswith("//") else ("", "/", path[1:])
    if scheme.lower() != "file" or host not in ("", "localhost") or not slash:
        raise UsageError(
            f"journal {str(name)!r}: expected a folder of this host, such as /srv/news or "
            "file:///srv/news. A journal relies on locks and renames of a local file system; "
            "to read it from elsewhere, mount it or copy it"
        )
    return Path("/" + unquote(rest.lstrip("/")))


def load(folder: Path) -> Manifest:
    """Read the manifest of the journal in `folder`.

    Raises:
        StoreError: There is no journal, or it is of a newer format.
        StoreCorrupt: The manifest is damaged.
    """
    path = folder / NAME
    try:
        written = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"no journal can be read in {folder} ({error.strerror}): "
            "a journal is a folder with a manifest.json, made by `infobus journal ... --to FOLDER`",
            path=str(path),
        ) from error
    if written[:_PREFIX_LENGTH] != _PREFIX % zlib.crc32(written[_PREFIX_LENGTH:]):
        raise _damaged(path, "its checksum does not fit")
    try:
        head = msgspec.json.decode(written, type=_Head)
        if head.format > FORMAT:
            raise StoreError(
                f"the journal in {folder} has format {head.format}, this program knows {FORMAT}: "
                "read it with a newer version of infobus",
                path=str(path),
            )
        manifest = _decode(written)
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from error
    # Upkeep deletes files that the manifest names: they must be the journal's own.
    named = [one.path for one in manifest.segments] + [one.path for one in manifest.retired]
    for name in named:
        if not _OWN_FILE.fullmatch(name):
            raise _damaged(path, f"it names {name!r}, which is not a file of the journal")
    return manifest


class _Head(Struct):
    format: int


def _damaged(path: Path, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the manifest {path} is damaged: {what}; its Parquet files are not touched by that and "
        "can be read one by one, but which of them count is known to the manifest alone",
        path=str(path),
        problems=(what,),
    )


def replace(folder: Path, manifest: Manifest) -> Manifest:
    """Make `manifest` the current one, as the next generation; returning means it is on disk.

    Raises:
        StoreFull: It could not be written; the previous one is still current.
    """
    manifest = structs.replace(manifest, generation=manifest.generation + 1)
    body = msgspec.json.encode(manifest)[1:]
    path = folder / NAME
    beside = folder / f".{NAME}.new"
    try:
        with open(beside, "wb", opener=private_opener) as file:
            file.write(_PREFIX % zlib.crc32(body))
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(folder)
    except OSError as error:
        raise StoreFull(
            f"cannot write {path}: {error.strerror}; what was to be added is not in the journal",
            path=str(path),
        ) from error
    return manifest


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
