"""All events of a journal, of any type, for jobs that read everything."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, NumericType, StringType, TimestampType

from infobus.pipeline.source.native import events
from infobus.stores.journal.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

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


def event_bytes(frame: DataFrame) -> Column:
    """Return about how many bytes the object of an event takes on the wire."""
    parts = [
        F.coalesce(_value_bytes(F.col(f"`{field.name}`"), field.dataType), F.lit(0))
        for field in frame.schema
        if not field.name.startswith("_") or field.name == "_attributes"
    ]
    names = sum(len(name) + 1 for name in frame.columns if not name.startswith("_"))
    return reduce(add, parts, F.lit(1 + names)).cast("long")


def _value_bytes(column: Column, type_: DataType) -> Column:
    match type_:
        case StringType() | BinaryType():
            return F.octet_length(column) + 2
        case BooleanType():
            return F.lit(1)
        case NumericType() | TimestampType():
            return F.lit(_NUMBER_BYTES)
    return F.octet_length(F.to_json(column))
