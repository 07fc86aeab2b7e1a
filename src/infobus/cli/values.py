"""Objects from what people type: `key=text`, `key:=json`, and JSON.

If you name a type, text and JSON are read as it declares: times in ISO 8601, bytes in base64,
nested objects as JSON objects whose key `_type` may name a subtype. A value that does not fit is
left as it is, because the object's own check gives the best error message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from infobus.errors import BadValue, UsageError
from infobus.objects import DataObject, Type, find_type, kinds
from infobus.objects.classes import class_for
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, ObjectOf

TYPE_KEY = "_type"  # no attribute's name begins with '_'


def object_from_items(items: Sequence[str], type_: Type | None = None) -> Any:
    """The object that a command's arguments describe.

    >>> object_from_items(['headline=GM up', 'price:=41.5'])
    {'headline': 'GM up', 'price': 41.5}
    >>> object_from_items(['{"headline": "GM up"}'])
    {'headline': 'GM up'}
    """
    values = values_from_items(items, kinds_of(type_))
    return values if type_ is None else make_object(type_, values)


def values_from_items(items: Sequence[str], by_name: Mapping[str, Kind]) -> dict[str, Any]:
    """The values by name in `key=text key:=json ...`, or in one JSON object."""
    if len(items) == 1 and items[0].lstrip().startswith("{"):
        return _converted(read_object(items[0]), by_name)
    values: dict[str, Any] = {}
    for item in items:
        key, value = split_item(item, by_name)
        if key in values:
            raise UsageError(f"{key!r} is given twice")
        values[key] = value
    return values


def split_item(item: str, by_name: Mapping[str, Kind] = MappingProxyType({})) -> tuple[str, Any]:
    """The name and the value in `key=text` or `key:=json`."""
    key, equals, text = item.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise UsageError(
            f"{item!r} is not an attribute: write key=text, key:=json, or one JSON object; "
            "or publish a text by --text TEXT"
        )
    kind = by_name.get(key)
    if is_json:
        value = read_json(text, f"the value of {key}")
        return key, value if kind is None else value_from_json(kind, value)
    return key, text if kind is None else value_from_text(kind, text)


def headers_from_items(items: Sequence[str]) -> dict[str, Any]:
    """The headers in `name=text name:=json ...`.

    >>> headers_from_items(["trace=4bf92f", "attempt:=2"])
    {'trace': '4bf92f', 'attempt': 2}
    """
    for item in items:
        if not item.partition("=")[1] or item.startswith(("=", ":=")):
            raise UsageError(f"{item!r} is not a header: write name=text, or name:=json")
    return dict(map(split_item, items))


def object_from_json(text: str, type_: Type | None = None) -> Any:
    """The object that is written as a JSON object."""
    values = read_object(text)
    return values if type_ is None else object_from_dict(type_, values)


def object_from_dict(type_: Type, values: dict[str, Any]) -> DataObject:
    """An object of type `type_` from a decoded JSON object."""
    return make_object(type_, _converted(values, kinds_of(type_)))


def read_object(text: str) -> dict[str, Any]:
    """A JSON object, with its values as JSON has them."""
    values = read_json(text, "the object")
    if not isinstance(values, dict):
        raise UsageError(f'expected a JSON object such as {{"key": 1}}, got {text:.60}')
    return values


def kinds_of(type_: Type | None) -> dict[str, Kind]:
    """The kinds of a type's attributes, by name, as they are carried."""
    return {} if type_ is None else {one.name: one.plain for one in type_.attributes}


def _converted(values: dict[str, Any], by_name: Mapping[str, Kind]) -> dict[str, Any]:
    return {
        key: value_from_json(by_name[key], value) if key in by_name else value
        for key, value in values.items()
    }


def make_object(type_: Type, values: dict[str, Any]) -> DataObject:
    """An object of type `type_` with these attributes; raises `BadValue` if they do not fit."""
    cls = class_for(type_.fingerprint)
    if cls is None:
        raise UsageError(f"type {type_.name} is known by name only: nobody has described it")
    return cls(**values)


def read_json(text: str, what: str) -> Any:
    """`text` as JSON; `what` names it in the error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"{what} is not JSON: {error}: {text:.60}") from None
    except RecursionError:
        raise BadValue(f"{what} is nested too deep") from None


def value_from_text(kind: Kind, text: str) -> Any:
    """The value of that kind that `text` spells.

    If the kind is `ANY`, text that can be read as JSON is JSON, and all else is text.

    >>> value_from_text(kinds.FLOAT, "41.5"), value_from_text(kinds.STR, "41.5")
    (41.5, '41.5')
    >>> value_from_text(kinds.ANY, "[1, 2]"), value_from_text(kinds.ANY, "one, two")
    ([1, 2], 'one, two')
    """
    if isinstance(kind, Maybe):
        is_none = kind.item != kinds.STR and text in ("", "null")
        return None if is_none else value_from_text(kind.item, text)
    if kind == kinds.STR:
        return text
    if kind in (kinds.DATETIME, kinds.BYTES):
        return value_from_json(kind, text)
    try:
        return value_from_json(kind, msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def value_from_json(kind: Kind, value: Any) -> Any:
    """A decoded JSON value, converted to that kind."""
    if isinstance(kind, Maybe):
        return None if value is None else value_from_json(kind.item, value)
    if isinstance(value, list) and isinstance(kind, ListOf):
        return [value_from_json(kind.item, item) for item in value]
    if isinstance(value, dict) and isinstance(kind, MapOf):
        return {key: value_from_json(kind.item, item) for key, item in value.items()}
    if isinstance(value, dict) and (isinstance(kind, ObjectOf) or TYPE_KEY in value):
        return _nested_object(str(kind), value)
    if isinstance(value, str) and kind == kinds.DATETIME:
        return _time(value)
    if isinstance(value, str) and kind == kinds.BYTES:
        return _bytes(value)
    return value


def _nested_object(name: str, value: dict[str, Any]) -> Any:
    values = {key: item for key, item in value.items() if key != TYPE_KEY}
    type_ = find_type(str(value.get(TYPE_KEY, name)))
    return value if type_ is None else object_from_dict(type_, values)


def _time(text: str) -> datetime | str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _bytes(text: str) -> bytes | str:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text
