"""Add tables and columns for new types and attributes while others read and write.

A new table disturbs nobody. In PostgreSQL, a new column needs a lock, and it blocks others while
it waits for a long transaction that reads the table. So the wait is short. Until it succeeds,
the attribute's values are stored in `_extra`, like every value without a column.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from sqlalchemy import Connection, MetaData, Table, func, insert, inspect, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn, CreateTable

from infobus.errors import StoreCorrupt
from infobus.objects import Type, codec, find_type
from infobus.objects.types import ROOT_NAME
from infobus.repository import schema
from infobus.repository.catalog import (
    COLUMN_COUNT_MAX,
    UNTYPED,
    UNTYPED_FINGERPRINT,
    Catalog,
    Home,
    TypeTable,
    needs_item_table,
    read_catalog,
)
from infobus.repository.column_forms import Form, form_of
from infobus.repository.indexes import create_for_new
from infobus.repository.names import column_name, table_name
from infobus.repository.verification import has_column
from infobus.repository.views import refresh_views, without_views

log = logging.getLogger("infobus")

LOCK_WAIT_MS = 250
_LOCK_KEY = 0x1F0B5


def lock_structure(connection: Connection) -> None:
    """Keep other processes from changing tables until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})


def has_own_tables(connection: Connection) -> bool:
    """Return whether this database has the repository's own tables."""
    return inspect(connection).has_table(schema.types.name)


def missing_tables(connection: Connection) -> set[str]:
    """Return which of the repository's own tables somebody dropped.

    Raises:
        StoreCorrupt: Nothing else says what was in one of them.
    """
    wanted = {table.name for table in schema.own.sorted_tables}
    missing = wanted.difference(inspect(connection).get_table_names())
    if missing == wanted:
        return set()  # it is no repository yet
    for name in sorted(missing & {schema.types.name, schema.tables.name, schema.parts.name}):
        url = connection.engine.url.render_as_string(hide_password=True)
        raise StoreCorrupt(
            f"{url} cannot be used, because somebody dropped its table {name}: restore it from a "
            "backup",
            path=url,
            problems=(f"there is no table {name}",),
        )
    return missing


def create_own_tables(connection: Connection) -> None:
    """Create the repository's own tables if they do not exist."""
    lock_structure(connection)
    schema.own.create_all(connection)
    if connection.scalar(select(schema.generation.c.number)) is None:
        connection.execute(insert(schema.generation).values(id=1, number=1))


def bump(connection: Connection) -> None:
    """Let all processes read the catalog again."""
    number = schema.generation.c.number
    if not connection.execute(update(schema.generation).values(number=number + 1)).rowcount:
        log.warning("the row of %s was deleted; it is written again", schema.generation.name)
        # Higher than any that a process has seen.
        connection.execute(insert(schema.generation).values(id=1, number=time.time_ns()))


def grow(
    connection: Connection, fingerprints: Iterable[int], parts: Iterable[tuple[str, str]] = ()
) -> Catalog:
    """Add tables and columns for objects of these versions, and record nested types.

    Returns the new catalog. Commit the transaction at once: it holds the structure lock.
    """
    _begin(connection)
    growth = _Growth(connection)
    for fingerprint in fingerprints:
        growth.add_version(fingerprint)
    for whole, part in parts:
        growth.add_part(whole, part)
    bump(connection)
    catalog = read_catalog(connection)
    create_for_new(connection, catalog, growth.created)
    refresh_views(connection, catalog, growth.touched)
    return catalog


def mend_views(connection: Connection) -> None:
    """Create the views that somebody dropped."""
    _begin(connection)
    catalog = read_catalog(connection)
    refresh_views(connection, catalog, without_views(connection, catalog))


def _begin(connection: Connection) -> None:
    lock_structure(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}"))


