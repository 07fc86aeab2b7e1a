"""Publishes history again: at its own speed, faster, or as fast as possible.

Spark, or for a small journal this process, puts the events in order, computes when each is due, and
encodes the objects; the driver joins the bus and publishes. Events of one sender keep their order.
Each object keeps its own id, and gets the attribute `replayed`, with the id, sender, time and
offset of the original event. A subscriber that wants no replays filters by `!exists(replayed)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import pyarrow as pa
from msgspec import Struct

import infobus
from infobus import headers
from infobus.errors import BadFrame, UsageError
from infobus.objects import codec, find_type
from infobus.pipeline.jobs.interest import arrow_function, table_of
from infobus.stores.journal.columns import REST, TOLD
from infobus.stores.journal.journal import Journal, Selection
from infobus.stores.journal.rows import attributes_by_row, headers_by_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infobus.pipeline.jobs import ResultPart

MARK = "replayed"
"""The attribute by which a replayed object is told from others."""


class ReplayOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How history is replayed, and on which bus.

    Attributes:
        speed: How many seconds of history pass in one second; "full" does not wait at all.
        journal: The folder from which to learn the types of the objects; without it, objects of
            types that this process does not know are published as plain dicts.
        guaranteed: As in `publish`.
        bus, home, connect, listen: As in `infobus.connect`.
    """

    speed: float | Literal["full"] = 1.0
    journal: str | None = None
    guaranteed: bool = False
    bus: str | None = None
    home: str | None = None
    connect: list[str] | None = None
    listen: list[str] | None = None

    def __post_init__(self) -> None:
        if self.speed != "full" and not 0 < self.speed < float("inf"):
            raise UsageError(f"speed={self.speed}: a number above 0, or full")


Options = ReplayOptions


