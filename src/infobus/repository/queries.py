"""Run queries: find the objects of a type and its subtypes that match a filter.

Each table of a subtype is a stream of rows that the database sorts and filters. Python merges
the streams, rebuilds the objects, and applies the rest of the filter. At any time it holds a page
of each stream.

An index helps only a condition that stands alone. So the objects with data in `_extra`, for which
Python decides, are a stream of their own if there is an index that finds them.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Container, Generator, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, literal, not_, or_, select

from infobus.errors import UsageError
from infobus.filters import Filter
from infobus.filters.language.values import attributes_of
from infobus.headers import NO_HEADERS, Headers, with_headers
from infobus.objects import DataObject, Property, id_of, type_of
from infobus.objects.data import held_values, unknown_attributes
from infobus.repository.catalog import UNTYPED, Catalog, TypeTable
from infobus.repository.column_forms import Moment
from infobus.repository.database import is_one_of
from infobus.repository.filter_sql import where_of
from infobus.repository.order import ENVELOPE, Term, columns_of, directed, key_of
from infobus.repository.schema import EXTRA, ID, ONLY_HEADERS, SUBJECT, TIME
from infobus.repository.to_objects import Rebuilding
from infobus.repository.writer import ID_COUNT

PAGE_COUNT = 500

Hit = tuple[tuple[Any, ...], Any, dict[str, Any]]
"""The sort key, the object, and its envelope: `_id`, `_type`, `_subject`, `_time`; `_headers` if
there are any."""


class QueryResult(list[Any]):
    """The objects that a query found, in order, with the properties attached to them.

    Attributes:
        properties: From an object's id and a property's name to the `Property` object.
        headers: From an object's id to the headers of the event that brought it.
    """

    def __init__(
        self,
        objects: Sequence[Any],
        properties: dict[str, dict[str, Property]] | None = None,
        headers: dict[str, Headers] | None = None,
    ) -> None:
        super().__init__(objects)
        self.properties = properties or {}
        self.headers = headers or {}

    def properties_of(self, obj: DataObject) -> dict[str, Property]:
        """Return an object's properties by name; if several share a name, the last counts."""
        return self.properties.get(id_of(obj) or "", {})

    def headers_of(self, obj: DataObject) -> Headers:
        """Return the headers of the event that brought an object; none if it had none."""
        return self.headers.get(id_of(obj) or "", NO_HEADERS)


