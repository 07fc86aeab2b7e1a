"""Kinds: the values that an attribute may hold. Each kind can check a value.

    bool int float str bytes datetime any     scalars, and any value that can be sent
    list[T]   dict[str, T]   T | None         containers and optional values
    news.Story   DataObject                   an object of that type or a subtype; any object

A kind has one spelling (`str(kind)`), which descriptors, error messages and screens use.
`check` returns the value in plain form, ready to be stored and encoded: subclasses of scalars
become the scalars, and containers are copied. So an object never shares a list with the code
that created it, and an accepted value has exactly the promised Python type.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from infobus.errors import BadType

if TYPE_CHECKING:
    from infobus.objects.types import Type

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DEPTH_MAX = 64
"""How deep values may nest; each list, map and object counts as one level."""
PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
"""The largest object on the wire, in bytes."""
VALUES_COUNT_MAX = 1_000_000
"""The most values of an object on the wire: elements of its lists and maps, nested ones too."""
OBJECT_EXT = 1
"""The extension of MessagePack that holds an object."""


class Misfit(Exception):
    """A value does not fit its kind. The path to it grows as the exception moves up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def inside(self, step: str) -> Misfit:
        """Add `step` to the front of the path, and return this misfit."""
        self.path = step + self.path
        return self


class ObjectRoot:
    """The part of `DataObject` that every room of the bus may rely on.

    A class has a type, and an object has a tag. `DataObject` adds `__bus_plan__`, which holds
    the type arranged for speed. Their names have two underscores at both ends, so that they
    never clash with the private names of your own subclasses.
    """

    __slots__ = ("__bus_tag__", "__dict__", "__weakref__")
    __bus_type__: ClassVar[Type]
    # None, the object's id, or a `Foreign`: what was received with it beyond its class.
    __bus_tag__: Any


