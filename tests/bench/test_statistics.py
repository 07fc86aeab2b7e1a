"""Medians, percentiles and ratios."""

import math
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from infobus.bench.common.engines import INFOBUS, NATS
from infobus.bench.common.rounds import percentile
from infobus.bench.pubsub.scenario import BenchRun, Scenario, middle, run_ratio

OURS, THEIRS = Scenario(engine=INFOBUS), Scenario(engine=NATS)


def runs_of(scenario: Scenario, *rates: float) -> list[BenchRun]:
    return [
        BenchRun(scenario=scenario, repetition=index, events_per_s=rate)
        for index, rate in enumerate(rates)
    ]


def rate(run: BenchRun) -> float:
    return run.events_per_s


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1])
)
def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below_it(values, share):
    found = percentile(values, share)
    needed = math.ceil(round(share * len(values), 9))
    assert sum(value <= found for value in values) >= needed
    assert sum(value < found for value in values) < needed


def test_a_slow_minute_that_hits_both_engines_leaves_the_ratio_alone():
    runs = runs_of(OURS, 200.0, 20.0, 210.0) + runs_of(THEIRS, 100.0, 10.0, 100.0)
    assert run_ratio(runs, OURS, THEIRS, rate) == 2.0


def test_only_runs_of_the_same_repetition_are_compared():
    runs = runs_of(OURS, 300.0, 100.0) + runs_of(THEIRS, 100.0)
    assert run_ratio(runs, OURS, THEIRS, rate) == 3.0


def test_a_failed_run_is_not_a_number():
    failed = BenchRun(scenario=OURS, repetition=3, events_per_s=9e9, failure="it broke")
    assert middle([*runs_of(OURS, 1.0, 3.0, 2.0), failed], OURS, rate) == median([1, 2, 3])
    assert middle([failed], OURS, rate) is None


def test_what_was_not_measured_has_no_ratio():
    assert run_ratio(runs_of(OURS, 1.0), OURS, THEIRS, rate) is None
    assert run_ratio(runs_of(THEIRS, 1.0), OURS, THEIRS, rate) is None
