"""Whole runs of the protocols over routers, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation in which the nodes are a backbone: each has
links with some of the others only, and the shipped engine of routers carries everything, while
links lose, double and reorder frames, are cut or clogged, and routers crash, leave, stand still and
are born. All promises of one bus must be kept: each event once and in order, or a reported loss. In
the end there are links enough for everyone to be reached.

A seed that fails is replayed by `python -m infobus.testing.simulation.backbone SEED`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import partial

from infobus.protocols.qos.classes import Marks
from infobus.protocols.routing.terms import RoutingTerms
from infobus.testing.simulation.nodes.reliable import SimulatedNode
from infobus.testing.simulation.nodes.routed import RoutedNode
from infobus.testing.simulation.reliable import Outcome, SimulationRun, outcome_of, replayable


def simulate(seed: int) -> Outcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = BackboneRun(seed)
    with replayable("infobus.testing.simulation.backbone", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    return outcome_of(run, seed, settled_after_s)


class BackboneRun(SimulationRun):
    """One run over routers."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._is_healing = False
        draw = random.Random(f"graph {seed}")
        self._share = draw.choice([0.3, 0.6, 1.0])
        self._routing = RoutingTerms(
            window_bytes=draw.choice([1_000, 1_000_000]), marks=Marks(high=100_000, low=50_000)
        )
        super().__init__(seed)
        # Links that lose a third would show for seconds who is gone; no engine of links does that.
        faults = self.network.faults
        self.network.faults = replace(faults, loss=faults.loss / 3)
        # Nodes that see no path to each other are not told of rows; and there may be none at first.
        self.account.blameless, self._is_calm = (), False

    def settle(self) -> float:
        """Heal everything, and let there be a path to everyone."""
        self._is_healing = True
        return super().settle()

    def carried_count(self) -> int:
        """Frames that routers have carried for others."""
        return sum(
            node.routed.routing().counts.get("carried", 0)
            for node in self.account.nodes.values()
            if isinstance(node, RoutedNode)
        )

    def _node(self, name: str) -> SimulatedNode:
        return RoutedNode(
            *(self.network, name, self.terms, self.account, self.batch),
            accepts=partial(self._has_link, name),
            routing=self._routing,
        )

    def _has_link(self, one: str, other: str) -> bool:
        pair = sorted((one, other))
        if random.Random(f"{self._seed} {pair}").random() < self._share:
            return True
        names = sorted(self.account.nodes)
        if not self._is_healing or one not in names or other not in names:
            return False
        return abs(names.index(one) - names.index(other)) == 1


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
