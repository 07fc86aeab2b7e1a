"""Converts columns back to rows: the attributes of each row, or typed maps of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infobus.filters.language.tree import HEADERS
from infobus.headers import NO_HEADERS, Headers
from infobus.stores.journal.columns import ATTRIBUTES, REST, TOLD, VALUE
from infobus.stores.journal.schemas import attribute_columns, word
from infobus.stores.journal.typed_maps import (
    FIELD_OF,
    Read,
    attributes_in,
    entries_of,
    escaped,
    headers_in,
    object_of,
    read_entries,
    value_in,
)


def attributes_by_row(table: pa.Table) -> list[dict[str, Any]]:
    """Return the attributes of each row by name, without those that are missing or None."""
    names, columns = [], []
    for attribute, field in attribute_columns(table.schema).items():
        names.append(attribute)
        columns.append(_values_of(table[field.name].combine_chunks(), field.type))
    rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for name, column in zip(names, columns, strict=True):
        for row, value in zip(rows, column, strict=True):
            if value is not None:
                row[name] = value
    if REST in table.column_names and table[REST].null_count < table.num_rows:
        rest = entries_by_row(table[REST].combine_chunks())
        for row, entries in zip(rows, rest, strict=True):
            if entries:
                row.update(attributes_in(entries))
    return rows


def _values_of(column: pa.Array, type_: pa.DataType) -> list[Any]:
    if type_ == ATTRIBUTES:
        return [value_in(entries) for entries in entries_by_row(column)]
    values: list[Any] = column.to_pylist()
    read = _reader(type_)
    return values if read is None else [read(value) for value in values]


def entries_by_row(maps: pa.MapArray) -> list[list[Read] | None]:
    """Return the entries of typed maps, without building a dictionary for each of them."""
    if isinstance(maps, pa.ChunkedArray):  # it has no chunks
        return []
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys, items = maps.keys[first:last], maps.items[first:last]
    fields = {name: items.field(name).to_pylist() for name in set(FIELD_OF.values())}
    entries = [
        (key, kind, fields[FIELD_OF[kind]][at] if kind in FIELD_OF else None)
        for at, (key, kind) in enumerate(
            zip(keys.to_pylist(), items.field("kind").to_pylist(), strict=True)
        )
    ]
    ends = [offset - first for offset in maps.offsets.to_pylist()]
    is_there = maps.is_valid().to_pylist()
    return [
        entries[start:end] if there else None
        for start, end, there in zip(ends, ends[1:], is_there, strict=False)
    ]


def headers_by_row(table: pa.Table) -> list[Headers]:
    """Return the headers of each row; none if the table has no column of them."""
    if TOLD not in table.column_names or table[TOLD].null_count == table.num_rows:
        return [NO_HEADERS] * table.num_rows
    return list(map(headers_in, entries_by_row(table[TOLD].combine_chunks())))


def only_about(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the table, with `_attributes` reduced to these attributes."""
    maps = table[REST].combine_chunks()
    if isinstance(maps, pa.ChunkedArray) or not len(maps.keys):
        return table
    keys, offsets = maps.keys, maps.offsets.to_numpy()
    wanted = np.zeros(len(keys), bool)
    for name in map(escaped, names):
        for mask in (pc.equal(keys, name), *(pc.starts_with(keys, name + end) for end in ".[")):
            wanted |= mask.to_numpy(zero_copy_only=False)
    counts = np.concatenate([[0], np.cumsum(wanted)])
    mask = pa.array(wanted)
    fewer = pa.MapArray.from_arrays(
        pa.array(counts[offsets].astype(np.int32)),
        keys.filter(mask),
        maps.items.filter(mask),
        type=ATTRIBUTES,
    )
    return table.set_column(table.column_names.index(REST), REST, fewer)


def scalars_in_rest(table: pa.Table, name: tuple[str, ...]) -> pa.Array | None:
    """Return the values of an attribute in `_attributes`, if all are scalars of one kind.

    The array holds nulls if no row has the attribute. The result is None if the values are of
    several kinds, or not scalars. The values of a header are in `_headers`.
    """
    if name[0] == HEADERS:
        return _scalars(table[TOLD].combine_chunks(), name[1])
    return _scalars(table[REST].combine_chunks(), ".".join(map(escaped, name)))


