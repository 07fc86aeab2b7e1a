"""Processes of one home come and go: their ledgers are served, and do not pile up."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from infobus import Bus
from infobus.bus.durable import stores
from infobus.bus.settings import consumers_folder, ledgers_folder
from infobus.errors import StoreError
from infobus.stores.ledger import folder as shelf
from infobus.stores.ledger.consumer_store import ConsumerStore
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


def leave_an_old_event(folder: Path) -> str:
    """Return the id of a free ledger with an event that is too old, and one that is not."""
    with Ledger.open(folder) as ledger:
        old = Record("other", time.time() - KEEP_S - 60, 0, b"\x80")
        ledger.append([old, Record("other", time.time(), 0, b"\x80")])
    return ledger.id


def wait_until_the_old_event_is_gone(folder: Path, id: str) -> None:
    """Return when a node of the home has opened the ledger, pruned it, and let go of it."""
    wait_until(lambda: shelf.glance(folder, id).extent.gone == 1, 20)
    wait_until(lambda: is_free(folder, id))


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
    id = leave_an_old_event(shelf_of_shop)
    join("shop")
    wait_until_the_old_event_is_gone(shelf_of_shop, id)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_consumers_registered_in_the_home_wait_whatever_the_clock_said(
    join: Join, bus_name: str, tmp_path: Path, ahead_s: float
) -> None:
    consumers = consumers_folder(tmp_path / "shop", bus_name)
    now_s = time.time() + ahead_s
    ConsumerStore.open(consumers, "billing", ["orders.>"], now_s=now_s).close()
    publish_and_leave(join("shop"), 1, 2)
    billing = join("shop").subscribe("orders.>", durable="billing")
    assert [billing.receive(20).data["n"] for _ in range(2)] == [1, 2]


def test_a_running_publisher_keeps_events_for_those_who_register_and_leave(
    join: Join, shelf_of_shop: Path, bus_name: str, tmp_path: Path
) -> None:
    shop = join("shop")
    shop.publish("orders.new", {"n": 0}, guaranteed=True)
    consumers = consumers_folder(tmp_path / "shop", bus_name)
    ConsumerStore.open(consumers, "billing", ["orders.>"], now_s=time.time()).close()
    (id,) = shelf.ledger_ids(shelf_of_shop)

    def is_known() -> bool:
        shop.publish("other", {}, guaranteed=True)
        return "billing" in shelf.glance(shelf_of_shop, id).positions

    wait_until(is_known, 20)


def test_ledgers_hear_of_the_last_events_that_a_consumer_settled(
    join: Join, shelf_of_shop: Path
) -> None:
    shop, office = join("shop"), join("office")
    billing = office.subscribe("orders.>", durable="billing")
    for number in range(5):
        shop.publish("orders.new", {"n": number}, guaranteed=True)
    for _ in range(5):
        billing.receive(20).ack()
    billing.close()
    (id,) = shelf.ledger_ids(shelf_of_shop)
    wait_until(lambda: shelf.glance(shelf_of_shop, id).positions["billing"].position == 5, 20)


def test_a_node_that_closes_notes_what_its_own_consumer_settled(
    join: Join, shelf_of_shop: Path
) -> None:
    with join("shop") as shop:
        billing = shop.subscribe("orders.>", durable="billing")
        for number in range(5):
            shop.publish("orders.new", {"n": number}, guaranteed=True)
        for _ in range(5):
            billing.receive(20).ack()
    (id,) = shelf.ledger_ids(shelf_of_shop)
    assert is_settled(shelf_of_shop, id, 5)


def test_a_publisher_whose_ledger_was_removed_says_so_and_goes_on_with_another(
    join: Join, shelf_of_shop: Path
) -> None:
    shop = join("shop")
    shop.publish("orders.new", {"n": 0}, guaranteed=True)
    for file in shelf_of_shop.iterdir():
        file.unlink()

    def is_refused() -> bool:
        try:
            shop.publish("orders.new", {"n": 1}, guaranteed=True)
        except StoreError as error:
            return "removed or replaced" in str(error)
        return False

    wait_until(is_refused, 20)
    shop.publish("orders.new", {"n": 2}, guaranteed=True)
    (id,) = shelf.ledger_ids(shelf_of_shop)
    assert shelf.glance(shelf_of_shop, id).extent.count == 1


def test_what_a_removed_ledger_holds_is_delivered_while_its_publisher_lives(
    join: Join, shelf_of_shop: Path
) -> None:
    shop = join("shop")
    shop.subscribe("orders.>", durable="billing").close()
    shop.publish("orders.new", {"n": 0}, guaranteed=True)
    (removed,) = shop.served_ledgers()
    for file in shelf_of_shop.iterdir():
        file.unlink()
    accepted = [0]
    for number in range(1, 1_000_000):
        with suppress(StoreError):
            shop.publish("orders.new", {"n": number}, guaranteed=True)
            accepted.append(number)
        if shop.served_ledgers() != (removed,):
            break
    wait_until_the_old_event_is_gone(shelf_of_shop, leave_an_old_event(shelf_of_shop))
    billing = shop.subscribe("orders.>", durable="billing", acknowledge="explicit")
    received = set()
    while len(received) < len(accepted):
        event = billing.receive(20)
        event.ack()
        received.add(event.data["n"])
    assert received == {*accepted}
    wait_until(lambda: removed not in shop.served_ledgers(), 20)


class TestAHomeThatANodeOfAnotherHasAdopted:
    def test_its_ledgers_are_served_after_their_programs_have_gone(
        self, join: Join, tmp_path: Path, shelf_of_shop: Path
    ) -> None:
        keeper, billing = join("keeper"), join("office").subscribe("orders.>", durable="billing")
        keeper.adopt(tmp_path / "shop")
        publish_and_leave(join("shop"), 1, 2)
        for number in (1, 2):
            event = billing.receive(20)
            assert event.data == {"n": number}
            event.ack()
        (id,) = shelf.ledger_ids(shelf_of_shop)
        wait_until(lambda: is_settled(shelf_of_shop, id, 2))

    def test_its_durable_consumers_are_known_while_they_are_away(
        self, join: Join, tmp_path: Path
    ) -> None:
        with join("office") as office:
            office.subscribe("orders.>", durable="billing").close()
        keeper = join("keeper")
        keeper.adopt(tmp_path / "office")
        keeper.publish("orders.new", {"n": 1}, guaranteed=True)
        (id,) = keeper.served_ledgers()
        ledgers = ledgers_folder(tmp_path / "keeper", keeper.name)
        wait_until(lambda: shelf.glance(ledgers, id).positions["billing"].position == 0)

    def test_nothing_is_written_into_its_ledgers(
        self, join: Join, tmp_path: Path, shelf_of_shop: Path
    ) -> None:
        join("office").subscribe("orders.>", durable="billing")
        keeper = join("keeper")
        keeper.adopt(tmp_path / "shop")
        publish_and_leave(join("shop"), 1)
        (id,) = shelf.ledger_ids(shelf_of_shop)
        wait_until(lambda: id in keeper.served_ledgers())
        keeper.publish("orders.new", {"n": 2}, guaranteed=True)
        assert shelf.glance(shelf_of_shop, id).extent.next == 2

    def test_one_that_cannot_be_read_keeps_nobody_from_the_others(
        self,
        join: Join,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        whole = shelf.orphans

        def orphans(folder: Path, seen: shelf.Seen) -> object:
            if folder.is_relative_to(tmp_path / "cellar"):
                raise StoreError("cannot read the folder", path=str(folder))
            return whole(folder, seen)

        monkeypatch.setattr(stores, "orphans", orphans)
        billing, keeper = join("office").subscribe("orders.>", durable="billing"), join("keeper")
        keeper.adopt(tmp_path / "cellar", tmp_path / "shop")
        publish_and_leave(join("shop"), 1)
        assert billing.receive(20).data == {"n": 1}
        assert [one for one in caplog.messages if "cellar" in one] == [
            f"home {tmp_path / 'cellar'}: cannot read the folder"
        ]
