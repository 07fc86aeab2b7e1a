"""Drawn runs of whole nodes over routers: the promises of one bus hold from router to router.

The test command runs 100 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs a tenth of
that number.
"""

import os

import pytest

from infobus.testing.simulation.backbone import BackboneRun, simulate
from infobus.testing.simulation.reliable import SETTLE_S
from infobus.testing.simulation.world import quiet

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "1000")) // 10
CHUNK = 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_every_event_crosses_routers_once_in_order_or_is_reported_lost(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.delivered_count for outcome in outcomes) > 20 * len(outcomes)
    assert any(outcome.lost_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [1, 6])
def test_much_of_it_is_carried_by_routers_in_between(seed):
    run = BackboneRun(seed)
    with quiet():
        run.do_harm()
        run.settle()
        run.say_one_more_thing()
    assert run.carried_count() > 50


@pytest.mark.parametrize("seed", [2, 10])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace
