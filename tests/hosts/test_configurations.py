"""However three hosts are configured, all arrives everywhere, or who is missing is named."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infobus.testing.hosts import AnyHost, Hosts, LoopbackHosts
from tests.hosts.need import needs_networks
from tests.processes.programs.node import Node

EVENTS = 100
COMPLAINT_S = 10.0

CONFIGURATIONS = {
    "multicast": 'multicast = "eth0"\n',
    "one port for each host": 'listen = ["tcp/0.0.0.0:7500"]\nconnect = [{all}]\n',
    "one seed": 'listen = ["tcp/0.0.0.0:7500"]\nconnect = [{first}]\n',
    "a port for each program": (
        'listen = ["tcp/0.0.0.0:7500", "tcp/0.0.0.0:0"]\nconnect = [{all}]\n'
    ),
}
"""The settings file that all programs share."""

OPEN = "insecure = true\n"


@contextlib.contextmanager
def nine_programs(
    hosts: Hosts | LoopbackHosts, settings: dict[AnyHost, Path]
) -> Iterator[list[Node]]:
    """Three programs on each host: first one on each, then the others, all at once."""
    bus = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        nodes = []
        for number, host in enumerate([*hosts] * 3):
            patch.setenv("INFOBUS_SETTINGS", str(settings[host]))
            node = Node(bus, popen=host.popen)
            stack.callback(node.kill)
            nodes.append(node)
            if number < len(hosts):
                node.wait_open()
        for node in nodes[len(hosts) :]:
            node.wait_open()
        yield nodes


def assert_all_arrives_or_is_missed_by_name(nodes: list[Node]) -> None:
    for node in nodes:
        node("subscribe", "all.>", {})
    deadline_s = time.monotonic() + 5.0
    for node in nodes:
        node("peers", len(nodes) - 1, max(0.1, deadline_s - time.monotonic()))
    for node in nodes:
        node("publish", "all.n", 1, EVENTS)
    deadline_s = time.monotonic() + COMPLAINT_S
    for node in nodes:
        got = node("account", "all.>", EVENTS * len(nodes), max(0.1, deadline_s - time.monotonic()))
        missed = {other.name for other in nodes} - {
            sender for sender, entries in got.items() if len(entries) == EVENTS
        }
        complaints = "\n".join(node("stats", "complaints"))
        assert all(name in complaints for name in missed), f"{node.name}: {missed}, {complaints!r}"


@needs_networks
@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_everything_arrives_or_is_missed_by_name(configuration: str, tmp_path: Path) -> None:
    with Hosts(3) as hosts:
        named = [f'"tcp/{host.address}:7500"' for host in hosts]
        text = CONFIGURATIONS[configuration]
        settings = tmp_path / "infobus.toml"
        text = text.format(all=", ".join(named), first=named[0])
        settings.write_text(OPEN + text)
        with nine_programs(hosts, dict.fromkeys(hosts, settings)) as nodes:
            assert_all_arrives_or_is_missed_by_name(nodes)


@pytest.mark.slow
def test_over_loopback_too(tmp_path: Path) -> None:
    """Without root: each host has a file of its own, since they share one address."""
    with LoopbackHosts(3) as hosts:
        settings = {}
        for host in hosts:
            others = ", ".join(f'"{other.endpoint}"' for other in hosts)
            settings[host] = tmp_path / f"{host.name}.toml"
            settings[host].write_text(f'listen = ["{host.endpoint}"]\nconnect = [{others}]\n')
        with nine_programs(hosts, settings) as nodes:
            assert_all_arrives_or_is_missed_by_name(nodes)
