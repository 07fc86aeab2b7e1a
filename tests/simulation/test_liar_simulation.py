"""Drawn runs of a secured bus with a lying member: no lie is believed, and nothing is lost by one.

The test command runs 40 seeds, because shaking hands is real; `INFOBUS_SIM_SEEDS=10000 pytest
tests/simulation/test_liar_simulation.py` runs a fiftieth of that.
"""

import os

import pytest

from infobus.engines.sealed import intake
from infobus.testing.simulation.reliable import SimulationFailed
from infobus.testing.simulation.secured.liar import simulate

SEEDS_COUNT = max(10, int(os.environ.get("INFOBUS_SIM_SEEDS", "2000")) // 50)
CHUNK = 10


@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_honest_members_keep_all_promises_among_themselves(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nobody lies proves nothing.
    assert sum(outcome.lies_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.forged_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.unopened_count for outcome in outcomes) > 10 * len(outcomes)
    assert sum(outcome.repeated_count for outcome in outcomes) > len(outcomes)


def test_a_seed_replays_the_same_run():
    assert simulate(3).trace == simulate(3).trace


def believe_the_sender_inside(monkeypatch):
    monkeypatch.setattr(intake, "_is_by", lambda *_: True)


@pytest.mark.parametrize("break_it", [believe_the_sender_inside])
def test_a_node_that_checks_less_is_found_out(break_it, monkeypatch):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed):
        for seed in range(200):
            simulate(seed)
