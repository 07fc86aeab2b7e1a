"""Thousands of drawn runs: whatever the network does, the account comes out even.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.testing.simulation.reliable import SETTLE_S, SimulationFailed, SimulationRun, simulate

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_every_event_is_delivered_once_in_order_or_reported_lost(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.delivered_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.quenched_count for outcome in outcomes) > 20 * len(outcomes)
    assert any(outcome.lost_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [3, 21, 242])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_failure_says_how_to_replay_it(monkeypatch):
    def break_a_promise(self):
        raise AssertionError("somebody got nothing")

    monkeypatch.setattr(SimulationRun, "settle", break_a_promise)
    with pytest.raises(SimulationFailed, match=r"somebody got nothing") as failure:
        simulate(7)
    assert "python -m infobus.testing.simulation.reliable 7" in str(failure.value)
