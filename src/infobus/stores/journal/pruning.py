"""Applies filters to segments: which segments cannot match, and which rows of one do.

A filter is evaluated for each file as it was written. If an attribute had another kind in an older
version of its type, the filter sees the values of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infobus.filters import Filter, overlaps
from infobus.filters.language.tree import (
    HEADERS,
    And,
    Compare,
    Constant,
    FunctionCall,
    Name,
    Not,
    Or,
    Scalar,
    Tree,
    nodes,
)
from infobus.filters.language.values import kind_of
from infobus.filters.pushdown import translation
from infobus.filters.pushdown.translation import Push, Pushed, TargetAttribute
from infobus.stores.journal.columns import ATTRIBUTES, ENVELOPE, GENERIC, TIME, TOLD
from infobus.stores.journal.manifest import Limits, Segment
from infobus.stores.journal.schemas import attribute_columns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def push_down(
    where: Filter,
    schema: pa.Schema,
    has_rest: bool,
    more: Mapping[tuple[str, ...], pa.Field] = MappingProxyType({}),
) -> Pushed[Any]:
    """Split `where` into an expression over the columns of a file, and the rest.

    `more` are columns of attributes that were taken out of `_attributes`; a column of type null
    stands for an attribute that no row has.
    """
    return translation.push_down(where, _File(schema, has_rest, more))


class _Real:
    """A column of floats, in which NaN is larger than everything, as `pushdown` expects."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __eq__(self, other: object) -> Any:
        return self.column == _column(other)

    def __lt__(self, other: object) -> Any:
        return self.column < _column(other)

    def __le__(self, other: object) -> Any:
        return self.column <= _column(other)

    def __gt__(self, other: object) -> Any:
        return (self.column > _column(other)) | pc.is_nan(self.column)

    def __ge__(self, other: object) -> Any:
        return (self.column >= _column(other)) | pc.is_nan(self.column)


def _column(one: Any) -> Any:
    return one.column if isinstance(one, _Real) else one


class _File:
    equated = frozenset({"integer", "real64", "string", "bool", "opaque", "datetime"})
    ordered = frozenset({"integer", "real64", "string", "datetime"})

    def __init__(
        self, schema: pa.Schema, has_rest: bool, more: Mapping[tuple[str, ...], pa.Field]
    ) -> None:
        envelope = {field.name: field for field in GENERIC if field.name in schema.names}
        self.columns = attribute_columns(schema) | envelope
        self.has_rest = has_rest
        self.more = more
        self.never = pc.scalar(False)  # no class attribute, because creating it loads pandas

    def attribute(self, name: Name) -> TargetAttribute | None:
        if (taken := self.more.get(name.path)) is not None:
            return _attribute(taken.type, pc.field(taken.name))
        field = self.columns.get(name.path[0])
        if name.path[0] == HEADERS and TOLD in self.columns:
            return None
        if field is None and name.path[0] == HEADERS:
            return TargetAttribute(pc.scalar(None), "")
        if field is None:
            # No row has it; and for a value without a kind, only its absence is
            # certain.
            return None if self.has_rest else TargetAttribute(pc.scalar(None), "")
        if self.has_rest and field.name not in GENERIC.names:
            return None  # `_attributes` may hold a value of another kind
        path = [field.name]
        for element in name.path[1:]:
            at = field.type.get_field_index(element) if pa.types.is_struct(field.type) else -1
            if at < 0:
                return None
            field = field.type.field(at)
            path.append(field.name)
        if field.type == ATTRIBUTES:
            return None
        return _attribute(field.type, pc.field(*path))

    def is_present(self, attribute: TargetAttribute) -> Any:
        return pc.is_valid(_column(attribute.expression))

    def literal(self, value: Scalar) -> Any | None:
        try:
            return pa.scalar(value, TIME) if isinstance(value, datetime) else pa.scalar(value)
        except (pa.ArrowException, UnicodeError, OverflowError):
            return None  # half a character, for example

    def one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any:
        column = _column(attribute.expression)
        if len(literals) <= 4:
            return reduce(or_, (column == literal for literal in literals))
        # `isin` returns false for a null; here the result must be neither true nor false.
        values = pa.array([literal.as_py() for literal in literals], literals[0].type)
        return pc.if_else(pc.is_valid(column), column.isin(values), pa.scalar(None, pa.bool_()))

    def textual(self, op: str, attribute: TargetAttribute, value: str) -> Push:
        test = {"begins-with": pc.starts_with, "ends-with": pc.ends_with}
        return test.get(op, pc.match_substring)(attribute.expression, value), True

    def has_one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any:
        raise AssertionError("the items of lists have no kind here")

    def size(self, attribute: TargetAttribute) -> Any | None:
        measure = {"list": pc.list_value_length, "string": pc.utf8_length}
        measure["opaque"] = pc.binary_length
        found = measure.get(attribute.kind)
        return None if found is None else found(attribute.expression)