def _scalars(maps: pa.MapArray, key: str) -> pa.Array | None:
    keys, offsets = maps.keys, maps.offsets.to_numpy()
    at = np.flatnonzero(pc.equal(keys, key).to_numpy(False))
    at = at[(at >= offsets[0]) & (at < offsets[-1])]
    found = maps.items.take(pa.array(at))
    kinds = set(found.field("kind").unique().to_pylist()) - {"none"}
    if not kinds:
        return pa.nulls(len(maps), pa.null())
    if len(kinds) > 1 or (kind := kinds.pop()) in ("list", "dict", "object"):
        return None
    place = np.full(len(maps), -1)
    place[np.searchsorted(offsets, at, side="right") - 1] = np.arange(len(at))
    return found.field(FIELD_OF[kind]).take(pa.array(place, mask=place < 0))


Reader = Callable[[Any], Any]


def _reader(type_: pa.DataType) -> Reader | None:
    """Return a function that converts Arrow's value to ours; None if both are the same."""
    if type_ == ATTRIBUTES:
        return lambda value: None if value is None else value_in(read_entries(value))
    if pa.types.is_list(type_):
        read = _reader(type_.value_type)
        return read and (lambda value: None if value is None else list(map(read, value)))
    if pa.types.is_map(type_):
        read_item = _reader(type_.item_type) or (lambda value: value)
        return lambda value: None if value is None else {k: read_item(v) for k, v in value}
    return _struct_reader(type_) if pa.types.is_struct(type_) else None


def _struct_reader(type_: pa.StructType) -> Reader:
    readers = {
        attribute: (field.name, _reader(field.type) or (lambda value: value))
        for attribute, field in attribute_columns(pa.schema(list(type_))).items()
    }

    def read(value: dict[str, Any] | None) -> Any:
        if value is None:
            return None
        attributes = {
            attribute: read_one(value[name])
            for attribute, (name, read_one) in readers.items()
            if value[name] is not None
        }
        attributes |= attributes_in(read_entries(value[REST] or ()))
        return object_of(value["_type"], attributes, value["_object_id"])

    return read


def typed_maps(table: pa.Table) -> pa.Array:
    """Return all attributes of each row as one typed map."""
    columns = attribute_columns(table.schema)
    if not columns:
        return table[REST].combine_chunks()
    is_plain = all(_is_scalar(field.type) for field in columns.values())
    if is_plain and table[REST].null_count == table.num_rows:
        return _interleaved(table, columns)
    rows = attributes_by_row(table)
    return pa.array([entries_of(row) for row in rows], ATTRIBUTES)


def _is_scalar(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_)


def _interleaved(table: pa.Table, columns: dict[str, pa.Field]) -> pa.MapArray:
    """Return the typed maps of scalar columns, without a loop over the rows."""
    count = table.num_rows
    parts = [_values(table[field.name].combine_chunks(), count) for field in columns.values()]
    is_there = np.stack(
        [np.asarray(pc.is_valid(table[field.name])) for field in columns.values()], axis=1
    )
    # Reorder from column by column to row by row, without missing values.
    order = np.arange(count * len(parts)).reshape(len(parts), count).T[is_there]
    values = pa.concat_arrays(parts).take(pa.array(order))
    names = pa.array(list(columns)).take(pa.array(order // max(count, 1)))
    offsets = np.concatenate([[0], np.cumsum(is_there.sum(axis=1))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=ATTRIBUTES)


def _values(column: pa.Array, count: int) -> pa.StructArray:
    kind = word(column.type)
    held = {"kind": pa.repeat(kind, count), FIELD_OF[kind]: column}
    arrays = [held.get(field.name) for field in VALUE]
    filled = [
        pa.nulls(count, field.type) if array is None else array
        for array, field in zip(arrays, VALUE, strict=True)
    ]
    return pa.StructArray.from_arrays(filled, fields=list(VALUE))
