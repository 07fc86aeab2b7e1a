"""Measures traffic in a journal: rates, sizes, depth and latency by subject, class and node.

Latency is the time from publication to the journal's disk: an event's position in the journal shows
when its file was written. Files that were merged since say when their parts were. Depth is how many
events were in transit at once.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from pyspark.sql import Window
from pyspark.sql import functions as F

from infobus.errors import UsageError
from infobus.pipeline.jobs.history import event_bytes, histories
from infobus.pipeline.jobs.interest import Array
from infobus.pipeline.jobs.traffic.marks import Advice, ServiceRate, advise
from infobus.protocols.qos.classes import DEFAULT_CLASSES
from infobus.stores.journal.journal import Journal, Segment
from infobus.stores.journal.parquet import arrivals_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from infobus.pipeline.jobs import ResultPart

COMMIT_S = 2.0
"""A file holds the events of one commit if they were published within so much time."""
BINS_COUNT_MAX = 100_000

_OBSERVED = "_subject _class _sender _time _test _bytes _arrived".split()
_ARRIVAL_DDL = "of string, first long, last long, at long"


class TrafficOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to measure traffic.

    Attributes:
        report: The folder for the report and its pictures.
        journal: The folder of the journal, whose files show when events arrived.
        bin_s: The length of a time bin, over which rates are computed.
        service_per_s: How many events can be taken in a second; default: the best that was seen.
        reaction_s: How long a sender takes to stop or resume.
        patience_s: By class: no event should wait longer than that.
        classes: The classes of the bus, highest first.
        test: Test events count, too.
    """

    report: str = "traffic"
    journal: str | None = None
    bin_s: float = 1.0
    service_per_s: float | None = None
    reaction_s: float = 0.05
    patience_s: dict[str, float] = {}
    classes: tuple[str, ...] = DEFAULT_CLASSES.names
    test: bool = False

    def __post_init__(self) -> None:
        for name in ("bin_s", "reaction_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)}: must be above 0")
        if self.service_per_s is not None and not self.service_per_s > 0:
            raise UsageError(f"service_per_s={self.service_per_s}: must be above 0")


Options = TrafficOptions


def observed(spark: SparkSession, journal: str | Path) -> DataFrame:
    """Return all events of a journal, of any type, as `transform` expects them."""
    options = TrafficOptions(journal=str(journal))
    frames = [_observed(frame, options) for frame in histories(spark, journal)]
    return reduce(lambda one, other: one.unionByName(other), frames)


def _observed(events: DataFrame, options: TrafficOptions) -> DataFrame:
    """Return the columns about traffic; add `_bytes` and `_arrived` if they are missing."""
    kept = events
    if "_bytes" not in kept.columns:
        kept = kept.withColumn("_bytes", event_bytes(events))
    if "_arrived" not in kept.columns:
        journal = None if options.journal is None else Journal.open(options.journal)
        kept = _with_arrival(kept, journal)
    return kept.select(*_OBSERVED)


def _with_arrival(events: DataFrame, journal: Journal | None) -> DataFrame:
    """Add when each event was written, as far as that is known."""
    segments = () if journal is None else journal.manifest.segments
    rows = [
        (one.type, first, last, round(at_s * 1e6))
        for one in segments
        for first, last, at_s in _arrivals(journal, one)
    ]
    files = events.sparkSession.createDataFrame(rows, _ARRIVAL_DDL)
    is_in = (
        (F.coalesce(F.col("_type"), F.lit("")) == F.col("of"))
        & (F.col("_offset") >= F.col("first"))
        & (F.col("_offset") <= F.col("last"))
    )
    joined = events.join(F.broadcast(files), is_in, "left")
    return joined.withColumn("_arrived", F.timestamp_micros("at"))


def _arrivals(journal: Journal | None, segment: Segment) -> list[tuple[int, int, float]]:
    """Return when the events of a file were written: ranges of offsets, and times."""
    if journal is None:
        return []
    if merged := arrivals_in(journal.folder / segment.path):
        firsts = [segment.first, *(last + 1 for last, _ in merged)]
        return [(first, last, at) for first, (last, at) in zip(firsts, merged, strict=False)]
    if _span_s(segment) > COMMIT_S:  # merged by a version that did not note it
        return []
    return [(segment.first, segment.last, segment.written_at)]


def _span_s(segment: Segment) -> float:
    least, greatest, _ = segment.limits.get("_time", (None, None, 0))
    return float("inf") if least is None or greatest is None else (greatest - least) / 1e6


