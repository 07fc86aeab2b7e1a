"""Merges the columns of many files into one set, across versions of a type and its subtypes.

The newest version of an attribute decides the type of its column. Older values are converted if
nothing but digits is lost (integers to floats), and structs have the fields of all versions. Values
of another type get a column of their own, named after both: `price__str` beside `price`. In such a
column nothing is converted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from infobus.stores.journal.columns import ATTRIBUTES, ENVELOPE, GENERIC, REST, TIME, free_name


class Column(NamedTuple):
    """A column that readers get, and the attribute whose values are in it."""

    attribute: str
    field: pa.Field
    is_newest: bool = True
    """Whether it has the type of the newest version."""


def written(schema: pa.Schema) -> tuple[str, str]:
    """Return the key and the text of a schema, for the manifest."""
    serialized = schema.serialize().to_pybytes()
    key = hashlib.blake2b(serialized, digest_size=8).hexdigest()
    return key, base64.b64encode(serialized).decode()


def read(text: str) -> pa.Schema:
    """Return the schema whose text `written` returned."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def attribute_columns(schema: pa.Schema) -> dict[str, pa.Field]:
    """The columns of a file that belong to attributes, by the attributes' names."""
    fields = (field for field in schema if not field.name.startswith("_"))
    return {
        (field.metadata or {}).get(b"attribute", b"").decode() or field.name: field
        for field in fields
    }


def columns_for(kinds: Mapping[str, Iterable[pa.DataType]]) -> dict[str, Column]:
    """Return the columns by name: the envelope, and attributes of these types, newest first."""
    columns = {field.name: Column(field.name, field) for field in GENERIC if field.name != REST}
    taken = {name.casefold() for name in columns}
    others: list[Column] = []
    for attribute, types in kinds.items():
        merged: list[pa.DataType] = []
        for one in types:
            for at, other in enumerate(merged):
                if (both := unified(other, one, widens=at == 0)) is not None:
                    merged[at] = both
                    break
            else:
                merged.append(one)
        name = free_name(attribute, taken)
        columns[name] = Column(attribute, pa.field(name, merged[0]))
        others += [Column(attribute, pa.field(word(one), one)) for one in merged[1:]]
    for attribute, field, _ in others:
        name = free_name(f"{attribute}__{field.name}", taken)
        columns[name] = Column(attribute, field.with_name(name), is_newest=False)
    columns[REST] = Column(REST, GENERIC.field(REST))
    return columns


def unified(newer: pa.DataType, older: pa.DataType, *, widens: bool = True) -> pa.DataType | None:
    """Return the type that can hold the values of both, or None.

    If it `widens`, integers become floats.

    >>> unified(pa.float64(), pa.int64())
    DataType(double)
    >>> unified(pa.int64(), pa.string()) is None
    True
    """
    if newer == older:
        return newer
    if widens and pa.types.is_floating(newer) and pa.types.is_integer(older):
        return newer
    if ATTRIBUTES in (newer, older):
        return None
    if pa.types.is_list(newer) and pa.types.is_list(older):
        item = unified(newer.value_type, older.value_type, widens=widens)
        return None if item is None else pa.list_(pa.field("item", item))
    if pa.types.is_map(newer) and pa.types.is_map(older):
        item = unified(newer.item_type, older.item_type, widens=widens)
        return None if item is None else pa.map_(pa.string(), item)
    if pa.types.is_struct(newer) and pa.types.is_struct(older):
        return _unified_structs(newer, older, widens=widens)
    return None


def _unified_structs(
    newer: pa.StructType, older: pa.StructType, *, widens: bool
) -> pa.StructType | None:
    fields = {field.name: field for field in newer}
    for field in older:
        known = fields.get(field.name)
        both = field.type if known is None else unified(known.type, field.type, widens=widens)
        if both is None:
            return None
        fields[field.name] = pa.field(field.name, both)
    return pa.struct(list(fields.values()))


def word(type_: pa.DataType) -> str:
    """Return a short name for a type, for use in a column's name.

    >>> word(pa.int64()), word(pa.list_(pa.string())), word(TIME)
    ('int', 'list_str', 'datetime')
    """
    if type_ == ATTRIBUTES:
        return "any"
    if pa.types.is_list(type_):
        return f"list_{word(type_.value_type)}"
    if pa.types.is_map(type_):
        return f"dict_{word(type_.item_type)}"
    if pa.types.is_struct(type_):
        return "object"
    return _WORDS[type_]


_WORDS = {
    pa.bool_(): "bool",
    pa.int64(): "int",
    pa.float64(): "float",
    pa.string(): "str",
    pa.binary(): "bytes",
    TIME: "datetime",
}


def source_of(column: Column, file_schema: pa.Schema) -> pa.Field | None:
    """Return the column of a file that holds the values of `column`, or None."""
    if column.attribute in ENVELOPE.names or column.attribute == REST:
        at = file_schema.get_field_index(column.attribute)
        return None if at < 0 else file_schema.field(at)
    field = attribute_columns(file_schema).get(column.attribute)
    if field is None:
        return None
    both = unified(column.field.type, field.type, widens=column.is_newest)
    return field if both == column.field.type else None