class Kind:
    """One kind of value. Two kinds are equal if they have the same spelling."""

    exact: type | None = None
    """A Python type all of whose direct instances fit, so that you can skip `check`."""
    wire: Any = Any
    """The type that msgspec decodes a value of this kind to, unless the kind is deep."""
    is_deep = False
    """True if a value may contain objects, or values of any kind."""
    is_container = False
    """True if a program can change a value in place, after `check`."""

    is_rich = False
    """True if the values have a Python class that the bus does not carry; see `rich_kinds`."""

    converts = False
    """True if `check` may return a value with another wire form, such as 1.0 for 1."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<kind {self._text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def check(self, value: Any) -> Any:
        """Return `value` in plain form; raise `Misfit` if it does not fit."""
        raise NotImplementedError

    def includes(self, other: Kind) -> bool:
        """Return whether every value of kind `other` is also of this kind."""
        return self == other or self == ANY

    def refused(self, value: object, hint: str = "") -> Misfit:
        """Return what to raise for a value that does not fit."""
        return Misfit(f"expected {self}, got {shown(value)}{hint}")


def shown(value: object) -> str:
    """Return `value` with its Python type, short enough for an error message.

    >>> shown("21,5")
    "str '21,5'"
    """
    if value is None:
        return "None"
    return f"{type(value).__name__} {reprlib.repr(value)}"


class _Scalar(Kind):
    def __init__(self, python: type, wire: Any = None) -> None:
        super().__init__(python.__name__)
        self.wire = wire or python
        self._python = python

    def includes(self, other: Kind) -> bool:
        return self == other


class _Exact(_Scalar):
    """bool, str and bytes: nothing to check beyond the type."""

    def __init__(self, python: type, also: tuple[type, ...] = ()) -> None:
        super().__init__(python)
        self.exact = python
        self._also = also

    def check(self, value: Any) -> Any:
        if value.__class__ is self.exact:
            return value
        if self.exact is str and isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, (self._python, *self._also)):
            return self._python(value)
        raise self.refused(value)


class _Int(_Scalar):
    def check(self, value: Any) -> int:
        if value.__class__ is int and INT_MIN <= value <= INT_MAX:
            return value
        if not isinstance(value, int) or value.__class__ is bool:
            raise self.refused(value)
        if not INT_MIN <= value <= INT_MAX:
            raise self.refused(value, ", which needs more than 64 bits")
        return int.__int__(value)


class _Float(_Scalar):
    exact = float
    converts = True

    def check(self, value: Any) -> float:
        if not isinstance(value, (float, int)) or value.__class__ is bool:
            raise self.refused(value)
        try:
            return float.__float__(value) if isinstance(value, float) else float(value)
        except OverflowError:
            raise self.refused(value, ", which is too large") from None


class _Datetime(_Scalar):
    def check(self, value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise self.refused(value)
        if value.utcoffset() is None:
            hint = " without a time zone (add one, for example tzinfo=UTC)"
            raise self.refused(value, hint)
        try:
            if not 1 < value.year < 9999:
                value.astimezone(UTC)
        except OverflowError:
            raise self.refused(value, ", which lies outside the years 1 to 9999 UTC") from None
        if value.__class__ is datetime:
            return value
        # msgspec accepts only datetime itself. These calls work whatever a subclass overrides.
        return datetime.combine(value.date(), value.timetz()).replace(fold=value.fold)


class _Nothing(Kind):
    wire = None

    def check(self, value: Any) -> None:
        if value is not None:
            raise self.refused(value)


class _Any(Kind):
    is_deep = True
    is_container = True

    def check(self, value: Any) -> Any:
        return plain(value)

    def includes(self, other: Kind) -> bool:
        return True


class ListOf(Kind):
    """A list whose elements are all of one kind; tuples are accepted as lists."""

    is_container = True

    def __init__(self, item: Kind) -> None:
        super().__init__(f"list[{item}]")
        self.item = item
        self.wire = list[item.wire]  # type: ignore[name-defined]
        self.is_deep = item.is_deep
        self.converts = item.converts

    def check(self, value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise self.refused(value)
        return _check_items(self.item, value)

    def includes(self, other: Kind) -> bool:
        return isinstance(other, ListOf) and self.item.includes(other.item)


class MapOf(Kind):
    """A map from strings to values that are all of one kind."""

    is_container = True

    def __init__(self, item: Kind) -> None:
        super().__init__(f"dict[str, {item}]")
        self.item = item
        self.wire = dict[str, item.wire]  # type: ignore[name-defined]
        self.is_deep = item.is_deep
        self.converts = item.converts

    def check(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refused(value)
        keys = [key if key.__class__ is str else _key(key) for key in value]
        try:
            return dict(zip(keys, _check_items(self.item, list(value.values())), strict=True))
        except Misfit as misfit:
            # The items were checked by position; name the key instead.
            index, _, rest = misfit.path[1:].partition("]")
            misfit.path = f"[{keys[int(index)]!r}]{rest}"
            raise

    def includes(self, other: Kind) -> bool:
        return isinstance(other, MapOf) and self.item.includes(other.item)


class Maybe(Kind):
    """A value of the kind inside, or None."""

    def __init__(self, item: Kind) -> None:
        super().__init__(f"{item} | None")
        self.item = item
        self.wire = item.wire | None
        self.is_deep = item.is_deep
        self.converts = item.converts
        self.is_container = item.is_container

    def check(self, value: Any) -> Any:
        try:
            return None if value is None else self.item.check(value)
        except Misfit as misfit:
            if not misfit.path:
                misfit.problem = misfit.problem.replace(str(self.item), str(self), 1)
            raise

    def includes(self, other: Kind) -> bool:
        inner = other.item if isinstance(other, Maybe) else other
        return other == NOTHING or self.item.includes(inner)


class ObjectOf(Kind):
    """An object of the named type or of one of its subtypes."""

    is_deep = True

    def __init__(self, name: str, lineage: frozenset[str] = frozenset()) -> None:
        super().__init__(name)
        # The supertypes' names, if the class was known when the attribute was declared.
        self._lineage = lineage

    def check(self, value: Any) -> Any:
        if isinstance(value, ObjectRoot):
            lineage = value.__bus_type__.lineage
            if self._text in lineage:
                return value
            # An object of unknown type may well be of this type. It gets the benefit of the
            # doubt, because a missing descriptor must not lose the value.
            tag = value.__bus_tag__
            if len(lineage) == 1 and tag.__class__ not in (tuple, str, type(None)):
                if (misfit := tag.misfit) is None:
                    return value
                raise Misfit(misfit.problem).inside(misfit.path)
        raise self.refused(value)

    def includes(self, other: Kind) -> bool:
        if not isinstance(other, ObjectOf):
            return False
        return self == other or self == OBJECT or self._text in other._lineage


BOOL = _Exact(bool)
INT = _Int(int, Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)])
FLOAT = _Float(float)
STR = _Exact(str)
BYTES = _Exact(bytes, (bytearray, memoryview))
DATETIME = _Datetime(datetime, Annotated[datetime, Meta(tz=True)])
ANY = _Any("any")
NOTHING = _Nothing("None")
OBJECT = ObjectOf("DataObject")
SCALARS: dict[str, Kind] = {str(k): k for k in (BOOL, INT, FLOAT, STR, BYTES, DATETIME)}
RICH_NAMES = frozenset("decimal uuid date time timedelta".split())
RESERVED_NAMES = RICH_NAMES | frozenset(
    {*SCALARS, "any", "None", "list", "dict", "DataObject"}
    | {"enum", "literal", "set", "frozenset", "tuple"}
)

_AS_IT_IS = frozenset({str, bool, float, bytes, type(None)})
_BY_CLASS: dict[type, Kind] = {int: INT, datetime: DATETIME}
Copies = dict[tuple[int, int], tuple[Any, Any]]
"""From depth and identity of a container to the container and its copy.

