"""Whole runs in which subscriptions begin with initial state, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which nodes follow each other: they begin
with the state of the others, and begin anew after every loss. A `StateAccount` holds the nodes to
their promises. In the end everyone follows everything once more, and must know it all.

A seed that fails is replayed by `python -m infobus.testing.simulation.initial_state SEED`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from infobus.subjects import channel_of
from infobus.testing.simulation.accounts.initial_state import StateAccount
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.initial_state import SimulatedFollower, StateNode
from infobus.testing.simulation.reliable import SUBJECTS, SimulationRun, replayable

_PATTERNS = [">", "a.>", "b.>"]
_STATE_S = 3.0  # the newcomers' patience, and a little
_AGAIN_S = 3.0  # for queues of two events, which are filled and refused again and again


@dataclass(frozen=True)
class StateOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    states_count: int
    followed_count: int
    begun_count: int
    """How often a follower began anew."""
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> StateOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = StateRun(seed)
    with replayable("infobus.testing.simulation.initial_state", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    account = run.account
    return StateOutcome(
        seed,
        account.states_count,
        account.followed_count,
        sum(follower.begun_count for follower in account.followers()),
        settled_after_s,
        tuple(account.trace),
    )


class StateRun(SimulationRun):
    """A run in which nodes follow each other, too."""

    account: StateAccount

    def do_harm(self) -> None:
        """Let things happen, most of them bad, to followers, too."""
        self.actions += [self._follow] * 3
        super().do_harm()

    def advance(self, seconds: float) -> None:
        """Let time pass; followers begin as soon as they are known."""
        super().advance(seconds)
        for node in self.awake():
            assert isinstance(node, StateNode)
            node.begin_followers()

    def say_one_more_thing(self) -> None:
        """Let everyone follow everything, publish once more, and know what was published."""
        nodes = self.account.nodes
        new = [node.follow(">") for node in nodes.values() if isinstance(node, StateNode)]
        asked_s = self.network.now_s
        while missing := [pair for follower in new for pair in self._uninformed(follower)]:
            if self.network.now_s - asked_s > _STATE_S:
                raise Uneven(f"followers were not told the state of {missing}")
            self.advance(0.1)
        for node in nodes.values():
            for subject in SUBJECTS:
                assert node.publish([(subject, self.drawn_attributes())])
                self.advance(0.02)  # confirmations make room in the window
        said_s = self.network.now_s
        while list(self.unsettled()) and self.network.now_s - said_s < _AGAIN_S:
            self.advance(0.2)
        self.check_settled("after one more event from everyone")

    def _uninformed(self, follower: SimulatedFollower) -> set[tuple[str, str]]:
        """Senders and channels whose state it has not got."""
        others = self.account.nodes.keys() - {follower.node}
        channels = {channel_of(subject, self.terms.depth) for subject in SUBJECTS}
        return {(other, channel) for other in others for channel in channels} - follower.informed

    def _follow(self) -> None:
        if awake := self.awake():
            node = self.random.choice(awake)
            assert isinstance(node, StateNode)
            node.follow(self.random.choice(_PATTERNS))

    def _account(self) -> StateAccount:
        return StateAccount(self.terms.depth)

    def _node(self, name: str) -> StateNode:
        subjects = {channel_of(subject, self.terms.depth): subject for subject in SUBJECTS}
        return StateNode(self.network, name, self.terms, self.account, self.batch, subjects)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
