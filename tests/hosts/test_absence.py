"""A path between two hosts goes and comes back: nothing is missed without a word."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from infobus.testing.hosts import Hosts, NetworkHost
from tests.hosts.need import needs_networks

PROGRAM = """
import json, sys, threading, time, infobus

def say(**line):
    print(json.dumps(line), flush=True)

def publish():
    number = 0
    while True:
        number += 1
        bus.publish(f"{mine}.x", {"n": number})
        time.sleep(0.005)

mine, theirs, listen, connect = sys.argv[1:]
with infobus.connect("away", listen=[listen], connect=[connect], insecure=True) as bus:
    sub, last = bus.subscribe(f"{theirs}.>"), 0
    threading.Thread(target=publish, daemon=True).start()
    while True:
        try:
            event = sub.receive()
        except infobus.LossError as loss:
            say(lost=[loss.first, loss.last], reason=loss.reason)
            last = loss.last or 0
            continue
        if last and event.seq != last + 1:
            say(hole=[last, event.seq])
        last = event.seq
        if event.seq % 20 == 0:
            say(got=event.seq)
"""


class Node:
    """A program that publishes and listens, and what it says."""

    def __init__(self, host: NetworkHost, other: NetworkHost, mine: str, theirs: str) -> None:
        ends = [host.endpoint, other.endpoint]
        command = [sys.executable, "-c", PROGRAM, mine, theirs, *ends]
        self.process = host.popen(command, stdout=subprocess.PIPE, text=True)
        self.said: list[dict[str, Any]] = []
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.said += map(json.loads, lines)

    def end(self) -> None:
        """Have it end."""
        self.process.kill()
        self.process.wait()
        self._listener.join()

    def last(self) -> int:
        """The number of the last event that it got, or about that."""
        return max((line["got"] for line in list(self.said) if "got" in line), default=0)

    def complaints(self) -> list[dict[str, Any]]:
        """Losses and holes."""
        return [line for line in list(self.said) if "got" not in line]


def wait_until(is_so: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"not in {timeout_s} s: {what}"
        time.sleep(0.05)


@needs_networks
@pytest.mark.timeout(180)
def test_a_path_that_is_gone_for_a_moment_costs_nothing_and_a_longer_absence_is_told() -> None:
    with Hosts(2) as hosts:
        one, two = hosts
        nodes = [Node(one, two, "a", "b"), Node(two, one, "b", "a")]
        wait_until(lambda: all(node.last() > 100 for node in nodes), "both hear each other")

        hosts.cut(one, two)
        time.sleep(1.5)
        hosts.heal()
        before = [node.last() for node in nodes]
        wait_until(
            lambda: all(n.last() > b + 400 for n, b in zip(nodes, before, strict=True)), "on"
        )
        assert [node.complaints() for node in nodes] == [[], []]

        hosts.cut(one, two)
        wait_until(lambda: all(node.complaints() for node in nodes), "both are told")
        for node in nodes:
            assert node.complaints() == [{"lost": [0, None], "reason": "unreachable"}]
        hosts.heal()
        before = [node.last() for node in nodes]
        wait_until(
            lambda: all(n.last() > b + 100 for n, b in zip(nodes, before, strict=True)), "on"
        )
        assert not [line for node in nodes for line in node.complaints() if "hole" in line]
        for node in nodes:
            node.end()
