"""`format("infobus")`: journals, and through them the live bus, as Spark DataFrames.

Nothing here joins a bus: Spark's planners and workers are forks, and only read files.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from infobus.errors import StoreError, UsageError
from infobus.pipeline.schema import arrow_schema, fitted, spark_schema
from infobus.pipeline.source import live
from infobus.pipeline.source.filters import filter_of
from infobus.pipeline.source.native import events
from infobus.pipeline.source.options import SourceOptions
from infobus.stores.journal.columns import GENERIC
from infobus.stores.journal.journal import Journal, Segment, Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["events", "register"]

log = logging.getLogger("infobus")

TASK_COUNT = 16
"""Tasks that a selection is cut into, unless they would be too small or too large."""
TASK_EVENTS_MIN, TASK_EVENTS_MAX = 131_072, 524_288
"""Events of one task, about. Spark spends some 15 ms on a task, whatever it reads."""
TASK_BYTES_MAX = 128 * 1024**2
"""Bytes of the files of one task, about: as with Spark's own sources."""


def register(spark: SparkSession) -> None:
    """Make `format("infobus")` known to a session, and enable filter pushdown.

    Then `spark.read.format("infobus")` reads history, `spark.readStream.format("infobus")` reads
    the live bus, and `df.write` and `df.writeStream` publish.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(InfobusSource)


class InfobusSource(DataSource):
    """The data source `infobus`; docs/spark.md lists its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "infobus"

    def schema(self) -> StructType:
        """Return the columns, from the selected type and the journal's version of it."""
        options = SourceOptions.of(self.options, is_stream=False)
        if options.type is None and options.columns is None:
            return spark_schema(GENERIC)
        return spark_schema(options.select(Journal.open(options.journal)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the events that are in the journal now."""
        options = SourceOptions.of(self.options, is_stream=False)
        return (PushdownReader if options.pushdown else HistoryReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read events as they arrive in the journal."""
        return LiveReader(SourceOptions.of(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publish a DataFrame."""
        from infobus.pipeline.sink.sink import BatchSink, SinkOptions

        return BatchSink(SinkOptions.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Publish the micro-batches of a query."""
        from infobus.pipeline.sink.sink import SinkOptions, StreamSink

        return StreamSink(SinkOptions.of(self.options, schema))


class JournalPart(InputPartition):
    """The share of one task: some files of a selection."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(None)
        self.selection = selection


def _parts(selection: Selection) -> list[JournalPart]:
    """Split a selection into tasks of about equal size: a large file, or several small ones."""
    count = sum(segment.count for segment in selection.segments)
    events = min(max(count // TASK_COUNT, TASK_EVENTS_MIN), TASK_EVENTS_MAX)
    shares = [max(one.count / events, one.bytes / TASK_BYTES_MAX) for one in selection.segments]
    total, before = sum(shares), 0.0
    parts: dict[int, list[Segment]] = {}
    for segment, share in zip(selection.segments, shares, strict=True):
        middle = before + share / 2
        parts.setdefault(int(middle * ceil(total) / total), []).append(segment)
        before += share
    return [JournalPart(selection.part(segments)) for segments in parts.values()]


def _read(partition: InputPartition, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, JournalPart):  # if there are no parts, Spark passes one of its own
        for batch in partition.selection.batches():
            yield fitted(batch, target)
    _make_collections_cheap(len(sys.modules))


@cache
def _make_collections_cheap(module_count: int) -> None:
    """In a Spark worker, let the garbage collector skip everything that has been imported.

    A worker collects garbage after every task, which took longer than reading a small file, because
    of all the modules. So this runs after a task that has imported more modules than those before.
    """
    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()


class HistoryReader(DataSourceReader):
    """Reads a journal as it is when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._target = arrow_schema(schema)
        self._shown: str | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each large file, without files that cannot hold such events."""
        journal = Journal.open(self._options.journal)
        selection = self._options.select(journal, tuple(self._target.names))
        return _parts(selection.narrowed(shown=self._shown))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the events of one task."""
        return _read(partition, self._target)


class PushdownReader(HistoryReader):
    """Reads a journal for one query, and uses its conditions to skip files.

    Spark (as of 4.3) stores one read plan for each `load()`, with the conditions that it pushed
    down last, and uses it wherever the DataFrame is used again: without conditions, or with others
    in the same query. The source cannot notice that. So you must ask for this by an option.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the conditions that the subscription language can express; Spark checks again."""
        self._shown = filter_of(filters)
        return filters


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a journal as it grows. A position in the stream is an offset of the journal."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._target = arrow_schema(schema)
        self._end: int | None = None
        self._known: frozenset[str] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        journal = self._journal()
        starting = self._options.starting
        if isinstance(starting, int):
            if starting > journal.next_offset:
                raise UsageError(
                    f"option startingOffset={starting}: the journal in {journal.folder} ends at "
                    f"{journal.next_offset}; expected an offset up to there, earliest or latest"
                )
            return _place(journal, starting)
        is_late = starting == "latest"
        return _place(journal, journal.next_offset if is_late else journal.first_offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one batch takes, if the options say so."""
        if self._options.events_max is not None:
            return ReadMaxRows(self._options.events_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run: events that arrive later belong to another."""
        self._end = self._journal().next_offset

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch."""
        journal = self._journal()
        begin = _offset(journal, start)
        end = journal.next_offset if self._end is None else min(self._end, journal.next_offset)
        if end <= begin:
            return start
        self._tell_of_new_columns(journal)
        selection = self._select(journal, begin, end)
        match limit:
            case ReadMaxRows(most):
                end = _fitting(selection, begin, end, most, lambda segment: 1.0)
            case ReadMaxBytes(most):
                end = _fitting(
                    selection, begin, end, most, lambda segment: segment.bytes / segment.count
                )
        return _place(journal, end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the journal."""
        journal = Journal.open(self._options.journal)
        return _place(journal, journal.next_offset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the events between two positions; always the same events."""
        journal = Journal.open(self._options.journal)
        begin, stop = _offset(journal, start), _offset(journal, end)
        if begin >= stop:
            return []
        return _parts(self._select(journal, begin, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the events of one task."""
        return _read(partition, self._target)

    def stop(self) -> None:
        """End the journal process, if this query has started it."""
        live.release(self._options)

    def _journal(self) -> Journal:
        if self._options.live:
            live.ensure(self._options)
        return Journal.open(self._options.journal)

    def _select(self, journal: Journal, start: int, stop: int) -> Selection:
        selection = self._options.select(journal, tuple(self._target.names))
        return selection.narrowed(start=start, stop=stop)

    def _tell_of_new_columns(self, journal: Journal) -> None:
        """Warn about attributes that are new since the query began: its columns are fixed."""
        if self._options.type is None or self._options.columns is not None:
            return
        names = frozenset(self._options.select(journal).schema.names)
        if self._known is not None and (new := names - self._known):
            log.warning(
                "%s has got new attributes since this query began, which are not among its "
                "columns: %s; restart the query from its checkpoint to have them",
                self._options.type,
                ", ".join(sorted(new)),
            )
        self._known = names


def _place(journal: Journal, offset: int) -> dict[str, Any]:
    return {"journal": journal.id, "offset": offset}


def _offset(journal: Journal, place: Mapping[str, Any]) -> int:
    """Return the offset of a position in this journal.

    Raises:
        UsageError: It is a position in another journal, or beyond the end of this one.
        StoreError: Retention has removed events that were not read yet.
    """
    if place["journal"] != journal.id:
        raise UsageError(
            f"the checkpoint belongs to the journal {place['journal']}, but in {journal.folder} "
            f"there is {journal.id}: begin with a new checkpoint, or name the right folder"
        )
    offset = int(place["offset"])
    if offset < journal.first_offset:
        raise StoreError(
            f"retention has taken events from offset {offset} on, up to {journal.first_offset}, "
            "before this query has read them: begin with a new checkpoint to go on without them",
            path=str(journal.folder),
        )
    if offset > journal.next_offset:
        raise UsageError(
            f"the checkpoint is at offset {offset}, but the journal in {journal.folder} ends at "
            f"{journal.next_offset}: it seems to have been restored from an older copy; begin "
            "with a new checkpoint, and with startingOffset where this query is to go on"
        )
    return offset


def _fitting(
    selection: Selection, begin: int, end: int, most: int, weight: Callable[[Segment], float]
) -> int:
    """Return the largest end before which there is certainly no more than `most` to read."""

    def certainly(stop: int) -> float:
        return sum(
            weight(one) * min(one.count, max(0, min(stop, one.last + 1) - max(begin, one.first)))
            for one in selection.segments
        )

    low, high = begin + 1, end  # at least one event, or the stream would never advance
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if certainly(middle) <= most else (low, middle - 1)
    return low
