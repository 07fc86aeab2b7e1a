"""The routed engine keeps the promises of the interface, whatever the graph of its links."""

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest

from infobus.bus.threads import SYSTEM_THREADS
from infobus.engines import Engine
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.engines.routed.engine import RoutedEngine
from infobus.testing.conformance.engines import EngineConformance


def routed(bus: str, number: int, neighbours: set[int]) -> RoutedEngine:
    """A router called by its number, with links to those neighbours."""
    names = {str(one) for one in neighbours}
    links = MemoryEngine(live_network(bus))
    return RoutedEngine(links, threads=SYSTEM_THREADS, name=str(number), accepts=names.__contains__)


class Graph(EngineConformance):
    """The engines of each test stand on the places of a graph; routers are on all others."""

    places: ClassVar[dict[int, set[int]]]
    order: ClassVar[list[int]]

    @pytest.fixture(autouse=True)
    def transit(self) -> Iterator[None]:
        self._bus = uuid.uuid4().hex
        self._free = iter(self.order)
        others = [place for place in self.places if place not in self.order]
        routers = [(f"router{p}", routed(self._bus, p, self.places[p])) for p in others]
        for name, router in routers:
            router.open(name)
        yield
        for _, router in routers:
            router.close()

    def new_engine(self) -> Engine:
        place = next(self._free)
        return routed(self._bus, place, self.places[place])


class TestAChain(Graph):
    """The first engine is linked with the others through a router in the middle."""

    places: ClassVar = {0: {4}, 4: {0, 1, 2, 3}, 1: {4}, 2: {4}, 3: {4}}
    order: ClassVar = [0, 1, 2, 3]


class TestAChainOfRouters(Graph):
    """Between any two engines are one to three routers."""

    places: ClassVar = {0: {4}, 4: {0, 5}, 5: {4, 1, 6}, 6: {5, 2, 3}, 1: {5}, 2: {6}, 3: {6}}
    order: ClassVar = [0, 3, 1, 2]


class TestARingOfFour(Graph):
    """Engines 0 and 2 have two paths to each other."""

    places: ClassVar = {one: {(one + 1) % 4, (one - 1) % 4} for one in range(4)}
    order: ClassVar = [0, 1, 2, 3]


class TestARingOfRouters(Graph):
    """Four routers in a ring, with an engine at each."""

    places: ClassVar = {one: {(one + 1) % 4, (one - 1) % 4, one + 4} for one in range(4)} | {
        one + 4: {one} for one in range(4)
    }
    order: ClassVar = [4, 6, 5, 7]


class TestAFullGraph(Graph):
    """Everyone is linked with everyone."""

    places: ClassVar = {one: set(range(4)) - {one} for one in range(4)}
    order: ClassVar = [0, 1, 2, 3]


@pytest.mark.parametrize("kind", Graph.__subclasses__())
def test_every_link_of_these_graphs_has_two_ends(kind: type[Graph]) -> None:
    links = [(a, b) for a, others in kind.places.items() for b in others]
    assert all(a in kind.places[b] for a, b in links)
