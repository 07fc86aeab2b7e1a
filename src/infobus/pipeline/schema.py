"""Converts the columns of journals to Spark's columns, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infobus.errors import UsageError
from infobus.extras import advice

try:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
except ImportError as error:
    raise UsageError(
        "the pipeline runs on Spark, and PySpark is not installed. It needs a Java runtime "
        f"(on Debian: apt-get install openjdk-17-jre-headless); {advice('spark')}"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns of a DataFrame for an Arrow schema.

    >>> spark_schema(pa.schema({"n": pa.int64(), "tags": pa.list_(pa.string())})).simpleString()
    'struct<n:bigint,tags:array<string>>'
    """
    found: StructType = from_arrow_schema(schema)
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow columns that Spark expects for a DataFrame with these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def fitted(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the columns that Spark expects, by name.

    Raises:
        UsageError: A column cannot be converted.
    """
    arrays: list[Any] = []
    for field in target:
        column = batch.column(field.name)
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(
                f"column {field.name} holds {column.type} and cannot be read as {field.type}: "
                f"{error}; leave it out of the schema, or give it its own type"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=target)
