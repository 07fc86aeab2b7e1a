"""The order of query results.

The database sorts the rows of each table, and Python merges the tables, so both must sort alike.
Objects without a value come last in either direction, and strings sort by code points.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import total_ordering
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func

from infobus.errors import UsageError
from infobus.repository.catalog import TypeTable

ENVELOPE = ("_id", "_subject", "_time")
_NUMBERS = ("int", "float")
_ORDERED = ("bool", "int", "float", "str", "bytes", "datetime")


class Term(NamedTuple):
    """An attribute to order by, and the direction."""

    name: str
    is_descending: bool


def terms_of(order: str | Sequence[str] | None) -> list[Term]:
    """Parse an order such as `"-date"` or `["place", "-date"]`.

    >>> terms_of("-date, _id")
    [Term(name='date', is_descending=True), Term(name='_id', is_descending=False)]
    """
    if order is None:
        return []
    words = order.split(",") if isinstance(order, str) else order
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"order={order!r}: expected attributes, such as '-date' or ['-date']")
    names = [word.strip() for word in words]
    for name in names:
        bare = name.removeprefix("-")
        if not bare.isidentifier() or (bare.startswith("_") and bare not in ENVELOPE):
            raise UsageError(f"cannot order by {name!r}: give an attribute, or {ENVELOPE}")
    return [Term(name.removeprefix("-"), name.startswith("-")) for name in names]


def columns_of(term: Term, table: TypeTable) -> list[ColumnElement[Any]]:
    """Return the columns to order by: numbers first, then the attribute's other forms."""
    if term.name in ENVELOPE:
        return [table.table.c[term.name]]
    homes = [home for home in table.homes_of(term.name) if str(home.form) in _ORDERED]
    numbers = [table.table.c[home.column] for home in homes if home.form.of in _NUMBERS]
    others = [home for home in homes if home.form.of not in _NUMBERS]
    found: list[ColumnElement[Any]] = []
    if numbers:
        found.append(func.coalesce(*numbers) if len(numbers) > 1 else numbers[0])
    for of in _ORDERED:
        found += [table.table.c[home.column] for home in others if home.form.of == of]
    return found


def directed(column: ColumnElement[Any], term: Term) -> ColumnElement[Any]:
    """Return a column with direction, for `ORDER BY`."""
    return (column.desc() if term.is_descending else column.asc()).nulls_last()


def key_of(terms: Sequence[Term], values: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return a sort key that sorts like the database; `values` are those of each term's columns."""
    return tuple(
        _key(term, next((value for value in found if value is not None), None))
        for term, found in zip(terms, values, strict=True)
    )


def _key(term: Term, value: Any) -> tuple[int, Any]:
    if value is None:
        return len(_RANKS) + 1, 0
    rank = _RANKS.get(type(value), len(_RANKS))
    if rank == len(_RANKS):
        value = repr(value)  # written by hand: it comes last, in no particular order
    return rank, _Reversed(value) if term.is_descending else value


_RANKS = {int: 0, float: 0, bool: 1, str: 2, bytes: 3, datetime: 4}


@total_ordering
class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)
