"""A simulated node whose frames are carried from router to router."""

from __future__ import annotations

from collections.abc import Callable

from infobus.bus.publish.outlet import Batch
from infobus.engines import Declaration, Engine
from infobus.engines.memory.engine import Network
from infobus.engines.routed.engine import RoutedEngine, Waits
from infobus.protocols.reliable.peer import Terms
from infobus.protocols.routing.terms import RoutingTerms
from infobus.testing.simulation.nodes.reliable import SimulatedNode, Witness
from infobus.testing.simulation.world import OnError, VirtualThreads, WatchedEngine, watched

_NO_WAITS = Waits(open_s=0.0, quiet_s=0.0, room_s=0.0, close_s=0.0)
"""Nobody can wait where time stands still until the caller is done."""


class RoutedNode(SimulatedNode):
    """A router of a run: it hears those alone to whom `accepts` allows a link."""

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: Witness,
        batch: Batch | None,
        accepts: Callable[[str], bool],
        routing: RoutingTerms,
    ) -> None:
        self._accepts = accepts
        self._routing = routing
        self._on_error = witness.failed
        super().__init__(network, name, terms, witness, batch)

    def new_engine(self) -> Engine:
        """What carries its frames, over links of the simulated network."""
        self.routed = WatchedRoutedEngine(
            self.network, self.name, self._on_error, self._accepts, self._routing
        )
        return self.routed


class WatchedRoutedEngine(RoutedEngine):
    """The shipped engine of routers in virtual time, whose callbacks tell what goes wrong."""

    def __init__(
        self,
        network: Network,
        name: str,
        on_error: OnError,
        accepts: Callable[[str], bool],
        terms: RoutingTerms,
    ) -> None:
        super().__init__(
            WatchedEngine(network, on_error),
            threads=VirtualThreads(network, name, on_error),
            name=name,
            accepts=accepts,
            terms=terms,
            waits=_NO_WAITS,
            now_s=lambda: network.now_s,
        )
        self._on_error = on_error

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        return super().declare(key, watched(on_frame, self._on_error))

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens of other nodes on `key`."""
        return super().watch(key, watched(on_change, self._on_error))
