"""Converts objects to columns: the columns of a type, and the arrays of a batch of events.

A type has one column for each attribute, of the Arrow type that corresponds to its kind. Values
without a suitable column type (`any`, objects of unknown types, types that contain themselves) are
stored as typed maps; see `typed_maps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from infobus.errors import UsageError
from infobus.extras import advice
from infobus.filters.language.values import stored_attributes_of
from infobus.headers import HeaderValue
from infobus.objects import DataObject, Type, find_type, id_of, kinds, type_of
from infobus.objects.codec import carried
from infobus.objects.data import Foreign, unknown_attributes
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, Misfit, ObjectOf
from infobus.stores.journal.typed_maps import entries_of, entries_of_value, header_entries

try:
    import pyarrow as pa
except ImportError as error:
    raise UsageError(
        "journals are Parquet files, which need pyarrow, and that is not installed; "
        + advice("journal")
    ) from error

log = logging.getLogger("infobus")

TIME = pa.timestamp("us", tz="UTC")
VALUE = pa.struct(
    {
        "kind": pa.string(),
        "bool": pa.bool_(),
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "time": TIME,
    }
)
"""One entry of a typed map: the field that `kind` calls for is set."""
ATTRIBUTES = pa.map_(pa.string(), VALUE)
REST = "_attributes"
"""The column of attributes that have none of their own."""

ENVELOPE = pa.schema(
    {
        "_offset": pa.int64(),
        "_subject": pa.string(),
        "_type": pa.string(),
        "_object_id": pa.string(),
        "_event_id": pa.string(),
        "_sender": pa.string(),
        "_number": pa.int64(),
        "_time": TIME,
        "_class": pa.string(),
        "_test": pa.bool_(),
        "_headers": ATTRIBUTES,
    }
)
TOLD = "_headers"
"""The column of headers: as typed maps. Files of events that have none lack it."""
GENERIC = ENVELOPE.append(pa.field(REST, ATTRIBUTES))
"""The columns that every event has, whatever its type."""

NESTING_MAX = 8
"""Structs are not nested deeper; what is deeper is a typed map."""
_TIME_US_MAX = 253_402_300_800_000_000  # the end of the year 9999

_SCALARS: dict[Kind, pa.DataType] = {
    kinds.BOOL: pa.bool_(),
    kinds.INT: pa.int64(),
    kinds.FLOAT: pa.float64(),
    kinds.STR: pa.string(),
    kinds.BYTES: pa.binary(),
    kinds.DATETIME: TIME,
}


Rows = list[Mapping[str, Any]]


class Journaled(Protocol):
    """The attributes of an event that a journal stores; events of a subscription have them."""

    @property
    def subject(self) -> str: ...
    @property
    def data(self) -> Any: ...
    @property
    def sender(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def priority(self) -> str: ...
    @property
    def test(self) -> bool: ...
    @property
    def id(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, HeaderValue]: ...


def arrow_type(kind: Kind, above: tuple[str, ...] = ()) -> pa.DataType:
    """Return the Arrow type for values of a kind.

    >>> arrow_type(ListOf(kinds.INT))
    ListType(list<item: int64>)
    """
    if (found := _SCALARS.get(kind)) is not None:
        return found
    match kind:
        case Maybe():
            return arrow_type(kind.item, above)
        case ListOf():
            return pa.list_(pa.field("item", arrow_type(kind.item, above)))
        case MapOf():
            return pa.map_(pa.string(), arrow_type(kind.item, above))
        case ObjectOf() if (known := nested_type(kind, above)) is not None:
            own = attribute_fields(known, (*above, known.name))
            head = [pa.field("_type", pa.string()), pa.field("_object_id", pa.string())]
            return pa.struct([*head, *own.values(), pa.field(REST, ATTRIBUTES)])
        case _:
            return ATTRIBUTES


def nested_type(kind: ObjectOf, above: tuple[str, ...]) -> Type | None:
    """Return the type whose attributes become the fields of a struct; None for a typed map."""
    known = find_type(str(kind))
    if kind == kinds.OBJECT or known is None or not known.is_known:
        return None
    return None if known.name in above or len(above) >= NESTING_MAX else known


def attribute_fields(known: Type, above: tuple[str, ...] = ()) -> dict[str, pa.Field]:
    """Return the columns of a type's attributes, by the attributes' names.

    If two names differ only in upper and lower case, which SQL does not distinguish, the later
    one's column gets a number.
    """
    taken: set[str] = set()
    fields = {}
    for attribute in known.attributes:
        name = free_name(attribute.name, taken)
        # Each file states which attribute a column belongs to.
        noted = {"attribute": attribute.name} if name != attribute.name else None
        fields[attribute.name] = pa.field(name, arrow_type(attribute.kind, above), metadata=noted)
    return fields


def free_name(name: str, taken: set[str]) -> str:
    """Return `name`, with a number if it is taken, and mark it as taken.

    >>> taken = {"price"}
    >>> free_name("Price", taken), free_name("PRICE", taken)
    ('Price__2', 'PRICE__3')
    """
    found, number = name, 1
    while found.casefold() in taken:
        number += 1
        found = f"{name}__{number}"
    taken.add(found.casefold())
    return found


def type_key(data: Any) -> int:
    """Return the fingerprint of the type under which an object arrived; 0 for plain dicts."""
    if not isinstance(data, DataObject):
        return 0 if isinstance(data, dict) else carried(data).__bus_plan__.fingerprint
    tag = data.__bus_tag__
    return tag.fingerprint if tag.__class__ is Foreign else type_of(data).fingerprint


def table_of(
    events: Sequence[Journaled], offsets: Sequence[int], fingerprint: int
) -> tuple[str, pa.Table]:
    """Return the name of the type of these events, all of one fingerprint, and their columns."""
    data = [carried(event.data) for event in events]
    known = find_type(fingerprint) if fingerprint else None
    name = type_of(data[0]).name if fingerprint else ""
    if known is not None:
        name = known.name
        try:
            return name, _typed(events, data, offsets, known)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            # No accepted event is lost: it is stored as if its type were unknown.
            log.warning("events of %s do not fit its columns: %s", name, error)
    rest = pa.array([entries_of(stored_attributes_of(one)) for one in data], ATTRIBUTES)
    envelope = _envelope(events, offsets, name or None)
    return name, envelope.append_column(GENERIC.field(REST), rest)


def _typed(
    events: Sequence[Journaled], data: Sequence[Any], offsets: Sequence[int], known: Type
) -> pa.Table:
    fields = attribute_fields(known)
    kind_of = {a.name: a.kind for a in known.attributes}
    values, rest = _split(data, kind_of)
    table = _envelope(events, offsets, known.name)
    for attribute, field in fields.items():
        put = _converter(kind_of[attribute])
        column = [value.get(attribute) for value in values]
        array = pa.array(column if put is None else map(put, column), field.type)
        table = table.append_column(field, array)
    if rest:
        others = pa.array([entries_of(one) for one in rest], ATTRIBUTES)
    else:
        others = pa.nulls(len(events), ATTRIBUTES)
    return table.append_column(GENERIC.field(REST), others)


def _split(data: Sequence[DataObject], kind_of: Mapping[str, Kind]) -> tuple[Rows, Rows]:
    """Split values into those that fit a type's columns and the rest ([] if all fit)."""
    values = [stored_attributes_of(one) for one in data]
    if all(value.keys() <= kind_of.keys() for value in values) and not any(
        map(unknown_attributes, data)
    ):
        return values, []
    fitting: Rows = [
        {n: v for n, v in value.items() if _fits(kind_of.get(n), v)} for value in values
    ]
    rest: Rows = [
        {name: one for name, one in value.items() if name not in fits}
        for value, fits in zip(values, fitting, strict=True)
    ]
    return fitting, rest


