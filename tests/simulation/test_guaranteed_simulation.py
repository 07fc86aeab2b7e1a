"""Thousands of drawn runs: whatever crashes, no accepted event is missing in the end.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os
from collections import deque

import pytest

from infobus.bus.runtime.registration import Part
from infobus.testing.simulation.guaranteed import SETTLE_S, _Run, simulate
from infobus.testing.simulation.reliable import SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_every_accepted_event_is_settled_dead_lettered_or_reported_lost(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.delivered_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.again_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.groups_count for outcome in outcomes) > 5 * len(outcomes)
    assert sum(outcome.dead_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.crashes_count for outcome in outcomes) > len(outcomes) // 2
    assert any(outcome.lost_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [1, 28, 65, 209, 1061, 1761])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


@pytest.mark.parametrize("seed", [81, 91])
def test_a_new_consumer_gets_nothing_from_before_it_registered(seed):
    assert simulate(seed).settled_after_s <= SETTLE_S


@pytest.mark.parametrize("seed", [58, 83])
def test_what_expires_while_the_disk_is_full_is_not_handed_over(seed):
    assert simulate(seed).settled_after_s <= SETTLE_S


def test_a_failure_says_how_to_replay_it(monkeypatch):
    def break_a_promise(self):
        raise AssertionError("somebody got nothing")

    monkeypatch.setattr(_Run, "settle", break_a_promise)
    with pytest.raises(SimulationFailed, match=r"somebody got nothing") as failure:
        simulate(7)
    assert "python -m infobus.testing.simulation.guaranteed 7" in str(failure.value)


class Forgetful(deque):
    """What is put back, because it could not be done, is gone."""

    def appendleft(self, effect):
        pass


def test_what_a_full_disk_makes_a_node_forget_is_noticed(monkeypatch):
    begin = Part.__init__

    def begin_forgetful(self, *arguments):
        begin(self, *arguments)
        self.waiting = Forgetful()

    monkeypatch.setattr(Part, "__init__", begin_forgetful)
    with pytest.raises(SimulationFailed, match=r"believes that|has saved|is not saved"):
        for seed in range(60):
            simulate(seed)
