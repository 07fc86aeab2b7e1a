"""The event correlation engine: many events become few that mean more.

Rules (see `correlate_rules`) are followed in the order of the events' own times. Live, events
wait until the watermark has passed them, `late_s` behind the latest, because they may come in any
order until then; what comes later still is left out. So live events give what history gives.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from infobus.errors import UsageError
from infobus.filters import compile
from infobus.filters.values import read
from infobus.pipeline.jobs.correlate_rules import (
    Aggregate,
    AnyRule,
    Found,
    Hit,
    Memory,
    Template,
    follow,
)
from infobus.pipeline.jobs.interest import (
    Interest,
    Rows,
    arrow_function,
    asked_columns,
    names_in,
    table_of,
)
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

AHEAD_S = 3600
"""Live events whose time is further ahead of the clock here are left out."""

_HITS = pa.list_(
    pa.struct(
        {"rule": pa.int32(), "key": pa.string(), "steps": pa.list_(pa.int32()), "of": pa.float64()}
    )
)
_HITS_DDL = "array<struct<rule: int, key: string, steps: array<int>, of: double>>"
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
    }
)
_FOUND_DDL = (
    "_subject string, rule string, key string, first_us long, last_us long, count long, "
    "value double, events array<string>"
)


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is looked for, and how what is found is published.

    Attributes:
        rules: Them.
        subject: What a finding is published under; `{rule}` and `{key}` may stand in it.
        late_s: So much may a live event be late behind the latest one.
        journal: The folder from which types are known to `isa`.
    """

    rules: list[AnyRule]
    subject: str = "derived.{rule}"
    late_s: float = 10.0
    journal: str | None = None

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"rules need names that differ, and at least one: {names}")
        if not self.late_s >= 0:
            raise UsageError(f"late_s={self.late_s}: must not be below 0")
        if not Template(self.subject).names <= {"rule", "key"}:
            raise UsageError(f"subject {self.subject!r}: only {{rule}} and {{key}} stand in braces")
        check_subject(_subject(self.subject, "x", "x"))


def transform(events: DataFrame, options: Options) -> DataFrame:
    """What the rules find: one row for each finding, to be published.

    Columns: `_subject`, `rule`, `key`, `first` and `last` (the time it took), `count` (of the
    events that belong to it), `value` (of an aggregate), and `events` (their ids).
    """
    live = events.isStreaming
    seen = events.where("_time is not null")  # a clock may show what is no time
    if live:
        # One clock that is far ahead must not make the events of all others late.
        seen = seen.where(f"_time < current_timestamp() + interval {AHEAD_S} seconds")
        seen = seen.withWatermark("_time", f"{options.late_s} seconds")
    hits = seen.select(
        "_time",
        "_offset",
        "_event_id",
        F.explode(_hits_of(seen, options)).alias("hit"),
    ).select(
        F.col("hit.rule").alias("rule"),
        F.col("hit.key").alias("key"),
        F.struct(
            F.unix_micros("_time").alias("time_us"),
            F.col("_offset").alias("offset"),
            F.col("hit.steps").alias("steps"),
            F.col("_event_id").alias("id"),
            F.col("hit.of").alias("value"),
        ).alias("hit"),
        "_time",
    )
    if live:
        # The state of each key is small and there are many; RocksDB is what Spark has for that.
        events.sparkSession.conf.set(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        found = hits.groupBy("rule", "key").transformWithState(
            _Follower(options), _FOUND_DDL, "append", "eventTime"
        )
    else:
        # Whether something stayed away is known only up to the last event there is.
        last = events.agg(F.unix_micros(F.max("_time")).alias("until_us"))
        by_key = hits.crossJoin(last).groupBy("rule", "key")
        found = by_key.applyInArrow(_follower(options), _FOUND_DDL)
    return found.select(
        "_subject",
        "rule",
        "key",
        F.timestamp_micros("first_us").alias("first"),
        F.timestamp_micros("last_us").alias("last"),
        "count",
        "value",
        "events",
    )


def _hits_of(events: DataFrame, options: Options) -> Column:
    """For each event: which rules it concerns, under which key, and in which of their steps."""
    known = _Known.of(options)

    def hits(rows: pa.Array) -> pa.Array:
        return pa.array(_Known.of(options).hits(table_of(rows)), _HITS)

    find = arrow_function(hits, _HITS_DDL)
    # Test events take no part, but time passes with them.
    names = asked_columns(events, known.names)
    return F.when(~F.col("_test"), find(names)).otherwise(F.array().cast(_HITS_DDL))


class _Known:
    """The rules, ready to be applied to batches of events."""

    def __init__(self, options: Options) -> None:
        self._rules = options.rules
        steps = [
            (number, step, one)
            for number, rule in enumerate(options.rules)
            for step, one in enumerate(rule.wanted())
        ]
        self._places = [(number, step) for number, step, _ in steps]
        self._interest = Interest([one for *_, one in steps], options.journal)
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
    def of(options: Options) -> _Known:
        """The same ones for the same options: workers of Spark do many tasks."""
        return _known(msgspec.json.encode(options))

    def hits(self, table: pa.Table) -> list[list[dict[str, Any]]]:
        """By row of a table of events."""
        rows = Rows(table, self.names, self._interest.journal)
        steps: list[dict[int, list[int]]] = [defaultdict(list) for _ in rows.attributes]
        for row, number in zip(*self._pairs(table, rows), strict=True):
            rule, step = self._places[number]
            steps[row][rule].append(step)
        return [
            [hit for rule, some in found.items() if (hit := self._hit(rule, some, attributes))]
            for found, attributes in zip(steps, rows.attributes, strict=True)
        ]

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

    def _hit(
        self, rule: int, steps: list[int], attributes: dict[str, Any]
    ) -> dict[str, Any] | None:
        key = self._keys[rule].filled(attributes)
        if key is None:
            return None
        path = self._values[rule]
        value = None if path is None else read(attributes, path)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"rule": rule, "key": key, "steps": steps, "of": value if is_number else None}


