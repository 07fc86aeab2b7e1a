"""Thousands of drawn runs: nobody ever sees a part of a transaction, or one out of its place.

The test command runs 2,000 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.deliver.dispatch import Delivery
from infobus.protocols.frames.transactions import Copies
from infobus.testing.simulation.reliable import SETTLE_S, SimulationFailed
from infobus.testing.simulation.transactions import simulate

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000"))
CHUNK = 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_every_transaction_comes_whole_once_and_in_its_place_or_is_reported_lost(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    taken_count = sum(outcome.taken_count for outcome in outcomes)
    assert taken_count > 10 * len(outcomes)
    assert sum(outcome.parts_count for outcome in outcomes) > taken_count // 4
    assert sum(outcome.copies_count for outcome in outcomes) > taken_count // 2
    assert any(outcome.lost_count for outcome in outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [0, 5, 73])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


@pytest.mark.parametrize("seed", [1224, 1874])
def test_a_loss_that_brings_classes_to_a_full_queue_holds_nobody_for_ever(seed):
    assert simulate(seed).settled_after_s <= SETTLE_S


def take_all_copies(monkeypatch):
    monkeypatch.setattr(Copies, "is_first", lambda *_: True)


def take_the_second_copy(monkeypatch):
    is_first = Copies.is_first
    monkeypatch.setattr(
        Copies, "is_first", lambda *args: not is_first(*args) or args[2].channels == 1
    )


def hand_out_a_part(monkeypatch):
    takers_of = Delivery.takers_of

    def first_ones(self, items, objects):
        return {one: places[:1] for one, places in takers_of(self, items, objects).items()}

    monkeypatch.setattr(Delivery, "takers_of", first_ones)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (take_all_copies, "for a second time"),
        (take_the_second_copy, "not got|did not hand|a second time|were due"),  # or the third, too
        (hand_out_a_part, "but wants"),
    ],
)
def test_a_broken_promise_is_noticed_and_can_be_replayed(monkeypatch, break_it, complaint):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match=complaint) as failure:
        for seed in range(50):
            simulate(seed)
    assert "python -m infobus.testing.simulation.transactions" in str(failure.value)
