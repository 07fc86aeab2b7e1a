"""Thousands of drawn runs of routers: paths are an oracle's, and each frame arrives once or not.

The test command runs 500 seeds of up to 12 routers. `INFOBUS_SIM_SEEDS=10000 pytest
tests/simulation` runs so many, and a hundredth of them with up to 60 routers.
"""

import os

import pytest

from infobus.protocols.routing.machine import RoutingMachine
from infobus.protocols.routing.relays import Relays
from infobus.testing.simulation.reliable import SimulationFailed
from infobus.testing.simulation.routing import SETTLE_S, simulate

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "500"))
LARGE_COUNT = SEEDS_COUNT // 100 if "INFOBUS_SIM_SEEDS" in os.environ else 3
CHUNK = 250


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_routers_find_all_shortest_paths_and_carry_each_frame_once(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.arrived_count for outcome in outcomes) > 100 * len(outcomes)
    assert sum(outcome.carried_count for outcome in outcomes) > 50 * len(outcomes)
    assert sum(outcome.held_count for outcome in outcomes) > len(outcomes)
    assert any(outcome.dropped_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(LARGE_COUNT))
def test_sixty_routers_do_the_same(seed):
    simulate(seed, 60)


@pytest.mark.parametrize("seed", [3, 21, 242])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def never_release(monkeypatch):
    mark = RoutingMachine._mark

    def only_hold(self, class_, where, *, is_full):
        if is_full:
            mark(self, class_, where, is_full=is_full)

    monkeypatch.setattr(RoutingMachine, "_mark", only_hold)


def choose_anew_each_time(monkeypatch):
    split = Relays.split

    def forget_and_split(self, flow, to, now_s, hops_to, load):
        self._flows.clear()
        return split(self, flow, to, now_s, hops_to, load)

    monkeypatch.setattr(Relays, "split", forget_and_split)


def give_everyone_all_destinations(monkeypatch):
    split = Relays.split

    def repeat(self, flow, to, *rest):
        return dict.fromkeys(split(self, flow, to, *rest), to)

    monkeypatch.setattr(Relays, "split", repeat)


@pytest.mark.parametrize(
    "harm",
    [never_release, choose_anew_each_time, give_everyone_all_destinations],
    ids=lambda harm: harm.__name__,
)
def test_a_broken_router_is_found_out(harm, monkeypatch):
    harm(monkeypatch)
    with pytest.raises(SimulationFailed, match=r"python -m infobus.testing.simulation.routing"):
        for seed in range(60):
            simulate(seed)
