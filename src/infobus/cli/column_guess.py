"""Guess the columns of an undeclared table from the conditions of a filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy
from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from infobus.filters import Filter
from infobus.filters.language.lexer import name_text
from infobus.filters.language.literals import TEXTUAL, Test
from infobus.filters.language.normal import AllOf, AnyOf, Normal, normal


def guess_columns(where: Filter) -> dict[str, sqlalchemy.ColumnClause[Any]]:
    """A column for each attribute of the filter; its type is that of the values compared with it.

    >>> from infobus.filters import compile
    >>> columns = guess_columns(compile('symbol == "GMC" && price > 40.5 && exists(alert)'))
    >>> {name: type_text(column) for name, column in columns.items()}
    {'alert': 'VARCHAR', 'price': 'DOUBLE', 'symbol': 'VARCHAR'}
    """
    guesses: dict[str, set[str]] = {}
    for test in _tests(normal(where.tree)):
        guesses.setdefault(name_text(test.name.path), set()).add(_guess(test))
    return {
        name: sqlalchemy.column(name, _column_type(guesses.get(name, set()) - {""}))
        for name in sorted(where.attributes)
    }


def type_text(column: sqlalchemy.ColumnClause[Any]) -> str:
    """The column's SQL type, or words that say it is unknown."""
    return "of unknown type" if isinstance(column.type, types.NullType) else str(column.type)


def _tests(form: Normal) -> Iterator[Test]:
    match form:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _tests(part)
        case Test():
            yield form


def _guess(test: Test) -> str:
    if test.op in TEXTUAL:
        return "string"
    if test.op == "has":
        return "list"
    if test.family == "number" and any(isinstance(value, float) for value in test.values):
        return "real"
    return test.family


def _column_type(guesses: set[str]) -> TypeEngine[Any]:
    match sorted(guesses):
        case [] | ["string"]:
            return types.String()
        case ["number"]:
            return types.BigInteger()
        case ["real"] | ["number", "real"]:
            return types.Double()
        case ["bool"]:
            return types.Boolean()
        case ["datetime"]:
            return types.DateTime(timezone=True)
        case _:
            return types.NullType()  # several types: a database can only test for a value
