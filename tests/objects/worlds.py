"""What the tests of objects share: separate worlds of types, and random types with values."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from infobus.objects import DataObject, Property, describe, kinds, registry
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe
from infobus.objects.spelling import optional


def text_of(obj: object) -> str:
    """What `describe` prints."""
    file = io.StringIO()
    describe(obj, file)
    return file.getvalue()


@contextmanager
def another_process() -> Iterator[None]:
    """Inside, nothing is known but what every process knows; afterwards all is as before."""
    tables: list[Any] = [
        registry.types,
        registry.current,
        registry.declared,
        registry.declared_names,
        registry.built,
        registry.ready,
        registry.learned,
        registry.teachers,
        registry.teacher_of,
        registry.used,
        registry.awaited,
    ]
    before = [table.copy() for table in tables]
    for table in tables:
        table.clear()
    registry.add_declared(DataObject)
    registry.add_declared(Property)
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.clear()
            table.update(content)


_zones = st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone(timedelta(minutes=345))])
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=_zones)
integers = st.integers(kinds.INT_MIN, kinds.INT_MAX)
floats = st.floats(allow_nan=False)
short_text = st.text(max_size=8)
scalars = (
    st.none() | st.booleans() | integers | floats | short_text | st.binary(max_size=8) | moments
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_text, inner, max_size=4),
    max_leaves=10,
)
notifications = st.dictionaries(short_text, anything, max_size=5)
attribute_names = st.sampled_from("alpha beta gamma delta self from name ä".split())

plain_kinds: st.SearchStrategy[Kind] = st.recursive(
    st.sampled_from([*kinds.SCALARS.values(), kinds.ANY]),
    lambda inner: inner.map(ListOf) | inner.map(MapOf) | inner.map(optional),
    max_leaves=3,
)

_BY_KIND: dict[Kind, st.SearchStrategy[Any]] = {
    kinds.BOOL: st.booleans(),
    kinds.INT: integers,
    kinds.FLOAT: floats,
    kinds.STR: short_text,
    kinds.BYTES: st.binary(max_size=8),
    kinds.DATETIME: moments,
    kinds.ANY: anything,
}


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Values that fit `kind`."""
    if isinstance(kind, ListOf):
        return st.lists(values_of(kind.item), max_size=3)
    if isinstance(kind, MapOf):
        return st.dictionaries(short_text, values_of(kind.item), max_size=3)
    if isinstance(kind, Maybe):
        return st.none() | values_of(kind.item)
    return _BY_KIND[kind]


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes as `define_type` takes them, some with defaults."""
    result: dict[str, Any] = {}
    for name in draw(st.lists(attribute_names, unique=True, max_size=6)):
        kind = draw(plain_kinds)
        result[name] = (kind, draw(values_of(kind))) if draw(st.booleans()) else kind
    return result


@st.composite
def values_for(draw: st.DrawFn, cls: type[DataObject]) -> dict[str, Any]:
    """Values for all attributes of a class."""
    return {a.name: draw(values_of(a.kind)) for a in cls.__bus_type__.attributes}
