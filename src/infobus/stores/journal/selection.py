"""Reads a journal: the selected events, as Arrow batches or as objects.

A `Selection` lists the segments that may hold such events and the columns to read. You can split it
into parts and send them to other processes, which read the files themselves.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from infobus.errors import BadFrame, StoreCorrupt, StoreError
from infobus.filters import Filter, compile
from infobus.filters.language.tree import HEADERS, Name, nodes
from infobus.headers import NO_HEADERS, Headers, with_headers
from infobus.objects import codec, descriptors, find_type, kinds
from infobus.stores.journal.columns import ATTRIBUTES, ENVELOPE, REST, TOLD
from infobus.stores.journal.conditions import Conditions
from infobus.stores.journal.manifest import Segment
from infobus.stores.journal.parquet import BATCH_COUNT_MAX, decode_file, repeated
from infobus.stores.journal.pruning import Place, file_places, may_match, push_down
from infobus.stores.journal.rows import (
    attributes_by_row,
    headers_by_row,
    only_about,
    scalars_in_rest,
    typed_maps,
)
from infobus.stores.journal.schemas import Column, attribute_columns, source_of
from infobus.stores.journal.typed_maps import object_under


class JournalEvent(Struct, frozen=True, gc=False):
    """One event of a journal, as a subscription would have delivered it, with its offset."""

    offset: int
    subject: str
    data: Any
    id: str
    object_id: str
    sender: str
    number: int | None
    time: float | None
    priority: str
    test: bool
    headers: Headers = NO_HEADERS


@dataclass(frozen=True)
class Selection:
    """The events that `Journal.select` selected; iterate `batches()` or `events()`.

    Attributes:
        folder: The journal's folder.
        segments: The files that may hold such events, by their first offset.
        schema: The columns of the batches.
    """

    folder: Path
    segments: tuple[Segment, ...]
    conditions: Conditions
    columns: Mapping[str, Column]
    schemas: Mapping[str, pa.Schema]
    is_generic: bool
    attributes: frozenset[str] | None = None
    """Of events without a type: only these attributes, if not all."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns.values()])

    def part(self, segments: Iterable[Segment]) -> Selection:
        """Return the same selection, restricted to these segments."""
        segments = tuple(segments)
        keys = {segment.schema for segment in segments}
        return replace(self, segments=segments, schemas={key: self.schemas[key] for key in keys})

    def narrowed(self, **conditions: Any) -> Selection:
        """Add `Conditions`, and leave out segments that cannot satisfy them."""
        selection = replace(self, conditions=replace(self.conditions, **conditions))
        return selection.part(filter(selection.may_be_in, self.segments))

    def may_be_in(self, segment: Segment) -> bool:
        """Return whether a segment may hold selected events; False is certain."""
        conditions, schema = self.conditions, self.schemas[segment.schema]
        if not conditions.may_be_in(segment):
            return False
        if conditions.where is not None:
            places = file_places(segment, schema)
            if not may_match(compile(conditions.where), segment, places):
                return False
        if conditions.shown is None:
            return True
        return may_match(compile(conditions.shown), segment, partial(self._place, schema))

    def _place(self, schema: pa.Schema, name: str) -> Place | bool | None:
        if (column := self.columns.get(name)) is None:
            return False
        source = source_of(column, schema)
        return None if source is None else (column.attribute, column.field.type)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the events by columns, file by file; a file's rows are ordered by offset.

        Raises:
            StoreCorrupt: A file is damaged.
        """
        for segment in self.segments:
            table = self._read(segment, self._needed(segment))
            # Typed maps are made of few rows at a time: of many, they take twice as long.
            step = BATCH_COUNT_MAX if self._has_maps else max(table.num_rows, 1)
            for at in range(0, table.num_rows, step):
                shaped = self._shaped(segment, table.slice(at, step))
                yield from self._shown(shaped).to_batches(BATCH_COUNT_MAX)

    def table(self) -> pa.Table:
        """Return everything at once, ordered by offset if `_offset` is among the columns."""
        found = pa.Table.from_batches(self.batches(), self.schema)
        return found.sort_by("_offset") if "_offset" in found.column_names else found

    def events(self) -> Iterator[JournalEvent]:
        """Return the events as objects, ordered by offset.

        This process learns types that it did not know from the journal.
        """
        opened = sorted(self.segments, key=lambda segment: segment.first)
        waiting: list[JournalEvent] = []
        for segment, following in zip_longest(opened, opened[1:]):
            waiting += self._objects(segment)
            waiting.sort(key=lambda event: event.offset)
            limit = None if following is None else following.first
            ready = [one for one in waiting if limit is None or one.offset < limit]
            yield from ready
            waiting = waiting[len(ready) :]

    # Conversion of a file to the selected columns.

    @cached_property
    def _sources(self) -> dict[str, dict[str, pa.Field | None]]:
        """By schema: the columns of its files from which the columns of the batches are made."""
        return {
            key: {name: source_of(column, schema) for name, column in self.columns.items()}
            for key, schema in self.schemas.items()
        }

    @property
    def _has_maps(self) -> bool:
        return self.is_generic and REST in self.columns

    def _needed(self, segment: Segment) -> set[str]:
        """Return the columns of a file from which the columns of the batches are made."""
        if self._has_maps:
            return {*self.columns, *self._asked(segment)}
        sources = self._sources[segment.schema].values()
        return {field.name for field in sources if field is not None}

    def _read(self, segment: Segment, needed: set[str]) -> pa.Table:
        """Return the rows of a file that satisfy the conditions, with the columns needed."""
        schema = self.schemas[segment.schema]
        where = None if self.conditions.where is None else compile(self.conditions.where)
        asked = set() if where is None else columns_asked(where, schema, segment.has_rest)
        conditions = self.conditions.left_for(segment)
        names = needed | asked | conditions.columns
        # A value that is the same in every row is repeated: that is far cheaper than
        # decoding it.
        same = _same_texts(segment, schema)
        columns = [name for name in schema.names if name in names]
        # At least one column is read: it says how many rows there are.
        read = [one for one in columns if one not in same] or ["_offset"]
        table = read_file(self.folder, segment, read, conditions.start, conditions.stop)
        for name in (one for one in columns if one in same):
            table = table.append_column(schema.field(name), repeated(same[name], table.num_rows))
        table = conditions.holding(table.select(columns))
        return table if where is None else self._satisfying(where, segment, table)

    def _satisfying(self, where: Filter, segment: Segment, table: pa.Table) -> pa.Table:
        """Return the rows of a file for which a filter is true."""
        schema = self.schemas[segment.schema]
        more: dict[tuple[str, ...], pa.Field] = {}
        wide = table
        if table.num_rows:
            known = {*attribute_columns(schema), *ENVELOPE.names}
            known |= set() if TOLD in schema.names else {HEADERS}
            for path in {node.path for node in nodes(where.tree) if isinstance(node, Name)}:
                is_there = path[0] == HEADERS or segment.has_rest
                is_sought = is_there and path[0] not in known
                column = scalars_in_rest(table, path) if is_sought else None
                if column is not None:
                    more[path] = pa.field(f"@{len(more)}", column.type)
                    wide = wide.append_column(more[path], column)
        pushed = push_down(where, schema, segment.has_rest, more)
        if pushed.condition is not None:
            table = wide.filter(pushed.condition).select(table.column_names)
        if pushed.residual is not None and table.num_rows:
            is_match = matching(self.folder, segment.fingerprint, table, pushed.residual)
            table = table.filter(pa.array(is_match, pa.bool_()))
        return table

    def _shaped(self, segment: Segment, table: pa.Table) -> pa.Table:
        """Return the selected columns, made from those of the file."""
        arrays = []
        for name, column in self.columns.items():
            if self.is_generic and name == REST:
                _learn_all(self.folder)  # otherwise objects inside others would be plain dicts
                arrays.append(typed_maps(self._narrow(segment, table)))
                continue
            source = self._sources[segment.schema][name]
            if source is None:
                arrays.append(pa.nulls(table.num_rows, column.field.type))
            else:
                arrays.append(_cast(table[source.name], column.field.type))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _asked(self, segment: Segment) -> list[str]:
        """Return the columns of a file from which typed maps are made."""
        columns = attribute_columns(self.schemas[segment.schema]).items()
        names = self.attributes
        return [REST, *(field.name for name, field in columns if names is None or name in names)]

    def _narrow(self, segment: Segment, table: pa.Table) -> pa.Table:
        table = table.select(self._asked(segment))
        if self.attributes is None or not segment.has_rest or not table.num_rows:
            return table
        return only_about(table, self.attributes)

    def _shown(self, table: pa.Table) -> pa.Table:
        if self.conditions.shown is None:
            return table
        pushed = push_down(compile(self.conditions.shown), table.schema, has_rest=False)
        return table if pushed.condition is None else table.filter(pushed.condition)

    def _objects(self, segment: Segment) -> list[JournalEvent]:
        table = self._read(segment, set(self.schemas[segment.schema].names))
        fingerprint = learned(self.folder, segment.fingerprint)
        envelope = table.select(
            ["_offset", "_subject", "_event_id", "_object_id", "_sender", "_number", "_class"]
        ).to_pydict()
        times = pc.divide(table["_time"].cast(pa.int64()).cast(pa.float64()), 1e6).to_pylist()
        tests = table["_test"].to_pylist()
        ids = envelope["_object_id"]
        # Leave out the other attributes: a type distinguishes a missing attribute from a
        # None.
        nothing = dict.fromkeys(_optional(fingerprint))
        data = [
            object_under(fingerprint, nothing | row, id)
            for row, id in zip(attributes_by_row(table), ids, strict=True)
        ]
        columns = [envelope["_offset"], envelope["_subject"], data, envelope["_event_id"], ids]
        columns += [envelope["_sender"], envelope["_number"], times, envelope["_class"], tests]
        columns.append(headers_by_row(table))
        return list(map(JournalEvent, *columns))


def matching(folder: Path, fingerprint: str, table: pa.Table, where: Filter) -> list[bool]:
    """Evaluate a filter for each row of a file, one by one."""
    firsts = {node.path[0] for node in nodes(where.tree) if isinstance(node, Name)}
    columns = attribute_columns(table.schema)
    asked = [field.name for name, field in columns.items() if name in firsts]
    if REST in table.column_names:
        table, asked = only_about(table, firsts), [*asked, REST]
    envelope = [name for name in ENVELOPE.names if name in table.column_names]
    rows = attributes_by_row(table.select([*asked, *envelope]))
    told = headers_by_row(table) if HEADERS in firsts else [NO_HEADERS] * table.num_rows
    for name in where.attributes & set(envelope):
        for row, value in zip(rows, table[name].to_pylist(), strict=True):
            row[name] = value
    if any(table.schema.field(name).type == ATTRIBUTES for name in asked if name != REST):
        _compare_decimals(learned(folder, fingerprint), rows)
    if not where.asks_for_type:
        return [where.matches(with_headers(*row)) for row in zip(rows, told, strict=True)]
    key = learned(folder, fingerprint)
    objects = (object_under(key, row, None) for row in rows)
    return [where.matches(with_headers(*one)) for one in zip(objects, told, strict=True)]


def _compare_decimals(fingerprint: int, rows: Sequence[dict[str, Any]]) -> None:
    """Put the numbers into rows that filters compare in place of decimals, which are text."""
    known = find_type(fingerprint)
    for attribute in () if known is None else known.attributes:
        if attribute.rich is not None and attribute.rich.has_decimals:
            for row in rows:
                if attribute.name in row:
                    row[attribute.name] = attribute.rich.compared(row[attribute.name])


def learned(folder: Path, fingerprint: str) -> int:
    """Make this process learn a type from the journal; return its fingerprint, 0 for none."""
    if not fingerprint:
        return 0
    learn(folder, [fingerprint])
    return int(fingerprint, 16)


def _optional(fingerprint: int) -> list[str]:
    known = find_type(fingerprint)
    attributes = () if known is None else known.attributes
    return [a.name for a in attributes if isinstance(a.kind, kinds.Maybe) or a.kind == kinds.ANY]


def columns_asked(where: Filter, schema: pa.Schema, has_rest: bool) -> set[str]:
    """Return the columns of a file that a filter needs."""
    columns = attribute_columns(schema) | {one.name: one for one in ENVELOPE}
    firsts = {node.path[0] for node in nodes(where.tree) if isinstance(node, Name)}
    asked = {field.name for name, field in columns.items() if name in firsts}
    asked |= {TOLD} if HEADERS in firsts else set()
    return asked | {REST} if has_rest else asked


def _same_texts(segment: Segment, schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a file that hold one text in all rows, by name."""
    fields = attribute_columns(schema) | {field.name: field for field in ENVELOPE}
    return {
        fields[name].name: least
        for name, (least, greatest, null_count) in segment.limits.items()
        if isinstance(least, str) and least == greatest and not null_count
    }


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    # Integers may lose digits as floats: the newer version of the type asks for that.
    return column if column.type == type_ else column.cast(type_, safe=False)


