"""Parse kinds: from Python annotations, and from the text in descriptors."""

from __future__ import annotations

import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum, Flag
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
    "bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, an Enum, "
    "Literal, Any, list[T], dict[str, T], set[T], tuple[T, ...], T | None, unions of these, or a "
    "DataObject class"
)
_LISTS = {list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection}
_MAPS = {dict, abc.Mapping, abc.MutableMapping}
_SETS: dict[Any, type] = {set: set, abc.Set: frozenset, abc.MutableSet: set, frozenset: frozenset}

Find = Callable[[Any], Kind | None]
"""Returns the kind of an annotation that stands for a class of another library."""


def kind_of(annotation: Any, find: Find | None = None) -> Kind:
    """Return the kind of a Python annotation, a kind's text, or a kind itself.

    `find` is asked about classes that are not the bus's own.

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
    kind = find(annotation) if find is not None else None
    return kind or _composed(annotation, find)


def _composed(annotation: Any, find: Find | None) -> Kind:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kind_of(args[0], find)
    if origin in _LISTS:
        return list_of(kind_of(args[0], find))
    if origin in _MAPS and args[0] is str:
        return map_of(kind_of(args[1], find))
    if origin in (typing.Union, types.UnionType):
        return union_of([kind_of(one, find) for one in args])
    return _rich(annotation, origin, args, find)


def _rich(annotation: Any, origin: Any, args: tuple[Any, ...], find: Find | None) -> Kind:
    from infobus.objects import rich_kinds as rich  # late: most programs need none of them

    if origin is typing.Literal:
        return rich.LiteralOf(args)
    if (made := _SETS.get(origin)) is not None:
        return rich.SetOf(kind_of(args[0], find), made)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return rich.TupleOf(kind_of(args[0], find))
    if origin is tuple:
        return rich.RichTuple([kind_of(one, find) for one in args])
    if annotation is tuple:
        return rich.TupleOf(kinds.ANY)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        if issubclass(annotation, Flag):
            raise BadType(f"{annotation!r} cannot be sent: its members can be combined; use int")
        members = [(name, one.value) for name, one in annotation.__members__.items()]
        return rich.EnumOf(annotation.__name__, members, annotation)
    name = getattr(annotation, "__name__", "").lower()
    if name in kinds.RICH_NAMES and annotation is getattr(
        sys.modules.get(annotation.__module__), annotation.__name__, None
    ):
        made_kind = rich.SIMPLE[name]()
        if getattr(made_kind, "python", None) is annotation:
            return made_kind
    # `NewType("Symbol", str)` and `type Symbol = str` stand for another annotation.
    inner = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
    if inner is not None:
        return kind_of(inner, find)
    raise BadType(f"{annotation!r} cannot be sent; use {_ALLOWED}")


def optional(kind: Kind) -> Kind:
    """Return `kind | None` in its only spelling."""
    if kind.is_rich:
        return union_of([kind, kinds.NOTHING])
    return kind if isinstance(kind, Maybe) or kind in (kinds.ANY, kinds.NOTHING) else Maybe(kind)


def list_of(item: Kind) -> Kind:
    """Return the kind of lists of such items."""
    if not item.is_rich:
        return ListOf(item)
    from infobus.objects.rich_kinds import RichKind, RichList

    assert isinstance(item, RichKind)
    return RichList(item)


def map_of(item: Kind) -> Kind:
    """Return the kind of maps from strings to such items."""
    if not item.is_rich:
        return MapOf(item)
    from infobus.objects.rich_kinds import RichKind, RichMap

    assert isinstance(item, RichKind)
    return RichMap(item)


def union_of(items: Sequence[Kind]) -> Kind:
    """Return the kind of values of one of these kinds, in its only spelling."""
    if len(items) == 2 and kinds.NOTHING in items:
        item = items[0] if items[1] == kinds.NOTHING else items[1]
        if not item.is_rich:
            return optional(item)
    from infobus.objects import rich_kinds

    return rich_kinds.union_of(items)


def parse_kind(text: str) -> Kind:
    """Parse the text of a kind; raise `BadType` if it is not one.

    >>> parse_kind("dict[str, news.Story | None]")
    <kind dict[str, news.Story | None]>
    """
    kind, rest = _parse(text.strip(), 0)
    if rest:
        raise BadType(f"kind {text!r}: {rest!r} is left over")
    return kind


def _parse(text: str, depth: int, is_outermost: bool = True) -> tuple[Kind, str]:
    if depth > NESTING_MAX:
        raise BadType(f"a kind is nested deeper than {NESTING_MAX} levels")
    kind: Kind
    if text.startswith("list["):
        item, rest = _parse(text[5:], depth + 1)
        kind, rest = list_of(item), _expect("]", rest)
    elif text.startswith("dict["):
        item, rest = _parse(_expect(",", _expect("str", text[5:])), depth + 1)
        kind, rest = map_of(item), _expect("]", rest)
    elif text.startswith(("set[", "frozenset[", "tuple[")):
        kind, rest = _parse_group(text, depth)
    elif text.startswith(("enum[", "literal[")):
        kind, rest = _parse_values(text)
    else:
        end = next((i for i, char in enumerate(text) if char in " |],["), len(text))
        kind, rest = _named(text[:end]), text[end:].lstrip()
    alternatives = [kind]
    while is_outermost and rest.startswith("|"):
        other, rest = _parse(_expect("|", rest), depth, False)
        alternatives.append(other)
    return (union_of(alternatives) if len(alternatives) > 1 else kind), rest


def _parse_group(text: str, depth: int) -> tuple[Kind, str]:
    """Parse a set or a tuple."""
    from infobus.objects import rich_kinds as rich

    shape, _, rest = text.partition("[")
    item, rest = _parse(rest, depth + 1)
    items = [item]
    while rest.startswith(",") and shape == "tuple":
        rest = _expect(",", rest)
        if rest.startswith("...") and len(items) == 1:
            return rich.TupleOf(item), _expect("]", _expect("...", rest))
        item, rest = _parse(rest, depth + 1)
        items.append(item)
    rest = _expect("]", rest)
    if shape == "tuple":
        return rich.RichTuple(items), rest
    return rich.SetOf(item, set if shape == "set" else frozenset), rest


def _parse_values(text: str) -> tuple[Kind, str]:
    """Parse an enum or a literal, whose values are written as in JSON."""
    from json import JSONDecoder

    from infobus.objects import rich_kinds as rich

    read = JSONDecoder().raw_decode
    shape, _, rest = text.partition("[")
    name = ""
    names: list[str] = []
    values: list[Any] = []
    if shape == "enum":
        name, _comma, rest = rest.partition(",")
        rest = rest.lstrip()
    try:
        while True:
            if shape == "enum":
                key, _, rest = rest.partition("=")
                names.append(key)
            value, end = read(rest)
            values.append(value)
            rest = rest[end:].lstrip()
            if not rest.startswith(","):
                break
            rest = _expect(",", rest)
    except ValueError:
        raise BadType(f"expected values as in JSON in a kind, got {text[:80]!r}") from None
    rest = _expect("]", rest)
    if shape == "literal":
        return rich.LiteralOf(values), rest
    if len(set(names)) < len(names):
        raise BadType(f"enum {name} has two members of one name")
    return rich.EnumOf(name, list(zip(names, values, strict=True))), rest


def _expect(token: str, text: str) -> str:
    if not text.startswith(token):
        raise BadType(f"expected {token!r} in a kind, got {text!r}")
    return text[len(token) :].lstrip()


def _named(name: str) -> Kind:
    if name in kinds.RICH_NAMES:
        from infobus.objects.rich_kinds import SIMPLE

        return SIMPLE[name]()
    simple = {**kinds.SCALARS, "any": kinds.ANY, "None": kinds.NOTHING, "DataObject": kinds.OBJECT}
    return simple.get(name) or ObjectOf(kinds.check_type_name(name))
