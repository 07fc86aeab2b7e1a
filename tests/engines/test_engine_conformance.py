"""Both engines keep the promises of the interface."""

import socket
import uuid
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from infobus.engines import Engine
from infobus.engines.attached.engine import AttachedEngine
from infobus.engines.attached.ways import EMBEDDED, Way
from infobus.engines.memory.engine import Faults, MemoryEngine, Network, live_network
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.testing.conformance.engines import EngineConformance
from tests.patience import PATIENT_PROGRAM


class TestSimulatedNetwork(EngineConformance):
    @pytest.fixture(autouse=True)
    def network(self) -> None:
        self._network = Network(seed=1, faults=Faults(delay_min_s=0.001, delay_max_s=0.02))

    def new_engine(self) -> Engine:
        return MemoryEngine(self._network)

    def wait_a_little(self) -> None:
        self._network.advance(0.01)


class TestLiveNetworkInMemory(EngineConformance):
    @pytest.fixture(autouse=True)
    def bus(self) -> None:
        self._bus = uuid.uuid4().hex

    def new_engine(self) -> Engine:
        return MemoryEngine(live_network(self._bus))


class TestZenoh(EngineConformance):
    @pytest.fixture(autouse=True)
    def bus(self) -> None:
        self._bus = uuid.uuid4().hex

    def new_engine(self) -> Engine:
        return ZenohEngine(self._bus, patience=PATIENT_PROGRAM)


class TestZenohWithoutMulticast(TestZenoh):
    def new_engine(self) -> Engine:
        return ZenohEngine(self._bus, multicast="off", patience=PATIENT_PROGRAM)


class TestClientsOfARouter(EngineConformance):
    """Every node is linked with the router alone."""

    @pytest.fixture(autouse=True)
    def router(self, endpoint: str) -> Iterator[None]:
        self._bus, self._endpoint = uuid.uuid4().hex, endpoint
        router = ZenohEngine(self._bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM)
        router.open("router")
        yield
        router.close()

    def new_engine(self) -> Engine:
        return ZenohEngine(
            self._bus, role="client", connect=[self._endpoint], patience=PATIENT_PROGRAM
        )


class TestPeersAndClients(TestClientsOfARouter):
    """Nodes that know nothing of the router, and nodes that have nothing but it, are one bus."""

    def new_engine(self) -> Engine:
        self._count = getattr(self, "_count", 0) + 1
        if self._count % 2:
            return super().new_engine()
        return ZenohEngine(self._bus, patience=PATIENT_PROGRAM)


class TestAttachedAndLeftAlone(EngineConformance):
    """The first node of each test is a router's client, and is on its own when the next one opens.

    So what it declared before is moved, and what it declares later is declared in the new engine.
    """

    @pytest.fixture(autouse=True)
    def router(self, endpoint: str) -> Iterator[None]:
        self._bus, self._endpoint = uuid.uuid4().hex, endpoint
        self._router = ZenohEngine(
            self._bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM
        )
        self._router.open("router")
        self._is_there = True
        yield
        self._router.close()

    def offers(self) -> tuple[Way, ...]:
        return (Way((self._endpoint,)), EMBEDDED) if self._is_there else (EMBEDDED,)

    def make(self, way: Way) -> ZenohEngine:
        if way.is_attached:
            return ZenohEngine(
                self._bus, role="client", connect=way.endpoints, patience=PATIENT_PROGRAM
            )
        return ZenohEngine(self._bus, patience=PATIENT_PROGRAM)

    def new_engine(self) -> Engine:
        patience = replace(PATIENT_PROGRAM, return_s=0.05)
        return AttachedEngine(self.make, self.offers, patience=patience)

    def opened(self, node: str) -> Engine:
        before = [one for one in self._engines if isinstance(one, AttachedEngine)]
        if before and self._is_there:
            assert before[0].way.is_attached
            self._is_there = False
            self._router.close()
            self.wait_until(lambda: not before[0].way.is_attached, "the first node to move")
        return super().opened(node)


class TestFromOneRouterToTheNext(TestAttachedAndLeftAlone):
    """The same, but there is another router to go to."""

    @pytest.fixture(autouse=True)
    def second(self, router: None) -> Iterator[None]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._next = Way((f"tcp/127.0.0.1:{free.getsockname()[1]}",))
        other = ZenohEngine(
            self._bus,
            role="router",
            listen=self._next.endpoints,
            connect=[self._endpoint],
            patience=PATIENT_PROGRAM,
        )
        other.open("second")
        yield
        other.close()

    def offers(self) -> tuple[Way, ...]:
        there = super().offers()
        return (*there[:-1], self._next, EMBEDDED)

    def opened(self, node: str) -> Engine:
        before = [one for one in self._engines if isinstance(one, AttachedEngine)]
        if before and self._is_there:
            self._is_there = False
            self._router.close()
            self.wait_until(lambda: before[0].way == self._next, "the first node to move")
        return EngineConformance.opened(self, node)
