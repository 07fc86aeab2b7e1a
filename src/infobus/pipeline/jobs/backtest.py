"""Computes what subscriptions would have matched in history, and which subsume which.

All subscriptions are matched at once, by the engine that the bus itself uses: in Spark's workers,
or for a small journal in this process.
Subsumption is decided in two steps. A subscription that subsumes another has wanted everything that
the other wanted, so only those that were seen together with it are candidates. The candidates are
then proved by comparing the filters, not the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from infobus.errors import UsageError
from infobus.filters import compile, covers
from infobus.pipeline.jobs.history import event_bytes, event_sizes, selections
from infobus.pipeline.jobs.interest import (
    Array,
    InterestInRows,
    Rows,
    arrow_function,
    asked_columns,
    names_in,
    table_of,
)
from infobus.pipeline.jobs.subscription import TrialSubscription
from infobus.stores.journal.columns import REST
from infobus.stores.journal.journal import Journal
from infobus.subjects import SubjectTrie
from infobus.subjects import covers as subject_covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infobus.pipeline.jobs import ResultPart

UNSEEN_PAIRS_MAX = 1_000_000
"""Subscriptions that matched nothing are compared with all others, if these are no more pairs."""

_FAR_US = 2**62
_PARTIAL = pa.schema(
    {
        "subscription": pa.int32(),
        "events": pa.int64(),
        "bytes": pa.int64(),
        "first_us": pa.int64(),
        "last_us": pa.int64(),
        "seen_with": pa.list_(pa.int32()),
    }
)
_PARTIAL_DDL = (
    "subscription int, events long, bytes long, first_us long, last_us long, seen_with array<int>"
)


class BacktestOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subscriptions to try, and how.

    Attributes:
        subscriptions: The subscriptions.
        file: A file with more of them: in each line a filter, or a JSON object with `subject`
            and `where`.
        journal: The folder from which `isa` learns types.
        test: Test events count, too.
        report: A file for the result, as JSON lines.
    """

    subscriptions: list[TrialSubscription] = []
    file: str | None = None
    journal: str | None = None
    test: bool = False
    report: str = "backtest.jsonl"

    def all(self) -> tuple[TrialSubscription, ...]:
        """Return those given, and those of the file; their places are their numbers.

        Raises:
            UsageError: There is none, or a line of the file is invalid.
        """
        found = (*self.subscriptions, *(() if self.file is None else read_file(self.file)))
        if not found:
            raise UsageError("there is no subscription to try out")
        return found


Options = BacktestOptions


