"""Daemons as real processes: found, refused, stopped, killed; they serve what others left."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infobus.testing.hosts import LoopbackHost, LoopbackHosts
from tests.bus.helpers import wait_until

pytestmark = pytest.mark.timeout(90)

Program = subprocess.Popen[str]

_started: list[Program] = []

CONSUMER = """
import infobus
with infobus.connect() as bus:
    orders = bus.subscribe("orders.>", durable="billing")
    print("ready", flush=True)
    for event in orders:
        print(event.data["n"], flush=True)
"""

ORDERS = """
import infobus, os, sys
bus = infobus.connect()
for n in range(int(sys.argv[1])):
    bus.publish("orders.new", {"n": n}, guaranteed=True)
print("accepted", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHosts]:
    """Two hosts, on a bus of the test's own."""
    monkeypatch.setenv("INFOBUS_BUS", f"test-{uuid.uuid4().hex}")
    with LoopbackHosts(2) as hosts:
        yield hosts
    while _started:
        _started.pop().communicate()


@pytest.fixture
def one(hosts: LoopbackHosts) -> LoopbackHost:
    return hosts[0]


@pytest.fixture
def other(hosts: LoopbackHosts) -> LoopbackHost:
    return hosts[1]


def home_of(host: LoopbackHost, name: str = "") -> str:
    return host.environment["INFOBUS_HOME"] + name


def python(host: LoopbackHost, code: str, *arguments: object, home: str = "") -> Program:
    """Start a program with a home of its own, or that of the host."""
    return start(host, "-c", code, *map(str, arguments), home=home_of(host, home))


def start(host: LoopbackHost, *command: str, home: str = "") -> Program:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "INFOBUS_HOME": home or home_of(host)}
    _started.append(host.popen([sys.executable, *command], env=env, text=True, **pipes))
    return _started[-1]


def start_daemon(host: LoopbackHost, *options: str) -> Program:
    """Start the daemon of a host; returns once it has shown itself."""
    listen = ("--listen", host.endpoint)
    daemon = start(host, "-m", "infobus.cli", "daemon", "run", *listen, *options)
    assert daemon.stderr is not None
    for line in daemon.stderr:  # it ends if the daemon does
        if line.startswith("daemon "):
            return daemon
    raise AssertionError(f"the daemon ended with {daemon.wait()}")


