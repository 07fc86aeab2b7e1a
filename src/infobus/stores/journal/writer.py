"""Writes a journal: stores batches of events as files, then lists them in the manifest."""

from __future__ import annotations

import hashlib
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from infobus.errors import StoreError, StoreFull
from infobus.objects import codec, find_type
from infobus.stores.journal import leftovers
from infobus.stores.journal import schemas as journal_schemas
from infobus.stores.journal.columns import REST, Journaled, table_of, type_key
from infobus.stores.journal.manifest import (
    NAME,
    Era,
    Manifest,
    Positions,
    Segment,
    load,
    local_folder,
    replace,
    sync_folder,
)
from infobus.stores.journal.pruning import limits_of
from infobus.stores.journal.selection import DESCRIPTORS, descriptor_damage
from infobus.stores.private import make_private_folder, private_opener, repair_tree
from infobus.stores.sqlite.locks import FileLock

SUBJECT_COUNT_MAX = 64
"""A segment with more different subjects does not list them."""
ROW_GROUP_COUNT = 131_072
ERAS_MAX = 1_000
"""So many of the last writers are known by name. Of offsets before them, nothing is checked."""
DICTIONARY_BYTES_MAX = 32_768
"""Columns with more different values than fit in here are written value by value: a dictionary of
what hardly comes twice makes files larger, and slower to write and to read."""
ENCODINGS = {
    "_offset": "DELTA_BINARY_PACKED",
    "_number": "DELTA_BINARY_PACKED",
    "_time": "DELTA_BINARY_PACKED",
    "_object_id": "DELTA_LENGTH_BYTE_ARRAY",
    "_event_id": "DELTA_LENGTH_BYTE_ARRAY",
}
"""Columns that never need a dictionary: numbers that grow by little, and ids, which are all
different, but mostly as long as each other."""


