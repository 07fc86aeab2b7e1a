"""Thousands of drawn runs: whatever fails, all see one sequence, and no two views are stable.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.protocols.membership.lease import Lease
from infobus.protocols.membership.rounds import HeartbeatRounds
from infobus.protocols.membership.seat import Seat
from infobus.testing.simulation.membership import (
    FAILURES,
    MembershipRun,
    simulate,
    simulate_failure,
    simulate_lateness,
)
from infobus.testing.simulation.reliable import SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_all_members_see_one_sequence_and_no_two_views_are_stable(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.views_count for outcome in outcomes) > 2 * len(outcomes)
    assert sum(outcome.operations_count for outcome in outcomes) > 2 * len(outcomes)
    assert sum(outcome.excluded_count for outcome in outcomes) > len(outcomes) // 2
    assert sum(outcome.crashes_count for outcome in outcomes) > len(outcomes) // 4
    assert sum(outcome.primaries_count for outcome in outcomes) > len(outcomes) // 10


@pytest.mark.parametrize("kind", FAILURES)
def test_a_single_failure_is_detected_and_told_everywhere_within_three_heartbeats(kind):
    """Theorem 2 of the paper on the membership protocol."""
    count = max(10, SEEDS_COUNT // 100)
    assert max(simulate_failure(seed, kind) for seed in range(count)) <= 3.0


@pytest.mark.parametrize("heartbeats", [3.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_always_answers_late_comes_and_goes_and_the_others_go_on(seed, heartbeats):
    """All rules of the group are checked meanwhile, after each step."""
    outcome = simulate_lateness(seed, heartbeats)
    assert outcome.excluded_count > 1
    assert outcome.excluded_count - outcome.let_in_count in (0, 1)
    assert outcome.stable_share > 0.5


def test_a_member_that_is_a_little_late_stays():
    assert simulate_lateness(0, 0.5).excluded_count == 0


# In 4405 a candidate that enters by another member is withdrawn by the first one, late.
@pytest.mark.parametrize("seed", [3, 17, 42, 4405])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_failure_says_how_to_replay_it(monkeypatch):
    def break_a_promise(self):
        raise AssertionError("nobody agrees")

    monkeypatch.setattr(MembershipRun, "settle", break_a_promise)
    with pytest.raises(SimulationFailed, match=r"nobody agrees") as failure:
        simulate(7)
    assert "python -m infobus.testing.simulation.membership 7" in str(failure.value)


BREAKS = {
    "leases of an older view are forgotten": (HeartbeatRounds, "_is_alone", lambda self, s: True),
    "a lease outlives its view": (Lease, "end", lambda self: None),
    "half of the members are a quorum": (
        Seat,
        "is_quorum",
        lambda self, who: 2 * len(who & set(self.sequence.members)) >= len(self.sequence.members),
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_seen(broken, monkeypatch):
    monkeypatch.setattr(*BREAKS[broken])
    with pytest.raises(SimulationFailed, match=r"at once|slot"):
        for seed in range(250):
            simulate(seed)
