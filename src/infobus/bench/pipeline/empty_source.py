"""A streaming source that reads nothing. It shows what Spark needs for any source in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow


class NothingSource(DataSource):
    """`format("nothing")`: as many batches as the option `batches` says, of one row each."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return "nothing"

    def schema(self) -> str:
        """One column."""
        return "n long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Read it."""
        return _NothingReader(int(self.options["batches"]))


class _NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, batches: int) -> None:
        self._batches = batches

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.int64())], names=["n"])
