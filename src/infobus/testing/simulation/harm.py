"""What the simulators do to a network and its nodes, and how they make it good again.

Everything is drawn from one source of chance, in an order that must stay as it is: seeds of runs
that once failed replay them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from infobus.engines.memory.engine import Faults, Network


def drawn_network(draw: Random, is_on: Sequence[bool], loss_max: float = 0.3) -> Network:
    """A network; the first of `is_on` say whether it loses, doubles and reorders frames."""
    faults = Faults(
        loss=is_on[0] * draw.uniform(0, loss_max),
        duplicate=is_on[1] * draw.uniform(0, 0.3),
        reorder=is_on[2] * draw.uniform(0, 0.5),
        delay_max_s=draw.choice([0.001, 0.02, 0.2]),
        detect_s=draw.uniform(0.01, 0.5),
        lease_s=draw.uniform(0.3, 1.0),
    )
    return Network(draw.getrandbits(32), faults)


class Harm:
    """Cuts and clogs links, and freezes nodes, of which `names` tells those that there are."""

    def __init__(self, draw: Random, network: Network, names: Callable[[], Iterable[str]]) -> None:
        self._random = draw
        self._network = network
        self._names = names
        self.frozen: list[str] = []
        self.clogged_until_s = 0.0

    def partition(self) -> None:
        """Divide the nodes into two that do not hear each other."""
        names = list(self._names())
        self._random.shuffle(names)
        at = self._random.randint(0, len(names))
        self._network.partition(names[:at], names[at:])

    def cut(self) -> None:
        """Cut the link between two nodes."""
        if len(names := list(self._names())) > 1:
            self._network.cut(*self._random.sample(names, 2))

    def swizzle(self) -> None:
        """Clog the links one after the other, and free them in another order."""
        over_s = self._random.uniform(0.2, 4.0)
        self.clogged_until_s = max(self.clogged_until_s, self._network.now_s + over_s)
        self._network.swizzle(list(self._names()), over_s)

    def heal(self) -> None:
        """Join what was cut."""
        self._network.heal()

    def freeze(self) -> None:
        """Let a node stand still."""
        if awake := [name for name in self._names() if name not in self.frozen]:
            self.frozen.append(self._random.choice(awake))
            self._network.freeze(self.frozen[-1])

    def thaw(self) -> None:
        """Let a node that stands still go on."""
        if self.frozen:
            self._thaw(self._random.choice(self.frozen))

    def forget(self, name: str) -> None:
        """A node is gone."""
        if name in self.frozen:
            self.frozen.remove(name)

    def end(self) -> None:
        """From now on nothing fails, and what was harmed is well again."""
        faults = self._network.faults
        self._network.faults = Faults(
            delay_max_s=0.01, detect_s=faults.detect_s, lease_s=faults.lease_s
        )
        self._network.heal()
        for name in list(self.frozen):
            self._thaw(name)

    def _thaw(self, name: str) -> None:
        self.frozen.remove(name)
        self._network.thaw(name)