def transform(events: DataFrame, options: TrafficOptions) -> DataFrame:
    """Return one row for each subject, class and node: what it has sent, and how that arrived.

    Columns: `by` (subject, class or node), `name`, `events`, `bytes`, `bytes_max`, `first` and
    `last` (when published), `per_s_peak` (over one bin), `latency_s` (its median, 95th and 99th
    percentile, and maximum), `measured` (how many events that covers), `depth_max`, and `bins` (for
    classes: the events published and arrived in each time bin).

    Raises:
        UsageError: The events are live.
    """
    if events.isStreaming:
        raise UsageError("traffic is looked at after the fact: give it events of spark.read")
    events = events.where("_time is not null")  # a clock may show an invalid time
    if not options.test:
        events = events.where("not _test")
    seen = _observed(events, options).select(
        F.explode(
            F.array(
                F.struct(F.lit("subject").alias("by"), F.col("_subject").alias("name")),
                F.struct(F.lit("class").alias("by"), F.col("_class").alias("name")),
                F.struct(F.lit("node").alias("by"), F.col("_sender").alias("name")),
            )
        ).alias("of"),
        F.unix_micros("_time").alias("sent_us"),
        F.unix_micros("_arrived").alias("arrived_us"),
        F.col("_bytes").alias("bytes"),
    )
    seen = seen.select("of.by", "of.name", "sent_us", "arrived_us", "bytes")
    sums = seen.groupBy("by", "name").agg(
        F.count("*").alias("events"),
        F.sum("bytes").alias("bytes"),
        F.max("bytes").alias("bytes_max"),
        F.timestamp_micros(F.min("sent_us")).alias("first"),
        F.timestamp_micros(F.max("sent_us")).alias("last"),
        F.percentile_approx(
            (F.col("arrived_us") - F.col("sent_us")) / 1e6, [0.5, 0.95, 0.99, 1.0], 1000
        ).alias("latency_s"),
        F.count("arrived_us").alias("measured"),
    )
    together = ["by", "name"]
    found = sums.join(_binned(seen, options), together).join(_depths(seen), together, "left")
    return found.select(
        *together,
        "events",
        "bytes",
        "bytes_max",
        "first",
        "last",
        "per_s_peak",
        "latency_s",
        "measured",
        "depth_max",
        "bins",
    )


def _binned(seen: DataFrame, options: TrafficOptions) -> DataFrame:
    """Return the busiest bin of each, and all bins of the classes."""
    bin_us = round(options.bin_s * 1e6)
    bins = (
        _changes(seen)
        .groupBy("by", "name", F.expr(f"at_us div {bin_us}").alias("bin"))
        .agg(
            F.count_if(F.col("change") > 0).alias("sent"),
            F.count_if(F.col("change") < 0).alias("arrived"),
        )
    )
    one = F.when(F.col("by") == "class", F.struct("bin", "sent", "arrived"))
    return bins.groupBy("by", "name").agg(
        (F.max("sent") / options.bin_s).alias("per_s_peak"),
        F.array_sort(F.collect_list(one)).alias("bins"),
    )


def _depths(seen: DataFrame) -> DataFrame:
    """Return the greatest number of events that were in transit at once."""
    order = Window.partitionBy("by", "name").orderBy("at_us", F.desc("change"))
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    changes = _changes(seen.where("arrived_us is not null"))
    depth = changes.select("by", "name", F.sum("change").over(so_far).alias("depth"))
    return depth.groupBy("by", "name").agg(F.max("depth").alias("depth_max"))


def _changes(seen: DataFrame) -> DataFrame:
    """Return when events were published (1), and when they arrived (-1)."""
    return (
        seen.select(
            "by",
            "name",
            F.explode(
                F.array(
                    F.struct(F.col("sent_us").alias("at_us"), F.lit(1).alias("change")),
                    F.struct(F.col("arrived_us").alias("at_us"), F.lit(-1).alias("change")),
                )
            ).alias("it"),
        )
        .select("by", "name", "it.at_us", "it.change")
        .where("at_us is not null")
    )


def write(result: DataFrame, options: TrafficOptions, batch: ResultPart) -> None:
    """Write the report, `report.md` and its pictures, into the folder of the options."""
    from infobus.pipeline.jobs.traffic.report import write_report

    rows = result.collect()
    write_report(rows, options, Path(options.report))


class Series(Struct, frozen=True):
    """The classes of a bus over time, highest first: events published, and arrived, by bins."""

    names: tuple[str, ...]
    sent: tuple[Array, ...]
    arrived: tuple[Array, ...]
    bin_s: float


def series(rows: list[Row], options: TrafficOptions) -> Series | None:
    """Return the findings about the classes; None if there were no events."""
    by_class = {row["name"]: row["bins"] for row in rows if row["by"] == "class"}
    names = (*(one for one in options.classes if one in by_class),)
    names += tuple(sorted(set(by_class) - set(names)))
    if not names:
        return None
    first = min(one["bin"] for bins in by_class.values() for one in bins)
    last = max(one["bin"] for bins in by_class.values() for one in bins)
    # Long periods are examined in longer steps.
    step = -(-(last - first + 1) // BINS_COUNT_MAX)
    count = (last - first) // step + 1
    sent, arrived = ([np.zeros(count) for _ in names] for _ in range(2))
    for rank, name in enumerate(names):
        for one in by_class[name]:
            at = (one["bin"] - first) // step
            sent[rank][at] += one["sent"]
            arrived[rank][at] += one["arrived"]
    return Series(names, tuple(sent), tuple(arrived), options.bin_s * step)


def service_of(found: Series, options: TrafficOptions) -> ServiceRate:
    """Return how many events are taken: from the options, or from the best bin."""
    taken = np.sum(found.arrived, axis=0) if np.any(found.arrived) else np.sum(found.sent, axis=0)
    best = float(taken.max()) / found.bin_s
    return ServiceRate(
        events_per_s=options.service_per_s or best,
        reaction_s=options.reaction_s,
        patience_s=options.patience_s,
    )


def recommended(rows: list[Row], options: TrafficOptions) -> list[Advice]:
    """Return watermarks for each class, from the result of `transform`."""
    found = series(rows, options)
    if found is None:
        return []
    return advise(found.names, found.sent, found.bin_s, service_of(found, options))
