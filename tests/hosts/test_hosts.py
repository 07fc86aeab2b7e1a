"""Hosts of a test reach each other by the network alone, and nothing of them stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infobus import UsageError
from infobus.testing.hosts import AnyHost, Hosts, LoopbackHosts, what_is_missing
from tests.hosts.need import needs_networks

ECHO = """
import socket
server = socket.create_server(("", {port}))
print("ready", flush=True)
calls = []
while True:
    call, _ = server.accept()
    while data := call.recv(1):
        call.sendall(data)
"""
CALL = """
import socket, sys, time
call = socket.create_connection(("{address}", {port}), timeout=0.7)
begun_s = time.monotonic()
call.sendall(b"x")
call.recv(1)
print(time.monotonic() - begun_s)
"""


@contextlib.contextmanager
def echo(host: AnyHost) -> Iterator[subprocess.Popen[str]]:
    """A server on `host` that sends back what it gets."""
    code = ECHO.format(port=host.port)
    with host.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield server
        server.kill()


def rtt_s(caller: AnyHost, server: AnyHost) -> float | None:
    """How long there and back takes; None if nothing comes back."""
    code = CALL.format(address=server.address, port=server.port)
    done = caller.run([sys.executable, "-c", code])
    return None if done.returncode else float(done.stdout)


@pytest.fixture(scope="module")
def three() -> Iterator[Hosts]:
    """Three hosts; a test leaves them healed."""
    with Hosts(3) as hosts:
        yield hosts


@pytest.fixture(params=[pytest.param(Hosts, marks=needs_networks), LoopbackHosts])
def two(request: pytest.FixtureRequest) -> Iterator[Hosts | LoopbackHosts]:
    with request.param(2) as hosts:
        yield hosts


def test_programs_of_two_hosts_reach_each_other_at_their_addresses(
    two: Hosts | LoopbackHosts,
) -> None:
    one, other = two
    with echo(other):
        assert rtt_s(one, other) is not None


def test_hosts_share_neither_home_nor_sockets(two: Hosts | LoopbackHosts) -> None:
    code = (
        "import os\n"
        "for name in 'INFOBUS_SOCKETS', 'INFOBUS_HOME':\n"
        "    os.makedirs(os.path.join(os.environ[name], 'mine'))\n"
    )
    for host in two:
        host.run([sys.executable, "-c", code], check=True)  # fails where it is there already


def test_a_program_is_a_child_of_the_test_with_its_folder_output_and_end(
    two: Hosts | LoopbackHosts, tmp_path: Path
) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['HUE']); sys.exit(7)"
    environment = {**os.environ, "HUE": "red"}
    done = two[0].run([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    assert (done.stdout.split(), done.returncode) == ([str(tmp_path), "red"], 7)
    program = two[1].popen(["sleep", "60"])
    program.terminate()
    assert program.wait() == -signal.SIGTERM
    with pytest.raises(subprocess.CalledProcessError):
        two[0].run(["false"], check=True)


def test_freezing_and_killing_take_in_what_programs_have_started(
    two: Hosts | LoopbackHosts,
) -> None:
    one, other = two
    elsewhere = other.popen(["sleep", "60"])
    program = one.popen(["sh", "-c", "sleep 61 & exec sleep 62"])
    wait_until(lambda: len(one.pids()) == 2)
    one.freeze()
    assert {state(pid) for pid in one.pids()} == {"T"}
    one.thaw()
    assert "T" not in {state(pid) for pid in one.pids()}
    one.kill()
    assert (program.wait(), one.pids()) == (-signal.SIGKILL, [])
    assert elsewhere.poll() is None, "it is on another host"


@needs_networks
def test_a_cut_stops_one_pair_of_hosts_and_no_other(three: Hosts) -> None:
    one, other, third = three
    with echo(other):
        three.cut(one, other)
        assert rtt_s(one, other) is None
    with echo(other):
        assert rtt_s(third, other) is not None
    three.heal()
    with echo(other):
        assert rtt_s(one, other) is not None


@needs_networks
@pytest.mark.parametrize("is_from_caller", [True, False])
def test_a_cut_of_one_way_leaves_the_other(three: Hosts, is_from_caller: bool) -> None:
    """Seen by UDP, which needs no answer."""
    one, other = three[:2]
    sender, receiver = (one, other) if is_from_caller else (other, one)
    three.cut(one, one_way=True)
    try:
        assert heard(sender, receiver) is not is_from_caller
        assert heard(three[2], other), "others are not concerned"
    finally:
        three.heal()
    assert heard(sender, receiver)


@needs_networks
def test_losses_take_their_share_of_packets(three: Hosts) -> None:
    one, other = three[:2]
    three.lose(one, other, 0.5)
    try:
        count = packets_heard(one, other, 400)
    finally:
        three.heal()
    assert 100 < count < 300
    assert packets_heard(one, other, 400) == 400


@needs_networks
def test_a_delay_takes_its_time_each_way_and_cuts_reach_there_too(three: Hosts) -> None:
    one, other, third = three
    three.delay(one, other, 0.1)
    try:
        with echo(other):
            took_s = rtt_s(one, other)
            assert took_s is not None
            assert took_s >= 0.2
        three.unplug(other)
        three.plug(other)
        with echo(other):
            assert (rtt_s(one, other) or 0.0) >= 0.2
        three.cut(one, other)
        with echo(other):
            assert rtt_s(one, other) is None
    finally:
        three.heal()
        three.delay(one, other, 0.0)
    with echo(other):
        assert (rtt_s(one, other) or 1.0) < 0.2
    assert third.pids() == []


@needs_networks
def test_a_host_that_is_unplugged_sees_that_it_has_no_carrier(three: Hosts) -> None:
    one, other = three[:2]
    three.unplug(other)
    assert "NO-CARRIER" in other.run(["ip", "link", "show", "eth0"]).stdout
    with echo(other):
        assert rtt_s(one, other) is None
    three.plug(other)
    wait_until(lambda: heard(one, other))


@needs_networks
def test_the_port_of_a_host_counts_what_goes_through(three: Hosts) -> None:
    before = three[0].traffic()
    assert packets_heard(three[0], three[1], 100) == 100
    after = three[0].traffic()
    assert 100 <= after.sent_packets - before.sent_packets < 150
    assert after.sent_bytes > before.sent_bytes


@needs_networks
@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_what_makes_no_sense_is_refused(three: Hosts, share: float) -> None:
    with pytest.raises(UsageError):
        three.lose(three[0], three[1], share)
    with pytest.raises(UsageError):
        three.delay(three[0], three[1], float("nan"))
    with pytest.raises(UsageError):
        Hosts(0)


LEFT_ALONE = """
import subprocess, sys, time
from infobus.testing.hosts import Hosts, LoopbackHosts
hosts = {kind}(2)
one, other = hosts
if {has_delay}:
    hosts.delay(one, other, 0.01)
