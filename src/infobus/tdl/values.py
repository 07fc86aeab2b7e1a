"""The values of TDL programs.

Numbers and strings are Python's own. nil is None and t is True; False does not occur. Objects
are data objects of the bus. Lists are made of immutable cells, so they cannot be cyclic.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from infobus.objects.data import DataObject, type_of

if TYPE_CHECKING:
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
    """A hash table. The type of a key matters: 1, 1.0 and t are three keys."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[tuple[type, Any], Any] = {}


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
        return class_precedence(value.__class__, type_of(value).lineage)
    if value.__class__ is Symbol:
        return _KEYWORD if value.is_keyword else _SYMBOL
    return ("function", "t")


def class_precedence(cls: type[DataObject], lineage: Iterable[str]) -> tuple[str, ...]:
    """Return the `precedence` of instances of a class whose type has this lineage."""
    linear = [base.__bus_type__.name for base in cls.__mro__ if issubclass(base, DataObject)]
    root = linear.pop()
    names = dict.fromkeys([*linear, *sorted(name for name in lineage if name != root)])
    return (*names, root, "t")
