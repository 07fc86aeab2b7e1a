"""All events of a journal, of any type, for jobs that read everything: with Spark or without.

Starting Spark takes longer than reading a small journal. So commands read up to
`IN_PROCESS_EVENTS_MAX` events by themselves, and this module imports Spark only when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infobus.stores.journal.columns import REST
from infobus.stores.journal.journal import Journal, Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

IN_PROCESS_EVENTS_MAX = 200_000
"""Commands read so many events without Spark, unless they are told otherwise."""

_NUMBER_BYTES = 9
"""What most numbers and times take on the wire, with what says that they are numbers."""


def histories(
    spark: SparkSession,
    journal: str | Path,
    *,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[DataFrame]:
    """Return the events of a journal: one DataFrame for each type, and one for events without.

    Each has the columns of its type, and Spark itself reads it, except for untyped events.
    """
    from pyspark.sql import functions as F

    from infobus.pipeline.source.native import events

    opened = Journal.open(journal)
    names = sorted({segment.type for segment in opened.manifest.segments})
    frames = []
    for name in filter(None, names):
        frame = events(spark, journal, name, subject=subject, since=since, until=until)
        frames.append(frame.where(F.col("_type") == name))  # without its subtypes
    if "" in names or not names:
        asked = {"subject": subject, "since": since, "until": until, "journal": journal}
        given = {name: str(value) for name, value in asked.items() if value is not None}
        untyped = spark.read.format("infobus").options(**given).load()
        frames.append(untyped.where("_type is null"))
    return frames


def is_small(selection: Selection) -> bool:
    """Return whether a command reads the selected events by itself."""
    return sum(segment.count for segment in selection.segments) <= IN_PROCESS_EVENTS_MAX


def selections(journal: Journal) -> Iterator[Selection]:
    """As `histories`, without Spark: one selection for each type, and one for untyped events."""
    for name in sorted({segment.type for segment in journal.manifest.segments}):
        selection = journal.select(name or None)
        yield selection.part(one for one in selection.segments if one.type == name)


def event_sizes(table: pa.Table) -> np.ndarray[Any, Any]:
    """As `event_bytes`, for the rows of a table."""
    sizes = np.full(table.num_rows, 1, np.int64)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not name.startswith("_"):
            sizes += len(name) + 1
        elif name != REST:
            continue
        type_ = column.type
        if pa.types.is_string(type_) or pa.types.is_binary(type_):
            sizes += pc.add(pc.binary_length(column), 2).fill_null(0).to_numpy()
        elif pa.types.is_boolean(type_):
            sizes += 1
        elif pa.types.is_primitive(type_):
            sizes += _NUMBER_BYTES
        else:
            values = column.to_pylist()
            sizes += [0 if one is None else len(msgspec.json.encode(one)) for one in values]
    return sizes


def event_bytes(frame: DataFrame) -> Column:
    """Return about how many bytes the object of an event takes on the wire."""
    from pyspark.sql import functions as F

    parts = [
        F.coalesce(_value_bytes(F.col(f"`{field.name}`"), field.dataType), F.lit(0))
        for field in frame.schema
        if not field.name.startswith("_") or field.name == "_attributes"
    ]
    names = sum(len(name) + 1 for name in frame.columns if not name.startswith("_"))
    return reduce(add, parts, F.lit(1 + names)).cast("long")


def _value_bytes(column: Column, type_: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, BooleanType, NumericType, StringType, TimestampType

    match type_:
        case StringType() | BinaryType():
            return F.octet_length(column) + 2
        case BooleanType():
            return F.lit(1)
        case NumericType() | TimestampType():
            return F.lit(_NUMBER_BYTES)
    return F.octet_length(F.to_json(column))
