"""Reads a journal with Spark's own Parquet reader, for work over all of history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from infobus.errors import UsageError
from infobus.filters import Filter, compile
from infobus.pipeline.schema import spark_schema
from infobus.stores.journal.columns import ENVELOPE, REST
from infobus.stores.journal.journal import Journal, Segment, Selection
from infobus.stores.journal.schemas import source_of
from infobus.stores.journal.selection import columns_asked, matching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def events(
    spark: SparkSession,
    journal: str | Path,
    type: str | None = None,
    *,
    where: str | None = None,
    subtypes: bool = False,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the events of a journal as a DataFrame that Spark itself reads.

    It has the same rows and columns as `format("infobus")`. It is better if you need few columns of
    much data, because Spark reads no others. Without a type it has the envelope only.

    Args:
        spark: The session.
        journal: The journal's folder.
        type: Events of this type and of its subtypes.
        where: A filter. Spark decides what it can; Python decides the rest, row by row.
        subtypes: Adds columns for the attributes of the subtypes.
        subject: A pattern.
        since: The earliest time of publication.
        until: Only events published before this time.
        columns: Only these, in this order.

    Raises:
        UsageError: No such type or column; a bad pattern or filter.
    """
    if type is None:
        columns = ENVELOPE.names if columns is None else columns
        if REST in columns:
            raise UsageError(f"{REST} is read by format('infobus') only, unless a type is given")
    selection = Journal.open(journal).select(
        type,
        where=where,
        subtypes=subtypes,
        subject=subject,
        since=since,
        until=until,
        columns=columns,
    )
    groups: dict[tuple[str, str], list[Segment]] = {}
    for segment in selection.segments:
        groups.setdefault((segment.schema, segment.fingerprint), []).append(segment)
    frames = [_frame(spark, selection, segments) for segments in groups.values()]
    if not frames:
        return spark.createDataFrame([], spark_schema(selection.schema))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _frame(spark: SparkSession, selection: Selection, segments: list[Segment]) -> DataFrame:
    """Return the selected rows and columns of files with the same columns."""
    schema = selection.schemas[segments[0].schema]
    target = {column.name: column for column in spark_schema(selection.schema)}
    read: list[pa.Field] = []
    chosen: list[Column] = []
    for name, column in selection.columns.items():
        source = source_of(column, schema)
        wanted = target[name].dataType
        if source is None:
            chosen.append(F.lit(None).cast(wanted).alias(name))
            continue
        read.append(source.with_type(_readable(source.type, column.field.type)))
        quoted = f"`{source.name}`"
        chosen.append(F.col(quoted).cast(wanted).alias(name))
    conditions = selection.conditions
    where = None if conditions.where is None else compile(conditions.where)
    names = {field.name for field in read}
    asked = set(_CONDITIONED)
    if where is not None:
        has_rest = any(one.has_rest for one in segments)
        asked |= columns_asked(where, schema, has_rest)
    read += [field for field in schema if field.name in asked - names]
    paths = [str(selection.folder / segment.path) for segment in segments]
    frame = spark.read.schema(spark_schema(pa.schema(read))).parquet(*paths)
    for condition in _conditions(selection):
        frame = frame.where(condition)
    if where is not None:
        columns = pa.schema([field for field in schema if field.name in asked])
        frame = _where(frame, where, columns, has_rest, selection.folder, segments[0].fingerprint)
    return frame.select(*chosen)


def _readable(held: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the type as which Spark can read a column, and then cast it to the wanted type.

    Structs get the fields of all versions when they are read, numbers are cast after.

    >>> _readable(pa.list_(pa.int64()), pa.list_(pa.float64()))
    ListType(list<item: int64>)
    """
    if pa.types.is_struct(held):
        own = {field.name: field.type for field in held}
        return pa.struct(
            [
                one.with_type(_readable(own[one.name], one.type)) if one.name in own else one
                for one in wanted
            ]
        )
    if pa.types.is_list(held):
        return pa.list_(pa.field("item", _readable(held.value_type, wanted.value_type)))
    if pa.types.is_map(held):
        return pa.map_(pa.string(), _readable(held.item_type, wanted.item_type))
    return held


_CONDITIONED = ("_subject", "_time")


def _conditions(selection: Selection) -> Iterator[Column]:
    conditions = selection.conditions
    if conditions.subject is not None:
        elements = conditions.subject.split(".")
        parts = [{"*": "[^.]+", ">": ".+"}.get(one, f"\\Q{one}\\E") for one in elements]
        yield F.col("_subject").rlike(f"^{'[.]'.join(parts)}$")
    if conditions.since is not None:
        yield F.col("_time") >= F.lit(conditions.since)
    if conditions.until is not None:
        yield F.col("_time") < F.lit(conditions.until)


def _where(
    frame: DataFrame,
    where: Filter,
    columns: pa.Schema,
    has_rest: bool,
    folder: Path,
    fingerprint: str,
) -> DataFrame:
    """Return the rows for which a filter is true; it sees the columns as the files have them."""
    # `_attributes` may hold a value of another kind than its column, which Spark cannot know.
    sure = [one for one in columns if not has_rest or one.name in ENVELOPE.names]
    pushed = where.to_spark(spark_schema(pa.schema(sure)))
    if pushed.condition is not None:
        frame = frame.where(pushed.condition)
    if pushed.residual is None:
        return frame
    residual = pushed.residual

    def is_match(rows: pa.Array) -> pa.Array:
        table = pa.Table.from_struct_array(rows).cast(columns)
        return pa.array(matching(folder, fingerprint, table, residual), pa.bool_())

    decide: Any = arrow_udf(is_match, "boolean")  # type: ignore[call-overload]
    return frame.where(decide(F.struct(*(F.col(f"`{name}`") for name in columns.names))))
