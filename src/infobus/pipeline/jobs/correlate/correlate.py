"""The event correlation engine: many events become few that mean more.

Rules (see `rules`) process events in the order of the events' own times. Live events wait until the
watermark has passed them, `late_s` behind the latest, because until then they may arrive in any
order; events that arrive later still are left out. So live events give the same findings as
history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F

from infobus.filters import compile
from infobus.filters.language.values import read
from infobus.pipeline.jobs.correlate.live import (
    FOUND,
    SHARE_COUNT,
    CorrelateOptions,
    Follower,
    encode,
    hits_in,
    log,
    note_rules,
    row_of,
)
from infobus.pipeline.jobs.correlate.rules import Aggregate, Hit, Memory, Template, follow
from infobus.pipeline.jobs.interest import (
    InterestInRows,
    Rows,
    asked_columns,
    names_in,
    table_of,
)
from infobus.stores.journal.columns import GENERIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Options = CorrelateOptions
AHEAD_S = 3600
"""Live events whose time is further ahead of the clock here are left out."""

_HITS = pa.schema({"rule": pa.int32(), "key": pa.string(), "hits": pa.binary()})
_HITS_DDL = "rule int, key string, hits binary"
_FOUND = pa.schema(
    {
        "_subject": pa.string(),
        "rule": pa.string(),
        "key": pa.string(),
        "first_us": pa.int64(),
        "last_us": pa.int64(),
        "count": pa.int64(),
        "value": pa.float64(),
        "events": pa.list_(pa.string()),
        "complete": pa.bool_(),
    }
)


def transform(events: DataFrame, options: CorrelateOptions) -> DataFrame:
    """Return the findings of the rules: one row for each, to be published.

    Columns: `_subject`, `rule`, `key`, `first` and `last` (its time), `count` (of its events),
    `value` (of an aggregate), `events` (their ids), and `complete`, which is false only for the
    last window of an aggregate over history, if the events end before it does.
    """
    live = events.isStreaming
    seen = events.where("_time is not null")  # a clock may show an invalid time
    if live:
        # One clock that is far ahead must not make the events of all others late.
        seen = seen.where(f"_time < current_timestamp() + interval {AHEAD_S} seconds")
        seen = seen.withWatermark("_time", f"{options.late_s} seconds")
    hits = _hits_of(seen, options)
    if live:
        # There may be much of it; RocksDB is Spark's store for that.
        events.sparkSession.conf.set(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        share = F.pmod(F.hash("key"), F.lit(SHARE_COUNT)).alias("share")
        by_share = hits.select("rule", share, "key", "hits").groupBy("rule", "share")
        found = by_share.transformWithState(Follower(options), FOUND, "append", "eventTime")
    else:
        # An absence is certain only up to the last event.
        last = events.agg(F.unix_micros(F.max("_time")).alias("until_us"))
        by_key = hits.crossJoin(last).groupBy("rule", "key")
        found = by_key.applyInArrow(_follower(options), FOUND)
    return found.select(
        "_subject",
        "rule",
        "key",
        F.timestamp_micros("first_us").alias("first"),
        F.timestamp_micros("last_us").alias("last"),
        "count",
        "value",
        "events",
        "complete",
    )


def attributes(options: CorrelateOptions) -> set[str]:
    """Return the attributes that rules ask for."""
    return {name for name in _Known.of(options).names if name not in GENERIC.names}


def prepare(options: CorrelateOptions, checkpoint: Path) -> None:
    """Say what a query that continues from this checkpoint drops, because rules were changed."""
    for line in note_rules(options, checkpoint):
        log.warning("%s", line)


def _hits_of(events: DataFrame, options: CorrelateOptions) -> DataFrame:
    """Return the events that rules want: one row for each Arrow batch, rule and key.

    One by one they would cross between Spark and Python three times, which took most of the time.
    """

    def hits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(_Known.of(options).hits, batches)

    row = asked_columns(events, _Known.of(options).names).alias("row")
    time_us = F.unix_micros("_time").alias("time_us")
    return events.select(row, time_us, "_offset", "_event_id", "_test").mapInArrow(hits, _HITS_DDL)


class _Known:
    """The rules, ready to be applied to batches of events."""

    def __init__(self, options: CorrelateOptions) -> None:
        self._rules = options.rules
        self._ids = list(options.by_id)
        steps = [
            (number, step, one)
            for number, rule in enumerate(options.rules)
            for step, one in enumerate(rule.wanted())
        ]
        self._places = [(number, step) for number, step, _ in steps]
        self._interest = InterestInRows([one for *_, one in steps], options.journal)
        self._keys = [Template(rule.key) for rule in options.rules]
        self._values = [
            tuple(rule.of.split(".")) if isinstance(rule, Aggregate) and rule.of else None
            for rule in options.rules
        ]
        wanted = (one.where for *_, one in steps)
        self.names = names_in(compile(where) for where in wanted if where is not None)
        self.names |= {name for key in self._keys for name in key.names}
        self.names |= {path[0] for path in self._values if path}

    @staticmethod
    def of(options: CorrelateOptions) -> _Known:
        """Return the same object for the same options: a Spark worker runs many tasks."""
        return _known(msgspec.json.encode(options))

    def hits(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the hits in a batch of events, by rule and key."""
        table = table_of(batch.column("row"))
        rows = Rows(table, self.names, self._interest.journal)
        steps: list[dict[int, list[int]]] = [{} for _ in self._rules]
        for row, number in zip(*self._pairs(table, rows), strict=True):
            rule, step = self._places[number]
            steps[rule].setdefault(row, []).append(step)
        columns = ("time_us", "_offset", "_event_id", "_test")
        times_us, offsets, ids, tests = (batch.column(name).to_pylist() for name in columns)
        found: dict[tuple[int, str], list[Hit]] = defaultdict(list)
        for rule, some in enumerate(steps):
            key_of, path = self._keys[rule].filled, self._values[rule]
            for row, its_steps in some.items():
                attributes = rows.attributes[row]
                key = None if tests[row] else key_of(attributes)
                if key is not None:
                    value = None if path is None else _number(read(attributes, path))
                    hit = Hit(times_us[row], offsets[row], tuple(its_steps), ids[row], value)
                    found[rule, key].append(hit)
        made = [(self._ids[rule], key, encode(hits)) for (rule, key), hits in found.items()]
        columns_made = list(zip(*made, strict=True)) or [()] * len(_HITS)
        arrays = [pa.array(one, field.type) for one, field in zip(columns_made, _HITS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_HITS)

    def _pairs(self, table: pa.Table, rows: Rows) -> tuple[list[int], list[int]]:
        at, numbers = (array.tolist() for array in self._interest.filtered(table, rows))
        codes, (subjects, wanting) = self._interest.unfiltered(table)
        by_subject: dict[int, list[int]] = defaultdict(list)
        for subject, number in zip(subjects.tolist(), wanting.tolist(), strict=True):
            by_subject[subject].append(number)
        for row, subject in enumerate(codes.tolist()):
            for number in by_subject.get(subject, ()):
                at.append(row)
                numbers.append(number)
        return at, numbers


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


@lru_cache(4)
def _known(encoded: bytes) -> _Known:
    return _Known(msgspec.json.decode(encoded, type=CorrelateOptions))


# History: all events of a key at once.


def _follower(options: CorrelateOptions) -> Any:
    def follow_all(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        number, value = (one.as_py() for one in key)
        rule = options.by_id[number]
        hits, memory = hits_in(table["hits"].to_pylist()), Memory()
        found = follow(rule, memory, hits, table["until_us"][0].as_py())
        found += rule.rest(memory)
        rows = [row_of(options, rule, value, one) for one in found]
        columns = list(zip(*rows, strict=True)) or [()] * len(_FOUND)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, _FOUND, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=_FOUND)

    return follow_all