class Asking:
    """One query inside one read transaction."""

    def __init__(
        self, connection: Connection, catalog: Catalog, indexed: Container[str] = ()
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._indexed = indexed  # the tables with an index that finds data in `_extra`

    def hits(
        self, type_name: str, filter: Filter | None, terms: Sequence[Term], limit: int | None
    ) -> Generator[Hit, None, None]:
        """Iterate over at most `limit` objects, in the order of the terms.

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
        streams = [
            stream
            for table, versions in members
            for stream in self._streams(table, versions, filter, terms, limit)
        ]
        together = heapq.merge(*streams, key=lambda hit: hit[0]) if terms else chain(*streams)
        try:
            yield from islice(together, limit)
        finally:
            for stream in streams:
                stream.close()  # closes its cursor, which may have rows left

    def _streams(
        self,
        table: TypeTable,
        versions: list[int] | None,
        filter: Filter | None,
        terms: Sequence[Term],
        limit: int | None,
    ) -> Iterator[Generator[Hit, None, None]]:
        columns = table.table.c
        orders = [columns_of(term, table) for term in terms]
        flat = list(chain(*orders))
        chosen = select(table.table, *(c.label(f"_order_{at}") for at, c in enumerate(flat)))
        chosen = chosen.where(columns["_part"] == 0)
        if versions is not None:
            chosen = chosen.where(columns["_version"].in_(versions))
        condition, residual = (None, None) if filter is None else where_of(filter, table)
        is_unusual = and_(
            columns["_extra"].is_not(None), columns["_extra"].not_like(f"{ONLY_HEADERS}%")
        )
        selections: list[Select[Any]] = [chosen]
        is_decided = filter is None  # by the database alone
        if condition is not None and table.name in self._indexed:
            usual = chosen.where(condition, not_(is_unusual))
            selections = [usual, chosen.where(is_unusual)]
            is_decided = residual is None
        elif condition is not None:
            selections = [chosen.where(or_(condition, is_unusual))]
        for at, one in enumerate(selections):
            count_max = limit if is_decided and at == 0 else None
            ordered = _ordered(one, terms, orders, count_max)
            yield self._stream(table, ordered, filter, residual, terms, orders, limit)

    def _stream(
        self,
        table: TypeTable,
        selections: Sequence[Select[Any]],
        filter: Filter | None,
        residual: Filter | None,
        terms: Sequence[Term],
        orders: Sequence[Sequence[ColumnElement[Any]]],
        limit: int | None,
    ) -> Generator[Hit, None, None]:
        page_count = PAGE_COUNT if limit is None else max(1, min(PAGE_COUNT, limit))
        options = {"stream_results": True, "yield_per": page_count}
        width = len(table.table.c)
        for chosen in selections:
            with self._connection.execute(chosen, execution_options=options) as result:
                for rows in result.partitions():
                    found = Rebuilding(self._connection, self._catalog, table, rows)
                    for row, obj, told in zip(rows, found.objects, found.headers, strict=True):
                        # Of data in `_extra` the SQL condition knows nothing, so the whole
                        # filter decides.
                        judge = filter if row[EXTRA] is not None else residual
                        if judge is None or judge.matches(with_headers(obj, told)):
                            values = iter(row[width:])
                            key = key_of(terms, [list(islice(values, len(one))) for one in orders])
                            yield key, obj, _envelope(table, row, told)

    def page_of_ids(
        self,
        table: TypeTable,
        versions: list[int] | None,
        filter: Filter | None,
        before: datetime | None,
        after: str,
    ) -> tuple[list[str], str | None]:
        """Return the ids of matching objects among the next ones after an id.

        Also return where the next page begins, or None at the end.
        """
        columns = table.table.c
        chosen = select(table.table).where(columns["_part"] == 0, columns["_id"] > after)
        if versions is not None:
            chosen = chosen.where(columns["_version"].in_(versions))
        if before is not None:
            chosen = chosen.where(columns["_time"] < literal(before, Moment()))
        condition, residual = (None, None) if filter is None else where_of(filter, table)
        if condition is not None:
            chosen = chosen.where(or_(condition, columns["_extra"].is_not(None)))
        chosen = chosen.order_by(columns["_id"]).limit(ID_COUNT)
        rows: Sequence[Any] = self._connection.execute(chosen).all()
        last = rows[-1][ID] if len(rows) == ID_COUNT else None
        if filter is not None:
            built = Rebuilding(self._connection, self._catalog, table, rows)
            judges = [filter if row[EXTRA] is not None else residual for row in rows]
            seen = map(with_headers, built.objects, built.headers)
            rows = [
                row
                for row, one, judge in zip(rows, seen, judges, strict=True)
                if judge is None or judge.matches(one)
            ]
        return [row[ID] for row in rows], last

    def ids_of_properties(self, ids: Sequence[str]) -> Iterator[tuple[TypeTable, list[str]]]:
        """Return the tables and ids of the properties of objects."""
        for table, _ in self._catalog.members(type_of(Property).name):
            columns = table.table.c
            for home in table.homes_of("ref"):
                chosen = select(columns["_id"]).where(
                    columns["_part"] == 0,
                    is_one_of(self._connection, columns[home.column], ids),
                )
                if found := list(self._connection.scalars(chosen)):
                    yield table, found

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


def _ordered(
    chosen: Select[Any],
    terms: Sequence[Term],
    orders: Sequence[Sequence[ColumnElement[Any]]],
    count_max: int | None,
) -> list[Select[Any]]:
    """Return selections that together give the rows in order, at most `count_max` each.

    The first few by one column are those that have a value, then the others: in this form
    PostgreSQL can read them from an index in either direction.
    """
    if count_max is not None and len(orders) == 1 and len(orders[0]) == 1:
        column, term = orders[0][0], terms[0]
        direction = column.desc() if term.is_descending else column.asc()
        found = [chosen.where(column.is_not(None)).order_by(direction)]
        found.append(chosen.where(column.is_(None)))
    else:
        for term, columns in zip(terms, orders, strict=True):
            chosen = chosen.order_by(*(directed(column, term) for column in columns))
        found = [chosen]
    return found if count_max is None else [one.limit(count_max) for one in found]


def _envelope(table: TypeTable, row: Any, headers: Headers) -> dict[str, Any]:
    envelope = {
        "_id": row[ID],
        "_type": table.type_name,
        "_subject": row[SUBJECT],
        "_time": row[TIME],
    }
    return {**envelope, "_headers": dict(headers)} if headers else envelope


def row_of(obj: Any, envelope: dict[str, Any], properties: dict[str, Property]) -> dict[str, Any]:
    """Return an object as one flat row: envelope, attributes, and values of its properties."""
    values = {name: one.value for name, one in properties.items()}
    real = {**envelope, "_properties": values}
    if envelope["_type"] == UNTYPED:
        known = attributes_of(obj)
    else:
        known = held_values(obj) | unknown_attributes(obj)
    if hidden := {name: value for name, value in known.items() if name in real}:
        real["_hidden"] = hidden  # a dict may have any keys
    return {**envelope, **known, **real}


def headers_in(hits: Sequence[Hit]) -> dict[str, Headers]:
    """Return the headers of the objects that have some, by the objects' ids."""
    told = zip(ids_of(hits), hits, strict=True)
    return {id: Headers(hit[2]["_headers"]) for id, hit in told if "_headers" in hit[2]}


def ids_of(hits: Sequence[Hit]) -> list[str]:
    """Return the ids that properties use to refer to the objects."""
    return [id_of(obj) or envelope["_id"] for _, obj, envelope in hits]