Without it, a value that shares its parts on many levels would take exponential time. The
original must stay alive, or another container could get its identity.
"""


class Copying:
    """Facts that `plain` records about a value while it copies it."""

    is_shared = False  # a list or map occurs more than once
    has_objects = False

    def __init__(self) -> None:
        self.copies: Copies = {}


def plain(value: Any, depth: int = 1, copying: Copying | None = None) -> Any:
    """Return `value` in plain form if it can be sent: the check of the kind `any`.

    Parts that occur several times in the value are shared in the copy as well.
    """
    cls = value.__class__
    if cls in _AS_IT_IS:
        return value
    if (kind := _BY_CLASS.get(cls)) is not None:
        return kind.check(value)
    if isinstance(value, ObjectRoot):
        if copying is not None:
            copying.has_objects = True
        return value
    if depth > DEPTH_MAX:
        raise Misfit(f"nested deeper than {DEPTH_MAX} levels, or cyclic")
    if isinstance(value, (list, tuple, dict)):
        copy: Callable[..., Any] = plain_dict if isinstance(value, dict) else _plain_list
        if copying is None:  # the outermost container cannot be shared
            return copy(value, depth, Copying())
        place = (depth, id(value))
        if (found := copying.copies.get(place)) is None:
            found = copying.copies[place] = value, copy(value, depth, copying)
        else:
            copying.is_shared = True
        return found[1]
    for kind in SCALARS.values():
        if isinstance(value, kind._python):  # type: ignore[attr-defined]
            return kind.check(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise Misfit(f"expected a value that can be sent, got {shown(value)}")


def _plain_list(values: Any, depth: int, copying: Copying) -> list[Any]:
    result: list[Any] = []
    try:
        for value in values:
            is_plain = value.__class__ in _AS_IT_IS
            result.append(value if is_plain else plain(value, depth + 1, copying))
    except Misfit as misfit:
        raise misfit.inside(f"[{len(result)}]") from None
    return result


def plain_dict(values: dict[Any, Any], depth: int, copying: Copying) -> dict[str, Any]:
    """Return a map in plain form, as `plain` does."""
    result = {}
    key: Any = None
    try:
        for key, value in values.items():
            name = key if key.__class__ is str else _key(key)
            is_plain = value.__class__ in _AS_IT_IS
            result[name] = value if is_plain else plain(value, depth + 1, copying)
    except Misfit as misfit:
        raise misfit.inside(f"[{key!r}]") from None
    return result


def _key(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise Misfit(f"expected str as key of a map, got {shown(key)}")


def _check_items(kind: Kind, values: Any) -> list[Any]:
    # One pass in C handles the usual case: every element has exactly the right type.
    if kind.exact is not None and set(map(type, values)) <= {kind.exact}:
        return list(values)
    result: list[Any] = []
    check = kind.check
    try:
        for value in values:
            result.append(check(value))
    except Misfit as misfit:
        raise misfit.inside(f"[{len(result)}]") from None
    return result


def check_type_name(name: object) -> str:
    """Return `name` if it is a valid type name: identifiers joined by dots, 255 characters."""
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise BadType(f"type name {name!r} is not made of identifiers joined by dots")
    if name in RESERVED_NAMES:
        raise BadType(f"type name {name!r} is taken by the language of kinds")
    if len(name) > 255:
        raise BadType(f"type name {name[:40]!r}... has {len(name)} characters, 255 are allowed")
    return name