def read_file(
    folder: Path,
    segment: Segment,
    columns: list[str] | None = None,
    start: int | None = None,
    stop: int | None = None,
) -> pa.Table:
    """Return the columns of a segment's file, after checking its checksum.

    Parts of it whose offsets are all before `start`, or not before `stop`, may be missing.

    Raises:
        StoreCorrupt: The file is not as it was written.
        StoreError: It is not there.
    """
    path = folder / segment.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"segment {path} cannot be read: {error.strerror}; if it was replaced long ago, "
            "open the journal again",
            path=str(path),
        ) from error
    if (problem := damage(segment, content)) is not None:
        raise StoreCorrupt(
            f"segment {path} is damaged: {problem}; its offsets lie between {segment.first} and "
            f"{segment.last}. To set it aside: infobus journal repair {folder}",
            path=str(path),
            problems=(problem,),
        )
    return decode_file(content, columns, start=start, stop=stop)


def damage(segment: Segment, content: bytes) -> str | None:
    """Describe the damage of a file; None if it is sound."""
    if len(content) != segment.bytes:
        return f"it has {len(content)} of {segment.bytes} bytes"
    return None if zlib.crc32(content) == segment.crc else "its checksum does not fit"


DESCRIPTORS = "descriptors"


def descriptor_damage(folder: Path, fingerprint: str) -> str | None:
    """Describe the damage of a descriptor without learning it; None if it is sound."""
    try:
        found = descriptors.read((folder / DESCRIPTORS / fingerprint).read_bytes()).fingerprint
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except BadFrame as error:
        return str(error)
    is_right = found == int(fingerprint, 16)
    return None if is_right else f"it describes another type, {found:016x}"


