"""The repository's tables as Parquet: a folder for each table, written by the executors.

    TABLES/news_story/QUERY-OFFSET-00000.parquet
    TABLES/news_story_topics/QUERY-OFFSET-00000.parquet

Executors write hidden files, which no Parquet reader sees; the driver renames them. `OFFSET` is
where the batch begins in the journal. Before renaming, the driver removes everything that the query
has written from there on. A repeated batch, or a query that starts again, thus replaces what it had
written, and no row is stored twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Boolean, Double, Integer, LargeBinary

from infobus.repository import Repository
from infobus.repository.column_forms import Moment
from infobus.repository.migration import grow
from infobus.stores.journal.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Column, Table

    from infobus.repository.to_rows import ObjectRecord

LEFT_OUT = ("_version",)
"""It counts versions in one database, and here is none."""

Records = Callable[[pa.Table, Journal], "list[ObjectRecord]"]


def write_tables(
    events: DataFrame, records: Records, journal: str, folder: str, query: str
) -> None:
    """Write the rows of objects; returning means that they are stored, once."""
    root, name = Path(folder).absolute(), quote(query, safe="")
    for left in root.glob(f"*/.{name}-*.parquet"):  # left by a batch that was killed
        left.unlink()

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            yield from _stage(pa.Table.from_batches(held), records, journal, root, name)

    staged = events.mapInArrow(stage, "path string, first long").collect()
    if not staged:
        return
    begin = min(row["first"] for row in staged)
    for old in root.glob(f"*/{name}-*.parquet"):
        if int(old.stem.rsplit("-", 2)[1]) >= begin:
            old.unlink()
    for number, row in enumerate(sorted(staged)):
        path = Path(row["path"])
        path.rename(path.with_name(f"{name}-{begin:012}-{number:05}.parquet"))


def _stage(
    table: pa.Table, records: Records, journal: str, root: Path, name: str
) -> Iterator[pa.RecordBatch]:
    """Write the tables of one task; return the files, and the offset of the first event."""
    first = pa.compute.min(table["_offset"]).as_py()
    opened = Journal.open(journal)
    found = records(table.sort_by("_offset"), opened)
    paths = []
    with Repository("sqlite://") as repository:
        # Use all versions in the journal's order, so that columns have the same names in
        # every task.
        versions = [int(one, 16) for ones in opened.manifest.types.values() for one in ones]
        with repository.transaction() as connection:
            for version in versions:
                grow(connection, [version])
        repository.types()  # this reloads them
        for target, rows in repository.rows_of(found):
            path = root / target.name / f".{name}-{uuid.uuid4().hex}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows, arrow_schema(target)), path)
            paths.append(str(path))
    yield pa.RecordBatch.from_pydict({"path": paths, "first": [first] * len(paths)})


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of a repository table as an Arrow schema."""
    columns = [column for column in table.columns if column.name not in LEFT_OUT]
    return pa.schema([(column.name, _arrow_type(column)) for column in columns])


def _arrow_type(column: Column[Any]) -> pa.DataType:
    match column.type:
        case Boolean():
            return pa.bool_()
        case Integer():
            return pa.int64()
        case Double():
            return pa.float64()
        case LargeBinary():
            return pa.binary()
        case Moment():
            return pa.timestamp("us", tz="UTC")
    return pa.string()
