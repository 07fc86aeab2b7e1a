"""Thousands of drawn runs: whatever fails, no call runs twice, and each has an end.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.runtime.runtime import Runtime
from infobus.protocols.invocation.effects import GivenUp
from infobus.services.exchange import Exchange
from infobus.testing.simulation.invocation import _Run, simulate
from infobus.testing.simulation.reliable import SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_no_call_runs_twice_and_each_has_an_end(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.calls_count for outcome in outcomes) > 30 * len(outcomes)
    assert sum(outcome.returned_count for outcome in outcomes) > 15 * len(outcomes)
    assert sum(outcome.unsure_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.once_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.items_count for outcome in outcomes) > 100 * len(outcomes)
    assert sum(outcome.crashes_count for outcome in outcomes) > len(outcomes) // 2


def test_frames_that_come_to_the_wrong_node_break_no_promise():
    for seed in range(SEEDS_COUNT // 40):
        simulate(seed, stray=0.2)


def test_frames_that_do_not_say_whom_they_are_for_would_break_them(monkeypatch):
    monkeypatch.setattr(Runtime, "is_for_us", lambda self, message: True)
    with pytest.raises(SimulationFailed, match=r"ran twice|returned|no reason"):
        for seed in range(20):
            simulate(seed, stray=0.2)


@pytest.mark.parametrize("seed", [46, 49, 104, 515, 521, 532, 969])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_failure_says_how_to_replay_it(monkeypatch):
    def break_a_promise(self):
        raise AssertionError("somebody got nothing")

    monkeypatch.setattr(_Run, "settle", break_a_promise)
    with pytest.raises(SimulationFailed, match=r"somebody got nothing") as failure:
        simulate(7)
    assert "python -m infobus.testing.simulation.invocation 7" in str(failure.value)


def test_a_fault_of_the_shipped_driver_is_seen(monkeypatch):
    do = Exchange._do_rare

    def forget_to_tell(self, one):
        if not isinstance(one, GivenUp):
            do(self, one)

    monkeypatch.setattr(Exchange, "_do_rare", forget_to_tell)
    with pytest.raises(SimulationFailed, match="has no end"):
        for seed in range(20):
            simulate(seed)
