"""Sites on hosts of their own, joined by `infobus router run`; routers and cables fail.

The long form is `python -m tests.chaos --hosts 4 --routers --faults 300`.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from infobus.testing.hosts import HostRouters, Hosts, NetworkHost
from tests.hosts.need import needs_networks
from tests.patience import make_programs_patient
from tests.processes.programs.node import Node

pytestmark = [needs_networks, pytest.mark.slow]

SETTINGS = """
patience = {lease_s = 2.0}
[[agreement]]
inside = "plant"
outside = "plant"
guaranteed = true
"""
WAIT_S = 60.0
PUBLISH = """
import time
for number in range({first}, {last} + 1):
    bus.publish("plant.x", {{"n": number}}, guaranteed={guaranteed})
    time.sleep({pause_s})
"""
WANTED = """
import time
until = time.monotonic() + {patience_s}
with bus.quench("plant.x") as quench:
    while not (answer := str(quench.expression()) == "everything") and time.monotonic() < until:
        time.sleep(0.01)
"""
CONSUME = """
import threading
bus.kept = []
def consume():
    for event in bus.kept_subscription:
        bus.kept.append(event.data["n"])
bus.kept_subscription = bus.subscribe("plant.x", durable="office")
threading.Thread(target=consume, daemon=True).start()
"""
KEPT = """
import time
until = time.monotonic() + {patience_s}
while len(bus.kept) < {count} and time.monotonic() < until:
    time.sleep(0.01)
