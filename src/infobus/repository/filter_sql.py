"""Translate filters to SQL conditions over a type's tables.

The repository can translate more than the general `filters.pushdown`, because it knows how
moments, strings and lists are stored. An object with data in `_extra` may have the attribute
there: the condition says nothing about such an object, and the whole filter decides in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, literal, select

from infobus.filters import Filter
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.pushdown.sql import SqlTarget
from infobus.filters.pushdown.translation import TargetAttribute, push_down
from infobus.repository import schema
from infobus.repository.catalog import TypeTable
from infobus.repository.column_forms import OBJECT, Moment

_KINDS = {
    "bool": "bool",
    "int": "integer",
    "float": "real64",
    "str": "string",
    "bytes": "opaque",
    "datetime": "datetime",
}


class Where(NamedTuple):
    """A condition for the database, or None, and the rest of the filter for Python."""

    condition: ColumnElement[bool] | None
    residual: Filter | None


def where_of(filter: Filter, table: TypeTable) -> Where:
    """Split a filter into a condition over `table` and the rest, which Python decides."""
    pushed = push_down(filter, _Tables(table))
    if pushed.condition is None:
        return Where(None, pushed.residual)
    return Where(pushed.condition, pushed.residual)


class _Tables(SqlTarget):
    equated = SqlTarget.equated | {"datetime"}
    ordered = SqlTarget.ordered | {"datetime", "string"}

    def __init__(self, table: TypeTable) -> None:
        super().__init__({})
        self._table = table
        self._items: dict[str, Table] = {}  # by the name of the size column

    def attribute(self, name: Name) -> TargetAttribute | None:
        homes = self._table.homes_of(name.path[0]) if len(name.path) == 1 else []
        if len(homes) != 1:
            return None  # no column, or several
        _, form, column_name, item_table = homes[0]
        column = self._table.table.c[column_name]
        if form.is_column:
            return TargetAttribute(column, _KINDS[form.of]) if form.of in _KINDS else None
        if form.shape != "list":
            return TargetAttribute(column, "object")
        if item_table is not None:
            self._items[column_name] = self._table.items[item_table]
        return TargetAttribute(column, "list", "" if form.of == OBJECT else _KINDS.get(form.of, ""))

    def literal(self, value: Scalar) -> Any | None:
        return literal(value, Moment()) if isinstance(value, datetime) else super().literal(value)

    def has_one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any:
        items = self._items[attribute.expression.name].c
        holders = select(items["_id"]).where(items["_part"] == 0, items[schema.VALUE].in_(literals))
        return self._table.table.c["_id"].in_(holders)

    def size(self, attribute: TargetAttribute) -> Any | None:
        return attribute.expression if attribute.kind == "list" else None
