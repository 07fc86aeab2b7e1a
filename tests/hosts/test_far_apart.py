"""Hosts far from each other: packets take long there and back, and some are lost."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path

import pytest

from infobus.testing.hosts import AnyHost, Hosts
from tests.hosts.need import needs_networks
from tests.processes.programs.node import Node

COUNT = 40_000
DELAY_S, LOSS = 0.15, 0.01
PATIENCE_S = 120.0


@needs_networks
@pytest.mark.slow
def test_a_burst_arrives_whole_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "infobus.toml"
    settings.write_text('multicast = "eth0"\ninsecure = true\nlink = "wan"\n')
    monkeypatch.setenv("INFOBUS_SETTINGS", str(settings))
    bus = f"test-{uuid.uuid4().hex}"
    with Hosts(2) as hosts, contextlib.ExitStack() as stack:
        one, other = hosts
        hosts.delay(one, other, DELAY_S)
        hosts.lose(one, other, LOSS)
        nodes = [Node(bus, popen=host.popen) for host in hosts]
        for node in nodes:
            stack.callback(node.kill)
            node.wait_open()
        subscriber, publisher = nodes
        assert publisher("peers", 1, PATIENCE_S) == 1
        subscriber("subscribe", "far", {})
        begun_s = time.monotonic()
        publisher("publish", "far", 1, COUNT)
        account = subscriber("account", "far", COUNT, PATIENCE_S)
        print(f"{COUNT:,} events in {time.monotonic() - begun_s:.1f} s")
        assert [number for number, _ in account[publisher.name]] == [*range(1, COUNT + 1)]


@needs_networks
def test_what_is_published_at_once_arrives_also_where_a_neighbour_was_met_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once `connect` returns, whom the nodes of its host see has been met, too."""
    monkeypatch.delenv("INFOBUS_SETTINGS", raising=False)
    bus = f"test-{uuid.uuid4().hex}"
    with Hosts(2) as hosts, contextlib.ExitStack() as stack:
        one, other = hosts

        def node(host: AnyHost) -> Node:
            node = Node(bus, popen=host.popen, multicast="eth0", insecure=True)
            stack.callback(node.kill)
            return node.wait_open()

        far, neighbour = node(one), node(other)
        assert neighbour("peers", 1, PATIENCE_S) == 1
        far("subscribe", "near", {})
        hosts.delay(one, other, 0.03)
        newcomer = node(other)
        newcomer("publish", "near", 1, 100)
        account = far("account", "near", 100, 5.0)
        assert [number for number, _ in account[newcomer.name]] == [*range(1, 101)]
