"""Thousands of drawn runs: whatever the network does, the account comes out even.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.publish.gather import ALONE, Gathering
from infobus.bus.publish.outlet import Flusher, Outlet
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


def send_in_reverse(monkeypatch):
    release = Gathering.release
    monkeypatch.setattr(Gathering, "release", lambda *args: release(*args)[::-1])


def let_an_event_overtake(monkeypatch):
    take = Gathering.take

    def take_or_overtake(self, item, size, more):
        return ALONE if self.pending and not more else take(self, item, size, more)

    monkeypatch.setattr(Gathering, "take", take_or_overtake)


def let_a_run_overtake(monkeypatch):
    send_run = Outlet.send_run

    def send_past(self, *run):
        with monkeypatch.context() as patch:
            patch.setattr(self, "flush", lambda: None)
            send_run(self, *run)

    monkeypatch.setattr(Outlet, "send_run", send_past)


def drop_the_last(monkeypatch):
    release = Gathering.release

    def release_all_but_one(self, receivers_count):
        pending = release(self, receivers_count)
        return pending[:-1] if len(pending) > 1 else pending

    monkeypatch.setattr(Gathering, "release", release_all_but_one)


def never_flush(monkeypatch):
    monkeypatch.setattr(Flusher, "_flush", lambda *_: None)


def flush_once_only(monkeypatch):
    """If there is no room then, nobody looks again."""
    monkeypatch.setattr(Flusher, "_flush", lambda _, outlet: outlet.flush_if_room())


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (send_in_reverse, "before the word that it missed"),
        (let_an_event_overtake, r"before the word that it missed|got event \d+ of \w+ after"),
        (let_a_run_overtake, "before the word that it missed"),
        (drop_the_last, "has not sent what was published"),
        (never_flush, "has not sent what was published"),
        (flush_once_only, "has not sent what was published"),
    ],
)
def test_a_flush_that_breaks_a_promise_is_noticed(monkeypatch, break_it, complaint):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match=complaint) as failure:
        for seed in range(50):
            simulate(seed)
    assert "python -m infobus.testing.simulation.reliable" in str(failure.value)
