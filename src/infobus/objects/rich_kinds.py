"""Rich kinds: values with a Python class of their own, which the bus carries as plain ones.

    decimal   uuid   date   time   timedelta           carried as text, timedelta as seconds
    enum[Side, BUY="buy"]   literal["a", "b"]          as the value
    set[T]   frozenset[T]   tuple[T, U]   tuple[T, ...]     as a list
    int | str   list[decimal]   uuid | None            as what is inside

An object holds the plain value, and so do filters, stores and other languages; whoever reads the
attribute gets the rich one. `check` takes either and returns the plain one, `lift` is the way
back. A stranger without the class of an enum gets its plain values.
"""

from __future__ import annotations

import datetime as moments
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, NoReturn, SupportsIndex

import msgspec

from infobus.errors import BadType
from infobus.objects import kinds
from infobus.objects.kinds import Kind, ListOf, MapOf, Maybe, Misfit, ObjectOf, shown

DECIMAL_LENGTH_MAX = 1000
"""The most characters of a decimal number on the wire."""

_encode = msgspec.msgpack.Encoder().encode
_write_json = msgspec.json.Encoder().encode


class RichKind(Kind):
    """A kind whose values the bus carries in the form of another kind, `plain`.

    `column` is the kind by which stores and filters know the values. It differs from `plain` for
    decimals alone, which are text, but are to compare as numbers.
    """

    is_rich = True
    has_decimals = False

    def __init__(self, text: str, plain: Kind, column: Kind | None = None) -> None:
        super().__init__(text)
        self.plain = plain
        self.column = column or plain
        self.wire, self.is_deep = plain.wire, plain.is_deep
        self.is_container = plain.is_container

    def lift(self, value: Any, fixed: bool = False) -> Any:
        """Return the rich value of a plain one; raise `Misfit` if there is none.

        With `fixed`, containers refuse to be changed, because the object would not know.
        """
        raise NotImplementedError

    def compared(self, value: Any) -> Any:
        """Return a plain value as filters compare it."""
        return value


class _Scalar(RichKind):
    """One value that is carried as text or a number."""

    def __init__(
        self,
        text: str,
        plain: Kind,
        python: type,
        write: Callable[[Any], Any],
        read: Callable[[Any], Any],
        column: Kind | None = None,
    ) -> None:
        super().__init__(text, plain, column)
        self.python = python
        self._write, self._read = write, read

    def check(self, value: Any) -> Any:
        if not isinstance(value, self.python):
            value = self.lift(value)
        elif self.python is moments.date and isinstance(value, moments.datetime):
            raise self.refused(value, ", which is a moment, not a day")
        try:
            return self.plain.check(self._write(value))
        except (ValueError, ArithmeticError) as error:
            raise self.refused(value, f": {error}") from None

    def lift(self, value: Any, fixed: bool = False) -> Any:
        try:
            return self._read(value)
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            raise self.refused(value) from None


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("it is not finite")
    text = str(value)
    if len(text) > DECIMAL_LENGTH_MAX:
        raise ValueError(f"it takes more than {DECIMAL_LENGTH_MAX} characters")
    return text


def _decimal(value: Any) -> Decimal:
    if isinstance(value, float):
        value = repr(value)  # 0.1 is 0.1, not what a float makes of it
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError
    if isinstance(value, str) and len(value) > DECIMAL_LENGTH_MAX:
        raise ValueError
    found = Decimal(value)
    if not found.is_finite():
        raise InvalidOperation
    return found


class _DecimalKind(_Scalar):
    has_decimals = True

    def __init__(self) -> None:
        super().__init__("decimal", kinds.STR, Decimal, _decimal_text, _decimal, kinds.ANY)

    def compared(self, value: Any) -> Any:
        try:
            return float(value)
        except (ValueError, TypeError, OverflowError):
            return value  # it was sent so; nothing compares with it


