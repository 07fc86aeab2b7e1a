"""Whole runs in which queues are short and consumers rest, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which some subscriptions hold their senders
when their queue is full, some do so for a while, and some let their oldest events go. A
`FullQueueAccount` holds the nodes to their promises: no queue grows without end, no sender is held
for longer than was said, and a consumer hears of each event that its queue has let go.

A seed that fails is replayed by `python -m infobus.testing.simulation.full_queue SEED`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from infobus.testing.simulation.accounts.full_queue import FullQueueAccount
from infobus.testing.simulation.nodes.full_queue import FullQueueNode
from infobus.testing.simulation.reliable import SimulationRun, replayable


@dataclass(frozen=True)
class FullQueueOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    delivered_count: int
    dropped_count: int
    """How many events the queues have let go."""
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> FullQueueOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = FullQueueRun(seed)
    with replayable("infobus.testing.simulation.full_queue", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    account = run.account
    return FullQueueOutcome(
        seed,
        account.delivered_count,
        account.dropped_count,
        settled_after_s,
        tuple(account.trace),
    )


class FullQueueRun(SimulationRun):
    """One run in which queues are full more often than not, drawn from a seed."""

    account: FullQueueAccount

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.actions += [self.rest_one] * 3 + [self.subscribe_one] * 2 + [self.publish_some] * 4

    def _account(self) -> FullQueueAccount:
        return FullQueueAccount(self.terms.depth)

    def _node(self, name: str) -> FullQueueNode:
        return FullQueueNode(self.network, name, self.terms, self.account, self.batch)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
