"""Thousands of drawn runs: whatever fails, each tag is created once and all tables are equal.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.protocols.tags.holder import TagHolder
from infobus.protocols.tags.server import TagServer
from infobus.protocols.tags.table import TagTable
from infobus.testing.simulation.reliable import SimulationFailed
from infobus.testing.simulation.tags import simulate

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 500


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_each_tag_is_created_once_and_all_hold_the_same(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.created_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.refused_count for outcome in outcomes) > len(outcomes)
    assert sum(outcome.crashes_count for outcome in outcomes) > len(outcomes) // 4
    assert sum(outcome.joins_count for outcome in outcomes) > len(outcomes) // 10


# In 9137 the word that a program publishes comes after its death, late.
@pytest.mark.parametrize("seed", [17, 9137])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


BREAKS = {
    "who joins keeps its own table": (
        TagTable,
        "restore",
        lambda self, state: None,
        "another table|not settled",
    ),
    "who is behind is not told": (TagServer, "tick", lambda self, now_s: [], "not settled"),
    "a request is made once": (TagHolder, "tick", lambda self, now_s: [], "not settled"),
    "nobody is told what was decided": (
        TagTable,
        "result",
        lambda self, id: None,
        "not settled",
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_seen(broken, monkeypatch):
    where, name, instead, what = BREAKS[broken]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(SimulationFailed, match=what):
        for seed in range(60):
            simulate(seed)