def transform(events: DataFrame, options: ReplayOptions) -> DataFrame:
    """Return the events in the order of publication, each with the time it is due.

    Columns: `due_s` (since the replay began), `subject`, `type`, `object_id`, `priority`, `test`,
    `headers` (encoded) and `body` (the attributes, encoded). If the clock of a sender jumped back,
    its events are due at once.

    Raises:
        UsageError: The events are live.
    """
    if events.isStreaming:
        raise UsageError("a replay is one of history: give it events of spark.read")
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    number = F.coalesce("_number", "_offset")
    so_far = Window.partitionBy("_sender").orderBy(number, "_offset")
    moment_us = F.max(F.unix_micros("_time")).over(
        so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    first = events.agg(F.unix_micros(F.min("_time")).alias("first_us"))
    journal = options.journal

    def bodies(rows: pa.Array) -> pa.Array:
        if journal is not None:
            Journal.open(journal).types()  # this learns them, for objects inside others
        return _bodies(table_of(rows))

    def told_in(rows: pa.Array) -> pa.Array:
        return _headers(table_of(rows))

    encode = arrow_function(bodies, "binary")
    encode_headers = arrow_function(told_in, "binary")
    has_headers = TOLD in events.columns
    # A clock may show an invalid time; then only the order is known.
    elapsed_s = F.coalesce((F.col("moment_us") - F.col("first_us")) / 1e6, F.lit(0.0))
    due_s = F.lit(0.0) if options.speed == "full" else elapsed_s / options.speed
    body = encode(F.struct(*(F.col(f"`{name}`") for name in events.columns if name != TOLD)))
    told = encode_headers(F.struct(F.col(TOLD))) if has_headers else F.lit(b"")
    return (
        events.select(
            "*",
            moment_us.alias("moment_us"),
            number.alias("in_order"),
            body.alias("body"),
            told.alias("headers"),
        )
        .crossJoin(first)
        .orderBy("moment_us", "_sender", "in_order", "_offset")
        .select(
            due_s.alias("due_s"),
            F.col("_subject").alias("subject"),
            F.col("_type").alias("type"),
            F.col("_object_id").alias("object_id"),
            F.col("_class").alias("priority"),
            F.col("_test").alias("test"),
            "headers",
            "body",
        )
    )


class DueEvent(NamedTuple):
    """A row of the result of `transform`."""

    due_s: float
    subject: str
    type: str | None
    object_id: str | None
    priority: str
    test: bool
    headers: bytes
    body: bytes


def in_process(selection: Selection, options: ReplayOptions) -> list[DueEvent]:
    """Return the rows of `transform` for selected events without a type, without Spark."""
    if options.journal is not None:
        Journal.open(options.journal).types()  # this learns them, for objects inside others
    table = selection.table()
    rows = table.drop_columns([REST, TOLD]).to_pylist()
    encoded = zip(rows, _headers(table).to_pylist(), _bodies(table).to_pylist(), strict=True)
    for row, told, body in encoded:
        row["headers"], row["body"] = told, body
        number = row["_number"]
        row["in_order"] = (row["_offset"] if number is None else number, row["_offset"])
    times = [row["_time"] for row in rows if row["_time"] is not None]
    first = min(times, default=datetime.max)
    rows.sort(key=lambda row: row["in_order"])
    latest: dict[str, datetime] = {}  # by sender: if its clock jumped back, events are due at once
    for row in rows:
        if row["_time"] is not None:
            latest[row["_sender"]] = max(row["_time"], latest.get(row["_sender"], row["_time"]))
        # A clock may show an invalid time; then only the order is known.
        moment = latest.get(row["_sender"])
        row["elapsed_s"] = 0.0 if moment is None else (moment - first).total_seconds()
        row["has_time"] = moment is not None
    rows.sort(key=lambda row: (row["has_time"], row["elapsed_s"], row["_sender"], row["in_order"]))
    speed = options.speed
    return [
        DueEvent(
            0.0 if speed == "full" else row["elapsed_s"] / speed,
            row["_subject"],
            row["_type"],
            row["_object_id"],
            row["_class"],
            row["_test"],
            row["headers"],
            row["body"],
        )
        for row in rows
    ]


def _bodies(table: pa.Table) -> pa.Array:
    """Return the attributes of each event, and its origin, encoded as they are sent."""
    marks = zip(
        *(table[name].to_pylist() for name in ("_event_id", "_sender", "_time", "_offset")),
        strict=True,
    )
    bodies = []
    for attributes, mark in zip(attributes_by_row(table), marks, strict=True):
        # An event that is replayed once more still names the original event.
        attributes.setdefault(
            MARK, dict(zip(("id", "sender", "time", "offset"), mark, strict=True))
        )
        bodies.append(codec.encode(attributes)[1])
    return pa.array(bodies, pa.binary())


def _headers(table: pa.Table) -> pa.Array:
    """Return the headers of each event, encoded as they are sent."""
    return pa.array(map(headers.encode, headers_by_row(table)), pa.binary())


def write(result: DataFrame, options: ReplayOptions, batch: ResultPart) -> None:
    """Join the bus and publish everything; returns when it is over."""
    bus = infobus.connect(
        options.bus, home=options.home, connect=options.connect, listen=options.listen
    )
    with bus:
        publish(bus, result, options)


class ReplayClock(Protocol):
    """A clock that can wait."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


def publish(
    bus: infobus.Bus,
    result: DataFrame | list[DueEvent],
    options: ReplayOptions,
    *,
    clock: ReplayClock = time,
    on_event: Callable[[float], object] | None = None,
) -> int:
    """Publish the result of `transform` or `in_process`, each event when it is due.

    Returns how many.

    Args:
        bus: The bus to publish on.
        result: The events.
        options: The options of `transform`.
        clock: The clock to wait by.
        on_event: Called after each event, with the seconds by which it was late.
    """
    if options.journal is not None:
        Journal.open(options.journal).types()
    start_s = clock.monotonic()
    count = 0
    # Rows arrive in parts; Spark computes the next part while one is published.
    rows: Any
    rows = result if isinstance(result, list) else result.toLocalIterator(prefetchPartitions=True)
    for row in rows:
        early_s = start_s + row.due_s - clock.monotonic()
        if early_s > 0:
            clock.sleep(early_s)
        bus.publish(
            row.subject,
            _object(row.type, bytes(row.body), row.object_id),
            priority=row.priority,
            test=row.test,
            guaranteed=options.guaranteed,
            headers=headers.decode(bytes(row.headers)),
        )
        count += 1
        if on_event is not None:
            on_event(max(0.0, -early_s))
    return count


def _object(type_name: str | None, body: bytes, object_id: str | None) -> Any:
    known = None if type_name is None else find_type(type_name)
    try:
        return codec.decode(0 if known is None else known.fingerprint, body, object_id)
    except BadFrame:  # the bytes no longer fit the type of this name
        return codec.decode(0, body, object_id)