class JournalWriter:
    """Adds events to a journal. Create it with `open`; a folder has one writer at a time."""

    def __init__(self, folder: Path, manifest: Manifest, lock: FileLock) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock = lock
        self._era = uuid.uuid4().hex[:16]

    @classmethod
    def open(cls, folder: str | Path) -> JournalWriter:
        """Open the journal in `folder` for writing, or create a new one there.

        Files that a dead writer has left behind are removed; files that may be the only copy of
        events are renamed instead.

        Raises:
            StoreError: The folder cannot be used, or another process writes there.
            StoreCorrupt: The manifest is damaged, or it is lost while there are segments.
        """
        folder = local_folder(folder)
        try:
            if (folder / NAME).exists():
                repair_tree(folder)
            make_private_folder(folder / DESCRIPTORS)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder {folder}: {error.strerror}", path=str(folder)
            ) from error
        lock = FileLock(folder / ".lock")
        if not lock.acquire(patience_s=0.2):  # a process that only inspects holds it for a moment
            raise StoreError(
                f"another process writes to the journal in {folder}; stop it first, or take "
                "another folder",
                path=str(folder),
            )
        try:
            if (folder / NAME).exists():
                writer = cls(folder, load(folder), lock)
                leftovers.clear(folder, writer.manifest)
            else:
                leftovers.refuse_without_manifest(folder)
                manifest = replace(folder, Manifest(journal=uuid.uuid4().hex))
                writer = cls(folder, manifest, lock)
        except OSError as error:
            lock.release()
            raise StoreError(
                f"cannot clear up the folder {folder}: {error.strerror}", path=str(folder)
            ) from error
        except BaseException:
            lock.release()
            raise
        return writer

    def append(
        self,
        events: Sequence[Journaled],
        *,
        now_s: float,
        positions: Positions | None = None,
    ) -> range:
        """Add events, all or none; returning means they are on disk.

        Args:
            events: They get the next offsets, in this order.
            now_s: The clock, in seconds since 1970.
            positions: By durable consumer and ledger, the numbers that are then in the journal;
                stored with the events, atomically.

        Returns:
            The offsets.

        Raises:
            StoreFull: The disk is full: nothing was added.
        """
        before = self.manifest
        offsets = range(before.next_offset, before.next_offset + len(events))
        groups: dict[int, tuple[list[Journaled], list[int]]] = {}
        for offset, event in zip(offsets, events, strict=True):
            some, their_offsets = groups.setdefault(type_key(event.data), ([], []))
            some.append(event)
            their_offsets.append(offset)
        types = self._describe(groups)
        added: list[Segment] = []
        schemas = dict(before.schemas)
        try:
            for fingerprint, (some, their_offsets) in groups.items():
                name, table = table_of(some, their_offsets, fingerprint)
                key, text = journal_schemas.written(table.schema)
                schemas[key] = text
                written_under = f"{fingerprint:016x}" if fingerprint else ""
                added.append(self.write(table, name, written_under, key, now_s))
            self.manifest = replace(
                self.folder,
                structs.replace(
                    before,
                    next_offset=offsets.stop,
                    eras=self._eras(before) if events else before.eras,
                    segments=(*before.segments, *added),
                    schemas=schemas,
                    types=types,
                    positions=_moved(before.positions, positions or {}),
                ),
            )
        except StoreFull:
            for segment in added:
                (self.folder / segment.path).unlink(missing_ok=True)
            raise
        return offsets

    def _eras(self, before: Manifest) -> tuple[Era, ...]:
        """Return the eras, with that of this writer."""
        if before.eras and before.eras[-1].id == self._era:
            return before.eras
        return (*before.eras, Era(self._era, before.next_offset))[-ERAS_MAX:]

    def write(self, table: pa.Table, type: str, fingerprint: str, key: str, at_s: float) -> Segment:
        """Write a file without listing it yet.

        Raises:
            StoreFull: The disk is full.
        """
        first, last = table["_offset"][0].as_py(), table["_offset"][-1].as_py()
        path = _dataset(type) / f"{first:016x}-{uuid.uuid4().hex[:8]}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="zstd",
            row_group_size=ROW_GROUP_COUNT,
            use_dictionary=_dictionary_paths(table.schema),
            dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
            column_encoding=ENCODINGS,
        )
        content = sink.getvalue()
        self._put(path, memoryview(content))
        different = table["_subject"].unique().to_pylist()
        return Segment(
            path=str(path),
            type=type,
            fingerprint=fingerprint,
            schema=key,
            count=table.num_rows,
            first=first,
            last=last,
            bytes=content.size,
            crc=zlib.crc32(content),
            written_at=at_s,
            subjects=tuple(different) if len(different) <= SUBJECT_COUNT_MAX else (),
            limits=limits_of(table),
            has_rest=table[REST].null_count < table.num_rows,
        )

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest by one that was derived from `self.manifest`."""
        self.manifest = replace(self.folder, manifest)

    def close(self) -> None:
        """Release the journal, so that another process can write here."""
        self._lock.release()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _put(self, name: Path, content: Any) -> None:
        target = self.folder / name
        beside = leftovers.unfinished(target)
        try:
            if not target.parent.is_dir():
                make_private_folder(target.parent)
                sync_folder(target.parent.parent)
                sync_folder(self.folder)
            with open(beside, "wb", opener=private_opener) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            for path in (beside, target):
                path.unlink(missing_ok=True)
            raise StoreFull(
                f"cannot write {target}: {error.strerror}; nothing of this was added",
                path=str(target),
            ) from error

    def _describe(self, groups: Mapping[int, tuple[list[Journaled], list[int]]]) -> dict[str, Any]:
        """Store descriptors that are missing or damaged; return the list of all types."""
        types = dict(self.manifest.types)
        for fingerprint, (events, _) in groups.items():
            for needed in _needs(fingerprint, events):
                known = find_type(needed)
                key = f"{needed:016x}"
                if known is None or not known.is_known:
                    continue
                # This includes listed types: their descriptor may have been lost or
                # damaged since.
                if not self._has_descriptor(key, known.descriptor):
                    self._put(Path(DESCRIPTORS) / key, known.descriptor)
                if key not in types.get(known.name, ()):
                    types[known.name] = (*types.get(known.name, ()), key)
        return types

    def _has_descriptor(self, key: str, descriptor: bytes) -> bool:
        try:
            is_same = (self.folder / DESCRIPTORS / key).read_bytes() == descriptor
        except OSError:
            return False
        # Different bytes may describe the same type.
        return is_same or descriptor_damage(self.folder, key) is None


def _needs(fingerprint: int, events: Iterable[Journaled]) -> Iterator[int]:
    """Return the types that a reader of these events needs: supertypes and types inside."""
    known = find_type(fingerprint) if fingerprint else None
    found = dict.fromkeys(() if known is None else known.closure)
    if known is None or any(attribute.kind.is_deep for attribute in known.attributes):
        for event in events:
            found.update(dict.fromkeys(codec.encode(event.data)[2]))
    return iter(found)


@lru_cache(256)
def _dictionary_paths(schema: pa.Schema) -> list[str]:
    """Return the columns, also nested ones, that may have a dictionary, by Parquet's names."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = [columns.column(at).path for at in range(len(columns))]
    return [path for path in paths if path not in ENCODINGS]


def _moved(positions: Positions, later: Positions) -> Positions:
    return {
        name: {**positions.get(name, {}), **later.get(name, {})} for name in {**positions, **later}
    }


def _dataset(type: str) -> Path:
    """Return the folder of a type's files; a name unsuitable for a folder is hashed."""
    if not type:
        return Path("untyped")
    is_plain = type.isascii() and len(type) <= 200 and not type.startswith("_")
    hashed = f"t-{hashlib.blake2b(type.encode(), digest_size=16).hexdigest()}"
    return Path("types") / (type if is_plain else hashed)
