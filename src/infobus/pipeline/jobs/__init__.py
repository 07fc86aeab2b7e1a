"""Jobs of the pipeline: what Spark does with events.

A job is a module that has the job's name, here or in a folder of that name. It contains

- `Options`: a `msgspec.Struct` (frozen, keyword-only, no unknown fields) that a TOML table fills;
- `transform(events, options)`: from DataFrame to DataFrame, without any other effect. `events` has
  the columns of `format("infobus")`; it may be history or, unless the job says otherwise, live;
- `attributes(options)`, if the job needs only some attributes of its events: their names. A
  pipeline then reads no others;
- `prepare(options, checkpoint)`, if a live query of the job holds state of its own in its
  checkpoint: called before the query starts;
- `write(result, options, batch)`, if the result is not published: stores the result, or each
  micro-batch of it. After a crash it is called again, with the same `batch`.

The result of a job without `write` goes to a sink: its columns become attributes of new objects,
and each object is published under its `_subject`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from infobus.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_MODULES = {
    "decompose": "decompose.decompose",
    "keywords": "keywords",
    "correlate": "correlate.correlate",
    "traffic": "traffic.traffic",
    "backtest": "backtest",
    "replay": "replay",
}
NAMES = tuple(_MODULES)


class ResultPart(Struct, frozen=True):
    """A part of a result: the micro-batch of a query, or all of a batch read (number 0)."""

    query: str
    number: int


class Job(Protocol):
    """The interface of a job's module; `write` exists only if the result is not published."""

    Options: type[Struct]

    def transform(self, events: DataFrame, options: Any) -> DataFrame:
        """Compute the result from events, without any other effect."""


def find(name: str) -> Job:
    """Return the job of that name.

    Raises:
        UsageError: There is none.
    """
    if name not in NAMES:
        raise UsageError(f"there is no job {name!r}; there are {', '.join(NAMES)}")
    module: Any = import_module(f"{__name__}.{_MODULES[name]}")
    job: Job = module
    return job


def options_for(name: str, table: Mapping[str, Any]) -> Any:
    """Return the options of a job, from a TOML table.

    Raises:
        UsageError: One is missing, unknown, or of the wrong kind.
    """
    try:
        return msgspec.convert(dict(table), find(name).Options)
    except msgspec.ValidationError as error:
        raise UsageError(f"job {name}: {error}") from error


def attributes_for(name: str, options: Any) -> set[str] | None:
    """Return which attributes of its events a job needs; None for all."""
    asked: Any = getattr(find(name), "attributes", None)
    return None if asked is None else asked(options)


def run(
    name: str,
    events: DataFrame,
    options: Any,
    *,
    query: str,
    sink: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery | None:
    """Run a job over history until it is done, or start it over live events.

    Args:
        name: The job's name.
        events: The events to read.
        options: Its `Options`.
        query: Distinguishes this use of the job from all others, also in sinks that remember.
        sink: Options of `df.write.format("infobus")`, for a job whose result is published.
        checkpoint: The folder in which a live query stores its position.
        trigger: For a live query, such as `{"processingTime": "2 seconds"}`.

    Raises:
        UsageError: The job's result is to be published, and there is no sink.
    """
    job: Any = find(name)
    result = job.transform(events, options)
    write = getattr(job, "write", None)
    if write is None and sink is None:
        raise UsageError(f"job {name}: its result is published, so it needs a sink")
    if not events.isStreaming:
        if write is not None:
            write(result, options, ResultPart(query, 0))
        else:
            _publish(result.write, sink, query).mode("append").save()
        return None
    if checkpoint and hasattr(job, "prepare") and "://" not in checkpoint:
        job.prepare(options, Path(checkpoint))
    stream: Any = result.writeStream.queryName(query).option("checkpointLocation", checkpoint or "")
    if trigger:
        stream = stream.trigger(**trigger)
    if write is not None:
        stream = stream.foreachBatch(lambda part, at: write(part, options, ResultPart(query, at)))
    else:
        stream = _publish(stream, sink, query)
    started: StreamingQuery = stream.start()
    return started


def _publish(writer: Any, sink: Mapping[str, str] | None, query: str) -> Any:
    return writer.format("infobus").options(**{"query": query, **(sink or {})})
