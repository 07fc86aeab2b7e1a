"""Clients and routers open in bounded time, or say why not; a router forwards at full speed."""

import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest
from msgspec.structs import replace

from infobus import EngineError
from infobus.engines.zenoh.engine import ZenohEngine
from tests.engines.agent import Agent
from tests.patience import PATIENT_PROGRAM

HASTY = replace(PATIENT_PROGRAM, reach_s=0.5, handshake_s=0.5)

_BOTH = """
import os, uuid
from infobus.engines.zenoh.engine import ZenohEngine
bus = uuid.uuid4().hex
def threads():
    numbers = os.listdir("/proc/self/task")
    names = {open(f"/proc/self/task/{number}/comm").read().strip() for number in numbers}
    return sorted(name[:3] for name in names if name[:4] in ("net-", "acc-"))
ZenohEngine(bus).open("peer")
print(*set(threads()))
ZenohEngine(bus, role="router").open("router")
print(*sorted(set(threads())))
"""


def test_a_client_whose_router_is_not_there_names_what_it_tried(endpoint: str) -> None:
    engine = ZenohEngine("bus", role="client", connect=[endpoint], patience=HASTY)
    with pytest.raises(EngineError, match=r"no router was reached in 0\.5 s") as raised:
        engine.open("a")
    assert f"{endpoint}: connection refused" in str(raised.value)


def test_a_client_is_told_what_is_no_router() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        nobody = f"tcp/127.0.0.1:{stranger.getsockname()[1]}"
        engine = ZenohEngine("bus", role="client", connect=[nobody], patience=HASTY)
        with pytest.raises(EngineError, match="it answers, but makes no link"):
            engine.open("a")


def test_a_client_is_told_of_a_router_of_another_bus(endpoint: str) -> None:
    router = ZenohEngine(uuid.uuid4().hex, role="router", listen=[endpoint])
    router.open("router")
    client = ZenohEngine(uuid.uuid4().hex, role="client", connect=[endpoint], patience=HASTY)
    with pytest.raises(EngineError, match=f"{endpoint} did not greet.*a daemon of this bus"):
        client.open("a")
    router.close()


def test_a_client_takes_the_router_that_answers(endpoint: str) -> None:
    bus, absent = uuid.uuid4().hex, "tcp/127.0.0.1:1"
    router = ZenohEngine(bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM)
    router.open("router")
    client = ZenohEngine(bus, role="client", connect=[absent, endpoint], patience=PATIENT_PROGRAM)
    client.open("a")
    assert client.endpoints() == {absent: "not needed", endpoint: "linked"}
    client.close()
    router.close()


def test_a_client_sees_others_from_the_beginning_also_by_a_router_that_is_busy(
    endpoint: str,
) -> None:
    """A node that sees nobody publishes to nobody, and tells nobody of a loss."""
    bus = uuid.uuid4().hex
    router = Agent(bus, "router", role="router", listen=[endpoint])
    router.wait_open()
    patience = replace(PATIENT_PROGRAM, handshake_s=2.0, reach_s=20.0)
    client = ZenohEngine(bus, role="client", connect=[endpoint], patience=patience)
    client.open("client")
    router.send_signal(signal.SIGSTOP)
    goes_on = threading.Timer(1.5, router.send_signal, [signal.SIGCONT])  # after half a handshake
    goes_on.start()
    seen: list[str] = []
    client.watch("l/*", lambda token, is_alive: seen.append(token))
    assert seen == ["l/router"]
    goes_on.join()
    client.close()
    router.kill()


def test_a_client_waits_for_no_word_of_itself(endpoint: str) -> None:
    bus = uuid.uuid4().hex
    router = ZenohEngine(bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM)
    router.open("router")
    patience = replace(PATIENT_PROGRAM, reach_s=60.0)
    for number in range(10):
        client = ZenohEngine(bus, role="client", connect=[endpoint], patience=patience)
        client.open(f"client{number}")
        client.announce(f"l/client{number}")
        began_s = time.monotonic()
        client.watch("l/*", lambda token, is_alive: None)
        assert time.monotonic() - began_s < 30.0
        client.close()
    router.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are looked up in /proc")
def test_a_router_has_all_its_threads_also_beside_a_peer() -> None:
    """With as few as a peer has, it came to a stop when frames of 40 kB passed it."""
    done = subprocess.run([sys.executable, "-c", _BOTH], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["", "acc net"], done.stderr
