"""The catalog: the types in the database with their versions, and the column of each attribute.

A `Catalog` is a snapshot. It stays correct while other processes add to the database, because
nothing is ever removed. A catalog with a higher generation only knows more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sqlalchemy import Connection, Table, select

from infobus.errors import BadFrame, StoreCorrupt
from infobus.objects import Type, codec, find_type
from infobus.objects.kinds import ANY, NOTHING, Kind, Maybe
from infobus.objects.types import ROOT_NAME
from infobus.repository import schema
from infobus.repository.column_forms import OBJECT, Form, form_of

log = logging.getLogger("infobus")

UNTYPED = "dict"
"""The type name of plain dicts in the database; no type can have this name."""
UNTYPED_FINGERPRINT = 0

COLUMN_COUNT_MAX = 400
"""More columns would not fit PostgreSQL's pages; further attributes are stored in `_extra`."""


class Home(NamedTuple):
    """The column, and perhaps item table, for the values of an attribute in one form."""

    attribute: str
    form: Form
    column: str
    item_table: str | None


class Slot(NamedTuple):
    """A home as one version of a type uses it; `at` is the index of the column."""

    attribute: str
    form: Form
    at: int
    item_table: str | None
    is_optional: bool  # If True, NULL means None; otherwise the attribute was not sent.


@dataclass
class TypeTable:
    """The tables of one type; all its versions share them."""

    type_name: str
    name: str
    homes: list[Home] = field(default_factory=list)

    @cached_property
    def table(self) -> Table:
        """The table with one row per object."""
        made = (schema.attribute_column(home.column, home.form) for home in self.homes)
        return schema.object_table(self.name, made)

    @property
    def width(self) -> int:
        """The number of columns of the table."""
        return len(schema.ENVELOPE) + len(self.homes)

    @cached_property
    def items(self) -> dict[str, Table]:
        """The tables of lists and maps, by name."""
        return {
            home.item_table: schema.item_table(home.item_table, home.form)
            for home in self.homes
            if home.item_table is not None
        }

    @cached_property
    def home_of(self) -> dict[tuple[str, Form], int]:
        """The index in `homes` of each attribute and form."""
        return {(home.attribute, home.form): at for at, home in enumerate(self.homes)}

    def homes_of(self, attribute: str) -> list[Home]:
        """Return all homes of an attribute: several if its type has changed."""
        return [home for home in self.homes if home.attribute == attribute]


@dataclass(frozen=True)
class Version:
    """One version of a type that objects were stored under."""

    number: int
    fingerprint: int
    type_name: str
    type: Type | None

    @property
    def lineage(self) -> frozenset[str]:
        """The names of the type and of its supertypes."""
        if self.type is not None:
            return self.type.lineage
        return frozenset({self.type_name})


@dataclass(frozen=True)
class Layout:
    """The mapping from objects of one version to rows.

    `is_complete` is False while an attribute has no column yet.
    """

    version: Version
    home: TypeTable
    slots: tuple[Slot, ...]
    is_complete: bool

    @cached_property
    def width(self) -> int:
        """The number of columns in a row of the object's table."""
        return self.home.width