def learn(folder: Path, fingerprints: Iterable[str], *, are_listed: bool = False) -> None:
    """Make this process learn types from a journal.

    Args:
        folder: The journal's folder.
        fingerprints: The fingerprints of the types.
        are_listed: The manifest lists these types, so their descriptors were there. Descriptors
            of other types may never have arrived.

    Raises:
        StoreCorrupt: A descriptor is damaged or lost.
    """
    for fingerprint in fingerprints:
        if codec.known(int(fingerprint, 16)):
            continue
        path = folder / DESCRIPTORS / fingerprint
        try:
            learned = codec.learn(path.read_bytes())
        except FileNotFoundError as error:
            if not are_listed:
                continue
            what = "it is missing"
            raise StoreCorrupt(
                f"descriptor {path}: {what}, so events of its type cannot be told from others. "
                "Bring it back from a backup, or have somebody who knows the type record an event "
                f"of it; to go on without: infobus journal repair {folder}",
                path=str(path),
                problems=(what,),
            ) from error
        except Exception as error:
            raise StoreCorrupt(
                f"descriptor {path} cannot be read: {error}", path=str(path), problems=(str(error),)
            ) from error
        if learned != int(fingerprint, 16):
            what = f"it describes another type, {learned:016x}"
            raise StoreCorrupt(f"descriptor {path}: {what}", path=str(path), problems=(what,))


def _learn_all(folder: Path) -> None:
    learn(folder, [path.name for path in (folder / DESCRIPTORS).glob("?" * 16)])
