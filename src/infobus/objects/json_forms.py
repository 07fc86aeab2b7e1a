"""Objects as plain dicts and as JSON, and types as JSON schemas, for programs beyond the bus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from infobus.errors import BadType
from infobus.objects import registry
from infobus.objects.codec import carried
from infobus.objects.data import (
    DataObject,
    attribute_values,
    held_values,
    type_of,
    unknown_attributes,
)
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, ObjectOf
from infobus.objects.types import Type

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SIMPLE: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "timedelta": {"type": "number", "description": "seconds"},
    "uuid": {"type": "string", "format": "uuid"},
    "decimal": {"type": "string", "format": "decimal"},
    "any": {},
    "None": {"type": "null"},
    "DataObject": {"type": "object"},
}


def to_dict(obj: Any) -> dict[str, Any]:
    """Return the attributes of an object by name; objects inside it become dicts, too.

    It takes whatever can be published. Values keep their Python classes, such as `Decimal`.

    Raises:
        BadValue: `obj` cannot be published.

    >>> class Point(DataObject):
    ...     x: int
    >>> class Line(DataObject):
    ...     ends: list[Point]
    >>> to_dict(Line(ends=[Point(x=1)]))
    {'ends': [{'x': 1}]}
    """
    found = _plain(carried(obj), True)
    assert isinstance(found, dict)
    return found


def to_json(obj: Any) -> str:
    """Return an object as JSON, with its values as the bus carries them.

    Moments are in ISO 8601, bytes in base64, decimal numbers in quotes, time spans in seconds. It
    takes whatever can be published, and fits what `json_schema` says.

    Raises:
        BadValue: `obj` cannot be published.
    """
    return msgspec.json.encode(_plain(carried(obj), False)).decode()


def _plain(value: Any, is_rich: bool) -> Any:
    if type(value).__module__ != "builtins" and value.__class__ in registry.twins:
        value = carried(value)
    if isinstance(value, DataObject):
        own = attribute_values(value) if is_rich else held_values(value)
        value = {**own, **unknown_attributes(value)}
    if isinstance(value, dict):
        return {key: _plain(one, is_rich) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, is_rich) for one in value]
    if isinstance(value, tuple):
        return tuple(_plain(one, is_rich) for one in value)
    if isinstance(value, set):
        return set(value)
    return value


def json_schema(*what: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, or of several: of what `to_json` writes.

    Args:
        what: Types, or classes that can be published. What they mention is in the schema, too. If
            it is a single one, the schema is that of its objects; else it only defines them.

    Raises:
        BadType: One of them is no such class.
    """
    types = [one if isinstance(one, Type) else _type_of_class(one) for one in what]
    schemas: dict[str, Any] = {}
    for one in types:
        _define(one, schemas)
    result: dict[str, Any] = {"$schema": DIALECT}
    if len(types) == 1:
        result["$ref"] = _reference(types[0].name)
    return result | {"$defs": dict(sorted(schemas.items()))}


def _type_of_class(cls: Any) -> Type:
    from infobus.objects.payloads import twin_class  # late: most programs need none of them

    if not isinstance(cls, type):
        raise BadType(f"{cls!r:.80} is neither a type nor a class")
    return type_of(twin_class(cls))


def _reference(name: str) -> str:
    return f"#/$defs/{name}"


def _define(known: Type, schemas: dict[str, Any]) -> None:
    if known.name in schemas:
        return
    properties: dict[str, Any] = {}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schemas[known.name] = schema
    if known.doc:
        schema["description"] = known.doc
    for attribute in known.attributes:
        one = _of(attribute.checker, schemas)
        if attribute.doc:
            one = {**one, "description": attribute.doc}
        if attribute.has_default:
            one = {**one, "default": msgspec.to_builtins(attribute.default)}
        properties[attribute.name] = one
    schema["required"] = [one.name for one in known.attributes if not one.has_default]


def _of(kind: Kind, schemas: dict[str, Any]) -> dict[str, Any]:
    if (simple := _SIMPLE.get(str(kind))) is not None:
        return dict(simple)
    if isinstance(kind, Maybe):
        return _any_of([kind.item], schemas, {"type": "null"})
    if isinstance(kind, ListOf):
        return {"type": "array", "items": _of(kind.item, schemas)}
    if isinstance(kind, MapOf):
        return {"type": "object", "additionalProperties": _of(kind.item, schemas)}
    if kind.is_rich and (found := _of_rich(kind, schemas)) is not None:
        return found
    plain = getattr(kind, "plain", kind)
    name = str(plain)
    known = registry.find_type(name) if isinstance(plain, ObjectOf) else None
    if known is None:
        return {"type": "object"}
    _define(known, schemas)
    return {"$ref": _reference(name)}


def _of_rich(kind: Kind, schemas: dict[str, Any]) -> dict[str, Any] | None:
    from infobus.objects import rich_kinds as rich  # late: most types need none of them

    match kind:
        case rich.LiteralOf() | rich.EnumOf():
            title = {"title": kind.name} if isinstance(kind, rich.EnumOf) else {}
            return {"enum": list(kind.values), **title}
        case rich.RichMaybe():
            return _any_of([kind.item], schemas, {"type": "null"})
        case rich.UnionOf():
            return _any_of(kind.items, schemas)
        case rich.SetOf():
            return {"type": "array", "items": _of(kind.item, schemas), "uniqueItems": True}
        case rich.RichList() | rich.TupleOf():
            return {"type": "array", "items": _of(kind.item, schemas)}
        case rich.RichMap():
            return {"type": "object", "additionalProperties": _of(kind.item, schemas)}
        case rich.RichTuple():
            count = len(kind.items)
            places = [_of(one, schemas) for one in kind.items]
            return {"type": "array", "prefixItems": places, "minItems": count, "maxItems": count}
    return None


def _any_of(
    some: Iterable[Kind], schemas: dict[str, Any], *more: Mapping[str, Any]
) -> dict[str, Any]:
    return {"anyOf": [*(_of(one, schemas) for one in some), *more]}
