"""Thousands of drawn runs: a node that stood still misses nothing without being told.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.protocols.reliable.freeze import Freezing
from infobus.protocols.reliable.peer import Peer
from infobus.testing.simulation.freeze import simulate
from infobus.testing.simulation.reliable import SETTLE_S, SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_what_is_published_while_a_node_stands_still_is_delivered_or_reported_lost(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.missable_count for outcome in outcomes) > 5 * len(outcomes)
    assert sum(outcome.lost_count for outcome in outcomes) > 2 * len(outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [1, 8, 40])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def notice_nothing(monkeypatch):
    monkeypatch.setattr(Freezing, "is_over", lambda *_: False)


def doubt_nobody(monkeypatch):
    doubt = Freezing.doubt
    monkeypatch.setattr(Freezing, "doubt", lambda self, peers, *rest: doubt(self, [], *rest))


def trust_strangers(monkeypatch):
    monkeypatch.setattr(Freezing, "new_peer", lambda *_: Peer(alive=False))


@pytest.mark.parametrize("break_it", [notice_nothing, doubt_nobody, trust_strangers])
def test_a_broken_promise_is_noticed_and_can_be_replayed(monkeypatch, break_it):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match="has not got") as failure:
        for seed in range(50):
            simulate(seed)
    assert "python -m infobus.testing.simulation.freeze" in str(failure.value)
