"""Hundreds of drawn runs: a newcomer gets the state first, then exactly what followed it.

The test command runs 500 seeds, a quarter of what others run: these are long runs.
`INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.deliver.queue import Inbox
from infobus.bus.initial_state import InitialState
from infobus.bus.publish.outlet import Outlet
from infobus.bus.runtime.runtime import Runtime
from infobus.protocols.initial_state.newcomers import Newcomers
from infobus.testing.simulation.initial_state import simulate
from infobus.testing.simulation.reliable import SETTLE_S, SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000")) // 4
CHUNK = 125


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_followers_know_what_was_published(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.states_count for outcome in outcomes) > 10 * len(outcomes)
    assert sum(outcome.followed_count for outcome in outcomes) > 20 * len(outcomes)
    assert any(outcome.begun_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [1, 23])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def deliver_what_the_state_contains(monkeypatch):
    monkeypatch.setattr(Inbox, "not_contained", lambda _, run: run)


def forget_what_came_meanwhile(monkeypatch):
    begin = InitialState._begin

    def begin_with_nothing(self, subscription, states):
        subscription.queue.staged = []
        return begin(self, subscription, states)

    monkeypatch.setattr(InitialState, "_begin", begin_with_nothing)


def let_the_state_be_overtaken(monkeypatch):
    take = Inbox.take_by_class

    def take_by_class_first(self, now_s, wall_s):
        waits = None
        if self.classed is not None and self._is_plain_over:
            waits = self.classed.take(now_s)
        return take(self, now_s, wall_s) if waits is None else waits

    monkeypatch.setattr(Inbox, "take_by_class", take_by_class_first)


def take_the_state_in_the_middle_of_a_batch(monkeypatch):
    add_state = InitialState._add_state

    def add_unflushed(self, *args):
        with monkeypatch.context() as patch:
            patch.setattr(Outlet, "flush", lambda _: None)
            return add_state(self, *args)

    monkeypatch.setattr(InitialState, "_add_state", add_unflushed)


def believe_the_first_answer(monkeypatch):
    take = Newcomers.take

    def take_one(self, message, now_s):
        if question := self._questions.get(getattr(message, "request", 0)):
            question.awaited &= {message.sender}
        return take(self, message, now_s)

    monkeypatch.setattr(Newcomers, "take", take_one)


def never_begin_anew(monkeypatch):
    monkeypatch.setattr(Runtime, "recover", lambda *_: None)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (deliver_what_the_state_contains, "got event"),
        (forget_what_came_meanwhile, "got event|knows of"),
        (let_the_state_be_overtaken, "got event|knows of"),
        (take_the_state_in_the_middle_of_a_batch, "got event|knows of"),
        (believe_the_first_answer, "not told the state"),
        (never_begin_anew, "got event|knows of"),
    ],
)
def test_a_broken_promise_is_noticed_and_can_be_replayed(monkeypatch, break_it, complaint):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match=complaint) as failure:
        for seed in range(100):
            simulate(seed)
    assert "python -m infobus.testing.simulation.initial_state" in str(failure.value)
