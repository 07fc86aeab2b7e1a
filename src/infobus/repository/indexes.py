"""Indexes: those that you ask for, and one of each table that finds data in `_extra`.

An index is asked for by type and attribute. It covers the tables of all subtypes, also of those
that are stored later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from infobus.repository import schema
from infobus.repository.catalog import Catalog, TypeTable
from infobus.repository.column_forms import OPEN
from infobus.repository.database import outside_transactions, writing
from infobus.repository.names import index_name

ENVELOPE = ("_subject", "_time")
"""What you can index beside attributes; `_id` is the primary key."""


class ColumnIndex(NamedTuple):
    """An index of one column; `where` restricts it to some rows."""

    name: str
    table: str
    column: str
    where: str = ""

    def statement(self, connection: Connection, *, concurrently: bool = False) -> str:
        """Return the SQL that creates it unless it is there."""
        quote = connection.dialect.identifier_preparer.quote
        how = "CONCURRENTLY IF NOT EXISTS" if concurrently else "IF NOT EXISTS"
        made = (
            f"CREATE INDEX {how} {quote(self.name)} ON {quote(self.table)} ({quote(self.column)})"
        )
        return f"{made} WHERE {self.where}" if self.where else made


def of_extra(table: TypeTable) -> ColumnIndex:
    """Return the index that finds the objects with data in `_extra`: usually none."""
    return ColumnIndex(index_name(table.name, "_extra"), table.name, "_part", "_extra IS NOT NULL")


def of_attribute(catalog: Catalog, type_name: str, attribute: str) -> list[ColumnIndex]:
    """Return the indexes of an attribute: of its columns, or of the items of its lists."""
    found = []
    for table, _ in catalog.members(type_name):
        if attribute in ENVELOPE:
            found.append(_index(table.name, attribute))
        for home in table.homes_of(attribute):
            if home.item_table is not None and home.form.of != OPEN:
                found.append(_index(home.item_table, schema.VALUE))
            elif home.form.is_column and home.form.of != OPEN:
                found.append(_index(table.name, home.column))
    return found


def _index(table: str, column: str) -> ColumnIndex:
    return ColumnIndex(index_name(table, column), table, column)


def create(engine: Engine, indexes: Iterable[ColumnIndex]) -> None:
    """Create those that are missing. In PostgreSQL, others can write meanwhile."""
    if engine.dialect.name == "postgresql":
        with outside_transactions(engine) as connection:
            for one in indexes:
                _drop_unfinished(connection, one)
                connection.exec_driver_sql(one.statement(connection, concurrently=True))
    else:
        with writing(engine) as connection:
            for one in indexes:
                connection.exec_driver_sql(one.statement(connection))


def _drop_unfinished(connection: Connection, index: ColumnIndex) -> None:
    """Drop what an attempt left behind that was interrupted: PostgreSQL never uses it."""
    is_unfinished = connection.scalar(
        text(
            "SELECT NOT indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE relname = :name AND pg_table_is_visible(pg_class.oid)"
        ),
        {"name": index.name},
    )
    if is_unfinished:
        name = connection.dialect.identifier_preparer.quote(index.name)
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def create_for_new(connection: Connection, catalog: Catalog, tables: Iterable[TypeTable]) -> None:
    """Create the indexes of tables that are being created, in the same transaction."""
    wanted = [of_extra(table) for table in tables]
    names = {table.name for table in tables} | {name for table in tables for name in table.items}
    for type_name, attribute in asked_for(connection):
        wanted += [one for one in of_attribute(catalog, type_name, attribute) if one.table in names]
    for one in wanted:
        connection.exec_driver_sql(one.statement(connection))


def asked_for(connection: Connection) -> list[tuple[str, str]]:
    """Return the types and attributes whose indexes somebody has asked for."""
    if not inspect(connection).has_table(schema.indexes.name):
        return []  # nobody has, so far
    rows = connection.execute(select(schema.indexes.c.type_name, schema.indexes.c.attribute))
    return [(row[0], row[1]) for row in rows]


def ask_for(connection: Connection, type_name: str, attribute: str) -> None:
    """Note that an attribute is to be indexed, also in tables that come later."""
    schema.indexes.create(connection, checkfirst=True)
    if (type_name, attribute) not in asked_for(connection):
        values = {"type_name": type_name, "attribute": attribute}
        connection.execute(insert(schema.indexes).values(values))


def finds_extra(connection: Connection, table: TypeTable) -> bool:
    """Return whether the table has the index that finds data in `_extra`."""
    wanted = of_extra(table).name
    return any(one["name"] == wanted for one in inspect(connection).get_indexes(table.name))
