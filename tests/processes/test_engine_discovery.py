"""Real processes on one host find each other, in any order, whoever dies."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infobus.engines.zenoh.settings import well_known_port
from tests.engines.agent import Agent
from tests.patience import PATIENT_PROGRAM

Start = Callable[..., Agent]

PATIENCE_S = PATIENT_PROGRAM.handshake_s

ZENOH_PATIENCE_S = 8.0
"""Zenoh waits 10 s for one that does not answer; the engine must be through well before that."""


@pytest.fixture
def bus() -> str:
    return f"test {uuid.uuid4().hex} / ü*"


@pytest.fixture
def start(bus: str) -> Iterator[Start]:
    """Start agents on `bus`, opened one after the other; all are killed after the test."""
    with contextlib.ExitStack() as agents:

        def start(node: str, *, wait: bool = True, on_bus: str = bus, **options: object) -> Agent:
            agent = Agent(on_bus, node, **options)  # type: ignore[arg-type]
            agents.callback(agent.kill)
            if wait:
                agent.wait_open()
            return agent

        yield start


@pytest.fixture(params=["off", "loopback"])
def multicast(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def apart() -> Iterator[tuple[str, ...]]:
    """Lets a process meet others in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own have long names
        yield ("env", f"INFOBUS_SOCKETS={folder}")


def test_two_processes_talk_both_ways_at_once(start: Start, multicast: str) -> None:
    first = start("first", multicast=multicast)
    second = start("second", multicast=multicast)
    second.put("c/x", "from the second")
    assert first.received(1) == ["from the second"]
    assert first.living(1) == ["l/second"]
    first.put("c/x", "from the first")
    assert second.received(1) == ["from the first"]


def test_six_processes_started_at_once_all_hear_each_other(start: Start, multicast: str) -> None:
    agents = [start(f"n{number}", wait=False, multicast=multicast) for number in range(6)]
    for agent in agents:
        agent.wait_open()
    for agent in agents:
        assert len(agent.living(5)) == 5
        agent.put("c/x", agent.node)
    for agent in agents:
        others = sorted(other.node for other in agents if other is not agent)
        assert sorted(agent.received(5)) == others


def test_survivors_and_newcomers_talk_after_the_first_process_was_killed(
    start: Start, multicast: str
) -> None:
    first, second, third = (start(name, multicast=multicast) for name in ("1", "2", "3"))
    assert second.living(2) == ["l/1", "l/3"]
    first.kill()
    newcomer = start("4", wait=False, multicast=multicast)
    assert newcomer.wait_open() < PATIENCE_S / 2  # the dead are not waited for
    newcomer.put("c/x", "new")
    assert (second.received(1), third.received(1)) == (["new"], ["new"])
    second.put("c/x", "old")
    assert (third.received(1), newcomer.received(1)) == (["old"], ["old"])
    assert newcomer.living(2) == ["l/2", "l/3"]
    assert third.living(2) == ["l/2", "l/4"]


def test_a_process_that_comes_back_is_heard_again(start: Start) -> None:
    listener = start("listener")
    for life in range(3):
        speaker = start(f"speaker{life}")
        speaker.put("c/x", f"life {life}")
        assert listener.received(1) == [f"life {life}"]
        speaker.kill()
        assert listener.living(0) == []


def test_buses_of_different_names_do_not_even_connect(start: Start, bus: str) -> None:
    here, there = start("here"), start("there", on_bus=bus + "2")
    neighbour = start("neighbour")
    there.put("c/x", "not for you")
    neighbour.put("c/x", "for you")
    assert here.received(1) == ["for you"]
    assert there.living(0) == []
    assert _links_count(there) == 0
    assert _links_count(here) == _links_count(neighbour) == 1


def test_a_stranger_on_the_well_known_port_does_not_matter(
    start: Start, bus: str, multicast: str
) -> None:
    with socket.create_server(("127.0.0.1", well_known_port(bus))):
        first = start("first", multicast=multicast)
        second = start("second", wait=False, multicast=multicast)
        assert second.wait_open() < PATIENCE_S / 2  # the stranger is not waited for
        second.put("c/x", "hello")
        assert first.received(1) == ["hello"]


@pytest.mark.parametrize("prefix", [("env", "TMPDIR=/nowhere"), ()], ids=str)
def test_processes_of_other_surroundings_find_each_other_too(
    start: Start, prefix: tuple[str, ...]
) -> None:
    first, second = start("first", prefix=prefix), start("second")
    assert second.living(1) == ["l/first"]
    second.put("c/x", "hello")
    assert first.received(1) == ["hello"]


def test_processes_that_share_no_folder_find_each_other_on_loopback(
    start: Start, apart: tuple[str, ...]
) -> None:
    first = start("first", prefix=apart, multicast="loopback")
    second = start("second", multicast="loopback")
    assert second.living(1) == ["l/first"]
    second.put("c/x", "hello")
    assert first.received(1) == ["hello"]