def _attribute(type_: pa.DataType, column: Any) -> TargetAttribute:
    if pa.types.is_null(type_):
        return TargetAttribute(pc.scalar(None), "")
    kind = _kind(type_)
    return TargetAttribute(_Real(column) if kind == "real64" else column, kind)


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_):
        return "integer"
    if pa.types.is_list(type_):
        return "list"
    if pa.types.is_struct(type_) or pa.types.is_map(type_):
        return "object"
    return {pa.bool_(): "bool", pa.float64(): "real64", pa.string(): "string"}.get(
        type_, "datetime" if pa.types.is_timestamp(type_) else "opaque"
    )


Place = tuple[str, pa.DataType]
"""Where the limits of something are found, and of what type it is."""


def file_places(segment: Segment, schema: pa.Schema) -> Callable[[str], Place | bool | None]:
    """Return a function that locates attributes: a place, None if nowhere, False if unknown."""
    known = attribute_columns(schema)

    def place(name: str) -> Place | bool | None:
        if name in ENVELOPE.names:
            return name, ENVELOPE.field(name).type
        if name == HEADERS:
            return False if TOLD in schema.names else None
        if segment.has_rest:
            return False  # `_attributes` may hold a value, of any kind
        return (name, known[name].type) if name in known else None

    return place


def may_match(
    where: Filter, segment: Segment, place_of: Callable[[str], Place | bool | None]
) -> bool:
    """Return whether a segment may hold a row for which `where` is true; False is certain."""
    asked = {node for node in nodes(where.tree) if isinstance(node, Name)}
    about: list[Tree] = []
    limited: set[Name] = set()
    for name in sorted(asked, key=lambda name: name.path):
        place = place_of(name.path[0])
        if place is None:
            about.append(_is_absent(name))
        elif isinstance(place, tuple) and len(name.path) == 1 and place[0] in segment.limits:
            about += _within(name, place[1], segment.limits[place[0]], segment.count)
            limited.add(name)
    if not about:
        return True
    box = Filter(And(tuple(about)) if len(about) > 1 else about[0])
    possible = _without_nan(where.tree, limited)
    return possible is not None and overlaps(Filter(possible), box)


def _without_nan(tree: Tree, limited: Set[Name]) -> Tree | None:
    """Return the tree without tests for NaN on attributes that have limits, and so no NaN.

    None if nothing is left that could be true.
    """
    match tree:
        case FunctionCall("nan", (Name() as name,)) if name in limited:
            return None
        case And(operands):
            parts = [_without_nan(operand, limited) for operand in operands]
            left = tuple(part for part in parts if part is not None)
            return And(left) if len(left) == len(parts) else None
        case Or(operands):
            parts = [_without_nan(operand, limited) for operand in operands]
            left = tuple(part for part in parts if part is not None)
            return (Or(left) if len(left) > 1 else left[0]) if left else None
    return tree


def _is_absent(name: Name) -> Tree:
    return Not(FunctionCall("exists", (name,)))


def _within(name: Name, type_: pa.DataType, limits: Limits, count: int) -> list[Tree]:
    """Return what is certain about an attribute in a segment, as a list of trees."""
    least, greatest, nulls = limits
    if nulls == count:
        return [_is_absent(name)]
    bounds: list[Tree] = [
        Compare(op, name, _constant(value, type_))
        for op, value in ((">=", least), ("<=", greatest))
        if value is not None
    ]
    if not bounds or pa.types.is_boolean(type_):
        return []
    inside = And(tuple(bounds)) if len(bounds) > 1 else bounds[0]
    return [Or((inside, _is_absent(name))) if nulls else inside]


def _constant(value: Any, type_: pa.DataType) -> Constant:
    if pa.types.is_timestamp(type_):
        value = _EPOCH + value * _MICROSECOND
    elif pa.types.is_floating(type_):
        value = float(value)
    kind = kind_of(value)
    assert kind is not None, value
    return Constant(value, kind)


TEXT_LIMIT_MAX = 64
"""Longer strings are no limits: the manifest is read as a whole."""


def limits_of(table: pa.Table) -> dict[str, Limits]:
    """Return the limits of each ordered column, by attribute or column of the envelope."""
    envelope = {one.name: one for one in ENVELOPE if one.name in table.column_names}
    fields = attribute_columns(table.schema) | envelope
    found = {}
    for name, field in fields.items():
        column = table[field.name]
        if column.null_count == len(column):
            found[name] = (None, None, len(column))
        elif (ends := _ends(column)) is not None:
            found[name] = (*ends, column.null_count)
    return found


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(type_):
        if pc.any(pc.is_nan(column)).as_py():
            return None  # NaN has no order, so it has no limits
    elif not (pa.types.is_integer(type_) or pa.types.is_string(type_)):
        return None
    ends = pc.min_max(column).as_py()
    return _limit(ends["min"]), _limit(ends["max"])


def _limit(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LIMIT_MAX else None
    return value if abs(value) != math.inf else None  # JSON has no infinity