answer = bus.kept
"""


class World:
    """Sites 1, 2, ... of which those in a pair have routers that are linked."""

    def __init__(self, folder: Path, count: int, links: Iterable[str], ends: ExitStack) -> None:
        self._ends = ends
        self.hosts = ends.enter_context(Hosts(count))
        pairs = [(self.host(one), self.host(other)) for one, other in links]
        self.routers = HostRouters(f"test-{uuid.uuid4().hex[:8]}", pairs, folder, SETTINGS)
        self.processes: dict[str, Popen[Any]] = {}
        for site in {site: None for pair in links for site in pair}:
            self.start(site)

    def host(self, site: str) -> NetworkHost:
        return self.hosts[int(site) - 1]

    def start(self, site: str) -> None:
        self.processes[site] = self.routers.start(self.host(site))

    def kill(self, site: str) -> None:
        self.processes[site].send_signal(signal.SIGKILL)
        self.processes[site].wait()

    def program(self, site: str) -> Node:
        host = self.host(site)
        node = Node(self.routers.bus(host), popen=host.popen)
        self._ends.callback(node.kill)
        return node

    def joined(self, publishing: str, subscribed: str) -> tuple[Node, Node]:
        """A publisher at one site that knows of a subscriber at another one."""
        nodes = self.program(publishing), self.program(subscribed)
        publisher, subscriber = (node.wait_open() for node in nodes)
        subscriber("subscribe", "plant.>", {"on_loss": "raise"})
        assert publisher("exec", WANTED.format(patience_s=WAIT_S))
        return publisher, subscriber

    def used(self, site: str) -> str:
        """The neighbour that takes most of what the router of a site sends."""
        links = self.routers.ask(self.host(site), "status")["neighbours"]
        return str(max(links, key=lambda link: link["sent_frames"])["name"])[-1]

    def ways(self, site: str, other: str) -> list[str]:
        """All shortest ways that a router knows to another one: who comes after it."""
        known = self.routers.ask(self.host(site), "status") or {"routers": []}
        return sorted(
            "".join(name[-1] for name in path)
            for router in known["routers"]
            for path in router["paths"]
            if router["name"][-1] == other
        )

    def until_ways(self, site: str, other: str, *expected: str) -> None:
        """Wait until exactly these are the shortest ways."""
        until_s = time.monotonic() + WAIT_S
        while (found := self.ways(site, other)) != [*expected] and time.monotonic() < until_s:
            time.sleep(0.1)
        assert found == [*expected]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    make_programs_patient(monkeypatch)
    with ExitStack() as ends:
        yield lambda count, links: World(tmp_path, count, links, ends)


def begin(publisher: Node, first: int, last: int, pause_s: float = 0.002, **told: Any) -> None:
    """Have events published, one by one, while the test goes on; `answer` waits for the end."""
    told = {"guaranteed": False, **told}
    code = PUBLISH.format(first=first, last=last, pause_s=pause_s, **told)
    publisher.begin("exec", code)


def account(publisher: Node, subscriber: Node, last: int) -> tuple[list[int], int]:
    """The numbers that came, up to the last one, and how many others were told as lost."""
    numbers: list[int] = []
    lost, until_s = 0, time.monotonic() + WAIT_S
    while last not in numbers and time.monotonic() < until_s:
        for sender, entries in subscriber("account", "plant.>", 1, 1.0).items():
            if sender == publisher.name:
                numbers += [number for number, *_ in entries]
            lost += sum(e[2] - e[1] + 1 for e in entries if e[0] == "lost" and e[2] is not None)
    return numbers, lost


def test_five_sites_in_a_chain_and_a_cable_that_is_cut_for_a_while(world: Any) -> None:
    chain = world(5, ["12", "23", "34", "45"])
    publisher, subscriber = chain.joined("1", "5")
    publisher("publish", "plant.x", 1, 2_000)
    assert account(publisher, subscriber, 2_000) == ([*range(1, 2_001)], 0)
    begin(publisher, 2_001, 4_000)
    time.sleep(0.5)
    chain.hosts.cut(chain.host("3"), chain.host("4"))
    time.sleep(1.0)
    chain.hosts.heal()
    publisher.answer()
    assert publisher("exec", WANTED.format(patience_s=WAIT_S))
    begin(publisher, 4_001, 4_001)
    publisher.answer()
    numbers, lost = account(publisher, subscriber, 4_001)
    assert numbers == sorted(set(numbers)), "in order, and once"
    assert len(numbers) + lost >= 2_001, "what is missing was told"
    assert numbers[-1] == 4_001, "it goes on"


def test_in_a_ring_neither_a_killed_transit_nor_a_cut_cable_costs_an_event(world: Any) -> None:
    ring = world(6, ["12", "23", "34", "45", "56", "61"])
    publisher, subscriber = ring.joined("1", "4")
    ring.until_ways("1", "4", "234", "654")
    publisher("publish", "plant.x", 1, 500)
    begin(publisher, 501, 2_500, pause_s=0.003)
    killed = ring.used("1")
    ring.kill(killed)
    time.sleep(2.5)
    ring.start(killed)
    time.sleep(0.5)
    other = "6" if killed == "2" else "2"
    ring.until_ways("1", "4", "234", "654")
    ring.hosts.cut(ring.host("1"), ring.host(other))
    publisher.answer()
    begin(publisher, 2_501, 3_500)
    publisher.answer()
    ring.hosts.heal()
    begin(publisher, 3_501, 4_000)
    publisher.answer()
    assert account(publisher, subscriber, 4_000) == ([*range(1, 4_001)], 0)


def test_the_eight_channels_of_the_paper_and_the_eighth_is_added_while_events_flow(
    world: Any,
) -> None:
    """Paper 002, figures 4 and 5."""
    seven = world(8, ["12", "13", "24", "25", "35", "47", "57", "56"])
    publisher, subscriber = seven.joined("1", "7")
    seven.until_ways("2", "3", "13", "53")
    seven.until_ways("2", "7", "47", "57")
    seven.until_ways("1", "7", "247", "257", "357")
    begin(publisher, 1, 3_000)
    for site in ("1", "7"):
        seven.routers.links.append((seven.host("8"), seven.host(site)))
        seven.routers.reload(seven.host(site))
    seven.start("8")
    seven.until_ways("1", "7", "87")
    publisher.answer()
    begin(publisher, 3_001, 4_000)
    publisher.answer()
    assert account(publisher, subscriber, 4_000) == ([*range(1, 4_001)], 0)
    assert seven.used("8") == "7", "they go by the new one"


def test_guaranteed_events_are_complete_whichever_router_is_killed(world: Any) -> None:
    chain = world(3, ["12", "23"])
    publisher, consumer = chain.program("1").wait_open(), chain.program("3").wait_open()
    consumer("exec", CONSUME)
    begin(publisher, 1, 1_000, pause_s=0.005, guaranteed=True)
    for site in ("2", "1", "3"):
        time.sleep(1.5)
        chain.kill(site)
        chain.start(site)
    publisher.answer()
    assert consumer("exec", KEPT.format(count=1_000, patience_s=WAIT_S)) == [*range(1, 1_001)]