@lru_cache(4)
def _known(encoded: bytes) -> _Known:
    return _Known(msgspec.json.decode(encoded, type=Options))


def _hit(row: Any) -> Hit:
    return Hit(row["time_us"], row["offset"], tuple(row["steps"]), row["id"], row["value"])


def _row(options: Options, rule: AnyRule, key: str, found: Found) -> tuple[Any, ...]:
    """A finding, by the columns of `_FOUND`."""
    subject = _subject(options.subject, rule.name, key)
    times = (found.first_us, found.last_us)
    return (subject, rule.name, key, *times, found.count, found.value, list(found.ids))


def _subject(template: str, rule: str, key: str) -> str:
    """The subject of a finding; whatever a key holds, it is one element there."""
    subject = Template(template).filled({"rule": rule, "key": key}, _element)
    assert subject is not None
    return subject


def _element(text: str) -> str:
    return re.sub(r"[^\w-]", "_", text)[:100] or "_"


# History: all events of a key at once.


def _follower(options: Options) -> Any:
    def follow_all(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        number, value = (one.as_py() for one in key)
        rule = options.rules[number]
        hits = [_hit(row) for row in table["hit"].to_pylist()]
        found = follow(rule, Memory(), hits, table["until_us"][0].as_py())
        rows = [_row(options, rule, value, one) for one in found]
        columns = list(zip(*rows, strict=True)) or [()] * len(_FOUND)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, _FOUND, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=_FOUND)

    return follow_all


# Live: a memory for each key, and what still waits for the watermark.


class _State(Struct, array_like=True):
    memory: Memory
    waiting: list[Hit]


_decode = msgspec.msgpack.Decoder(_State).decode


class _Follower(StatefulProcessor):
    """Keeps the memory of each rule and key; event-time timers say when to look again."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._kept = handle.getValueState("kept", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Take in new events; they are looked at when the watermark has passed them."""
        watermark_us = timerValues.getCurrentWatermarkInMs() * 1000
        new = [hit for row in rows if (hit := _hit(row["hit"])).time_us > watermark_us]
        if new:
            state = self._state()
            state.waiting += new
            self._keep(key, state)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """Look at the events, and at the time, up to the watermark."""
        until_us = timerValues.getCurrentWatermarkInMs() * 1000
        state = self._state()
        rule = self._options.rules[key[0]]
        ready = [hit for hit in state.waiting if hit.time_us <= until_us]
        state.waiting = [hit for hit in state.waiting if hit.time_us > until_us]
        found = follow(rule, state.memory, ready, until_us)
        self._keep(key, state)
        for one in found:
            yield Row(*_FOUND.names)(*_row(self._options, rule, key[1], one))

    def close(self) -> None:
        """Nothing is held open."""

    def _state(self) -> _State:
        kept = self._kept.get()
        return _State(Memory(), []) if kept is None else _decode(bytes(kept[0]))

    def _keep(self, key: Any, state: _State) -> None:
        """Remember the state, and when to look at it again; forget it if there is nothing."""
        rule = self._options.rules[key[0]]
        moments = [hit.time_us for hit in state.waiting]
        if (next_us := rule.next_us(state.memory)) is not None:
            moments.append(next_us)
        wanted_ms = -(-min(moments) // 1000) if moments else None
        has_timer = False
        for timer_ms in list(self._handle.listTimers()):
            if timer_ms == wanted_ms:
                has_timer = True
            else:
                self._handle.deleteTimer(timer_ms)
        if wanted_ms is None:
            self._kept.clear()
            return
        if not has_timer:
            self._handle.registerTimer(wanted_ms)
        self._kept.update((msgspec.msgpack.encode(state),))
