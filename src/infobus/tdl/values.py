"""What TDL programs compute with.

Numbers and strings are Python's own; nil is None and t is True (False does not occur). Objects
are data objects of the bus. Lists are made of cells that never change, so there are no cycles
among them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from infobus.objects.data import DataObject, type_of

if TYPE_CHECKING:
    from infobus.tdl.machine import Run
    from infobus.tdl.reader import Position

Deep = Generator[Any, Any, Any]
"""An evaluation that may need others: it yields them, and is sent their values."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name; it is a keyword if it begins with a colon."""

    name: str

    @property
    def is_keyword(self) -> bool:
        """Whether it stands for itself, as `:before` does."""
        return self.name.startswith(":")


class Cell:
    """A pair: the first of a list, and the rest of it."""

    __slots__ = ("first", "rest")

    def __init__(self, first: Any, rest: Any) -> None:
        self.first = first
        self.rest = rest


class Table:
    """A hash table. Keys count with their types: 1, 1.0 and t are three keys."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[tuple[type, Any], Any] = {}


class Function:
    """What can be called: `invoke` gives the evaluation of a call made at some place."""

    __slots__ = ()
    name: str

    def invoke(self, run: Run, arguments: list[Any], at: Position) -> Deep:
        """The evaluation of a call."""
        raise NotImplementedError


def make_list(items: Iterable[Any], rest: Any = None) -> Any:
    """The list of `items`, in front of `rest`."""
    for item in reversed(list(items)):
        rest = Cell(item, rest)
    return rest


def walk(cells: Any) -> Iterator[Any]:
    """The elements of a list; what stands in place of a last cell's rest is left out."""
    while cells.__class__ is Cell:
        yield cells.first
        cells = cells.rest


def attribute_name(symbol: str) -> str:
    """The attribute or operation that a TDL name stands for.

    >>> attribute_name("opened-at")
    'opened_at'
    """
    return symbol.replace("-", "_")


# The condition types have lower-case names in the language, as elsewhere in CLOS.
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
    type(None): ("null", "boolean", "list", "symbol", "t"),
    bool: ("boolean", "symbol", "t"),
    int: ("integer", "number", "t"),
    float: ("float", "number", "t"),
    str: ("string", "t"),
    bytes: ("bytes", "t"),
    datetime: ("datetime", "t"),
    Cell: ("cons", "list", "t"),
    Table: ("hash-table", "t"),
}
_SYMBOL, _KEYWORD = ("symbol", "t"), ("keyword", "symbol", "t")
BUILT_IN_CLASSES = frozenset(
    {name for names in _KINDS.values() for name in names} | {"keyword", "function"}
)


def full_name(name: str) -> str:
    """The name of the class that `name` stands for in the language."""
    return ALIASES.get(name, name)


def shown_name(name: str) -> str:
    """The name by which the language knows the class called `name`."""
    return _SHOWN.get(name, name)


def precedence(value: Any) -> tuple[str, ...]:
    """The names of the classes that `value` belongs to, the most specific first.

    For an object it is the order of its Python class (C3), followed by supertypes that are
    known by name only.

    >>> precedence(3)
    ('integer', 'number', 't')
    """
    names = _KINDS.get(value.__class__)
    if names is not None:
        return names
    if isinstance(value, DataObject):
        return class_precedence(value.__class__, type_of(value).lineage)
    if value.__class__ is Symbol:
        return _KEYWORD if value.is_keyword else _SYMBOL
    return ("function", "t")


def class_precedence(cls: type[DataObject], lineage: Iterable[str]) -> tuple[str, ...]:
    """As `precedence`, of the instances of a class whose type has that lineage."""
    linear = [base.__bus_type__.name for base in cls.__mro__ if issubclass(base, DataObject)]
    root = linear.pop()
    names = dict.fromkeys([*linear, *sorted(name for name in lineage if name != root)])
    return (*names, root, "t")
