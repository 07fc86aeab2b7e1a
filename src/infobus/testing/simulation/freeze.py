"""Whole runs in which a node stands still and is taken for dead, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which one node after the other stands
still for longer than its lease, while others publish, leave, die and are born. A `FreezeAccount`
holds the nodes to their promises: nothing that a node missed goes without a report.

A seed that fails is replayed by `python -m infobus.testing.simulation.freeze SEED`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from infobus.testing.simulation.accounts.freeze import FreezeAccount
from infobus.testing.simulation.accounts.reliable import Account
from infobus.testing.simulation.reliable import SimulationRun, replayable


@dataclass(frozen=True)
class FreezeOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    missable_count: int
    """How often an event was owed to a subscription whose node stood still."""
    lost_count: int
    unreachable_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> FreezeOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = FreezeRun(seed)
    with replayable("infobus.testing.simulation.freeze", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    account = run.freeze_account
    return FreezeOutcome(
        seed,
        account.missable_count,
        account.lost_count,
        account.unreachable_count,
        settled_after_s,
        tuple(account.trace),
    )


class FreezeRun(SimulationRun):
    """One run in which nodes stand still, drawn from a seed."""

    freeze_account: FreezeAccount

    def _account(self) -> Account:
        self.freeze_account = FreezeAccount(self.terms.depth)
        return self.freeze_account

    def do_harm(self) -> None:
        """Let one node after the other stand still, and much happen meanwhile."""
        self.account.blameless, self._is_calm = (), False
        before = [
            self.be_born,
            self.subscribe_one,
            self.subscribe_one,
            self.publish_some,
            self.publish_some,
        ]
        meanwhile = [self.publish_some] * 4 + [self.be_born, self.leave_one, self._crash_another]
        for _ in range(self.random.randint(1, 3)):
            self._act(before, self.random.randint(5, 15))
            self.freeze_one()
            for name in self.harm.frozen:
                self.freeze_account.froze(name)
            started_s = self.network.now_s
            self._act(meanwhile, self.random.randint(3, 12))
            frozen_s = self.network.now_s - started_s
            self.advance(max(0.0, self.network.faults.lease_s * 1.1 - frozen_s))
            for name in list(self.harm.frozen):
                self.freeze_account.thawed(name)
            self.harm.thaw()
            self._act(meanwhile, self.random.randint(0, 3))

    def _act(self, actions: list[Callable[[], None]], count: int) -> None:
        for _ in range(count):
            self.random.choice(actions)()
            self.advance(self.random.choice([0.005, 0.05, 0.3, 1.0]))

    def _crash_another(self) -> None:
        """Crash a node that does not stand still."""
        if awake := self.awake():
            name = self.random.choice(awake).name
            self.network.crash(name)
            self.end_node(name)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