def read_file(path: str | Path) -> list[TrialSubscription]:
    """Return the subscriptions in a file.

    Raises:
        UsageError: A line is invalid; the message says which.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"subscriptions cannot be read from {path}: {error}") from error
    found = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        try:
            if line.startswith("{"):
                found.append(msgspec.json.decode(line, type=TrialSubscription))
            else:
                found.append(TrialSubscription(where=line))
        except (UsageError, msgspec.MsgspecError) as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
    return found


def transform(events: DataFrame, options: BacktestOptions) -> DataFrame:
    """Return one row for each subscription: what it would have matched among the events.

    Columns: `subscription` (its number), `subject`, `where`, `events`, `bytes`, `first` and `last`
    (when the matches were published), and `subsumed_by` (numbers of others that certainly want
    everything that it wants).

    Raises:
        UsageError: The events are live: history has an end, and the bus has none.
    """
    return over([events], options)


def over(histories: Sequence[DataFrame], options: BacktestOptions) -> DataFrame:
    """As `transform`, for several DataFrames, each with events of one kind; one Spark job."""
    if any(frame.isStreaming for frame in histories):
        raise UsageError("a back-test looks at history: give it events of spark.read")
    from pyspark.sql import functions as F

    subscriptions = options.all()
    partial = reduce(
        lambda one, other: one.unionByName(other),
        (_counted(frame, subscriptions, options) for frame in histories),
    )
    seen = F.collect_list("seen_with")
    counted = partial.groupBy("subscription").agg(
        F.sum("events").alias("events"),
        F.sum("bytes").alias("bytes"),
        F.timestamp_micros(F.min(F.nullif("first_us", F.lit(_FAR_US)))).alias("first"),
        F.timestamp_micros(F.max(F.nullif("last_us", F.lit(-_FAR_US)))).alias("last"),
        F.reduce(seen, F.get(seen, 0), F.array_intersect).alias("seen_with"),
    )
    asked = pa.table(
        {
            "subscription": pa.array(range(len(subscriptions)), pa.int32()),
            "subject": [one.subject for one in subscriptions],
            "where": pa.array([one.where for one in subscriptions], pa.string()),
        }
    )
    session = histories[0].sparkSession
    joined = session.createDataFrame(asked).join(counted, "subscription", "left")
    journal = options.journal

    def subsuming(numbers: pa.Array, seen_with: pa.Array) -> pa.Array:
        family = _family(subscriptions, journal)
        pairs = zip(numbers.to_pylist(), seen_with.to_pylist(), strict=True)
        return pa.array([family.above(*pair) for pair in pairs], pa.list_(pa.int32()))

    decide = arrow_function(subsuming, "array<int>")
    return joined.select(
        "subscription",
        "subject",
        "where",
        F.coalesce("events", F.lit(0)).alias("events"),
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        "first",
        "last",
        decide("subscription", "seen_with").alias("subsumed_by"),
    )


def in_process(journal: Journal, options: BacktestOptions) -> list[dict[str, Any]]:
    """Return the rows of `transform` for all events of a journal, by number, without Spark."""
    subscriptions = options.all()
    family = _family(subscriptions, options.journal)
    tally = _Tally(family.interest, len(subscriptions))
    wanted = {*family.interest.names, "_subject", "_type", REST}
    for selection in selections(journal):
        for batch in selection.batches():
            table = pa.Table.from_batches([batch])
            if not options.test:
                table = table.filter(pc.invert(table["_test"]))
            if table.num_rows:
                asked = table.select([one for one in table.column_names if one in wanted])
                times = table["_time"].combine_chunks().cast(pa.int64())
                tally.add(asked, event_sizes(table), times)
    counted = {row["subscription"]: row for row in tally.batch().to_pylist()}
    rows = []
    for number, one in enumerate(subscriptions):
        found = counted.get(number)
        rows.append(
            {
                "subscription": number,
                "subject": one.subject,
                "where": one.where,
                "events": found["events"] if found else 0,
                "bytes": found["bytes"] if found else 0,
                "first": _moment(found["first_us"]) if found else None,
                "last": _moment(found["last_us"]) if found else None,
                "subsumed_by": family.above(number, found["seen_with"] if found else None),
            }
        )
    return rows


def _moment(since_1970_us: int) -> datetime | None:
    is_known = abs(since_1970_us) < _FAR_US
    return (
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since_1970_us)
        if is_known
        else None
    )


def write(result: DataFrame, options: BacktestOptions, batch: ResultPart) -> None:
    """Write the result to the file of the options, the busiest subscription first."""
    from pyspark.sql import functions as F

    rows = result.orderBy(F.desc("events"), "subscription").toArrow().to_pylist()
    with Path(options.report).open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, default=str) + "\n")


def _counted(
    frame: DataFrame, subscriptions: tuple[TrialSubscription, ...], options: BacktestOptions
) -> DataFrame:
    """Return the findings of each task: a row for each subscription with a match."""
    from pyspark.sql import functions as F

    names = names_in(compile(one.where) for one in subscriptions if one.where is not None)
    rows = frame if options.test else frame.where("not _test")
    rows = rows.select(
        asked_columns(frame, names).alias("row"),
        event_bytes(frame).alias("bytes"),
        F.unix_micros("_time").alias("time_us"),
    )
    journal = options.journal

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = _Tally(_family(subscriptions, journal).interest, len(subscriptions))
        for batch in batches:
            if batch.num_rows:
                rows, sizes, times = batch.columns
                tally.add(table_of(rows), sizes.to_numpy(), times)
        yield tally.batch()

    return rows.mapInArrow(count, _PARTIAL_DDL)


class _Sums:
    """For each of many: the number of events, their bytes, and the first and last time."""

    def __init__(self, count: int) -> None:
        self._arrays = [
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.full(count, _FAR_US),
            np.full(count, -_FAR_US),
        ]

    def add(self, numbers: Array, *more: Array | int) -> None:
        """Add to those with these numbers, which may be in any order and repeated."""
        operations = (np.add, np.add, np.minimum, np.maximum)
        for array, operation, one in zip(self._arrays, operations, more, strict=True):
            operation.at(array, numbers, one)

    def at(self, numbers: Array) -> list[Array]:
        return [array[numbers] for array in self._arrays]

    def found(self) -> Array:
        """Return the numbers of those that have events."""
        return np.flatnonzero(self._arrays[0])


class _Tally:
    """Counts what the subscriptions want of the rows of one task."""

    def __init__(self, interest: InterestInRows, count: int) -> None:
        self._interest = interest
        self._sums = _Sums(count)
        self._seen_with: dict[int, list[int]] = {}

    def add(self, table: pa.Table, size: Array, times: pa.Array) -> None:
        interest = self._interest
        # A clock may show an invalid time; such an event is neither the first nor the last.
        first, last = (times.fill_null(far).to_numpy() for far in (_FAR_US, -_FAR_US))
        at, numbers = interest.filtered(table, Rows(table, interest.names, interest.journal))
        self._sums.add(numbers, 1, size[at], first[at], last[at])
        self._note_company(at, numbers)
        # Subscriptions without a filter want whole subjects, so add up each subject first.
        subjects, (at, numbers) = interest.unfiltered(table)
        by_subject = _Sums(int(subjects.max()) + 1)
        by_subject.add(subjects, 1, size, first, last)
        self._sums.add(numbers, *by_subject.at(at))

    def _note_company(self, at: Array, numbers: Array) -> None:
        """Note for each subscription, at its first event, which others want the same one."""
        new, places = np.unique(numbers, return_index=True)
        for number, row in zip(new.tolist(), at[places], strict=True):
            if number not in self._seen_with:
                start, stop = np.searchsorted(at, [row, row + 1])
                self._seen_with[number] = numbers[start:stop].tolist()

    def batch(self) -> pa.RecordBatch:
        found = self._sums.found()
        company = [self._seen_with.get(number, []) for number in found.tolist()]
        columns = [found, *self._sums.at(found), company]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, _PARTIAL, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_PARTIAL)


class _Family:
    """Subscriptions, and which of them certainly want everything that another wants."""

    def __init__(self, subscriptions: tuple[TrialSubscription, ...], journal: str | None) -> None:
        self._subscriptions, self._journal = subscriptions, journal
        self._filters = [None if one.where is None else compile(one.where) for one in subscriptions]
        self._unfiltered = SubjectTrie[int]()
        for number, one in enumerate(subscriptions):
            if one.where is None:
                self._unfiltered.add(one.subject, number)

    @cached_property
    def interest(self) -> InterestInRows:
        """Created on first use: comparing needs none, and building it may take a while."""
        return InterestInRows(self._subscriptions, self._journal)

    def above(self, number: int, seen_with: Sequence[int] | None) -> list[int]:
        """Return the numbers of those that subsume it; None: it was not seen with any."""
        one, own = self._subscriptions[number], self._filters[number]
        # A pattern that covers another matches it as if it were a subject.
        candidates = set(self._unfiltered.match(one.subject))
        if seen_with is not None:
            candidates |= set(seen_with)
        elif len(self._subscriptions) ** 2 <= UNSEEN_PAIRS_MAX:
            candidates |= set(range(len(self._subscriptions)))
        return [
            other
            for other in sorted(candidates - {number})
            if subject_covers(self._subscriptions[other].subject, one.subject)
            and (
                (filter := self._filters[other]) is None
                or (own is not None and covers(filter, own))
            )
        ]


# A Spark worker runs many tasks, and building an engine for many filters takes as long as some.
@lru_cache(2)
def _family(subscriptions: tuple[TrialSubscription, ...], journal: str | None) -> _Family:
    return _Family(subscriptions, journal)
