"""Write rows with the fastest method of each database, and remove the rows they replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    Table,
    delete,
    select,
)

from infobus.repository.catalog import Catalog, TypeTable
from infobus.repository.column_forms import Moment
from infobus.repository.database import is_one_of

ID_COUNT = 1000
"""The number of ids in one statement."""


def write_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert `rows`, which hold a driver value for every column of `table`."""
    preparer = connection.dialect.identifier_preparer
    columns = ", ".join(preparer.quote(column.name) for column in table.columns)
    target = f"{preparer.quote(table.name)} ({columns})"
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        statement = f"COPY {target} FROM STDIN (FORMAT BINARY)"
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            # With the types given once, the driver need not choose one for every value.
            copy.set_types([_postgresql_type(column) for column in table.columns])
            write_row = copy.write_row
            for row in rows:
                write_row(row)
    else:
        marks = ", ".join("?" * len(table.columns))
        connection.exec_driver_sql(f"INSERT INTO {target} VALUES ({marks})", list(rows))


def _postgresql_type(column: Column[Any]) -> str:
    match column.type:
        case Boolean():
            return "bool"
        case BigInteger():
            return "int8"
        case Integer():
            return "int4"
        case Double():
            return "float8"
        case LargeBinary():
            return "bytea"
        case Moment():
            return "timestamptz"
    return "text"


def make_way(
    connection: Connection,
    catalog: Catalog,
    home: TypeTable,
    times: Mapping[str, datetime | None],
    *,
    keep_newer: bool,
    is_thorough: bool,
) -> set[str]:
    """Delete the stored objects with these ids, including nested objects and items.

    With `keep_newer`, objects with a later time stay; the function returns their ids. With
    `is_thorough`, also delete what is left of objects that somebody deleted by hand.
    """
    ids, columns = list(times), home.table.c
    kept: set[str] = set()
    for start in range(0, len(ids), ID_COUNT):
        some = is_one_of(connection, columns["_id"], ids[start : start + ID_COUNT]) & (
            columns["_part"] == 0
        )
        there = connection.execute(select(columns["_id"], columns["_time"]).where(some)).all()
        if keep_newer:
            kept |= {row[0] for row in there if _is_later(row[1], times[row[0]])}
        old = ids[start : start + ID_COUNT] if is_thorough else [row[0] for row in there]
        old = [id for id in old if id not in kept] if kept else old
        if old:
            remove(connection, catalog, home, old)
    return kept


def _is_later(stored: datetime | None, given: datetime | None) -> bool:
    return stored is not None and given is not None and stored > given


def remove(connection: Connection, catalog: Catalog, home: TypeTable, ids: list[str]) -> None:
    """Delete stored objects of one type, including nested objects and items."""
    for table in (home.table, *home.items.values()):
        connection.execute(delete(table).where(is_one_of(connection, table.c["_id"], ids)))
    for part in catalog.part_tables(home):
        for table in (part.table, *part.items.values()):
            is_inside = is_one_of(connection, table.c["_id"], ids) & (table.c["_part"] > 0)
            connection.execute(delete(table).where(is_inside))
