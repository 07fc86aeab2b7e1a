"""Whether the tables still are what the catalog says: somebody may have altered them by hand."""

from __future__ import annotations

from sqlalchemy import Connection, Table, inspect, types
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator, TypeEngine

from infobus.errors import StoreCorrupt
from infobus.repository.catalog import TypeTable


def check_tables(connection: Connection, home: TypeTable) -> None:
    """Raise `StoreCorrupt`, saying how to mend it, unless the tables of a type are intact.

    Columns that somebody added are no harm as long as they may be empty.
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
        elif _family(held["type"]) != _family(column.type.dialect_impl(dialect)):
            problems.append(
                f"column {table.name}.{column.name} is {held['type']}, not as written: {written}"
            )
    for name, added in found.items():
        if not added["nullable"] and added.get("default") is None:
            problems.append(f"column {table.name}.{name} was added and must not be empty; drop it")
    return problems


def _family(kind: TypeEngine[object]) -> str:
    if isinstance(kind, TypeDecorator):
        kind = kind.impl_instance
    for family in (types.Boolean, types.Integer, types.Float, types.String, types.DateTime):
        if isinstance(kind, family):
            return family.__name__
    return "LargeBinary" if isinstance(kind, types.LargeBinary) else type(kind).__name__
