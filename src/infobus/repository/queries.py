"""Run queries: find the objects of a type and its subtypes that match a filter.

Each table of a subtype is a stream of rows that the database sorts and filters. Python merges
the streams, rebuilds the objects, and applies the rest of the filter.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Generator, Sequence
from itertools import chain, islice
from typing import Any

from sqlalchemy import Connection, select

from infobus.errors import UsageError
from infobus.filters import Filter
from infobus.filters.language.values import attributes_of
from infobus.objects import DataObject, Property, id_of, type_of
from infobus.objects.data import attribute_values, unknown_attributes
from infobus.repository.catalog import UNTYPED, Catalog, TypeTable
from infobus.repository.filter_sql import where_of
from infobus.repository.order import ENVELOPE, Term, columns_of, directed, key_of
from infobus.repository.schema import EXTRA, ID, SUBJECT, TIME
from infobus.repository.to_objects import Rebuilding

PAGE_COUNT = 500

Hit = tuple[tuple[Any, ...], Any, dict[str, Any]]
"""The sort key, the object, and its envelope: `_id`, `_type`, `_subject`, `_time`."""


class QueryResult(list[Any]):
    """The objects that a query found, in order, with the properties attached to them.

    Attributes:
        properties: From an object's id and a property's name to the `Property` object.
    """

    def __init__(
        self, objects: Sequence[Any], properties: dict[str, dict[str, Property]] | None = None
    ) -> None:
        super().__init__(objects)
        self.properties = properties or {}

    def properties_of(self, obj: DataObject) -> dict[str, Property]:
        """Return an object's properties by name; if several share a name, the last counts."""
        return self.properties.get(id_of(obj) or "", {})


class Asking:
    """One query inside one read transaction."""

    def __init__(self, connection: Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog

    def hits(
        self, type_name: str, filter: Filter | None, terms: Sequence[Term], limit: int | None
    ) -> list[Hit]:
        """Return at most `limit` objects, in the order of the terms.

        Raises:
            UsageError: No stored type has an attribute to order by.
        """
        members = self._catalog.members(type_name)
        known = self._catalog.attributes(type_name)
        for term in terms:
            if members and term.name not in known | {*ENVELOPE}:
                close = difflib.get_close_matches(term.name, known, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise UsageError(
                    f"cannot order by {term.name!r}: neither {type_name} nor a subtype that is "
                    f"stored has such an attribute{hint}"
                )
        page_count = PAGE_COUNT if limit is None else max(1, min(PAGE_COUNT, limit))
        streams = [
            self._stream(table, versions, filter, terms, page_count) for table, versions in members
        ]
        together = heapq.merge(*streams, key=lambda hit: hit[0]) if terms else chain(*streams)
        try:
            return list(islice(together, limit))
        finally:
            for stream in streams:
                stream.close()  # closes its cursor, which may have rows left

    def _stream(
        self,
        table: TypeTable,
        versions: list[int] | None,
        filter: Filter | None,
        terms: Sequence[Term],
        page_count: int,
    ) -> Generator[Hit, None, None]:
        columns, residual = table.table.c, filter
        orders = [columns_of(term, table) for term in terms]
        flat = list(chain(*orders))
        chosen = select(table.table, *(c.label(f"_order_{at}") for at, c in enumerate(flat)))
        chosen = chosen.where(columns["_part"] == 0)
        if versions is not None:
            chosen = chosen.where(columns["_version"].in_(versions))
        if filter is not None:
            condition, residual = where_of(filter, table)
            chosen = chosen if condition is None else chosen.where(condition)
        for term, ordered in zip(terms, orders, strict=True):
            chosen = chosen.order_by(*(directed(column, term) for column in ordered))
        options = {"stream_results": True, "yield_per": page_count}
        width = len(columns)
        with self._connection.execute(chosen, execution_options=options) as result:
            for rows in result.partitions():
                objects = Rebuilding(self._connection, self._catalog, table, rows).objects
                for row, obj in zip(rows, objects, strict=True):
                    # Data in `_extra` bypassed the SQL condition, so the whole filter decides.
                    judge = filter if row[EXTRA] is not None else residual
                    if judge is None or judge.matches(obj):
                        values = iter(row[width:])
                        key = key_of(terms, [list(islice(values, len(one))) for one in orders])
                        yield key, obj, _envelope(table, row)

    def properties(self, ids: Sequence[str]) -> dict[str, dict[str, Property]]:
        """Return the properties of objects, by object id and property name."""
        found: dict[str, dict[str, Property]] = {}
        for table, _ in self._catalog.members(type_of(Property).name):
            place = next((home.column for home in table.homes_of("ref")), None)
            if place is None:
                continue
            columns = table.table.c
            for start in range(0, len(ids), PAGE_COUNT):
                chosen = select(table.table).where(
                    columns["_part"] == 0, columns[place].in_(ids[start : start + PAGE_COUNT])
                )
                rows = self._connection.execute(chosen.order_by(columns["_time"])).all()
                for one in Rebuilding(self._connection, self._catalog, table, rows).objects:
                    found.setdefault(one.ref, {})[one.name] = one
        return found


def _envelope(table: TypeTable, row: Any) -> dict[str, Any]:
    return {
        "_id": row[ID],
        "_type": table.type_name,
        "_subject": row[SUBJECT],
        "_time": row[TIME],
    }


def row_of(obj: Any, envelope: dict[str, Any], properties: dict[str, Property]) -> dict[str, Any]:
    """Return an object as one flat row: envelope, attributes, and values of its properties."""
    values = {name: one.value for name, one in properties.items()}
    if envelope["_type"] == UNTYPED:
        return {**envelope, **attributes_of(obj), "_properties": values}
    known = attribute_values(obj) | unknown_attributes(obj)
    return {**envelope, **known, "_properties": values}


def ids_of(hits: Sequence[Hit]) -> list[str]:
    """Return the ids that properties use to refer to the objects."""
    return [id_of(obj) or envelope["_id"] for _, obj, envelope in hits]
