"""The engine of secured buses keeps the promises of the interface, over other engines."""

import os
import random
import uuid

import pytest

from infobus.engines import Engine
from infobus.engines.memory.engine import Faults, MemoryEngine, Network, live_network
from infobus.engines.sealed.engine import World
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.protocols.frames.security import Greeting, encode
from infobus.testing.conformance.engines import EngineConformance
from infobus.testing.simulation.world import VirtualThreads
from tests.members import sealed
from tests.patience import PATIENT_PROGRAM


def fail(error: Exception) -> None:
    raise error


class TestOverASimulatedNetwork(EngineConformance):
    @pytest.fixture(autouse=True)
    def network(self) -> None:
        self._network = Network(seed=1, faults=Faults(delay_min_s=0.001, delay_max_s=0.02))

    def new_engine(self) -> Engine:
        network = self._network
        return sealed(
            MemoryEngine(network),
            "simulated",
            world=World(
                now_s=lambda: network.now_s,
                draw=random.Random(1).randbytes,
                every=VirtualThreads(network, "", fail).every,
                wait=lambda: network.advance(0.01),
            ),
        )

    def wait_a_little(self) -> None:
        self._network.advance(0.01)


class TestOverALiveNetworkInMemory(EngineConformance):
    @pytest.fixture(autouse=True)
    def bus(self) -> None:
        self._bus = uuid.uuid4().hex

    def new_engine(self) -> Engine:
        return sealed(MemoryEngine(live_network(self._bus)), self._bus)


class TestOverZenoh(EngineConformance):
    @pytest.fixture(autouse=True)
    def bus(self) -> None:
        self._bus = uuid.uuid4().hex

    def new_engine(self) -> Engine:
        return sealed(ZenohEngine(self._bus, patience=PATIENT_PROGRAM), self._bus, handshake_s=10.0)


def test_each_key_is_drawn_anew():
    """The tests above share a source of chance; what runs does not."""
    assert World().draw is os.urandom


def test_a_frame_that_is_not_sealed_is_answered_once_and_a_stray_greeting_never():
    network = Network(seed=1)
    world = World(
        now_s=lambda: network.now_s,
        every=VirtualThreads(network, "", fail).every,
        wait=lambda: network.advance(0.01),
    )
    member = sealed(MemoryEngine(network), "simulated", world=world)
    member.open("member")
    told = []
    member.on_complaint = lambda node, what: told.append(node)
    got: list[bytes] = []
    member.declare("all", got.append)
    stranger = MemoryEngine(network)
    stranger.open("stranger")
    heard: list[bytes] = []
    stranger.declare("n/stranger", heard.append)
    for _ in range(3):
        stranger.put("all", encode(Greeting("another", b"")))
        stranger.put("all", b"\x92\x0a\xa8stranger")
        network.advance(0.1)
    assert (got, told, len(heard)) == ([], ["stranger"], 1)
    assert (member.counts.plain, member.counts.unopened) == (3, 3)
