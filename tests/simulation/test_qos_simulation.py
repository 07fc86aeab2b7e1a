"""Thousands of drawn runs of channels under overload: every class gets what it was promised.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.deliver.full_queue import Crowd
from infobus.bus.deliver.priority_queue import Classed
from infobus.bus.deliver.queue import Inbox
from infobus.testing.simulation.qos import SETTLE_S, _Run, simulate
from infobus.testing.simulation.reliable import SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_priorities_age_limits_bounds_and_upgrades_hold(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.delivered_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.expired_count for outcome in outcomes) > 5 * len(outcomes)
    assert sum(outcome.refused_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.upgrades_count for outcome in outcomes) > len(outcomes) // 2
    assert sum(outcome.raised_count for outcome in outcomes) > len(outcomes) // 2
    assert sum(outcome.carried_count for outcome in outcomes) > len(outcomes) // 10
    assert sum(outcome.crashes_count for outcome in outcomes) > len(outcomes) // 4
    assert any(outcome.lost_count for outcome in outcomes)
    assert any(outcome.dropped_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [1, 28, 209])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def test_a_failure_says_how_to_replay_it(monkeypatch):
    def break_a_promise(self):
        raise AssertionError("somebody got nothing")

    monkeypatch.setattr(_Run, "settle", break_a_promise)
    with pytest.raises(SimulationFailed, match=r"somebody got nothing") as failure:
        simulate(7)
    assert "python -m infobus.testing.simulation.qos 7" in str(failure.value)


def hold_nobody(monkeypatch):
    monkeypatch.setattr(Crowd, "look_at", lambda *_: [])


def hold_for_ever(monkeypatch):
    monkeypatch.setattr(Crowd, "look_again", lambda *_: [])


def raise_nobody(monkeypatch):
    monkeypatch.setattr(
        Classed, "tick", lambda self, now_s: [e.value for e in self._queues.expire(now_s)]
    )


def forget_what_was_raised_before(monkeypatch):
    monkeypatch.setattr(Classed, "_raised_until_s", lambda *_: 0.0)


def let_nothing_expire(monkeypatch):
    monkeypatch.setattr(Classed, "tick", lambda self, now_s: self._queues.tick(now_s) and [])


def forget_the_class(monkeypatch):
    monkeypatch.setattr(Classed, "_known", lambda _, class_, otherwise: otherwise)


def drop_in_silence(monkeypatch):
    monkeypatch.setattr(Inbox, "_note_dropped", lambda _, run, words: len(run.items if run else ()))


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (hold_nobody, "is_accepting=True"),
        (hold_for_ever, "is_accepting=False"),
        (raise_nobody, "the consumer got"),
        (forget_what_was_raised_before, "the consumer got"),
        (let_nothing_expire, "expire|not even"),
        (forget_the_class, "the consumer got|is_accepting"),
        (drop_in_silence, "has not told its consumer"),
    ],
)
def test_a_broken_promise_is_noticed_and_can_be_replayed(monkeypatch, break_it, complaint):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match=complaint) as failure:
        for seed in range(200):
            simulate(seed)
    assert "python -m infobus.testing.simulation.qos" in str(failure.value)
