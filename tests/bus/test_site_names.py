"""Durable names of a site: they move between homes, and are used by one at a time."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infobus import Bus
from infobus.bus.durable.subscription import DurableSubscription
from infobus.errors import DurableInUse, StoreFull
from infobus.stores.ledger.place_store import PlaceStore
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until

Join = Callable[[str], Bus]


@pytest.fixture
def join(connect: Connect, tmp_path: Path) -> Join:
    return lambda home: connect(home=tmp_path / home)


@pytest.fixture
def keeper(join: Join, tmp_path: Path) -> Bus:
    keeper = join("keeper")
    keeper.keep_names(tmp_path / "names.db")
    return keeper


def publish(bus: Bus, *numbers: int) -> None:
    for number in numbers:
        bus.publish("orders.new", {"n": number}, guaranteed=True)


def settled(billing: DurableSubscription, count: int) -> list[int]:
    found = []
    for _ in range(count):
        event = billing.receive(20)
        event.ack()
        found.append(event.data["n"])
    return found


def test_a_name_goes_on_elsewhere_although_no_ledger_was_told(
    keeper: Bus, join: Join, tmp_path: Path
) -> None:
    shop = join("shop")
    first = join("office").subscribe("orders.>", durable="billing", acknowledge="explicit")
    publish(shop, 1, 2, 3)
    assert settled(first, 2) == [1, 2]
    first.close()
    second = join("elsewhere").subscribe("orders.>", durable="billing", acknowledge="explicit")
    assert settled(second, 1) == [3]


def test_a_second_user_is_told_at_once(keeper: Bus, join: Join) -> None:
    first = join("office")
    billing = first.subscribe("orders.>", durable="billing")
    publish(first, 1)
    assert settled(billing, 1) == [1]
    time.sleep(0.5)  # of two that begin at once, either may have it
    with pytest.raises(DurableInUse, match=first.node):
        join("elsewhere").subscribe("orders.>", durable="billing").receive(5)


def test_the_name_of_a_node_that_has_gone_is_free(keeper: Bus, join: Join) -> None:
    join("office").subscribe("orders.>", durable="billing").close()
    billing = join("elsewhere").subscribe("orders.>", durable="billing")
    publish(join("shop"), 1)
    assert settled(billing, 1) == [1]


def test_the_keepers_disk_holds_the_places(keeper: Bus, join: Join, tmp_path: Path) -> None:
    billing = join("office").subscribe("orders.>", durable="billing", acknowledge="explicit")
    publish(join("shop"), 1, 2)
    assert settled(billing, 2) == [1, 2]
    billing.close()
    wait_until(lambda: [place[0] for place in places(tmp_path, "billing").values()] == [2])


def places(folder: Path, name: str) -> dict[str, list[object]]:
    seen = PlaceStore(folder / "names.db")
    try:
        found: dict[str, list[object]] = seen.load().get(name, {})
        return found
    finally:
        seen.close()


class TestTheFile:
    def test_what_was_saved_is_there_again(self, tmp_path: Path) -> None:
        store = PlaceStore(tmp_path / "names.db")
        store.save({"billing": {"L": [7, [9]]}, "audit": {"L": [1]}})
        store.save({"audit": None})
        store.close()
        again = PlaceStore(tmp_path / "names.db")
        assert again.load() == {"billing": {"L": [7, [9]]}}
        again.close()

    def test_a_damaged_one_is_set_aside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "names.db").write_bytes(b"no database" * 1000)
        store = PlaceStore(tmp_path / "names.db")
        assert store.load() == {}
        store.close()
        assert "is damaged" in caplog.text
        assert (tmp_path / "names.db.damaged").exists()

    def test_a_full_disk_holds_up_nobody(
        self, keeper: Bus, join: Join, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_room(*_: object) -> None:
            raise StoreFull("no room", path="names.db")

        monkeypatch.setattr(PlaceStore, "save", no_room)
        billing = join("office").subscribe("orders.>", durable="billing", acknowledge="explicit")
        shop = join("shop")
        publish(shop, 1)
        assert settled(billing, 1) == [1]
        wait_until(lambda: "no room" in str(keeper.stats().complaints))
        publish(shop, 2)
        assert settled(billing, 1) == [2]
