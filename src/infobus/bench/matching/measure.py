"""How fast the matcher is beside plain compiled lambdas, one for each subscription.

Both get the same subscriptions and the same fresh events, in turns within one process, so other
work on the machine slows both. Times are processor times, and every ratio is taken within one
turn. The answers of both are compared; a difference ends the run.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from infobus.bench.matching.loads import (
    ELVIN,
    EQUAL,
    RANGE,
    REGEX,
    WIDE,
    Event,
    MatchLoad,
    filter_of,
    predicates_of,
)
from infobus.filters import Filter, Matcher
from infobus.filters.matching.columns import columns_of

SIZES = (10, 1_000, 10_000, 100_000, 1_000_000)
BATCH = 1024
FEW = 100
"""With at most so many subscriptions a turn takes only a millisecond, so there are eight times as
many turns."""


class MatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The results for one load with so many subscriptions; times are in microseconds."""

    load: str
    subscriptions: int
    matches: float
    """Subscriptions that match an event, on average."""
    single_us: float
    batch_us: float
    naive_us: float
    ratios: list[float]
    """The time of the lambdas divided by the matcher's, in each turn."""
    batch_ratios: list[float]
    add_us: float
    """The average time to add one subscription while building."""
    change_us: float
    """The median time to add one or to remove one, whichever is longer."""
    change_worst_us: float
    after_worst_us: float
    """The slowest event after a change."""
    bytes_each: float | None
    """Memory per subscription; None if it is too little to measure."""


def plan(quick: bool) -> list[tuple[MatchLoad, int]]:
    """The loads and numbers of subscriptions to measure; the quick ones take about a minute."""
    loads = (EQUAL, RANGE, REGEX)
    if quick:
        return [
            (ELVIN, 10),
            *((load, size) for size in SIZES[:3] for load in loads),
            (EQUAL, 100_000),
            (WIDE, 100_000),
        ]
    work = [(load, size) for size in SIZES for load in loads]
    return [(ELVIN, 10), *work, (WIDE, 100_000)]


def measure(load: MatchLoad, count: int, *, turns: int = 5, seconds: float = 0.5) -> MatchTimes:
    """Measure one load with so many subscriptions; a turn takes about `seconds`."""
    subscriptions = load.subscriptions(count)
    filters = [filter_of(subscription) for subscription in subscriptions]
    matcher, add_us, bytes_each = _built(filters)
    naive = list(enumerate(predicates_of(subscriptions)))
    # What was added last is worked in when an event first asks for it.
    warming = load.events(max(BATCH, min(8 * BATCH, count)), seed=-1)
    _timed(warming, 40 * seconds, matcher.match)
    singles, batches, naives, ratios, batch_ratios, matches = [], [], [], [], [], []
    if count <= FEW:
        turns *= 8
    for turn in range(turns):
        # Not between the two, and not during: it would leave nothing of either in the caches.
        gc.collect()
        gc.disable()
        events = load.events(BATCH, seed=turn)
        expected, naive_us = _timed(
            events, seconds, lambda event: [id for id, holds in naive if holds(event)]
        )
        answers, single_us = _timed(events, seconds, matcher.match)
        columns = columns_of(events[: len(answers)])
        started = time.thread_time()
        by_batch = matcher.match_batch(columns)
        batch_us = (time.thread_time() - started) / len(by_batch) * 1e6
        gc.enable()
        _compare(expected, answers, by_batch)
        singles.append(single_us)
        batches.append(batch_us)
        naives.append(naive_us)
        ratios.append(naive_us / single_us)
        batch_ratios.append(naive_us / batch_us)
        matches.append(sum(map(len, answers)) / len(answers))
    adds, removes, after = _changed(matcher, filters, load)
    return MatchTimes(
        load=load.name,
        subscriptions=count,
        matches=sum(matches) / turns,
        single_us=median(singles),
        batch_us=median(batches),
        naive_us=median(naives),
        ratios=ratios,
        batch_ratios=batch_ratios,
        add_us=add_us,
        change_us=max(median(adds), median(removes)),
        change_worst_us=max(adds + removes),
        after_worst_us=max(after),
        bytes_each=bytes_each,
    )


def measure_apart(load: MatchLoad, count: int, *, turns: int, seconds: float) -> MatchTimes:
    """Run `measure` in a new process, so that nobody else has used its memory before."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning) as pool:
        return pool.submit(measure, load, count, turns=turns, seconds=seconds).result()


def _built(filters: list[Filter]) -> tuple[Matcher, float, float | None]:
    """Build a matcher; returns it, and the time and memory that each filter took."""
    gc.collect()
    before = _resident_bytes()
    matcher = Matcher()
    started = time.thread_time()
    for id, filter in enumerate(filters):
        matcher.add(id, filter)
    add_us = (time.thread_time() - started) / len(filters) * 1e6
    gc.collect()
    enough = len(filters) >= 10_000
    return matcher, add_us, (_resident_bytes() - before) / len(filters) if enough else None


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _timed(
    events: list[Event], seconds: float, answer: Callable[[Event], list[object]]
) -> tuple[list[list[object]], float]:
    """Answer as many events as fit into `seconds`; returns the answers and the time for each."""
    answers: list[list[object]] = []
    started, passed, chunk = time.thread_time(), 0.0, 1
    while len(answers) < len(events) and passed < seconds:
        # Larger and larger, because asking for the time takes as long as a quick match.
        answers += [answer(event) for event in events[len(answers) : len(answers) + chunk]]
        passed, chunk = time.thread_time() - started, 2 * chunk if passed < seconds / 8 else 1
    return answers, passed / len(answers) * 1e6


def _compare(expected: list[list[object]], *others: list[list[object]]) -> None:
    for answers in others:
        for right, answer in zip(expected, answers, strict=False):
            assert sorted(answer) == right, "the matcher disagrees with the plain lambdas"  # type: ignore[type-var]


def _changed(
    matcher: Matcher, filters: list[Filter], load: MatchLoad
) -> tuple[list[float], list[float], list[float]]:
    """Replace subscriptions; returns the times to add, to remove, and to match the next event."""
    random = Random("changes")
    adds, removes, after = [], [], []
    for event in load.events(300, seed=-2):
        id = random.randrange(len(filters))
        started = time.thread_time()
        matcher.remove(id)
        removed = time.thread_time()
        matcher.add(id, filters[id])
        changed = time.thread_time()
        matcher.match(event)
        adds.append((changed - removed) * 1e6)
        removes.append((removed - started) * 1e6)
        after.append((time.thread_time() - changed) * 1e6)
    return adds, removes, after
