"""The tables: one per type, one per list or map attribute, and the repository's own.

A row of a type's table is one object. `_id` is the id of the stored object. `_part` is 0 for that
object and counts the objects nested in it; for those, `_holder`, `_attribute`, `_at` and `_key`
say where they are. Attribute names never begin with `_`, so nothing clashes.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

from infobus.repository.column_forms import COLUMN_TYPES, TEXT, Form, Moment

ENVELOPE = (
    "_id",
    "_part",
    "_version",
    "_subject",
    "_time",
    "_holder",
    "_attribute",
    "_at",
    "_key",
    "_extra",
)
"""The first columns of every type's table."""
ID, PART, VERSION, SUBJECT, TIME, HOLDER, ATTRIBUTE, AT, KEY, EXTRA = range(len(ENVELOPE))

ONLY_HEADERS = '{"headers":'
"""How `_extra` begins if it holds headers and nothing else: then the columns tell all about an
object."""

VALUE = "value"

own = MetaData()

types = Table(
    "infobus_types",
    own,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", String(255), nullable=False),
    Column("fingerprint", String(16), nullable=False, unique=True),
    Column("descriptor", LargeBinary),
)
tables = Table(
    "infobus_tables",
    own,
    Column("type_name", String(255), primary_key=True),
    Column("table_name", String(63), nullable=False, unique=True),
)
columns = Table(
    "infobus_columns",
    own,
    Column("type_name", String(255), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("attribute", Text, nullable=False),
    Column("form", String(63), nullable=False),
    Column("column_name", String(63), nullable=False),
    Column("item_table", String(63)),
)
parts = Table(
    "infobus_parts",
    own,
    Column("whole_type", String(255), primary_key=True),
    Column("part_type", String(255), primary_key=True),
)
indexes = Table(
    "infobus_indexes",
    MetaData(),  # not among its own: made when somebody asks for the first index
    Column("type_name", String(255), primary_key=True),
    Column("attribute", Text, primary_key=True),
)
generation = Table(
    "infobus_generation",
    own,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)
set_aside = Table(
    "infobus_set_aside",
    own,
    Column("number", Integer, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("time", Moment),
    Column("id", Text, nullable=False),
    Column("fingerprint", String(16), nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("reason", Text, nullable=False),
)


def object_table(name: str, attributes: Iterable[Column[object]]) -> Table:
    """Return the table of a type: the envelope, then the attributes."""
    return Table(
        name,
        MetaData(),
        Column("_id", TEXT, primary_key=True),
        Column("_part", Integer, primary_key=True, autoincrement=False),
        Column("_version", Integer, nullable=False),
        Column("_subject", TEXT),
        Column("_time", Moment),
        Column("_holder", Integer),
        Column("_attribute", TEXT),
        Column("_at", Integer),
        Column("_key", TEXT),
        Column("_extra", Text),
        *attributes,
    )


def attribute_column(name: str, form: Form) -> Column[object]:
    """Return the column of an attribute; for lists, maps and objects it holds their number."""
    return Column(name, COLUMN_TYPES[form.of] if form.is_column else BigInteger())


def item_table(name: str, form: Form) -> Table:
    """Return the table for the items of a list, or for the pairs of a map."""
    keys = [Column("_key", TEXT, nullable=False)] if form.shape == "dict" else []
    return Table(
        name,
        MetaData(),
        Column("_id", TEXT, primary_key=True),
        Column("_part", Integer, primary_key=True, autoincrement=False),
        Column("_at", Integer, primary_key=True, autoincrement=False),
        *keys,
        Column(VALUE, COLUMN_TYPES[form.of]),
        sqlite_with_rowid=False,
    )
