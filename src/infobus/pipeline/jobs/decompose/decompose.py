"""The job `decompose`: stores the objects of a journal in the tables of the repository.

Into a database (`db`), the driver writes each batch by COPY or bulk insert. The same transaction
stores the position in the journal up to which everything is stored. So a batch that is repeated
after a crash, or even with a new checkpoint, is recognised. Parquet tables of the same form
(`tables`) are written by the executors; see `tables`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from msgspec import Struct

from infobus.errors import StoreCorrupt, UsageError
from infobus.pipeline.jobs import ResultPart
from infobus.pipeline.jobs.decompose.tables import write_tables
from infobus.repository import Repository
from infobus.repository.database import parse_url
from infobus.repository.to_rows import ObjectRecord
from infobus.stores.journal.columns import GENERIC, REST, TOLD
from infobus.stores.journal.journal import Journal
from infobus.stores.journal.rows import attributes_by_row, headers_by_row
from infobus.stores.journal.typed_maps import object_of
from infobus.stores.ledger.positions_sql import PositionsIn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection

log = logging.getLogger("infobus")

COLUMNS = ["_offset", "_subject", "_type", "_object_id", "_event_id", "_time", TOLD, REST]


class DecomposeOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to store objects: a database, a folder of Parquet tables, or both."""

    journal: str
    """The folder that the events come from; it also knows their types."""
    db: str | None = None
    """`sqlite:///FILE` or `postgresql://USER@HOST/NAME`."""
    tables: str | None = None
    """A folder that the driver and all executors can write to."""

    def __post_init__(self) -> None:
        if self.db is None and self.tables is None:
            raise ValueError("it needs db, tables, or both: where the objects go")
        if self.db is not None:
            parse_url(self.db)


Options = DecomposeOptions


def transform(events: DataFrame, options: DecomposeOptions) -> DataFrame:
    """Return the columns to store, without test events.

    Raises:
        UsageError: The events were read as those of one type; then objects are not whole.
    """
    if set(events.columns) != set(GENERIC.names):
        raise UsageError(
            "job decompose: it needs whole objects of every type, so leave out type and columns "
            "of its source; subject and where narrow what is read"
        )
    return events.where("not coalesce(_test, false)").select(*COLUMNS)


def write(result: DataFrame, options: DecomposeOptions, batch: ResultPart) -> None:
    """Store one batch; returning means that it is stored, once.

    Raises:
        StoreError: The database or the folder cannot be used now; trying again is safe.
    """
    if options.tables is not None and options.db is not None:
        result = result.persist()  # it is read twice
    if options.tables is not None:
        write_tables(result, records_in, options.journal, options.tables, batch.query)
    if options.db is not None:
        table = result.toArrow()
        if table.num_rows:
            with Repository(options.db) as repository:
                store(repository, table, options.journal, batch.query)
    result.unpersist()


def records_in(table: pa.Table, journal: Journal) -> list[ObjectRecord]:
    """Return the objects of events, of any type, as they were published."""
    journal.types()  # this learns them
    table = table.cast(pa.schema([GENERIC.field(name) for name in table.column_names]))
    envelope = table.select([one for one in table.column_names if one not in (REST, TOLD)])
    envelope, told = envelope.to_pydict(), headers_by_row(table)
    found = []
    for at, attributes in enumerate(attributes_by_row(table.select([REST]))):
        name = envelope["_type"][at]
        # An object without an id of its own is identified by the event that brought it.
        id = envelope["_object_id"][at] or envelope["_event_id"][at]
        obj = attributes if name is None else object_of(name, attributes, id)
        where = (envelope["_subject"][at], envelope["_time"][at], told[at])
        found.append(ObjectRecord(obj, id, *where))
    return found


class _Upto(NamedTuple):
    """All events of a journal up to this one; numbers begin with 1 where offsets begin with 0."""

    sender: str
    number: int


def store(repository: Repository, table: pa.Table, folder: str, query: str) -> int:
    """Store the objects of events that are not stored yet; return how many.

    An object that the database refuses is set aside, and the others are stored.

    Raises:
        UsageError: The database is ahead of the journal, so new events would be taken for old.
    """
    journal = Journal.open(folder)
    positions = PositionsIn(query)
    with repository.transaction() as connection:
        positions.create(connection)
        number = positions.position(connection, journal.id)
        is_known = number <= journal.next_offset and _is_of_this_past(
            positions, connection, journal, number
        )
    if not is_known:
        what = (
            f"ends at {journal.next_offset}"
            if number > journal.next_offset
            else "has other events before that"
        )
        raise UsageError(
            f"job decompose: the database has the events of {folder} up to offset {number}, but "
            f"the journal {what}: it seems to have been restored from an older copy; give the job "
            f"another name, or begin with a new checkpoint after deleting the rows of {query!r} "
            "from infobus_positions. Objects that are there are kept"
        )
    table = table.sort_by("_offset").filter(pa.compute.field("_offset") >= number)
    if not table.num_rows:
        return 0
    upto = _Upto(journal.id, table["_offset"][-1].as_py() + 1)

    def settle(connection: Connection) -> bool:
        if (era := journal.era_before(upto.number)) is not None:
            positions.settle(connection, _Upto(f"{journal.id}.eras", 1))
            positions.settle(connection, _Upto(f"{journal.id}.{era}", upto.number))
        return positions.settle(connection, upto)

    records = records_in(table, journal)
    try:
        return repository.store_records(records, settle, keep_newer=True)
    except (StoreCorrupt, UsageError) as error:
        log.error("%s: a batch was refused, so its objects go one by one: %s", query, error)
        _store_one_by_one(repository, records)
        with repository.transaction() as connection:
            settle(connection)
        return len(records)


def _is_of_this_past(
    positions: PositionsIn, connection: Connection, journal: Journal, number: int
) -> bool:
    """Return whether the journal still has the past in which the event before `number` was stored.

    The database also has the number by the era of the event, from the first version on that knew
    eras. In a journal that was restored and has grown since, other eras have these offsets.
    """
    era = journal.era_before(number)
    if era is None or not positions.position(connection, f"{journal.id}.eras"):
        return True
    return positions.position(connection, f"{journal.id}.{era}") == number


def _store_one_by_one(repository: Repository, records: Sequence[ObjectRecord]) -> None:
    """Store each object on its own.

    Repeated after a crash, this changes nothing: an object replaces its own state.
    """
    for record in records:
        try:
            repository.store_records([record], keep_newer=True)
        except (StoreCorrupt, UsageError) as error:
            log.error("%s of %s is set aside: %s", record.id, record.subject, error)
            repository.set_aside([record], f"{type(error).__name__}: {error}")
