"""`format("infobus")`: journals, and through them the live bus, as Spark DataFrames.

Nothing here joins a bus: Spark's planners and workers are forks, and only read files.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
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

from infobus.errors import DeliveryError, UsageError
from infobus.pipeline.schema import arrow_schema, fitted, spark_schema
from infobus.pipeline.source import live
from infobus.pipeline.source.filters import filter_of
from infobus.pipeline.source.native import events
from infobus.pipeline.source.options import SourceOptions
from infobus.pipeline.source.positions import earliest, fitting, offset_at, offset_in, place_at
from infobus.pipeline.source.tasks import shares
from infobus.stores.journal.columns import GENERIC
from infobus.stores.journal.journal import Journal, Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["events", "register"]

log = logging.getLogger("infobus")

WHOLE_BYTES = 256 * 1024**2
"""A query that reads more than that without any condition is told how to read less."""


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


def _parts(selection: Selection, count_min: int | None) -> list[JournalPart]:
    return [JournalPart(share) for share in shares(selection, count_min)]


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
        """Return tasks of about one size, without files that cannot hold such events."""
        options = self._options
        journal = Journal.open(options.journal)
        selection = options.select(journal, tuple(self._target.names))
        selection = selection.narrowed(
            shown=self._shown, start=options.start_in(journal), stop=options.stop_in(journal)
        )
        self._tell_of_whole_reads(journal, selection)
        return _parts(selection, options.parts_min)

    def _tell_of_whole_reads(self, journal: Journal, selection: Selection) -> None:
        """Name what makes a large read cheaper: Spark hands down neither columns nor conditions."""
        size = sum(one.bytes for one in selection.segments)
        options = self._options
        if size <= WHOLE_BYTES or options.pushdown is not None or options.is_narrow:
            return
        if len(selection.segments) == len(journal.manifest.segments):
            log.warning(
                "the whole journal in %s is read, %.0f MB: the options where, subject, since, "
                "until, type and columns say what you need; pushdown=true hands down the "
                "conditions of a query (pushdown=false ends this warning)",
                journal.folder,
                size / 1e6,
            )

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
        self._known: dict[str, pa.DataType] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        journal, options = self._journal(), self._options
        if options.starting_at is not None:
            taken = journal.first_offset_of(options.type)
            return place_at(journal, offset_at(journal, options.starting_at), taken)
        starting = options.starting
        if isinstance(starting, int):
            if starting > journal.next_offset:
                raise UsageError(
                    f"option startingOffset={starting}: the journal in {journal.folder} ends at "
                    f"{journal.next_offset}; expected an offset up to there, earliest or latest"
                )
            return place_at(journal, starting)
        if starting == "latest":
            return place_at(journal, journal.next_offset)
        return earliest(journal, options.select(journal), options.type)

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
        journal, options = self._journal(), self._options
        begin = self._offset(journal, start)
        stop = options.stop_in(journal)
        end = min(one for one in (journal.next_offset, self._end, stop) if one is not None)
        if end <= begin:
            return start
        self._check_columns(journal)
        selection = self._select(journal, begin, end)
        most_bytes = None
        if isinstance(limit, ReadMaxRows):
            end = fitting(selection, begin, end, limit.max_rows, lambda segment: 1.0)
            # Spark knows one limit at a time; of two options, the one that is reached first counts.
            most_bytes = options.bytes_max
        elif isinstance(limit, ReadMaxBytes):
            most_bytes = limit.max_bytes
        if most_bytes is not None:
            end = fitting(selection, begin, end, most_bytes, lambda one: one.bytes / one.count)
        return place_at(journal, end, start.get("taken"))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the journal."""
        journal = Journal.open(self._options.journal)
        return place_at(journal, journal.next_offset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks for the events between two positions; always the same events."""
        journal = Journal.open(self._options.journal)
        begin, stop = self._offset(journal, start), self._offset(journal, end)
        if begin >= stop:
            return []
        return _parts(self._select(journal, begin, stop), self._options.parts_min)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the events of one task."""
        try:
            yield from _read(partition, self._target)
        except UsageError as error:  # a type has changed since the query began
            raise DeliveryError(
                f"{error}, or load it again and restart the query from its checkpoint"
            ) from error

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

    def _offset(self, journal: Journal, place: Mapping[str, Any]) -> int:
        options = self._options
        return offset_in(journal, place, options.type, loss_ok=not options.fail_on_data_loss)

    def _check_columns(self, journal: Journal) -> None:
        """End the query if its type has changed, because the columns of a query are fixed.

        Raises:
            DeliveryError: A restart from the checkpoint reads on, with the columns of now.
        """
        options = self._options
        if options.type is None or options.new_columns == "ignore":
            return
        held = options.select(journal).schema
        now = {field.name: field.type for field in held}
        before, self._known = self._known, now
        if before is None:
            return
        others = [
            f"{name} (now {now[name]})"
            for name in self._target.names
            if name in before and name in now and now[name] != before[name]
        ]
        is_whole = set(before) <= set(self._target.names)  # else the query has chosen its columns
        if is_whole and options.columns is None:
            others += sorted(set(now) - set(before))
        if others:
            raise DeliveryError(
                f"{options.type} has got other attributes since this query began: "
                f"{', '.join(others)}; to read on with them, load it again and restart the query "
                "from its checkpoint; to go on without them, set the option newColumns to ignore"
            )