for host in hosts:
    host.popen(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
while sum(len(host.pids()) for host in hosts) < 4:
    time.sleep(0.01)
print(*[pid for host in hosts for pid in host.pids()], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", [pytest.param("Hosts", marks=needs_networks), "LoopbackHosts"])
def test_nothing_is_left_behind_when_the_test_is_killed(kind: str, tmp_path: Path) -> None:
    code = LEFT_ALONE.format(kind=kind, has_delay=kind == "Hosts")
    test = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert test.stdout is not None
    pids = [int(pid) for pid in test.stdout.readline().split()]
    networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids} - {own_network()}
    assert (len(pids), len(networks)) == (4, 2 if kind == "Hosts" else 0)
    test.kill()
    test.communicate()
    wait_until(lambda: not any(map(is_running, pids)))
    wait_until(lambda: not networks & networks_in_use())
    wait_until(lambda: not [*tmp_path.iterdir()])


@needs_networks
def test_the_example_of_the_documentation_prints_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("181.5", 0), done.stderr
    assert "It prints `181.5`" in page


def test_it_is_told_why_there_can_be_no_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert what_is_missing() == "network namespaces need root"
    with pytest.raises(UsageError, match="need root"):
        Hosts(2)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert "apt-get install iproute2 nftables" in what_is_missing()


LISTEN = """
import socket
listener = socket.socket(type=socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
listener.bind(("", {port}))
print("ready", flush=True)
count = 0
while True:
    data = listener.recv(9)
    if data == b"end":
        break
    count += 1
print(count)
"""
SEND = """
import socket
sender = socket.socket(type=socket.SOCK_DGRAM)
for _ in range({count}):
    sender.sendto(b"x", ("{address}", {port}))
"""
END = """
import socket
socket.socket(type=socket.SOCK_DGRAM).sendto(b"end", ("127.0.0.1", {port}))
"""


def packets_heard(sender: AnyHost, receiver: AnyHost, count: int) -> int:
    """How many of so many packets arrive."""
    code = LISTEN.format(port=receiver.port)
    with receiver.popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "ready\n"
        told = {"address": receiver.address, "port": receiver.port, "count": count}
        sender.run([sys.executable, "-c", SEND.format(**told)], check=True)
        receiver.run([sys.executable, "-c", END.format(**told)], check=True)
        return int(listener.stdout.readline())


def heard(sender: AnyHost, receiver: AnyHost) -> bool:
    return packets_heard(sender, receiver, 3) > 0


def state(pid: int) -> str:
    """One letter: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def is_running(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except OSError:
        return False


def own_network() -> str:
    return os.readlink("/proc/self/ns/net")


def networks_in_use() -> set[str]:
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(entry / "ns" / "net"))
    return found


def wait_until(is_so: Callable[[], bool], patience_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.02)