class _UuidKind(_Scalar):
    def __init__(self) -> None:
        from uuid import UUID  # late: it takes a while to import

        super().__init__("uuid", kinds.STR, UUID, str, UUID)


def _seconds(value: moments.timedelta) -> float:
    seconds = value.total_seconds()
    if moments.timedelta(seconds=seconds) != value:
        raise ValueError("it is too long to be known to the microsecond")
    return seconds


def _span(value: Any) -> moments.timedelta:
    if isinstance(value, bool):
        raise TypeError
    return moments.timedelta(seconds=value)


SIMPLE: dict[str, Callable[[], RichKind]] = {
    "decimal": _DecimalKind,
    "uuid": _UuidKind,
    "date": lambda: _Scalar(
        "date",
        kinds.STR,
        moments.date,
        moments.date.isoformat,
        moments.date.fromisoformat,
    ),
    "time": lambda: _Scalar(
        "time",
        kinds.STR,
        moments.time,
        moments.time.isoformat,
        moments.time.fromisoformat,
    ),
    "timedelta": lambda: _Scalar("timedelta", kinds.FLOAT, moments.timedelta, _seconds, _span),
}
"""Makers of the kinds that have a name of their own."""


class LiteralOf(RichKind):
    """One of some strings, integers and bools."""

    def __init__(self, values: Sequence[Any]) -> None:
        allowed = _distinct(values, "a Literal")
        super().__init__(f"literal[{', '.join(map(_json, allowed))}]", _common(allowed))
        self.values = allowed

    def check(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        return self.lift(value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        for one in self.values:
            if one == value and one.__class__ is value.__class__:
                return one
        raise self.refused(value)


class EnumOf(RichKind):
    """A member of an enum, carried as its value; `python` is None where nobody has the class."""

    def __init__(
        self, name: str, members: Sequence[tuple[str, Any]], python: type[Enum] | None = None
    ) -> None:
        self.name, self.members, self.python = name, dict(members), python
        allowed = _distinct(list(self.members.values()), f"enum {name}")
        if not all(one.isidentifier() for one in (name, *self.members)):
            raise BadType(f"enum {name}: its name and those of its members must be identifiers")
        written = "".join(f", {key}={_json(value)}" for key, value in self.members.items())
        super().__init__(f"enum[{name}{written}]", _common(allowed))
        self.values = allowed

    def check(self, value: Any) -> Any:
        if isinstance(value, Enum):
            is_ours = self.python is None or isinstance(value, self.python)
            value = value.value if is_ours else value
        return self._allowed(value)

    def _allowed(self, value: Any) -> Any:
        for one in self.values:
            if one == value and one.__class__ is value.__class__:
                return one
        allowed = ", ".join(map(_json, self.values[:20])) + ", ..." * (len(self.values) > 20)
        raise Misfit(f"expected {self.name} (one of {allowed}), got {shown(value)}")

    def lift(self, value: Any, fixed: bool = False) -> Any:
        value = self._allowed(value)
        return value if self.python is None else self.python(value)


def _distinct(values: Sequence[Any], what: str) -> tuple[Any, ...]:
    """Return values that a kind may name, each once."""
    found: dict[Any, Any] = {}
    for value in values:
        value = value.value if isinstance(value, Enum) else value
        base = next((one for one in (bool, int, str) if isinstance(value, one)), None)
        if base is None:
            raise BadType(f"{what} has the value {value!r:.40}; only str, int and bool can be sent")
        plain = (kinds.BOOL if base is bool else kinds.INT if base is int else kinds.STR).check(
            value
        )
        found.setdefault((base, plain), plain)
    if not found:
        raise BadType(f"{what} has no values")
    return tuple(found.values())


def _common(values: Iterable[Any]) -> Kind:
    classes = {value.__class__ for value in values}
    simple = {bool: kinds.BOOL, int: kinds.INT, str: kinds.STR}
    return simple[classes.pop()] if len(classes) == 1 else kinds.ANY


def _json(value: Any) -> str:
    return str(_write_json(value), "utf-8")


class RichMaybe(RichKind):
    """A rich value, or None."""

    def __init__(self, item: RichKind) -> None:
        plain = item.plain if item.plain == kinds.ANY else Maybe(item.plain)
        column = item.column if item.column == kinds.ANY else Maybe(item.column)
        super().__init__(f"{item} | None", plain, column)
        self.item, self.has_decimals = item, item.has_decimals

    def check(self, value: Any) -> Any:
        return None if value is None else self.item.check(value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        return None if value is None else self.item.lift(value, fixed)

    def compared(self, value: Any) -> Any:
        return None if value is None else self.item.compared(value)


class _Items(RichKind):
    """What lists, sets and tuples with one kind of item share."""

    def __init__(self, text: str, item: Kind) -> None:
        super().__init__(text, ListOf(plain_of(item)), ListOf(column_of(item)))
        self.item, self.has_decimals = item, has_decimals(item)

    def compared(self, value: Any) -> Any:
        if not self.has_decimals or not isinstance(value, list):
            return value
        return [compared(self.item, one) for one in value]


def _each(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    done: list[Any] = []
    try:
        for value in values:
            done.append(function(value))
    except Misfit as misfit:
        raise misfit.inside(f"[{len(done)}]") from None
    return done


class RichList(_Items):
    """A list of rich values."""

    def __init__(self, item: RichKind) -> None:
        super().__init__(f"list[{item}]", item)

    def check(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise self.refused(value)
        return _each(self.item.check, value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        if not isinstance(value, list | tuple):
            raise self.refused(value)
        items = _each(lambda one: lifted(self.item, one, fixed), value)
        return FixedList(items) if fixed else items


class SetOf(_Items):
    """A set: carried as a list without repeats, in an order that depends on its items alone."""

    def __init__(self, item: Kind, python: type = set) -> None:
        if not _is_hashable(item):
            raise BadType(f"a set of {item} cannot be: its items must be hashable")
        super().__init__(f"{python.__name__}[{item}]", item)
        self.python = python

    def check(self, value: Any) -> Any:
        if not isinstance(value, set | frozenset | list | tuple):
            raise self.refused(value)
        items = {_encode(one): one for one in _each(self.item.check, value)}
        return [items[key] for key in sorted(items)]

    def lift(self, value: Any, fixed: bool = False) -> Any:
        if not isinstance(value, set | frozenset | list | tuple):
            raise self.refused(value)
        items = _each(lambda one: lifted(self.item, one, fixed), value)
        try:
            made = self.python(items)
        except TypeError as error:
            raise self.refused(value, f": {error}") from None
        return FixedSet(made) if fixed and self.python is set else made


class TupleOf(_Items):
    """A tuple of any length whose items are all of one kind."""

    def __init__(self, item: Kind) -> None:
        super().__init__(f"tuple[{item}, ...]", item)

    def check(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise self.refused(value)
        return _each(self.item.check, value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        if not isinstance(value, list | tuple):
            raise self.refused(value)
        return tuple(_each(lambda one: lifted(self.item, one, fixed), value))


class RichTuple(RichKind):
    """A tuple with a kind for each of its places."""

    def __init__(self, items: Sequence[Kind]) -> None:
        self.items = tuple(items)
        if not items:
            raise BadType("a tuple without places holds nothing that could be sent")
        super().__init__(
            f"tuple[{', '.join(map(str, items))}]",
            ListOf(_shared([plain_of(one) for one in items])),
            ListOf(_shared([column_of(one) for one in items])),
        )
        self.has_decimals = any(map(has_decimals, items))

    def check(self, value: Any) -> Any:
        return self._by_place(lambda kind, one: kind.check(one), value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        return tuple(self._by_place(lambda kind, one: lifted(kind, one, fixed), value))

    def compared(self, value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(self.items):
            return value
        return [compared(kind, one) for kind, one in zip(self.items, value, strict=True)]

    def _by_place(self, function: Callable[[Kind, Any], Any], value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self.items):
            raise self.refused(value)
        places = zip(self.items, value, strict=True)
        return _each(lambda place: function(*place), places)


def _is_hashable(kind: Kind) -> bool:
    """Return whether values of a kind can be in a set."""
    if isinstance(kind, _Scalar | LiteralOf | EnumOf):
        return True
    if isinstance(kind, Maybe | RichMaybe | TupleOf):
        return _is_hashable(kind.item)
    if isinstance(kind, RichTuple | UnionOf):
        return all(map(_is_hashable, kind.items))
    if isinstance(kind, SetOf):
        return kind.python is frozenset
    return not (isinstance(kind, RichKind) or kind.is_container or kind.is_deep)


def _shared(some: Sequence[Kind]) -> Kind:
    return some[0] if len(set(some)) == 1 else kinds.ANY


class RichMap(RichKind):
    """A map from strings to rich values."""

    def __init__(self, item: RichKind) -> None:
        super().__init__(f"dict[str, {item}]", MapOf(item.plain), MapOf(item.column))
        self.item, self.has_decimals = item, item.has_decimals

    def check(self, value: Any) -> Any:
        return self._each(self.item.check, value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        items = self._each(lambda one: self.item.lift(one, fixed), value)
        return FixedDict(items) if fixed else items

    def compared(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: self.item.compared(one) for key, one in value.items()}

    def _each(self, function: Callable[[Any], Any], value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refused(value)
        done = {}
        for key, one in value.items():
            if not isinstance(key, str):
                raise Misfit(f"expected str as key of a map, got {shown(key)}")
            try:
                done[str(key)] = function(one)
            except Misfit as misfit:
                raise misfit.inside(f"[{key!r}]") from None
        return done


class UnionOf(RichKind):
    """A value of one of several kinds, which must look different on the wire."""

    def __init__(self, items: Sequence[Kind]) -> None:
        self.items = tuple(sorted(items, key=lambda one: (one == kinds.NOTHING, str(one))))
        self._by_family: dict[str, list[Kind]] = {}
        for item in self.items:
            for family in families_of(item):
                self._by_family.setdefault(family, []).append(item)
        for family, alike in self._by_family.items():
            if len(alike) > 1 and family != "object":
                raise BadType(
                    f"{' | '.join(map(str, alike))} cannot be told apart on the wire, where each "
                    f"is a {family}; give them attributes of their own"
                )
        are_objects = all(families_of(item) == {"object"} for item in self.items)
        plain = kinds.OBJECT if are_objects else kinds.ANY
        super().__init__(" | ".join(map(str, self.items)), plain)
        self.has_decimals = any(map(has_decimals, self.items))

    def check(self, value: Any) -> Any:
        # First whoever takes the value as it is, so that an int is not made a decimal.
        last = None
        for item in sorted(self.items, key=lambda one: not _is_at_home(one, value)):
            try:
                return item.check(value)
            except Misfit as misfit:
                last = misfit if misfit.path else last
        raise last or self.refused(value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        last = None
        for item in self._by_family.get(family_of(value), ()):
            try:
                return lifted(item, item.check(value), fixed)
            except Misfit as misfit:
                last = misfit
        raise last or self.refused(value)

    def compared(self, value: Any) -> Any:
        found = self._by_family.get(family_of(value), ())
        return compared(found[0], value) if len(found) == 1 else value


_FAMILIES: dict[type, str] = {
    type(None): "None",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    moments.datetime: "datetime",
    list: "list",
    dict: "dict",
}


def family_of(value: Any) -> str:
    """Return what a plain value is on the wire, such as `str`; objects are of one family."""
    return _FAMILIES.get(value.__class__, "object")


def families_of(kind: Kind) -> set[str]:
    """Return what values of a kind may be on the wire."""
    if isinstance(kind, LiteralOf | EnumOf):
        return {family_of(value) for value in kind.values}
    plain = plain_of(kind)
    if isinstance(kind, RichMaybe) or isinstance(plain, Maybe):
        inner = kind.item if isinstance(kind, Maybe | RichMaybe) else plain.item  # type: ignore[attr-defined]
        return families_of(inner) | {"None"}
    if isinstance(plain, ListOf | MapOf):
        return {"list" if isinstance(plain, ListOf) else "dict"}
    return {"object"} if isinstance(plain, ObjectOf) else {str(plain)}


def _is_at_home(kind: Kind, value: Any) -> bool:
    if isinstance(kind, SetOf):
        return isinstance(value, set | frozenset)
    if isinstance(python := getattr(kind, "python", None), type):
        return isinstance(value, python)
    return not isinstance(kind, RichKind) and family_of(value) in families_of(kind)


def plain_of(kind: Kind) -> Kind:
    """Return the kind in whose form values of a kind are carried."""
    return kind.plain if isinstance(kind, RichKind) else kind


def column_of(kind: Kind) -> Kind:
    """Return the kind by which stores and filters know values of a kind."""
    return kind.column if isinstance(kind, RichKind) else kind


def has_decimals(kind: Kind) -> bool:
    """Return whether values of a kind compare otherwise than they are carried."""
    return isinstance(kind, RichKind) and kind.has_decimals


def lifted(kind: Kind, value: Any, fixed: bool = False) -> Any:
    """Return the rich value of a plain one, whatever the kind."""
    return kind.lift(value, fixed) if isinstance(kind, RichKind) else value


def compared(kind: Kind, value: Any) -> Any:
    """Return a plain value as filters compare it, whatever the kind."""
    return kind.compared(value) if isinstance(kind, RichKind) else value


def union_of(items: Sequence[Kind]) -> Kind:
    """Return the kind of values that are of one of these kinds, in its only spelling."""
    flat: dict[Kind, None] = {}
    for item in items:
        inner: Sequence[Kind] = item.items if isinstance(item, UnionOf) else (item,)
        for one in inner:
            if isinstance(one, Maybe | RichMaybe):
                flat |= {one.item: None, kinds.NOTHING: None}
            else:
                flat[one] = None
    if kinds.ANY in flat:
        return kinds.ANY
    some = [one for one in flat if one != kinds.NOTHING]
    if not some:
        return kinds.NOTHING
    if len(some) > 1:
        return UnionOf(list(flat))
    if len(some) == len(flat):
        return some[0]
    return RichMaybe(some[0]) if isinstance(some[0], RichKind) else Maybe(some[0])


# What an object hands out of containers that it does not hold as they are.


def _copied(self: Any, protocol: SupportsIndex) -> tuple[type, tuple[Any]]:
    plain = type(self).__mro__[1]
    return plain, (plain(self),)


def _shown_as_copied(self: Any) -> str:
    return repr(type(self).__mro__[1](self))


def _fixed(self: Any, *args: Any, **options: Any) -> NoReturn:
    raise TypeError(
        f"this {type(self).__mro__[1].__name__} is a copy, which cannot be changed; set the "
        "attribute to a new one"
    )


class FixedList(list[Any]):
    """A list that refuses to be changed."""

    __reduce_ex__ = _copied
    append = extend = insert = remove = pop = clear = sort = reverse = _fixed
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _fixed


class FixedSet(set[Any]):
    """A set that refuses to be changed."""

    __reduce_ex__, __repr__ = _copied, _shown_as_copied
    add = update = remove = discard = pop = clear = _fixed
    intersection_update = difference_update = symmetric_difference_update = _fixed
    __ior__ = __iand__ = __isub__ = __ixor__ = _fixed


class FixedDict(dict[str, Any]):
    """A map that refuses to be changed."""

    __reduce_ex__ = _copied
    update = pop = popitem = clear = setdefault = _fixed
    __setitem__ = __delitem__ = __ior__ = _fixed
