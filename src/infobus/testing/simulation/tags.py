"""Whole runs of daemons that agree on tags, and of programs that ask them, while much fails.

`simulate(seed)` lets five daemons crash, start again from their disks and freeze, and links be cut,
while programs of two names race for the same tags, change and delete them, die and start again. The
daemons agree by the membership that ships. After each step it is checked that

- all daemons have the same table after each decision; one that joins has the table of its slot;
- each name is created once, and changed by its creator alone;
- programs are told the outcome that was decided, and what they hold never goes back.

When everything is healed, all requests have been decided, all tables are equal and hold what was
accepted, all programs hold that, and all daemons list the same publishers.

A seed that fails is replayed by `python -m infobus.testing.simulation.tags SEED`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from infobus.engines.memory.engine import Faults, Network
from infobus.protocols.frames.tags import Act, TagOperation, TagTerms
from infobus.protocols.membership.terms import MembershipTerms
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.accounts.tags import TagAccount
from infobus.testing.simulation.nodes.membership import MemoryState
from infobus.testing.simulation.nodes.tags import TagDaemonNode, TagProgramNode
from infobus.testing.simulation.reliable import replayable

HEARTBEAT_S = 0.5
SETTLE_S = 60.0  # what a node has forgotten is told again after 30 s
NAMES = ["a", "a.>", "a.b", "b", "b.>"]
APPLICATIONS = ["oven", "press", ""]


@dataclass(frozen=True)
class TagsRunOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    created_count: int
    refused_count: int
    joins_count: int
    crashes_count: int
    settled_after_s: float
    trace: tuple[object, ...] = field(repr=False)


def simulate(seed: int) -> TagsRunOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = TagsRun(random.Random(seed))
    with replayable("infobus.testing.simulation.tags", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
    account = run.account
    whys = [outcome.why for outcome in account.outcomes.values()]
    return TagsRunOutcome(
        seed,
        whys.count(""),
        len(whys) - whys.count(""),
        account.joins_count,
        run.crashes_count,
        settled_after_s,
        tuple(account.trace),
    )


class TagsRun:
    """A world of daemons and programs."""

    def __init__(self, draw: random.Random) -> None:
        self.random = draw
        is_on = [draw.random() < 0.5 for _ in range(5)]
        faults = Faults(
            loss=is_on[0] * draw.uniform(0, 0.2),
            duplicate=is_on[1] * 0.1,
            reorder=is_on[2] * draw.uniform(0, 0.5),
            delay_min_s=0.0003,
            delay_max_s=draw.choice([0.003, 0.03]),
            detect_s=draw.uniform(0.01, 0.3),
            lease_s=draw.choice([0.5, 1.0]),
        )
        self.network = Network(draw.getrandbits(32), faults)
        self.account = TagAccount()
        self.names = [f"d{number}" for number in range(draw.choice([3, 3, 3, 5]))]
        self._terms = MembershipTerms(heartbeat_s=HEARTBEAT_S, founders=tuple(self.names))
        self._disks = {name: MemoryState() for name in self.names}
        self.daemons: dict[str, TagDaemonNode] = {}
        self.programs: list[TagProgramNode] = []
        self.frozen: list[str] = []
        self.crashes_count = self._born_count = self._ids_count = 0
        for name in self.names:
            self._start(name)
        for application in APPLICATIONS:
            self._begin(application)
        self._actions: list[Callable[[], None]] = [self._ask] * 6 + [self._publish] * 2
        self._actions += [self._crash, self._start_one, self._crash_program] * is_on[3]
        self._actions += [self._freeze, self._thaw] * is_on[3]
        self._actions += [self._partition, self._cut, self._heal] * is_on[4]

    # The acts.

    def do_harm(self) -> None:
        """Let programs ask, and much fail."""
        self._advance(self.random.choice([0.1, 1.5]))
        for _ in range(self.random.randint(6, 14)):
            self.random.choice(self._actions)()
            self._advance(self.random.choice([0.0, 0.01, 0.1, 0.5]))

    def settle(self) -> float:
        """In a healed world all agree; returns after how long."""
        network = self.network
        network.faults = Faults(delay_min_s=0.0003, delay_max_s=0.003, detect_s=0.05, lease_s=0.5)
        self._heal()
        for name in list(self.frozen):
            self._thaw_one(name)
        for name in self.names:
            if name not in self.daemons:
                self._start(name)
        begun_s, what = network.now_s, ""
        while network.now_s < begun_s + SETTLE_S:
            self._advance(0.5)
            what = self._difference()
            if not what:
                return network.now_s - begun_s
        raise Uneven(f"not settled after {SETTLE_S} s: {what}")

    def _difference(self) -> str:
        daemons = list(self.daemons.values())
        if lacking := [one.node for one in daemons if not one.is_member]:
            return f"{lacking} have no table"
        return self.account.difference(daemons, self.programs)

    def _advance(self, seconds: float) -> None:
        self.network.advance(seconds)
        self.account.check([*self.programs, *self.daemons.values()])

    # What may happen.

    def _start(self, name: str) -> None:
        self._born_count += 1
        self.daemons[name] = TagDaemonNode(
            self.network,
            f"{name}-1-{self._born_count}",
            name,
            self._terms,
            self._disks[name],
            self._born_count,
            self.account,
        )

    def _begin(self, application: str) -> None:
        self._born_count += 1
        node = f"p-2-{self._born_count}"
        self.programs.append(TagProgramNode(self.network, node, application, self.account))

    def _ask(self) -> None:
        program = self.random.choice(self.programs)
        self._ids_count += 1
        acts: list[Act] = ["create", "create", "create", "change", "delete"]
        operation = TagOperation(
            f"r{self._ids_count}",
            self.random.choice(acts),
            self.random.choice(NAMES),
            program.application or program.node,
            declared=TagTerms(max_age=self.random.choice([0.0, 1.0])),
        )
        program.ask(operation)

    def _publish(self) -> None:
        self.random.choice(self.programs).publish(self.random.choice(NAMES))

    def _crash(self) -> None:
        if self.daemons:
            name = self.random.choice(list(self.daemons))
            if name in self.frozen:
                self.frozen.remove(name)
            self.daemons.pop(name).crash()
            self.crashes_count += 1

    def _start_one(self) -> None:
        if down := [name for name in self.names if name not in self.daemons]:
            self._start(self.random.choice(down))

    def _crash_program(self) -> None:
        """A program dies and starts again: what it had asked may be decided all the same."""
        program = self.programs.pop(self.random.randrange(len(self.programs)))
        program.crash()
        self.crashes_count += 1
        self._begin(program.application)

    def _freeze(self) -> None:
        if awake := [name for name in self.daemons if name not in self.frozen]:
            name = self.random.choice(awake)
            self.frozen.append(name)
            self.network.freeze(self.daemons[name].node)

    def _thaw(self) -> None:
        if self.frozen:
            self._thaw_one(self.random.choice(self.frozen))

    def _thaw_one(self, name: str) -> None:
        self.frozen.remove(name)
        self.network.thaw(self.daemons[name].node)

    def _nodes(self) -> list[str]:
        return [one.node for one in (*self.daemons.values(), *self.programs)]

    def _partition(self) -> None:
        nodes = self._nodes()
        self.random.shuffle(nodes)
        at = self.random.randint(0, len(nodes))
        self.network.partition(nodes[:at], nodes[at:])

    def _cut(self) -> None:
        one, other = self.random.sample(self._nodes(), 2)
        self.network.cut(one, other)

    def _heal(self) -> None:
        self.network.heal()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
