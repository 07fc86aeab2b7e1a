"""Both engines keep the promises of the interface."""

import uuid

import pytest

from infobus.engines import Engine
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