def test_nothing_listens_at_a_port_unless_you_say_so(start: Start) -> None:
    start("other")
    assert _ports(start("agent")) == set()


def test_loopback_is_as_far_as_you_can_hear_when_you_say_so(start: Start) -> None:
    assert {host for host, _ in _ports(start("agent", multicast="loopback"))} == {"127.0.0.1"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_another_user_of_the_host_cannot_connect(start: Start) -> None:
    (socket_path,) = (
        one.laddr
        for one in psutil.Process(start("agent").pid).net_connections("unix")
        if str(one.laddr).endswith(".s")
    )
    program = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    python = ("/usr/bin/env", "python3", "-c", program, str(socket_path))
    assert subprocess.run(python).returncode == 0
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    tried = subprocess.run((*other, *python), capture_output=True, text=True)
    assert "PermissionError" in tried.stderr or "Permission denied" in tried.stderr


def test_explicit_endpoints_join_processes_that_cannot_find_each_other(
    start: Start, apart: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"tcp/127.0.0.1:{free.getsockname()[1]}"
    first = start("first", prefix=apart, listen=[endpoint])
    second = start("second", connect=[endpoint])
    assert second.living(1) == ["l/first"]
    second.put("c/x", "hello")
    assert first.received(1) == ["hello"]


def test_a_frozen_process_costs_a_sender_a_bounded_time_and_comes_back(start: Start) -> None:
    sender, frozen, healthy = (
        start(name, patient=False) for name in ("sender", "frozen", "healthy")
    )
    assert len(sender.living(2)) == len(healthy.living(2)) == 2
    frozen.send_signal(signal.SIGSTOP)
    longest_s = sender.flood("c/x", count=20_000, size=1024)
    assert longest_s < ZENOH_PATIENCE_S
    assert len(healthy.received(20_000)) == 20_000
    assert sender.living(1, timeout_s=ZENOH_PATIENCE_S) == ["l/healthy"]
    frozen.send_signal(signal.SIGCONT)
    assert len(sender.living(2)) == 2
    frozen.received(-1, timeout_s=0.1)
    sender.put("c/x", "welcome back")
    deadline_s = time.monotonic() + 60
    came: list[str] = []
    while "welcome back" not in came and time.monotonic() < deadline_s:
        came += frozen.received(1)
    assert "welcome back" in came


def test_opening_beside_a_frozen_process_takes_a_bounded_time(start: Start, multicast: str) -> None:
    frozen, healthy = start("frozen", multicast=multicast), start("healthy", multicast=multicast)
    frozen.send_signal(signal.SIGSTOP)
    newcomer = start("newcomer", wait=False, patient=False, multicast=multicast)
    assert newcomer.wait_open() < ZENOH_PATIENCE_S
    assert newcomer.living(1) == ["l/healthy"]
    newcomer.put("c/x", "hello")
    assert healthy.received(1) == ["hello"]


def test_closing_beside_a_frozen_process_takes_a_bounded_time(start: Start) -> None:
    frozen, closing = start("frozen"), start("closing", patient=False)
    assert closing.living(1) == ["l/frozen"]
    frozen.send_signal(signal.SIGSTOP)
    before_s = time.monotonic()
    closing.close()
    assert time.monotonic() - before_s < ZENOH_PATIENCE_S


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a broken /dev/shm")
@pytest.mark.parametrize("mount", ["size=4k,nr_inodes=1", "ro"])
def test_broken_shared_memory_does_not_matter(start: Start, mount: str) -> None:
    script = f'mount -t tmpfs -o {mount} tmpfs /dev/shm && exec "$0" "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script)
    first = start("first", prefix=prefix)
    second = start("second")
    third = start("third", prefix=prefix)
    assert len(second.living(2)) == 2
    for agent in (first, second, third):
        agent.flood("c/x", count=20, size=100_000)
    for agent in (first, second, third):
        assert [len(frame) for frame in agent.received(40)] == [100_000] * 40


def _ports(agent: Agent) -> set[tuple[str, int]]:
    connections = psutil.Process(agent.pid).net_connections("tcp")
    return {tuple(c.laddr) for c in connections if c.status == psutil.CONN_LISTEN}


def _links_count(agent: Agent) -> int:
    """How many connected Unix sockets it has; in /proc, a connected one is in state 03."""
    folder = Path(f"/proc/{agent.pid}")
    lines = [line.split() for line in (folder / "net" / "unix").read_text().splitlines()[1:]]
    connected = {f"socket:[{line[6]}]" for line in lines if line[5] == "03"}
    return sum(os.readlink(one) in connected for one in (folder / "fd").iterdir())
