"""Verify that the tables match the catalog, because somebody may have altered them by hand."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Dialect, Table, inspect, types
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator, TypeEngine

from infobus.errors import StoreCorrupt
from infobus.repository.catalog import TypeTable

_FAMILIES: tuple[type[TypeEngine[Any]], ...] = (
    types.Boolean,
    types.Integer,
    types.Float,
    types.String,
    types.DateTime,
    types.LargeBinary,
)
_WIDTHS = (types.BigInteger, types.SmallInteger, types.Double)  # binary COPY needs the exact width


def check_tables(connection: Connection, home: TypeTable) -> None:
    """Raise `StoreCorrupt`, with the repair, unless the tables of a type are intact.

    Columns that somebody added do no harm if they may be empty.
    """
    problems: list[str] = []
    for table in (home.table, *home.items.values()):
        problems += _problems(connection, table)
    if problems:
        url = connection.engine.url.render_as_string(hide_password=True)
        raise StoreCorrupt(
            f"objects of type {home.type_name} cannot be stored or read in {url}, because "
            f"somebody altered its tables: {'; '.join(problems)}",
            path=url,
            problems=tuple(problems),
        )


def has_column(connection: Connection, table_name: str, wanted: Column[Any]) -> bool:
    """Return whether a table has a column of this name and kind."""
    kind = _family(wanted.type, connection.dialect)
    return any(
        one["name"] == wanted.name and _family(one["type"], connection.dialect) == kind
        for one in inspect(connection).get_columns(table_name)
    )


def _problems(connection: Connection, table: Table) -> list[str]:
    try:
        found = {column["name"]: column for column in inspect(connection).get_columns(table.name)}
    except NoSuchTableError:
        return [f"there is no table {table.name}; restore it from a backup"]
    dialect = connection.dialect
    quote = dialect.identifier_preparer.quote
    problems = []
    for column in table.columns:
        held = found.pop(column.name, None)
        written = CreateColumn(column).compile(dialect=dialect)
        if held is None:
            problems.append(
                f"column {column.name} is missing; ALTER TABLE {quote(table.name)} "
                f"ADD COLUMN {written}"
            )
        elif _family(held["type"], dialect) != _family(column.type, dialect):
            problems.append(
                f"column {table.name}.{column.name} is {held['type']}, not as written: {written}"
            )
    for name, added in found.items():
        if not added["nullable"] and added.get("default") is None:
            problems.append(f"column {table.name}.{name} was added and must not be empty; drop it")
    return problems


def _family(kind: TypeEngine[object], dialect: Dialect) -> str:
    """Return the part of a column's type that must match the catalog."""
    if isinstance(kind, TypeDecorator):
        kind = kind.load_dialect_impl(dialect)
    widths = _WIDTHS if dialect.name == "postgresql" else ()
    for family in (*widths, *_FAMILIES):
        if isinstance(kind, family):
            return str(family.__name__)
    return type(kind).__name__
