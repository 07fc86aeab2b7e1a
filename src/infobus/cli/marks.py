"""Events in JSON that mean the same when they are read again.

JSON lacks bytes, moments, and floats that are no numbers. Where the kind of an attribute tells what
its text means, text is all there is. Elsewhere, such as in a dict without a type, the value is
marked: `{"$bytes": "AA=="}`, `{"$time": "2026-11-19T10:00:00Z"}`, `{"$float": "nan"}`. A map that
looks like a mark or an object is `{"$map": {...}}`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from infobus.cli.values import TYPE_KEY, kinds_of, make_object, value_from_json
from infobus.errors import BadValue, UsageError
from infobus.objects import DataObject, Type, find_type, kinds, type_of
from infobus.objects.codec import carried
from infobus.objects.data import held_values, unknown_attributes
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, ObjectOf

_MARKS = {"$bytes": kinds.BYTES, "$time": kinds.DATETIME}
_ODD_FLOATS = ("nan", "inf", "-inf")


def attributes_of(data: Any) -> dict[str, Any]:
    """The attributes of an object, including those its type here lacks; a dict as it is."""
    if isinstance(data, dict):
        return data
    obj = carried(data)
    return held_values(obj) | unknown_attributes(obj)


def marked_attributes(data: Any) -> dict[str, Any]:
    """The attributes of what an event holds, as `object_from_marked` reads them."""
    by_name = {} if isinstance(data, dict) else kinds_of(type_of(carried(data)))
    return {
        name: marked(value, by_name.get(name, kinds.ANY))
        for name, value in attributes_of(data).items()
    }


def marked(value: Any, kind: Kind = kinds.ANY) -> Any:
    """A value with marks where JSON and the kind do not tell what it is.

    >>> marked({"key": b"\\0", "n": 1, "odd": {"$map": 1}})
    {'key': {'$bytes': 'AA=='}, 'n': 1, 'odd': {'$map': {'$map': 1}}}
    >>> marked(b"\\0", kinds.BYTES)
    'AA=='
    """
    kind = kind.item if isinstance(kind, Maybe) else kind
    match value:
        case DataObject():
            return {TYPE_KEY: type_of(value).name, **marked_attributes(value)}
        case dict():
            item = kind.item if isinstance(kind, MapOf) else kinds.ANY
            inside = {key: marked(one, item) for key, one in value.items()}
            return {"$map": inside} if _is_ambiguous(value) else inside
        case list() | tuple():
            item = kind.item if isinstance(kind, ListOf) else kinds.ANY
            return [marked(one, item) for one in value]
        case bytes():
            text = base64.b64encode(value).decode()
            return text if kind == kinds.BYTES else {"$bytes": text}
        case datetime():
            return value if kind == kinds.DATETIME else {"$time": value.isoformat()}
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
    return value


def _is_ambiguous(value: dict[str, Any]) -> bool:
    return TYPE_KEY in value or (len(value) == 1 and next(iter(value)).startswith("$"))


def unmarked(value: Any, kind: Kind = kinds.ANY) -> Any:
    """The value that `marked` was given.

    >>> unmarked(marked({"key": b"\\0", "n": 1, "odd": {"$map": 1}}))
    {'key': b'\\x00', 'n': 1, 'odd': {'$map': 1}}
    """
    kind = kind.item if isinstance(kind, Maybe) else kind
    if isinstance(value, list):
        item = kind.item if isinstance(kind, ListOf) else kinds.ANY
        return [unmarked(one, item) for one in value]
    if not isinstance(value, dict):
        return value if value is None else value_from_json(kind, value)
    item = kind.item if isinstance(kind, MapOf) else kinds.ANY
    match value:
        case {"$bytes": str(text), **rest} | {"$time": str(text), **rest} if not rest:
            mark = next(iter(value))
            read = value_from_json(_MARKS[mark], text)
            if isinstance(read, str):
                raise BadValue(f"{text!r:.60} is not what {mark} stands for")
            return read
        case {"$float": str(text), **rest} if not rest and text in _ODD_FLOATS:
            return float(text)
        case {"$map": dict(inside), **rest} if not rest:
            return {key: unmarked(one, item) for key, one in inside.items()}
    if TYPE_KEY in value or isinstance(kind, ObjectOf):
        return _nested(value, kind)
    return {key: unmarked(one, item) for key, one in value.items()}


def _nested(value: dict[str, Any], kind: Kind) -> DataObject:
    name = str(value.get(TYPE_KEY, kind))
    if (type_ := find_type(name)) is None:
        raise UsageError(f"nobody on the bus knows a type {name!r:.80}")
    return object_from_marked(type_, {key: one for key, one in value.items() if key != TYPE_KEY})


def object_from_marked(type_: Type, values: Mapping[str, Any]) -> DataObject:
    """The object of which `marked_attributes` made these values."""
    by_name = kinds_of(type_)
    return make_object(
        type_, {key: unmarked(one, by_name.get(key, kinds.ANY)) for key, one in values.items()}
    )


def headers_from_marked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The headers of which `marked` made these values."""
    read = {name: unmarked(value) for name, value in values.items()}
    for name, value in read.items():
        if value is None or isinstance(value, dict | list | DataObject | datetime):
            raise UsageError(f"header {name!r} is {value!r:.60}: expected text, a number or a bool")
    return read
