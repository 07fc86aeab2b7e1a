"""The values of TDL programs.

Numbers and strings are Python's own. nil is None and t is True; False does not occur. Objects
are data objects of the bus. Lists are made of immutable cells, so they cannot be cyclic.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from infobus.objects.data import DataObject, type_of

if TYPE_CHECKING:
    from infobus.objects.kinds import Kind
    from infobus.tdl.machine import Evaluation
    from infobus.tdl.reader import SourcePosition

Deep = Generator[Any, Any, Any]
"""An evaluation that may need others: it yields each of them, and is sent its value."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name; it is a keyword if it begins with a colon."""

    name: str

    @property
    def is_keyword(self) -> bool:
        """True if the symbol evaluates to itself, as `:before` does."""
        return self.name.startswith(":")


class Cell:
    """A pair: the first element of a list, and the rest of the list."""

    __slots__ = ("first", "rest")

    def __init__(self, first: Any, rest: Any) -> None:
        self.first = first
        self.rest = rest


class Table:
    """A hash table. The type of a key matters: 1, 1.0 and t are three keys.

    An entry's key is a tuple of the type, the value and perhaps more. Once a table is in a slot,
    it is the map that the slot's object holds: then `kind` is the kind of its values, which are
    in plain form, and its keys are strings.
    """

    __slots__ = ("entries", "kind")

    def __init__(self, entries: dict[Any, Any] | None = None, kind: Kind | None = None) -> None:
        self.entries = {} if entries is None else entries
        self.kind = kind

    def keys(self) -> list[Any]:
        """Return the keys as the program knows them."""
        return list(self.entries) if self.kind else [key[1] for key in self.entries]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield the keys as the program knows them, and the values as the table holds them."""
        for key, value in self.entries.items():
            yield (key if self.kind else key[1]), value


class TextStream:
    """The text that a `print-object` method has written so far."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[str] = []


@dataclass(frozen=True, slots=True)
class ClassObject:
    """A class as a value: what `find-class` and `class-of` return."""

    name: str


class Function:
    """A value that a program can call: built-in, closure, or generic function."""

    __slots__ = ()
    name: str

    def invoke(self, run: Evaluation, arguments: list[Any], at: SourcePosition) -> Deep:
        """Return the evaluation of a call that is made at position `at`."""
        raise NotImplementedError


def make_list(items: Iterable[Any], rest: Any = None) -> Any:
    """Return the list of `items` followed by `rest`."""
    for item in reversed(list(items)):
        rest = Cell(item, rest)
    return rest


def walk(cells: Any) -> Iterator[Any]:
    """Yield the elements of a list; ignore the tail of an improper list."""
    while cells.__class__ is Cell:
        yield cells.first
        cells = cells.rest


def attribute_name(symbol: str) -> str:
    """Return the attribute or operation that a TDL name refers to.

    >>> attribute_name("opened-at")
    'opened_at'
    """
    return symbol.replace("-", "_")


# In the language, the condition types have lower-case names, as in CLOS.
ALIASES = {
    "condition": "tdl.Condition",
    "error": "tdl.Error",
    "type-error": "tdl.TypeError",
    "arithmetic-error": "tdl.ArithmeticError",
    "unbound-error": "tdl.UnboundError",
    "bus-error": "tdl.BusError",
}
_SHOWN = {full: alias for alias, full in ALIASES.items()}

_KINDS: dict[type, tuple[str, ...]] = {
    type(None): ("null", "boolean", "symbol", "list", "t"),
    bool: ("boolean", "symbol", "t"),
    int: ("integer", "number", "t"),
    float: ("float", "number", "t"),
    str: ("string", "t"),
    bytes: ("bytes", "t"),
    datetime: ("datetime", "t"),
    Cell: ("cons", "list", "t"),
    Table: ("hash-table", "t"),
    TextStream: ("stream", "t"),
    ClassObject: ("class", "t"),
}
_SYMBOL, _KEYWORD = ("symbol", "t"), ("keyword", "symbol", "t")
BUILT_IN_CLASSES = frozenset(
    {name for names in _KINDS.values() for name in names} | {"keyword", "function"}
)


def built_in_precedence(name: str) -> tuple[str, ...]:
    """Return a class of the language, and those above it.

    >>> built_in_precedence("integer")
    ('integer', 'number', 't')
    """
    orders = [*_KINDS.values(), _SYMBOL, _KEYWORD, ("function", "t")]
    # A value may have classes between this one and a superclass: nil is a symbol and a list.
    return min((order[order.index(name) :] for order in orders if name in order), key=len)


_orders: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()
"""The precedence of each class whose objects were asked for it."""


def full_name(name: str) -> str:
    """Return the full class name for a name used in TDL."""
    return ALIASES.get(name, name)


def shown_name(name: str) -> str:
    """Return the name that TDL uses for the class called `name`."""
    return _SHOWN.get(name, name)


def precedence(value: Any) -> tuple[str, ...]:
    """Return the names of the classes of `value`, most specific first.

    For an object this is the order of its Python class (C3), followed by the supertypes of
    which only the names are known.

    >>> precedence(3)
    ('integer', 'number', 't')
    """
    names = _KINDS.get(value.__class__)
    if names is not None:
        return names
    if isinstance(value, DataObject):
        cls = value.__class__
        if cls is DataObject:  # received, of a type that has no class here
            return class_precedence(cls, type_of(value).lineage)
        if (found := _orders.get(cls)) is None:
            found = _orders[cls] = class_precedence(cls, cls.__bus_type__.lineage)
        return found
    if value.__class__ is Symbol:
        return _KEYWORD if value.is_keyword else _SYMBOL
    return ("function", "t")


def class_precedence(cls: type[DataObject], lineage: Iterable[str]) -> tuple[str, ...]:
    """Return the `precedence` of instances of a class whose type has this lineage."""
    linear = [base.__bus_type__.name for base in cls.__mro__ if issubclass(base, DataObject)]
    root = linear.pop()
    names = dict.fromkeys([*linear, *sorted(name for name in lineage if name != root)])
    return (*names, root, "t")