def _fits(kind: Kind | None, value: Any) -> bool:
    try:
        return kind is not None and (value is None or kind.check(value) is not None)
    except Misfit:
        return False


def _envelope(
    events: Sequence[Journaled], offsets: Sequence[int], type_name: str | None
) -> pa.Table:
    ids = [event.id for event in events]
    columns: list[Iterable[Any]] = [
        offsets,
        [event.subject for event in events],
        [type_name] * len(events),
        [id_of(event.data) or id for event, id in zip(events, ids, strict=True)],
        ids,
        [event.sender for event in events],
        [event.number if event.number <= kinds.INT_MAX else None for event in events],
        [_microseconds(event.time) for event in events],
        [event.priority for event in events],
        [event.test for event in events],
    ]
    told = [header_entries(event.headers) for event in events]
    columns += [told] if any(told) else []
    fields = list(ENVELOPE)[: len(columns)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _microseconds(time_s: float) -> int | None:
    # A sender's clock may show any time.
    moment = time_s * 1e6
    return round(moment) if -_TIME_US_MAX < moment < _TIME_US_MAX else None


Converter = Callable[[Any], Any]


def _converter(kind: Kind, above: tuple[str, ...] = ()) -> Converter | None:
    """Return a function that converts a value for `arrow_type`; None if none is needed."""
    match kind:
        case Maybe():
            return _converter(kind.item, above)
        case ListOf():
            put = _converter(kind.item, above)
            return put and (lambda value: None if value is None else list(map(put, value)))
        case MapOf():
            put_item = _converter(kind.item, above) or _as_it_is
            return lambda value: (
                None if value is None else [(key, put_item(item)) for key, item in value.items()]
            )
        case _ if kind in _SCALARS:
            return None
        case ObjectOf() if (known := nested_type(kind, above)) is not None:
            return _struct_converter(known, (*above, known.name))
        case _:
            return entries_of_value


def _as_it_is(value: Any) -> Any:
    return value


def _struct_converter(known: Type, above: tuple[str, ...]) -> Converter:
    kind_of = {a.name: a.kind for a in known.attributes}
    fields = attribute_fields(known, above)
    puts = {name: _converter(kind, above) or _as_it_is for name, kind in kind_of.items()}

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        row: dict[str, Any] = {"_type": type_of(value).name, "_object_id": id_of(value)}
        rest = {}
        for name, item in stored_attributes_of(value).items():
            if _fits(kind_of.get(name), item):
                row[fields[name].name] = puts[name](item)
            else:
                rest[name] = item
        row[REST] = entries_of(rest) if rest else None
        return row

    return convert
