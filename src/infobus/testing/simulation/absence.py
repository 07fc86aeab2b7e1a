"""Whole runs in which paths go and come back, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which one path after the other is gone for
up to 10 s: between two nodes or around one, both ways or one way; or a node stands still for so
long. Meanwhile nodes publish, leave, are born, and die, and of those that die somebody knows or
not. Whoever is back soon has lost nothing, or is told exact numbers; whoever is out of reach for
longer is told of.

A seed that fails is replayed by `python -m infobus.testing.simulation.absence SEED`; in a run in
which frames go astray, it is `SEED:SHARE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from infobus.testing.simulation.reliable import Outcome, SimulationRun, outcome_of, replayable

_GONE_S_MAX = [0.5, 2.0, 4.0, 10.0]


def simulate(seed: int, stray: float = 0.0) -> Outcome:
    """Do the run that `seed` draws; so many of the frames for one node come to another one, too.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = AbsenceRun(seed)
    run.network.faults = replace(run.network.faults, stray=stray)
    again = f"{seed}:{stray}" if stray else seed
    with replayable("infobus.testing.simulation.absence", again, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    return outcome_of(run, seed, settled_after_s)


class AbsenceRun(SimulationRun):
    """One run in which paths are gone for a while, drawn from a seed."""

    def do_harm(self) -> None:
        """Let one path after the other be gone, and much happen meanwhile."""
        self.account.blameless, self._is_calm = (), False
        before = [self.be_born, *[self.subscribe_one] * 2, *[self.publish_some] * 3]
        meanwhile = [self.publish_some] * 6 + [self.be_born, self.subscribe_one]
        meanwhile += [self.leave_one, self.die_one] if self.random.random() < 0.5 else []
        ways = [self._cut_between_two, self._cut_around_one, self._cut_one_way, self.freeze_one]
        for _ in range(self.random.randint(1, 4)):
            self._act_for(before, self.random.uniform(0.5, 2.0))
            self.random.choice(ways)()
            self._act_for(meanwhile, self.random.uniform(0, self.random.choice(_GONE_S_MAX)))
            self.network.heal()
            while self.harm.frozen:
                self.harm.thaw()
            self._act_for(meanwhile, self.random.uniform(0, 1.0))

    def die_one(self) -> None:
        """Kill a node; half of the time another one knows, and says so."""
        if awake := self.awake():
            name = self.random.choice(awake).name
            self.network.crash(name)
            self.end_node(name)
            knowing = self.awake()
            if knowing and self.random.random() < 0.5:
                one = self.random.choice(knowing)

                def say() -> None:
                    self.account.ends(one, name)
                    one.runtime.say_died(name)

                self.network.call_later(self.random.uniform(0, 1.0), say, node=one.name)

    def _act_for(self, actions: list[Callable[[], None]], seconds: float) -> None:
        until_s = self.network.now_s + seconds
        while self.network.now_s < until_s:
            self.random.choice(actions)()
            left_s = until_s - self.network.now_s
            self.advance(min(left_s, self.random.choice([0.005, 0.05, 0.3])))

    def _pair(self) -> list[str]:
        names = list(self.account.nodes)
        return self.random.sample(names, 2) if len(names) > 1 else []

    def _cut_between_two(self) -> None:
        if pair := self._pair():
            self.network.partition(*([name] for name in pair))

    def _cut_around_one(self) -> None:
        if pair := self._pair():
            self.network.partition(pair[:1], [n for n in self.account.nodes if n != pair[0]])

    def _cut_one_way(self) -> None:
        if pair := self._pair():
            self.network.cut(*pair)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        drawn, _, strays = argument.partition(":")
        print(simulate(int(drawn), float(strays or 0)))
