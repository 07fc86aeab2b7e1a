"""A scenario is one thing to measure; a run is what one measurement of it gave.

Both are plain values that go to the JSON file as they are. Medians and ratios are taken so that a
noisy machine does not blur them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Literal

import msgspec

from infobus.bench.common.engines import NATS, ZENOH, ZMQ

PEERS = (ZENOH, NATS, ZMQ)

MANY = 10_000
"""The paper's number of subjects (figure 8), used for subscriptions too."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure on one engine.

    A `rate` has one publisher process and `consumers` consumer processes. A `round trip` has one
    process that sends and waits, one that answers, and `consumers - 1` that only listen.
    """

    engine: str
    kind: Literal["rate", "round trip"] = "rate"
    size: int = 16
    """Bytes of the encoded object, as asked for; `BenchRun.payload_bytes` is what was sent."""
    consumers: int = 1
    subjects: int = 1
    subscriptions: int = 1
    """1 means one pattern over all subjects; more means one subscription per subject."""

    @property
    def work(self) -> tuple[str, int, int, int, int]:
        """The work without the engine. Scenarios may be compared if their work is equal."""
        return (self.kind, self.consumers, self.subjects, self.subscriptions, self.size)


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a scenario.

    `events_per_s` counts from the start of publishing to the last arrival, at the slowest
    consumer. Fields that the scenario's kind does not measure are 0.
    """

    scenario: Scenario
    repetition: int
    events: int = 0
    payload_bytes: int = 0
    events_per_s: float = 0.0
    delivered_share: float = 0.0
    misordered: int = 0
    declared_s: float = 0.0
    threads: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    failure: str = ""
    """Why there are no numbers, or empty."""

    @property
    def bytes_per_s(self) -> float:
        """Object bytes that each consumer received in a second."""
        return self.events_per_s * self.payload_bytes


RunValue = Callable[[BenchRun], float]


def good_runs(runs: Iterable[BenchRun], scenario: Scenario) -> list[BenchRun]:
    """The runs of this scenario that gave numbers, in order of repetition."""
    found = [run for run in runs if run.scenario == scenario and not run.failure]
    return sorted(found, key=lambda run: run.repetition)


def middle(runs: Iterable[BenchRun], scenario: Scenario, value: RunValue) -> float | None:
    """The median of `value` over the scenario's runs; None if there are none."""
    found = [value(run) for run in good_runs(runs, scenario)]
    return median(found) if found else None


def run_ratios(
    runs: Sequence[BenchRun], over: Scenario, under: Scenario, value: RunValue
) -> list[float]:
    """The value of `over` divided by that of `under`, in each repetition that has both."""
    below = {run.repetition: value(run) for run in good_runs(runs, under)}
    return [
        value(run) / below[run.repetition]
        for run in good_runs(runs, over)
        if below.get(run.repetition)
    ]


def run_ratio(
    runs: Sequence[BenchRun], over: Scenario, under: Scenario, value: RunValue
) -> float | None:
    """The median of `run_ratios`; None if either scenario was not measured.

    This is not the ratio of the medians. Runs that follow each other closely find the machine in
    the same mood, and a ratio within one repetition cancels it out.
    """
    found = run_ratios(runs, over, under, value)
    return median(found) if found else None