class _Growth:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._catalog = read_catalog(connection)
        self.touched: set[str] = set()
        self.created: list[TypeTable] = []
        inspector = inspect(connection)
        names = [*inspector.get_table_names(), *inspector.get_view_names()]
        self._taken = {name.casefold().removeprefix("every_") for name in names}
        self._next_version = 1 + max(self._catalog.by_number, default=0)

    def add_version(self, fingerprint: int) -> None:
        known = find_type(fingerprint)
        if fingerprint == UNTYPED_FINGERPRINT:
            self._add_type(UNTYPED, fingerprint, None)
        elif known is None or known.name == ROOT_NAME:
            self._add_type(ROOT_NAME, fingerprint, None)
        else:
            for descriptor in codec.descriptors([fingerprint]):
                held = find_type(codec.learn(descriptor))
                assert held is not None
                self._add_type(held.name, held.fingerprint, held)

    def add_part(self, whole: str, part: str) -> None:
        if (whole, part) not in self._catalog.parts:
            self._catalog.parts.add((whole, part))
            values = {"whole_type": whole, "part_type": part}
            self._connection.execute(insert(schema.parts).values(values))

    def _add_type(self, name: str, fingerprint: int, known: Type | None) -> None:
        if fingerprint not in self._catalog.versions:
            row = {
                "version": self._next_version,
                "name": name,
                "fingerprint": f"{fingerprint:016x}",
                "descriptor": known.descriptor if known else None,
            }
            self._connection.execute(insert(schema.types).values(row))
            self._next_version += 1
            self.touched |= known.lineage if known else {name}
        table = self._catalog.tables.get(name)
        is_new = table is None
        if table is None:
            table = TypeTable(name, self._name_table(name))
            self._catalog.tables[name] = table
            row = {"type_name": name, "table_name": table.name}
            self._connection.execute(insert(schema.tables).values(row))
        added = self._add_homes(table, known, is_new)
        if is_new:
            self._create(table.table)
            self.created.append(table)
        elif added:
            self.touched |= known.lineage if known else {name}

    def _add_homes(self, table: TypeTable, known: Type | None, is_new: bool) -> bool:
        """Add a column for every attribute that has none; return whether any was added."""
        taken = {home.column.casefold() for home in table.homes}
        there = {(home.attribute, home.form) for home in table.homes}
        before = len(table.homes)
        position = self._next_position(table)
        for attribute in known.attributes if known else ():
            form = form_of(attribute.kind)
            if (attribute.name, form) in there or len(table.homes) >= COLUMN_COUNT_MAX:
                continue
            home = self._plan_home(table, attribute.name, form, taken)
            if not is_new and self._is_there(table, home):
                home = self._found_again(table, home)
            else:
                if not is_new and not self._add_column(table, home):
                    continue
                if home.item_table is not None:
                    self._create(schema.item_table(home.item_table, form))
            taken.add(home.column.casefold())
            values = {
                "type_name": table.type_name,
                "position": position,
                "attribute": home.attribute,
                "form": str(form),
                "column_name": home.column,
                "item_table": home.item_table,
            }
            self._connection.execute(insert(schema.columns).values(values))
            table.homes.append(home)
            position += 1
        return len(table.homes) > before

    def _plan_home(self, table: TypeTable, attribute: str, form: Form, taken: set[str]) -> Home:
        others = table.homes_of(attribute)
        if others:
            log.warning(
                "%s.%s was %s, and is now %s: both are kept, in columns of their own",
                table.type_name,
                attribute,
                others[0].form,
                form,
            )
        wanted = attribute if not others else f"{attribute}_{form.shape or form.of}"
        column = column_name(wanted if form.is_column else f"_{wanted}_size", taken)
        item_table = self._name_table(f"{table.name}_{wanted}") if needs_item_table(form) else None
        return Home(attribute, form, column, item_table)

    def _next_position(self, table: TypeTable) -> int:
        columns = schema.columns.c
        chosen = select(func.max(columns.position)).where(columns.type_name == table.type_name)
        last = self._connection.scalar(chosen)
        return 0 if last is None else last + 1

    def _is_there(self, table: TypeTable, home: Home) -> bool:
        """Return whether the table has the column, and only the catalog has forgotten it."""
        wanted = schema.attribute_column(home.column, home.form)
        return has_column(self._connection, table.name, wanted)

    def _found_again(self, table: TypeTable, home: Home) -> Home:
        log.warning(
            "%s did not know column %s.%s any more; it is entered again",
            schema.columns.name,
            table.name,
            home.column,
        )
        if home.item_table is None:
            return home
        # The name that it had, if it is the only one that was derived from these names.
        name = table_name(f"{table.name}_{home.attribute}", ())
        used = {
            one for other in self._catalog.tables.values() for one in (other.name, *other.items)
        }
        if name in used or not inspect(self._connection).has_table(name):
            self._create(schema.item_table(home.item_table, home.form))
            return home
        return home._replace(item_table=name)

    def _name_table(self, wanted: str) -> str:
        name = table_name(wanted, self._taken)
        self._taken.add(name.casefold())
        return name

    def _create(self, table: Table) -> None:
        self._connection.execute(CreateTable(table))

    def _add_column(self, table: TypeTable, home: Home) -> bool:
        column = schema.attribute_column(home.column, home.form)
        Table(table.name, MetaData(), column)
        preparer = self._connection.dialect.identifier_preparer
        written = CreateColumn(column).compile(dialect=self._connection.dialect)
        statement = f"ALTER TABLE {preparer.quote(table.name)} ADD COLUMN {written}"
        try:
            with self._connection.begin_nested():
                self._connection.exec_driver_sql(statement)
        except DBAPIError as error:
            log.warning("no column for %s.%s yet: %s", table.type_name, home.attribute, error.orig)
            return False
        return True
