"""Maintains a journal: merges small files, removes old ones, and sets damaged ones aside.

All changes go through the manifest. A file that is replaced or removed is *retired*: new readers do
not see it, and it stays on disk for a while for readers that still use it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from msgspec import structs

from infobus.errors import StoreCorrupt
from infobus.stores.journal.leftovers import DAMAGED, set_aside
from infobus.stores.journal.manifest import LostPart, Manifest, Retired, Segment, load
from infobus.stores.journal.parquet import read_arrivals, written_arrivals
from infobus.stores.journal.selection import DESCRIPTORS, damage, descriptor_damage, read_file
from infobus.stores.journal.writer import JournalWriter

log = logging.getLogger("infobus")

FAN = 16
"""So many files of one size are merged into one, so an event is rewritten a few times at most."""
MERGED_COUNT_MAX = 524_288
MERGED_BYTES_MAX = 64 * 1024 * 1024
"""How large merging makes a file; a reader has the whole of it in memory."""


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """How long events, and files that were replaced, stay in a journal."""

    keep_s: float | None = None
    """Files whose youngest event came longer ago are let go; None keeps everything."""
    keep_bytes: int | None = None
    """Above so much in all, the oldest files are let go."""
    grace_s: float = 600.0
    """How long a retired file stays."""


def tend(writer: JournalWriter, now_s: float, upkeep: Upkeep) -> None:
    """Merge small files, retire old ones, and remove those that were retired long ago."""
    compact(writer, now_s)
    retain(writer, now_s, upkeep)
    sweep(writer, now_s, upkeep.grace_s)


def compact(writer: JournalWriter, now_s: float, *, fan: int = FAN) -> int:
    """Merge runs of `fan` or more small files; return by how many files the journal shrank."""
    merged = 0
    damaged: set[str] = set()
    while (run := _run_to_merge(writer.manifest, fan, damaged)) is not None:
        try:
            tables = [read_file(writer.folder, segment) for segment in run]
        except StoreCorrupt as error:
            log.error("not merged: %s", error)
            damaged.add(error.path)
            continue
        first = run[0]
        written_at = max(segment.written_at for segment in run)
        arrivals = [
            one
            for segment, part in zip(run, tables, strict=True)
            for one in read_arrivals(part.schema.metadata) or [(segment.last, segment.written_at)]
        ]
        noted = {**(tables[0].schema.metadata or {}), **written_arrivals(arrivals)}
        table = pa.concat_tables(tables).replace_schema_metadata(noted)
        whole = writer.write(table, first.type, first.fingerprint, first.schema, written_at)
        gone = {segment.path for segment in run}
        _replace(writer, gone, now_s, instead=whole)
        merged += len(run) - 1
    return merged


def _run_to_merge(manifest: Manifest, fan: int, damaged: set[str]) -> list[Segment] | None:
    """Return neighbours of about one size that are numerous enough to merge, or None."""
    groups: dict[tuple[str, str], list[Segment]] = {}
    for segment in manifest.segments:
        # The paths in `damaged` are longer: they end with the path that the manifest has.
        if not any(path.endswith(segment.path) for path in damaged):
            groups.setdefault((segment.fingerprint or segment.type, segment.schema), []).append(
                segment
            )
    for segments in groups.values():
        segments.sort(key=lambda segment: segment.first)
        for tier in range(round(math.log(MERGED_COUNT_MAX, FAN)) + 1):
            for run in _runs(segments, tier):
                if len(run) >= fan:
                    return run
    return None


def _runs(segments: Sequence[Segment], tier: int) -> Iterator[list[Segment]]:
    """Return runs of neighbours up to a size of 16 ** (`tier` + 1) that fit into one file."""
    run: list[Segment] = []
    for segment in segments:
        is_small = segment.count < FAN ** (tier + 1) and segment.bytes < MERGED_BYTES_MAX / 2
        together = [*run, segment]
        fits = (
            sum(one.count for one in together) <= MERGED_COUNT_MAX
            and sum(one.bytes for one in together) <= MERGED_BYTES_MAX
        )
        if not (is_small and fits):
            yield run
            run = [segment] if is_small else []
        else:
            run = together
    yield run


def retain(writer: JournalWriter, now_s: float, upkeep: Upkeep) -> int:
    """Retire files that are too old or exceed the size limit; return how many."""
    segments = sorted(writer.manifest.segments, key=lambda segment: segment.last)
    gone: set[str] = set()
    if upkeep.keep_s is not None:
        gone |= {one.path for one in segments if one.written_at < now_s - upkeep.keep_s}
    if upkeep.keep_bytes is not None:
        total = sum(one.bytes for one in segments if one.path not in gone)
        for segment in segments:
            if total <= upkeep.keep_bytes:
                break
            if segment.path not in gone:
                gone.add(segment.path)
                total -= segment.bytes
    if gone:
        _replace(writer, gone, now_s, is_loss=True)
    return len(gone)


def _replace(
    writer: JournalWriter,
    gone: set[str],
    now_s: float,
    *,
    instead: Segment | None = None,
    is_loss: bool = False,
) -> None:
    """Retire files, and list another one instead of them."""
    before = writer.manifest
    segments: list[Segment] = []
    for segment in before.segments:
        if segment.path not in gone:
            segments.append(segment)
        elif instead is not None:
            segments.append(instead)
            instead = None
    lost_until = max((s.last + 1 for s in before.segments if s.path in gone), default=0)
    retired = [Retired(path, now_s) for path in sorted(gone)]
    writer.commit(
        structs.replace(
            before,
            segments=tuple(segments),
            schemas={s.schema: before.schemas[s.schema] for s in segments},
            first_offset=max(before.first_offset, lost_until if is_loss else 0),
            taken=_taken(before, gone) if is_loss else before.taken,
            retired=(*before.retired, *retired),
        )
    )


def _taken(before: Manifest, gone: set[str]) -> dict[str, int]:
    """Return by type the offset up to which retention has removed events."""
    # A journal that has only one number for all types may have lost some of any of them.
    unknown = {} if before.taken else dict.fromkeys(before.types, before.first_offset)
    taken = {**({"": before.first_offset} if unknown else {}), **unknown, **before.taken}
    for one in before.segments:
        if one.path in gone:
            taken[one.type] = max(taken.get(one.type, 0), one.last + 1)
    return taken


def sweep(writer: JournalWriter, now_s: float, grace_s: float) -> int:
    """Remove files that were retired more than `grace_s` ago; return how many."""
    before = writer.manifest
    # A clock that was set back must not make them stay for ever.
    old = [one for one in before.retired if not 0 <= now_s - one.at < grace_s]
    for one in old:
        (writer.folder / one.path).unlink(missing_ok=True)
    if old:
        kept = tuple(one for one in before.retired if one not in old)
        writer.commit(structs.replace(before, retired=kept))
    return len(old)


def verify(folder: Path) -> dict[str, str]:
    """Read every file of a journal; return what is wrong, by path.

    Raises:
        StoreError: There is no journal.
        StoreCorrupt: The manifest itself is damaged.
    """
    manifest = load(folder)
    problems = {}
    for segment in manifest.segments:
        try:
            problem = damage(segment, (folder / segment.path).read_bytes())
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}"
        if problem is not None:
            problems[segment.path] = problem
    for name, fingerprints in manifest.types.items():
        for fingerprint in fingerprints:
            if (problem := descriptor_damage(folder, fingerprint)) is not None:
                path = folder / DESCRIPTORS / fingerprint
                problems[str(path)] = f"descriptor of {name}: {problem}"
    return problems


def repair(writer: JournalWriter) -> tuple[LostPart, ...]:
    """Set damaged files aside, under another name, so that all others can be read again.

    A type whose descriptor is damaged or missing is removed from the list. You can still read its
    events without a type, and by its name as soon as a process that knows the type has recorded
    another event.

    Returns:
        What was lost: events, or a descriptor (see `LostPart.descriptor`).
    """
    problems = verify(writer.folder)
    if not problems:
        return ()
    # Descriptors are renamed before the commit: if this process dies in between, they are
    # missing, which the next repair sees. Segments are renamed after it, and the next writer
    # finishes that.
    before = writer.manifest
    lost: list[LostPart] = []
    types: dict[str, tuple[str, ...]] = {}
    for name, fingerprints in before.types.items():
        bad = [one for one in fingerprints if str(writer.folder / DESCRIPTORS / one) in problems]
        for fingerprint in bad:
            path = writer.folder / DESCRIPTORS / fingerprint
            kept = set_aside(path, DAMAGED) if path.exists() else path
            lost.append(LostPart(name, 0, 0, 0, str(kept.relative_to(writer.folder))))
        if left := tuple(one for one in fingerprints if one not in bad):
            types[name] = left
    damaged = [segment for segment in before.segments if segment.path in problems]
    for one in damaged:
        is_there = (writer.folder / one.path).exists()
        where = f"{one.path}.{DAMAGED}" if is_there else one.path
        lost.append(LostPart(one.type, one.first, one.last, one.count, where))
    whole = tuple(one for one in before.segments if one not in damaged)
    writer.commit(structs.replace(before, segments=whole, types=types, lost=(*before.lost, *lost)))
    for segment in damaged:
        if (writer.folder / segment.path).exists():
            set_aside(writer.folder / segment.path, DAMAGED)
    return tuple(lost)
