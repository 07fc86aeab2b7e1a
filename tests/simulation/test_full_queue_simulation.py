"""Hundreds of drawn runs: a full queue does what its consumer chose, no more and no less.

The test command runs 500 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs more.
"""

import os

import pytest

from infobus.bus.deliver.full_queue import Crowd, Hold
from infobus.protocols.reliable.node import Node
from infobus.testing.simulation.full_queue import simulate
from infobus.testing.simulation.reliable import SETTLE_S, SimulationFailed

SEEDS_COUNT = int(os.environ.get("INFOBUS_SIM_SEEDS", "2000")) // 4
CHUNK = 250


@pytest.mark.timeout(600)  # all of it is work, and others may have the processors
@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, CHUNK))
def test_a_full_queue_holds_its_senders_or_drops_and_tells(first):
    outcomes = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS_COUNT))]
    # A simulation in which nothing happens proves nothing.
    assert sum(outcome.delivered_count for outcome in outcomes) > 20 * len(outcomes)
    assert sum(outcome.dropped_count for outcome in outcomes) > len(outcomes)
    assert max(outcome.settled_after_s for outcome in outcomes) <= SETTLE_S


@pytest.mark.parametrize("seed", [10, 38])
def test_a_seed_replays_the_same_run(seed):
    assert simulate(seed).trace == simulate(seed).trace


def refuse_nothing(monkeypatch):
    monkeypatch.setattr(Node, "pause", lambda *_: [])


def hold_for_ever(monkeypatch):
    monkeypatch.setattr(Hold, "is_over", lambda *_: False)


def drop_too_soon(monkeypatch):
    monkeypatch.setattr(Hold, "is_over", lambda *_: True)


def drop_nothing(monkeypatch):
    monkeypatch.setattr(Crowd, "_drop_oldest", lambda *_: None)


def confirm_nothing_when_there_is_room(monkeypatch):
    let_go = Crowd._let_go

    def let_go_in_silence(self, queue, now_s):
        with monkeypatch.context() as patch:
            patch.setattr(self._node, "acks", lambda *_: [])
            return let_go(self, queue, now_s)

    monkeypatch.setattr(Crowd, "_let_go", let_go_in_silence)


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (refuse_nothing, r"took 3 frames of .* into the full queue"),
        (hold_for_ever, "holds its senders for .* though it is stuck"),
        (drop_too_soon, "but its senders have waited for .* only"),
        (drop_nothing, "which lets the oldest of more than"),
        (confirm_nothing_when_there_is_room, "and did not confirm it"),
    ],
)
def test_a_full_queue_that_breaks_a_promise_is_noticed(monkeypatch, break_it, complaint):
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed, match=complaint) as failure:
        for seed in range(100):
            simulate(seed)
    assert "python -m infobus.testing.simulation.full_queue" in str(failure.value)
