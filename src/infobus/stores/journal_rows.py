"""Back from columns: the attributes of each row, and typed maps of what has columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infobus.stores.journal_columns import ATTRIBUTES, REST, VALUE
from infobus.stores.journal_schemas import attribute_columns, word
from infobus.stores.journal_values import (
    FIELDS,
    KINDS,
    attributes_in,
    entries_of,
    object_of,
    value_in,
)


def attributes_by_row(table: pa.Table) -> list[dict[str, Any]]:
    """The attributes of each row by name, without those that are missing or None."""
    names, columns = [], []
    for attribute, field in attribute_columns(table.schema).items():
        values = table[field.name].to_pylist()
        read = _reader(field.type)
        names.append(attribute)
        columns.append(values if read is None else [read(value) for value in values])
    rows: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for name, column in zip(names, columns, strict=True):
        for row, value in zip(rows, column, strict=True):
            if value is not None:
                row[name] = value
    if REST in table.column_names and table[REST].null_count < table.num_rows:
        for row, entries in zip(rows, table[REST].to_pylist(), strict=True):
            row.update(attributes_in(entries or ()))
    return rows


Reader = Callable[[Any], Any]


def _reader(type_: pa.DataType) -> Reader | None:
    """What makes a value of what Arrow gives for it; None if it is that already."""
    if type_ == ATTRIBUTES:
        return value_in
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
        attributes |= attributes_in(value[REST] or ())
        return object_of(value["_type"], attributes, value["_object_id"])

    return read


_PLAIN = {name: field for cls, field in FIELDS.items() for name in [KINDS[cls]]}


def typed_maps(table: pa.Table) -> pa.Array:
    """All attributes of each row as one typed map."""
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
    """The typed maps of scalar columns, without a loop over the rows."""
    count = table.num_rows
    parts = [_values(table[field.name].combine_chunks(), count) for field in columns.values()]
    is_there = np.stack(
        [np.asarray(pc.is_valid(table[field.name])) for field in columns.values()], axis=1
    )
    # From "one column after the other" to "one row after the other", without what is missing.
    order = np.arange(count * len(parts)).reshape(len(parts), count).T[is_there]
    values = pa.concat_arrays(parts).take(pa.array(order))
    names = pa.array(list(columns)).take(pa.array(order // max(count, 1)))
    offsets = np.concatenate([[0], np.cumsum(is_there.sum(axis=1))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=ATTRIBUTES)


def _values(column: pa.Array, count: int) -> pa.StructArray:
    kind = word(column.type)
    held = {"kind": pa.repeat(kind, count), _PLAIN[kind]: column}
    arrays = [held.get(field.name) for field in VALUE]
    filled = [
        pa.nulls(count, field.type) if array is None else array
        for array, field in zip(arrays, VALUE, strict=True)
    ]
    return pa.StructArray.from_arrays(filled, fields=list(VALUE))
