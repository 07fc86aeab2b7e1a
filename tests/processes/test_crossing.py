"""Two sites and their routers as real processes: each guaranteed event crosses once, whatever dies.

`INFOBUS_KILL_ROUNDS=10` kills ten times while 10,000 events cross.
"""

import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import infobus
from infobus import RemoteError
from tests.bus.helpers import wait_until
from tests.patience import make_programs_patient
from tests.processes.programs.node import SOURCE
from tests.processes.test_guaranteed_delivery import lines

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "3"))
EVENTS_PER_ROUND = 1_000

PUBLISHER = """
import infobus, sys, time
with infobus.connect(sys.argv[1]) as bus:
    for n in range(int(sys.argv[2])):
        bus.publish("orders.new", {"n": n}, guaranteed=True)
        time.sleep(0.0005)
    time.sleep(600)
"""

CONSUMER = """
import infobus, sys
with infobus.connect(sys.argv[1]) as bus:
    orders = bus.subscribe("orders.>", durable="billing")
    with open(sys.argv[2], "a", buffering=1) as seen:
        for event in orders:
            seen.write(f"{event.sender} {event.number} {event.data['n']}\\n")
"""

ROUTER = """
import infobus, sys, time
from infobus.router.guaranteed import GuaranteedCrossing, GuaranteedWay
from infobus.router.services import ServiceCrossing, ServiceWay
site, backbone = sys.argv[1:]
own = f"{site}."
outward = GuaranteedWay(
    patterns=["orders.>"], kept=[own + "orders.>"], translate=lambda name: own + name
)
inward = GuaranteedWay(
    patterns=["*.orders.>"], kept=["orders.>"], translate=lambda name: name.partition(".")[2]
)
offers = ServiceWay(patterns=["svc.>"], translate=lambda name: own + name)
takes = ServiceWay(patterns=["*.svc.>"], translate=lambda name: name.partition(".")[2])
with infobus.connect(site) as inside, infobus.connect(backbone) as outside:
    names = {"site": site, "router": "router-" + site}
    services = ServiceCrossing(inside, outside, **names, outward=offers, inward=takes)
    GuaranteedCrossing(inside, outside, site=site, name=site, outward=outward, inward=inward)
    time.sleep(600)
"""

SUPPLIER = """
import infobus, sys, time

class Line(infobus.DataObject, name="crossing.Line"):
    n: int

class Order(infobus.DataObject, name="crossing.Order"):
    lines: list[Line]

class Unpaid(Exception):
    pass

class Desk(infobus.Service):
    def order(self, n: int) -> Order:
        return Order(lines=[Line(n=n)])

    def twice(self, order: Order) -> Order:
        return Order(lines=[*order.lines, *order.lines])

    def fail(self) -> None:
        raise Unpaid("by Miller")

with infobus.connect(sys.argv[1]) as bus:
    bus.serve("svc.desk", Desk())
    bus.publish("orders.new", Order(lines=[Line(n=7)]), guaranteed=True)
    with bus.transaction(guaranteed=True) as tx:
        tx.publish("orders.paid", Order(lines=[Line(n=8)]))
        tx.publish("private.note", Order(lines=[Line(n=9)]))
    time.sleep(600)
"""

Run = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Start programs, each in a home of its own; all are killed after the test."""
    make_programs_patient(monkeypatch)
    started = []

    def run(code: str, home: str, *arguments: object) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "INFOBUS_HOME": str(tmp_path / home),
        }
        program = [sys.executable, "-c", code, *map(str, arguments)]
        started.append(subprocess.Popen(program, env=environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * ROUNDS)
def test_each_event_crosses_once_although_routers_are_killed(run: Run, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, mark = random.Random(seed), uuid.uuid4().hex
    north, south, backbone = f"north-{mark}", f"south-{mark}", f"backbone-{mark}"
    seen, count = tmp_path / "seen", ROUNDS * EVENTS_PER_ROUND
    run(CONSUMER, "office", south, seen)
    while not seen.exists():
        time.sleep(0.01)  # what is published before its registration is not its own
    routers = {site: run(ROUTER, f"router-{site}", site, backbone) for site in (north, south)}
    run(PUBLISHER, "shop", north, count)
    for _ in range(ROUNDS):
        has_come = len(lines(seen))
        until_s = time.monotonic() + 60
        while len(lines(seen)) == has_come and time.monotonic() < until_s:
            time.sleep(0.001)  # some events cross between two kills
        time.sleep(draw.uniform(0.0, 0.5))
        victims = draw.choice([[north], [south], [north, south]])
        for site in victims:
            routers[site].kill()
        for site in victims:
            routers[site].wait()
            routers[site] = run(ROUTER, f"router-{site}", site, backbone)
    deadline_s = time.monotonic() + 90
    while len(lines(seen)) < count and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(1.0)  # for those that may come twice
    found = [line.split() for line in lines(seen)]
    assert [int(n) for _, _, n in found] == [*range(count)]
    assert len({(sender, number) for sender, number, _ in found}) == count


def test_types_cross_to_programs_that_have_never_heard_of_them(run: Run, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    north, south, backbone = f"north-{mark}", f"south-{mark}", f"backbone-{mark}"
    with infobus.connect(south, home=tmp_path / "office") as office:
        orders = office.subscribe("orders.>", durable="billing")
        for site in (north, south):
            run(ROUTER, f"router-{site}", site, backbone)
        supplier = run(SUPPLIER, "shop", north)
        one, other = orders.receive(40), orders.receive(40)
        assert (one.type, one.data.lines[0].n) == ("crossing.Order", 7)
        assert infobus.id_of(one.data) == one.id
        (paid,) = other.data
        assert (paid.subject, paid.data.lines[0].n) == ("orders.paid", 8)
        desk = office.service("svc.desk", timeout_s=40.0)
        order = desk.order(3)
        assert [line.n for line in desk.twice(order).lines] == [3, 3]
        with pytest.raises(RemoteError) as raised:
            desk.fail()
        assert (raised.value.type_name, raised.value.message) == ("Unpaid", "by Miller")
        supplier.kill()
        wait_until(lambda: not office.who_is_out_there("svc.desk"))
