"""Views for people who query in SQL: `every_story` has all stories, including subtypes.

Views are a convenience. If one cannot be created now, it is created with the next change, or when
the repository is opened again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    Table,
    Text,
    cast,
    inspect,
    literal,
    null,
    select,
    union_all,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from infobus.errors import StoreCorrupt
from infobus.repository import schema
from infobus.repository.catalog import Catalog, Home, TypeTable
from infobus.repository.column_forms import TEXT
from infobus.repository.verification import check_tables

log = logging.getLogger("infobus")

MEMBER_COUNT_MAX = 200
"""The most tables in one view; SQLite allows 500 SELECTs in a UNION."""


def refresh_views(connection: Connection, catalog: Catalog, type_names: Iterable[str]) -> None:
    """Create or replace the views of these types."""
    for name in sorted(type_names):
        table = catalog.tables.get(name)
        members = [member for member, _ in catalog.members(name)]
        if table is None or len(members) > MEMBER_COUNT_MAX:
            continue
        _create(connection, table.name, [_objects(table, member) for member in members])
        for home in table.homes:
            if home.item_table is not None:
                chosen = [_items(home, member) for member in members]
                _create(connection, home.item_table, [one for one in chosen if one is not None])


def without_views(connection: Connection, catalog: Catalog) -> list[str]:
    """Return the types that lack a view and whose tables are intact, so it can be created."""
    there = set(inspect(connection).get_view_names())
    found = []
    for name, table in catalog.tables.items():
        members = [member for member, _ in catalog.members(name)]
        wanted = {f"every_{one}" for one in (table.name, *table.items)}
        if wanted <= there or len(members) > MEMBER_COUNT_MAX:
            continue
        # SQLite would create a view of columns that do not exist, so the tables are checked.
        with contextlib.suppress(StoreCorrupt):
            for member in members:
                check_tables(connection, member)
            found.append(name)
    return found


def _objects(table: TypeTable, member: TypeTable) -> Select[tuple[object, ...]]:
    columns: list[ColumnElement[Any]] = [member.table.c["_id"]]
    columns.append(cast(literal(member.type_name), String).label("_type"))
    columns += [member.table.c["_subject"], member.table.c["_time"]]
    for home in table.homes:
        place = member.home_of.get((home.attribute, home.form))
        if place is None:
            columns.append(_nothing(table.table.c[home.column].type).label(home.column))
        else:
            columns.append(member.table.c[member.homes[place].column].label(home.column))
    return select(*columns).where(member.table.c["_part"] == 0)


def _nothing(kind: TypeEngine[Any]) -> ColumnElement[Any]:
    """Return a NULL with the type and collation of the column that it replaces."""
    if kind is TEXT:
        return cast(null(), Text()).collate("C")
    return cast(null(), kind)


def _items(home: Home, member: TypeTable) -> Select[tuple[object, ...]] | None:
    place = member.home_of.get((home.attribute, home.form))
    if place is None:
        return None
    items: Table = member.items[member.homes[place].item_table or ""]
    keys = ["_key"] if home.form.shape == "dict" else []
    columns = [items.c[name] for name in ("_id", "_at", *keys, schema.VALUE)]
    return select(*columns).where(items.c["_part"] == 0)


def _create(
    connection: Connection, table_name: str, selections: list[Select[tuple[object, ...]]]
) -> None:
    dialect = connection.dialect
    name = dialect.identifier_preparer.quote(f"every_{table_name}")
    query = union_all(*selections) if len(selections) > 1 else selections[0]
    body = query.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    statements = [f"CREATE OR REPLACE VIEW {name} AS {body}"]
    if dialect.name == "sqlite":
        statements = [f"DROP VIEW IF EXISTS {name}", f"CREATE VIEW {name} AS {body}"]
    try:
        with connection.begin_nested():
            for statement in statements:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        log.warning("the view %s is not up to date: %s", name, error.orig)
