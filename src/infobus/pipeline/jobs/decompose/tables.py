"""The repository's tables as Parquet: a folder for each table, written by the executors.

    TABLES/news_story/QUERY-OFFSET-00000.parquet
    TABLES/news_story_topics/QUERY-OFFSET-00000.parquet

Executors write hidden files, which no Parquet reader sees; the driver renames them. `OFFSET` is
where the batch begins in the journal. Before renaming, the driver removes everything that the query
has written from there on. A repeated batch, or a query that starts again, thus replaces what it had
written, and no row is stored twice.

After a batch, the driver merges small files of a table, in order, if there are many:

    TABLES/news_story/QUERY-FIRST-LAST-merged.parquet

replaces all files of the query from offset FIRST up to LAST, both being beginnings of batches. Its
metadata says how many rows belong to each, so that a query that starts again in the middle of it
can cut it there.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
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

log = logging.getLogger("infobus")

LEFT_OUT = ("_version",)
"""It counts versions in one database, and here is none."""
_MERGED, _PARTS = "-merged", b"infobus.parts"


@dataclass(frozen=True)
class MergeSizes:
    """Which files of a table are merged, and when."""

    files_max: int = 64
    """So many small files are merged."""
    small_bytes: int = 32 * 1024**2
    """A larger file is left alone."""
    merged_bytes_max: int = 64 * 1024**2
    """What is merged at once, about; the driver holds it in memory."""


DEFAULT_SIZES = MergeSizes()
Records = Callable[[pa.Table, Journal], "list[ObjectRecord]"]


def write_tables(
    events: DataFrame, records: Records, journal: str, folder: str, query: str
) -> None:
    """Write the rows of objects; returning means that they are stored, once."""
    root, name = Path(folder).absolute(), quote(query, safe="")
    for left in root.glob(f"*/.{name}-*.parquet"):  # left by a batch that was killed
        left.unlink()
    for table in _tables(root, name):
        _remove_merged(_files(table, name))

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            yield from _stage(pa.Table.from_batches(held), records, journal, root, name)

    staged = events.mapInArrow(stage, "path string, first long").collect()
    if not staged:
        return
    begin = min(row["first"] for row in staged)
    for table in _tables(root, name):
        _cut(_files(table, name), begin)
    for number, row in enumerate(sorted(staged)):
        path = Path(row["path"])
        path.rename(path.with_name(f"{name}-{begin:012}-{number:05}.parquet"))
    for table in _tables(root, name):
        merge(table, name)


class TableFile(NamedTuple):
    """A file of a table: the rows of a batch, or of all batches from `first` to `last`."""

    first: int
    last: int
    path: Path
    is_merged: bool


def _tables(root: Path, name: str) -> list[Path]:
    """Return the folders of the tables that a query has written to."""
    return sorted({path.parent for path in root.glob(f"*/{name}-*.parquet")})


def _files(table: Path, name: str) -> list[TableFile]:
    """Return the files that a query has written to a table, in order."""
    found = []
    for path in table.glob(f"{name}-*.parquet"):
        stem = path.stem.removesuffix(_MERGED)
        is_merged = stem != path.stem
        owner, first, last = stem.rsplit("-", 2)
        if owner == name:  # and not another query whose name begins with this one
            end = int(last) if is_merged else int(first)
            found.append(TableFile(int(first), end, path, is_merged))
    return sorted(found, key=lambda one: (one.first, one.path.name))


def _remove_merged(files: list[TableFile]) -> list[TableFile]:
    """Remove files that a merged one replaces, which a process that was killed left; return others.

    Of two merged files, one of which was made of the other, the longer one counts.
    """
    whole = [one for one in files if one.is_merged]
    kept = []
    for one in files:
        if any(
            other.first <= one.first and one.last <= other.last and other.path != one.path
            for other in whole
        ):
            one.path.unlink()
        else:
            kept.append(one)
    return kept


def _cut(files: list[TableFile], begin: int) -> None:
    """Remove all rows of batches that begin at this offset or later."""
    for one in files:
        if one.first >= begin:
            one.path.unlink()
        elif one.last >= begin:
            parts = [part for part in _parts(one) if part[0] < begin]
            rows = pq.read_table(one.path).slice(0, sum(count for _, count in parts))
            _write_merged(one.path, rows, parts)
            one.path.unlink()


def merge(table: Path, name: str, sizes: MergeSizes = DEFAULT_SIZES) -> int:
    """Merge small files of a table, if there are many; return by how many files it shrank."""
    run: list[TableFile] = []
    size = 0
    # A batch is merged as a whole: which files a merged one replaces is known by their offsets.
    for _, files in groupby(_files(table, name), key=lambda one: one.first):
        batch = list(files)
        its_size = sum(one.path.stat().st_size for one in batch)
        is_small = its_size < sizes.small_bytes
        if is_small and size + its_size <= sizes.merged_bytes_max:
            run, size = [*run, *batch], size + its_size
        elif len(run) >= sizes.files_max:
            break
        else:
            run, size = (batch, its_size) if is_small else ([], 0)
    return _merge(run) if len(run) >= sizes.files_max else 0


def _merge(files: list[TableFile]) -> int:
    """Replace neighbours by one file; columns that some of them lack are null there."""
    parts = [part for one in files for part in _parts(one)]
    try:
        rows = pa.concat_tables(
            [pq.read_table(one.path) for one in files], promote_options="default"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column has changed its type
        log.warning("%s: files are not merged: %s", files[0].path.parent, error)
        return 0
    _write_merged(files[0].path, rows, parts)
    for one in files:
        one.path.unlink()
    return len(files) - 1


def _parts(file: TableFile) -> list[tuple[int, int]]:
    """Return the batches in a file: where each begins, and how many rows it has."""
    metadata = pq.read_metadata(file.path)
    written = (metadata.metadata or {}).get(_PARTS)
    if written is None:
        return [(file.first, metadata.num_rows)]
    return msgspec.json.decode(written, type=list[tuple[int, int]])


def _write_merged(path: Path, rows: pa.Table, parts: list[tuple[int, int]]) -> None:
    """Write rows beside a file, under the name of a merged one; it counts at once, as a whole."""
    owner = path.stem.removesuffix(_MERGED).rsplit("-", 2)[0]
    first, last = parts[0][0], parts[-1][0]
    beside = path.with_name(f".{owner}-{uuid.uuid4().hex}.parquet")
    noted = {**(rows.schema.metadata or {}), _PARTS: msgspec.json.encode(parts)}
    pq.write_table(rows.replace_schema_metadata(noted), beside)
    beside.rename(path.with_name(f"{owner}-{first:012}-{last:012}{_MERGED}.parquet"))


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
