"""Hosts that their daemons link: large objects pass at full speed, and a cut is routed around."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence

import pytest

from infobus.testing.hosts import Hosts, NetworkHost
from tests.hosts.need import needs_networks
from tests.processes.programs.node import Node

pytestmark = [needs_networks, pytest.mark.slow, pytest.mark.timeout(180)]

LARGE_BYTES, LARGE_COUNT = 40_000, 2_000
PATIENCE_S = 60.0
CUT_S = 4.0
PERIOD_S = 0.005


@contextlib.contextmanager
def programs(hosts: Sequence[NetworkHost]) -> Iterator[list[Node]]:
    """A program on each host, attached to a daemon there; all of them see each other."""
    bus = f"test-{uuid.uuid4().hex}"
    command = [sys.executable, "-m", "infobus.cli", "daemon"]
    daemons = [
        host.popen(
            [*command, "run", "--bus", bus, "--insecure", "--listen", host.endpoint]
            + [word for other in hosts for word in ("--join", other.endpoint)],
            stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]
    with contextlib.ExitStack() as stack:
        for daemon in daemons:
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)
        deadline_s = time.monotonic() + PATIENCE_S
        for host in hosts:
            while not is_linked(host, [*command, "status", "--json", "--bus", bus], len(hosts) - 1):
                assert time.monotonic() < deadline_s, f"the daemon of {host.name} is alone"
        nodes = [Node(bus, popen=host.popen) for host in hosts]
        for node in nodes:
            stack.callback(node.kill)
        yield [node.wait_open() for node in nodes]


def is_linked(host: NetworkHost, status: list[str], count: int) -> bool:
    """Whether the daemon of a host says that it sees so many others."""
    said = host.run(status).stdout.splitlines()
    daemons = [one for one in map(json.loads, said) if one.get("here")]
    return any(len(one["daemons"]) == count for one in daemons)


def test_large_objects_pass_two_daemons_at_full_speed() -> None:
    """A session that forwards and has too few threads comes to a stop with them."""
    with Hosts(2) as hosts, programs(list(hosts)) as (publisher, subscriber):
        subscriber("subscribe", "large", {})
        begun_s = time.monotonic()
        publisher("flood", "large", LARGE_COUNT, LARGE_BYTES)
        account = subscriber("account", "large", LARGE_COUNT, PATIENCE_S)
        print(f"{LARGE_COUNT / (time.monotonic() - begun_s):,.0f} a second")
        assert [number for number, _ in account[publisher.name]] == [*range(LARGE_COUNT)]


def test_two_hosts_that_are_cut_from_each_other_hear_each_other_by_a_third() -> None:
    with Hosts(3) as hosts, programs(list(hosts)) as (publisher, subscriber, _):
        one, other, _ = hosts
        subscriber("subscribe", "x", {})
        ends = f"""
import threading, time
ended = infobus.ended = threading.Event()
def publish():
    n = 0
    while not ended.wait({PERIOD_S}):
        bus.publish("x", {{"n": n}})
        n += 1
    infobus.published = n
infobus.publishing = threading.Thread(target=publish)
infobus.publishing.start()
"""
        publisher("exec", ends)
        time.sleep(1.0)
        hosts.cut(one, other)
        time.sleep(CUT_S)
        count = publisher("exec", "infobus.ended.set(); infobus.publishing.join(); "
                                  "answer = infobus.published")  # fmt: skip
        account = subscriber("account", "x", count, PATIENCE_S)  # the cut is not healed
        assert [number for number, _ in account[publisher.name]] == [*range(count)]
        assert count > 0.2 * (1.0 + CUT_S) / PERIOD_S