def infobus(host: LoopbackHost, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of a host to its end."""
    return host.run([sys.executable, "-m", "infobus.cli", *command], timeout=60)


def status_of(host: LoopbackHost) -> list[dict[str, Any]]:
    lines = infobus(host, "daemon", "status", "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def line_of(program: Program) -> str:
    """The next line that a program prints."""
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, f"it ended with {program.wait()}: {program.stderr and program.stderr.read()}"
    return line.rstrip("\n")


def test_it_is_found_refuses_a_second_one_and_stops_in_order(one: LoopbackHost) -> None:
    assert infobus(one, "daemon", "status").returncode == 1
    daemon = start_daemon(one)
    (status,) = status_of(one)
    assert (status["running"], status["here"], status["pid"]) == (True, True, daemon.pid)
    assert status["endpoints"] == {one.endpoint: "listening"}
    assert status["homes"] == [home_of(one)]

    second = infobus(one, "daemon", "run", "--home", home_of(one, "-other"))
    assert second.returncode == 1
    assert f"process {daemon.pid}" in second.stderr
    assert "infobus daemon stop" in second.stderr

    stopped = infobus(one, "daemon", "stop")
    assert (stopped.returncode, f"process {daemon.pid}" in stopped.stdout) == (0, True)
    assert daemon.wait(10) == 0
    assert daemon.stderr is not None and "ended in order" in daemon.stderr.read()
    assert infobus(one, "daemon", "stop").stdout.startswith("no daemon")


def test_sigterm_ends_it_in_order_and_kill_leaves_its_place_to_the_next(one: LoopbackHost) -> None:
    daemon = start_daemon(one)
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(10) == 0
    killed = start_daemon(one)
    killed.kill()
    killed.wait()
    next_one = start_daemon(one)
    (status,) = status_of(one)
    assert status["pid"] == next_one.pid


LISTENER = """
import infobus
with infobus.connect() as bus:
    news = bus.subscribe("news.>")
    print("ready", flush=True)
    for event in news:
        print(event.data["n"], flush=True)
"""

TALKER = """
import infobus, sys
with infobus.connect() as bus:
    for n in range(int(sys.argv[1])):
        bus.publish("news.new", {"n": n})
"""


def test_programs_of_two_hosts_hear_each_other_by_their_daemons(
    one: LoopbackHost, other: LoopbackHost
) -> None:
    start_daemon(one)
    # All hosts may have the same list: a daemon leaves itself out.
    start_daemon(other, "--join", one.endpoint, "--join", other.endpoint)
    wait_until(lambda: len(status_of(one)) == 2)  # a daemon does not wait for the others
    listeners = [python(host, LISTENER) for host in (one, other)]
    assert [line_of(listener) for listener in listeners] == ["ready"] * 2
    python(one, TALKER, 100)
    for listener in listeners:
        assert [line_of(listener) for _ in range(100)] == [str(n) for n in range(100)]
    statuses = status_of(other)
    assert len(statuses) == 2
    here = next(status for status in statuses if status["here"])
    assert here["endpoints"] == {other.endpoint: "listening", one.endpoint: "linked"}
    assert len(here["daemons"]) == 1


def test_a_port_that_is_taken_and_a_home_that_is_kept_are_refused(
    one: LoopbackHost, other: LoopbackHost
) -> None:
    start_daemon(one)
    taken = infobus(other, "daemon", "run", "--listen", one.endpoint)
    assert (taken.returncode, "address already in use" in taken.stderr) == (1, True)
    kept = infobus(other, "daemon", "run", "--home", home_of(one))
    assert (kept.returncode, "is kept by another daemon" in kept.stderr) == (1, True)
    wrong = infobus(other, "daemon", "run", "--join", "tcp/nowhere")
    assert (wrong.returncode, "'nowhere' is not HOST:PORT" in wrong.stderr) == (2, True)
    assert infobus(other, "daemon", "status").returncode == 1  # nothing is left behind


def test_ledgers_of_a_home_whose_programs_were_all_killed_are_served(one: LoopbackHost) -> None:
    start_daemon(one, "--home", home_of(one, "-daemon"), "--home", home_of(one, "-shop"))
    registered = python(one, CONSUMER, home="-office")  # what was published before is not its own
    assert line_of(registered) == "ready"
    registered.kill()
    shop = [python(one, ORDERS, 50, home="-shop") for _ in range(2)]
    assert [line_of(program) for program in shop] == ["accepted"] * 2
    for program in shop:
        program.kill()
        program.wait()
    consumer = python(one, CONSUMER, home="-office")
    assert line_of(consumer) == "ready"
    began_s = time.monotonic()
    found = sorted(int(line_of(consumer)) for _ in range(100))
    print(f"served {time.monotonic() - began_s:.2f} s after the consumer was there")
    assert found == sorted([*range(50)] * 2)


def test_a_unit_runs_what_the_options_say(one: LoopbackHost) -> None:
    unit = infobus(one, "daemon", "unit", "--listen", "tcp/0.0.0.0:7447", "--insecure").stdout
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    bus = os.environ["INFOBUS_BUS"]
    wanted = f"daemon run --bus {bus} --listen tcp/0.0.0.0:7447 --insecure"
    assert command.endswith(wanted)
    assert f"Environment=INFOBUS_HOME={home_of(one)}" in unit
    refused = infobus(one, "daemon", "unit", "--listen", "tcp/0.0.0.0:7447")
    assert (refused.returncode, "--insecure" in refused.stderr) == (2, True)


def test_a_durable_name_moves_to_another_host_and_has_one_user(
    one: LoopbackHost, other: LoopbackHost
) -> None:
    start_daemon(one)
    start_daemon(other, "--join", one.endpoint)
    first = python(one, CONSUMER, home="-office")
    assert line_of(first) == "ready"
    shop = python(one, ORDERS, 200, home="-shop")
    assert [line_of(first) for _ in range(200)] == [str(n) for n in range(200)]

    second = python(other, CONSUMER, home="-office")
    began_s = time.monotonic()
    assert second.wait(20) != 0
    print(f"refused {time.monotonic() - began_s:.2f} s after the program was started")
    assert second.stderr is not None and "DurableInUse" in second.stderr.read()

    first.send_signal(signal.SIGINT)
    first.wait(20)
    shop.kill()
    again = python(one, ORDERS, 1, home="-shop")
    assert line_of(again) == "accepted"
    moved = python(other, CONSUMER, home="-office")
    assert line_of(moved) == "ready"
    # The last event before Ctrl-C was in the consumer's hands; nothing else comes again.
    assert next(line for line in iter(lambda: line_of(moved), "") if line != "199") == "0"


OVEN = """
import infobus
class Oven(infobus.DataObject):
    celsius: float
with infobus.connect() as bus:
    print("ready", flush=True)
    input()
"""


def test_types_are_known_after_their_program_and_the_daemon_have_gone(one: LoopbackHost) -> None:
    daemon = start_daemon(one)
    oven = python(one, OVEN)
    assert line_of(oven) == "ready"
    wait_until(lambda: status_of(one)[0]["types"] >= 1)
    for program in (oven, daemon):
        program.kill()
        program.wait()
    start_daemon(one)
    assert "celsius" in infobus(one, "describe", "Oven").stdout


LOSSES = """
import infobus
with infobus.connect() as bus:
    news = bus.subscribe("news.>")
    print("ready", flush=True)
    while True:
        try:
            print(news.receive(timeout_s=6).data["n"], flush=True)
        except infobus.LossError as loss:
            print("loss", loss, flush=True)
        except TimeoutError:
            print("calm", flush=True)
"""

FOREVER = """
import infobus, time
with infobus.connect() as bus:
    for n in range(10**9):
        bus.publish("news.new", {"n": n})
        time.sleep(0.01)
"""


def test_a_program_that_is_killed_is_not_taken_for_one_out_of_reach(
    one: LoopbackHost, other: LoopbackHost
) -> None:
    start_daemon(one)
    start_daemon(other, "--join", one.endpoint)
    listener = python(other, LOSSES)
    assert line_of(listener) == "ready"
    talker = python(one, FOREVER)
    line_of(listener)
    talker.kill()
    lines = iter(lambda: line_of(listener), "calm")
    assert not [line for line in lines if line.startswith("loss")]


def test_daemons_agree_on_who_is_there(one: LoopbackHost, other: LoopbackHost) -> None:
    start_daemon(one, "--heartbeat", "0.3")
    start_daemon(other, "--heartbeat", "0.3", "--join", one.endpoint)

    def agree() -> bool:
        statuses = status_of(one)
        views = {tuple(status["members"]) for status in statuses}
        is_stable = not any(status["unstable"] for status in statuses)
        return is_stable and len(statuses) == 2 and len(views) == 1 and len(views.pop()) == 2

    wait_until(agree)
    assert infobus(other, "daemon", "stop").returncode == 0
    wait_until(lambda: len(status_of(one)[0]["members"]) == 1)
