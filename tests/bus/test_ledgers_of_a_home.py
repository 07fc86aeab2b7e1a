"""Processes of one home come and go: their ledgers are served, and do not pile up."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infobus import Bus
from infobus.bus.settings import ledgers_folder
from infobus.stores.ledger import folder as shelf
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.record import Record
from infobus.stores.ledger.retention import KEEP_S
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until

Join = Callable[[str], Bus]


@pytest.fixture
def join(connect: Connect, tmp_path: Path) -> Join:
    return lambda home: connect(home=tmp_path / home)


@pytest.fixture
def shelf_of_shop(bus_name: str, tmp_path: Path) -> Path:
    return ledgers_folder(tmp_path / "shop", bus_name)


def publish_and_leave(bus: Bus, *numbers: int) -> None:
    with bus:
        for number in numbers:
            bus.publish("orders.new", {"n": number}, guaranteed=True)


def is_free(folder: Path, id: str) -> bool:
    return not shelf.glance(folder, id).is_owned


def is_settled(folder: Path, id: str, last: int) -> bool:
    """Whether nobody will open it any more to note what has come of its events."""
    seen = shelf.glance(folder, id)
    noted = seen.positions.get("billing")
    return not seen.is_owned and noted is not None and noted.position == last


def test_many_short_lived_publishers_use_one_ledger_beside_a_live_consumer(
    join: Join, shelf_of_shop: Path
) -> None:
    billing = join("shop").subscribe("orders.>", durable="billing")
    for number in range(4):
        publish_and_leave(join("shop"), number)
        event = billing.receive(20)
        assert event.data == {"n": number}
        event.ack()
        (id,) = shelf.ledger_ids(shelf_of_shop)
        wait_until(lambda id=id, number=number: is_settled(shelf_of_shop, id, number + 1))


def test_what_a_consumer_that_is_away_lacks_keeps_no_ledger_open(
    join: Join, shelf_of_shop: Path
) -> None:
    office = join("office")
    office.subscribe("orders.>", durable="billing").close()
    publish_and_leave(join("shop"), 0)
    join("shop")  # stays
    for number in (1, 2):
        publish_and_leave(join("shop"), number)
    assert len(shelf.ledger_ids(shelf_of_shop)) == 1
    billing = office.subscribe("orders.>", durable="billing")
    assert [billing.receive(20).data["n"] for _ in range(3)] == [0, 1, 2]


def test_a_consumer_that_comes_late_is_served_from_a_free_ledger(
    join: Join, shelf_of_shop: Path
) -> None:
    office = join("office")
    office.subscribe("orders.>", durable="audit").close()
    office.close()
    billing = join("shop").subscribe("orders.>", durable="billing")
    publish_and_leave(join("shop"), 1, 2)
    for _ in range(2):
        billing.receive(20).ack()
    (id,) = shelf.ledger_ids(shelf_of_shop)
    wait_until(lambda: is_free(shelf_of_shop, id))
    audit = join("office").subscribe("orders.>", durable="audit")
    assert [audit.receive(20).data["n"] for _ in range(2)] == [1, 2]


def test_more_ledgers_than_are_open_at_once_are_all_served(join: Join, shelf_of_shop: Path) -> None:
    shop = join("shop")
    billing = shop.subscribe("orders.>", durable="billing")
    opened = [Ledger.open(shelf_of_shop) for _ in range(20)]
    for ledger in opened:
        ledger.append([Record("orders.new", 2e9, 0, b"\x80")])
        ledger.close()
    seen = set()
    while len(seen) < 20:
        event = billing.receive(20)
        seen.add(event.sender)
        owned = [one.id for one in opened if not is_free(shelf_of_shop, one.id)]
        assert len(owned) <= 8
    assert seen == {ledger.id for ledger in opened}


def test_what_is_too_old_in_a_free_ledger_goes(join: Join, shelf_of_shop: Path) -> None:
    with Ledger.open(shelf_of_shop) as ledger:
        old = Record("orders.new", time.time() - KEEP_S - 60, 0, b"\x80")
        ledger.append([old, Record("orders.new", time.time(), 0, b"\x80")])
    join("shop")
    wait_until(lambda: shelf.glance(shelf_of_shop, ledger.id).extent.gone == 1, 20)
    wait_until(lambda: is_free(shelf_of_shop, ledger.id))
