"""Parse kinds: from Python annotations, and from the text in descriptors."""

from __future__ import annotations

import types
import typing
from datetime import datetime
from typing import Any

from infobus.errors import BadType
from infobus.objects import kinds
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, ObjectOf, ObjectRoot

NESTING_MAX = 16
"""How deep `list[`, `dict[` and `| None` may nest in one kind."""

_PYTHON: dict[Any, Kind] = {
    bool: kinds.BOOL,
    int: kinds.INT,
    float: kinds.FLOAT,
    str: kinds.STR,
    bytes: kinds.BYTES,
    datetime: kinds.DATETIME,
    Any: kinds.ANY,
    object: kinds.ANY,
    list: ListOf(kinds.ANY),
    dict: MapOf(kinds.ANY),
    None: kinds.NOTHING,
    type(None): kinds.NOTHING,
}
_ALLOWED = (
    "bool, int, float, str, bytes, datetime, Any, list[T], dict[str, T], T | None "
    "or a DataObject class"
)


def kind_of(annotation: Any) -> Kind:
    """Return the kind of a Python annotation, a kind's text, or a kind itself.

    >>> kind_of(dict[str, list[int] | None])
    <kind dict[str, list[int] | None]>
    >>> kind_of("list[str]")
    <kind list[str]>
    """
    if isinstance(annotation, Kind):
        return annotation
    if isinstance(annotation, str):
        return parse_kind(annotation)
    if isinstance(annotation, type) and issubclass(annotation, ObjectRoot):
        return ObjectOf(annotation.__bus_type__.name, annotation.__bus_type__.lineage)
    try:
        if annotation in _PYTHON:
            return _PYTHON[annotation]
    except TypeError:
        pass  # An annotation that cannot be hashed is not one of the simple ones.
    return _composed(annotation)


def _composed(annotation: Any) -> Kind:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kind_of(args[0])
    if origin is list:
        return ListOf(kind_of(args[0]))
    if origin is dict and args[0] is str:
        return MapOf(kind_of(args[1]))
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return optional(kind_of(args[0] if args[1] is type(None) else args[1]))
    raise BadType(f"{annotation!r} cannot be sent; use {_ALLOWED}")


def optional(kind: Kind) -> Kind:
    """Return `kind | None` in its only spelling."""
    return kind if isinstance(kind, Maybe) or kind in (kinds.ANY, kinds.NOTHING) else Maybe(kind)


def parse_kind(text: str) -> Kind:
    """Parse the text of a kind; raise `BadType` if it is not one.

    >>> parse_kind("dict[str, news.Story | None]")
    <kind dict[str, news.Story | None]>
    """
    kind, rest = _parse(text.strip(), 0)
    if rest:
        raise BadType(f"kind {text!r}: {rest!r} is left over")
    return kind


def _parse(text: str, depth: int) -> tuple[Kind, str]:
    if depth > NESTING_MAX:
        raise BadType(f"a kind is nested deeper than {NESTING_MAX} levels")
    kind: Kind
    if text.startswith("list["):
        item, rest = _parse(text[5:], depth + 1)
        kind, rest = ListOf(item), _expect("]", rest)
    elif text.startswith("dict["):
        item, rest = _parse(_expect(",", _expect("str", text[5:])), depth + 1)
        kind, rest = MapOf(item), _expect("]", rest)
    else:
        end = next((i for i, char in enumerate(text) if char in " |],["), len(text))
        kind, rest = _named(text[:end]), text[end:].lstrip()
    if rest.startswith("|"):
        kind, rest = optional(kind), _expect("None", _expect("|", rest))
    return kind, rest


def _expect(token: str, text: str) -> str:
    if not text.startswith(token):
        raise BadType(f"expected {token!r} in a kind, got {text!r}")
    return text[len(token) :].lstrip()


def _named(name: str) -> Kind:
    simple = {**kinds.SCALARS, "any": kinds.ANY, "None": kinds.NOTHING, "DataObject": kinds.OBJECT}
    return simple.get(name) or ObjectOf(kinds.check_type_name(name))
