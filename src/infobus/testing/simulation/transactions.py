"""Whole runs with transactions over a network that fails, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which nodes publish transactions among
their other events, over one channel or several. A `TransactionAccount` holds the nodes to their
promises. (Guaranteed transactions are part of `infobus.testing.simulation.guaranteed`.)

A seed that fails is replayed by `python -m infobus.testing.simulation.transactions SEED`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from infobus.testing.simulation.accounts.transactions import TransactionAccount
from infobus.testing.simulation.nodes.transactions import TransactionNode
from infobus.testing.simulation.reliable import SUBJECTS, SimulationRun, replayable


@dataclass(frozen=True)
class TransactionsOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    groups_count: int
    taken_count: int
    """How often a subscription got (its part of) a transaction."""
    parts_count: int
    """How many of these were not the whole transaction."""
    copies_count: int
    lost_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> TransactionsOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = TransactionRun(seed)
    with replayable("infobus.testing.simulation.transactions", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    account = run.account
    return TransactionsOutcome(
        seed,
        account.groups_count,
        account.taken_count,
        account.parts_count,
        account.copies_count,
        account.lost_count,
        settled_after_s,
        tuple(account.trace),
    )


class TransactionRun(SimulationRun):
    """A run in which transactions are published, too."""

    account: TransactionAccount
    frame_bytes_max = 600

    def say_one_more_thing(self) -> None:
        """Publish once more from everyone, singly and as a transaction over all subjects."""
        super().say_one_more_thing()
        for node in self.account.nodes.values():
            assert isinstance(node, TransactionNode)
            assert node.publish_transaction([(s, self.drawn_attributes()) for s in SUBJECTS])
        self.advance(1.5)
        self.check_settled("after a transaction from everyone")

    def _account(self) -> TransactionAccount:
        return TransactionAccount(self.terms.depth)

    def _node(self, name: str) -> TransactionNode:
        return TransactionNode(self.network, name, self.terms, self.account, self.batch)

    def publish_some(self) -> None:
        if self.random.random() < 0.5:
            super().publish_some()
        elif awake := self.awake():
            node = self.random.choice(awake)
            assert isinstance(node, TransactionNode)
            for _ in range(self.random.choice([1, 1, 3])):
                some = self.random.choices(SUBJECTS, k=self.random.choice([1, 2, 3, 6]))
                node.publish_transaction([(subject, self.drawn_attributes()) for subject in some])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