class Catalog:
    """A snapshot of the types and tables in the database."""

    def __init__(
        self,
        generation: int,
        versions: Iterable[Version] = (),
        tables: Iterable[TypeTable] = (),
        parts: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.generation = generation
        self.versions = {version.fingerprint: version for version in versions}
        self.tables = {table.type_name: table for table in tables}
        self.parts = set(parts)
        self.by_number = {version.number: version for version in self.versions.values()}
        self._versions_of: dict[str, list[Version]] = {}
        for version in self.by_number.values():
            self._versions_of.setdefault(version.type_name, []).append(version)
        self._layouts: dict[int, Layout] = {}

    def layout(self, fingerprint: int) -> Layout | None:
        """Return the layout of a version, or None if the catalog does not know it."""
        found = self._layouts.get(fingerprint)
        if found is None and (version := self.versions.get(fingerprint)) is not None:
            table = self.tables.get(version.type_name)
            if table is not None:
                found = self._layouts[fingerprint] = _layout(version, table)
        return found

    def members(self, name: str) -> list[tuple[TypeTable, list[int] | None]]:
        """Return the tables that hold objects of a type or its subtypes.

        Each comes with the version numbers that are subtypes, or None if all versions are.
        """
        found: list[tuple[TypeTable, list[int] | None]] = []
        for type_name, table in sorted(self.tables.items()):
            ours = self._versions_of.get(type_name, [])
            fitting = [version.number for version in ours if name in version.lineage]
            if fitting:
                found.append((table, None if len(fitting) == len(ours) else fitting))
        return found

    def attributes(self, name: str) -> set[str]:
        """Return the names of all attributes that a type or one of its subtypes declares."""
        types = [one.type for one in self.by_number.values() if name in one.lineage]
        return {attribute.name for one in types if one is not None for attribute in one.attributes}

    def part_tables(self, table: TypeTable) -> list[TypeTable]:
        """Return the tables of all types whose objects are nested in objects of this type."""
        return [self.tables[part] for whole, part in self.parts if whole == table.type_name]


def _layout(version: Version, table: TypeTable) -> Layout:
    slots: list[Slot] = []
    attributes = version.type.attributes if version.type is not None else ()
    for attribute in attributes:
        form = form_of(attribute.kind)
        place = table.home_of.get((attribute.name, form))
        if place is not None:
            home = table.homes[place]
            at = len(schema.ENVELOPE) + place
            is_optional = _is_optional(attribute.kind)
            slots.append(Slot(attribute.name, form, at, home.item_table, is_optional))
    is_complete = len(slots) == len(attributes) or len(table.homes) >= COLUMN_COUNT_MAX
    return Layout(version, table, tuple(slots), is_complete)


def _is_optional(kind: Kind) -> bool:
    return isinstance(kind, Maybe) or kind in (ANY, NOTHING)


def needs_item_table(form: Form) -> bool:
    """Return whether values of this form have an item table."""
    return bool(form.shape) and form.of != OBJECT


def read_generation(connection: Connection) -> int:
    """Return the number that grows whenever the catalog in the database changes."""
    return connection.scalar(select(schema.generation.c.number)) or 0


def read_catalog(connection: Connection) -> Catalog:
    """Read the catalog; as a side effect, this process learns the types in it."""
    number = read_generation(connection)
    rows = connection.execute(select(schema.types).order_by(schema.types.c.version)).all()
    for row in rows:
        if row.descriptor:
            try:
                codec.learn(bytes(row.descriptor))
            except BadFrame as error:
                log.warning("type %s of the repository: %s", row.name, error)
    versions = []
    for row in rows:
        fingerprint = int(row.fingerprint, 16)
        known = find_type(ROOT_NAME) if row.name == ROOT_NAME else find_type(fingerprint)
        versions.append(Version(row.version, fingerprint, row.name, known))
    tables = {
        row.type_name: TypeTable(row.type_name, row.table_name)
        for row in connection.execute(select(schema.tables))
    }
    ordered = select(schema.columns).order_by(schema.columns.c.type_name, schema.columns.c.position)
    for row in connection.execute(ordered):
        home = Home(row.attribute, Form.parse(row.form), row.column_name, row.item_table)
        if row.type_name not in tables:
            raise _disagreement(connection, row.type_name, schema.columns, schema.tables)
        tables[row.type_name].homes.append(home)
    parts = [(row.whole_type, row.part_type) for row in connection.execute(select(schema.parts))]
    for name in (name for pair in parts for name in pair if name not in tables):
        raise _disagreement(connection, name, schema.parts, schema.tables)
    for name in tables.keys() - {version.type_name for version in versions}:
        raise _disagreement(connection, name, schema.tables, schema.types)
    return Catalog(number, versions, tables.values(), parts)


def _disagreement(connection: Connection, name: str, has: Table, lacks: Table) -> StoreCorrupt:
    url = connection.engine.url.render_as_string(hide_password=True)
    problem = f"{has.name} names type {name}, and {lacks.name} does not know it"
    message = f"{url} cannot be used, because somebody altered its catalog: {problem}; "
    message += f"restore {lacks.name} from a backup"
    return StoreCorrupt(message, path=url, problems=(problem,))
