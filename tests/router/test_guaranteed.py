"""Guaranteed events across sites, in one process: what crosses, when, and that it does so once."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import infobus
from infobus import Bus, DataObject
from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
from infobus.errors import BusError, StoreFull
from infobus.router.guaranteed import GuaranteedCrossing, GuaranteedPassage, GuaranteedWay
from infobus.stores.ledger.positions_sql import PositionsIn
from tests.bus.helpers import wait_until
from tests.patience import PATIENT


class Parcel(DataObject, name="test.crossing.Parcel"):
    n: int


class Site:
    """A site's bus, and its router to the backbone."""

    def __init__(self, name: str, home: Path, stack: contextlib.ExitStack, backbone: str) -> None:
        self.name = f"{name}-{uuid.uuid4().hex}"
        self._backbone = backbone
        self._home = home
        self._stack = stack
        self._router = contextlib.ExitStack()
        self.errors: list[BusError] = []

    def connect(self, home: str, **options: Any) -> Bus:
        options = {"engine": "memory", "patience": PATIENT, **options}
        bus = infobus.connect(self.name, home=self._home / home, **options)
        self._stack.callback(bus.close, 0.2)
        return bus

    def join(self, where: str = "", home: str = "router") -> GuaranteedCrossing:
        """Start the router. What is `orders.X` here is `SITE.orders.X` on the backbone."""
        options: dict[str, Any] = {"engine": "memory", "patience": PATIENT}
        inside = infobus.connect(self.name, home=self._home / home, **options)
        outside = infobus.connect(self._backbone, home=self._home / home, **options)
        own = f"{self.name}."
        crossing = GuaranteedCrossing(
            inside,
            outside,
            site=self.name,
            name=self.name,
            outward=GuaranteedWay(
                patterns=["orders.>"],
                kept=[f"{own}orders.>"],
                translate=lambda subject: own + subject if subject[:7] == "orders." else None,
                where=where,
            ),
            inward=GuaranteedWay(
                patterns=["*.orders.>"],
                kept=["orders.>"],
                translate=lambda subject: subject.partition(".")[2],
            ),
            on_error=self.errors.append,
        )
        for close in (inside.close, outside.close):
            self._router.callback(close, 0.2)
        self._router.callback(crossing.close)
        self._stack.callback(self.leave)
        return crossing

    def leave(self) -> None:
        """End all routers of the site."""
        self._router.close()


NewSite = Callable[[str], Site]


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[NewSite]:
    backbone = f"backbone-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        yield lambda name: Site(name, tmp_path / name, stack, backbone)


@pytest.fixture
def north(new_site: NewSite) -> Site:
    return new_site("north")


@pytest.fixture
def south(new_site: NewSite) -> Site:
    return new_site("south")


@pytest.fixture
def west(new_site: NewSite) -> Site:
    return new_site("west")


@pytest.fixture(autouse=True)
def short_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infobus.router.guaranteed._GATHER_S", 0.3)


def registered_apart(shop: Bus, *sites: Site) -> list[Bus]:
    """A bus of each site with a consumer that is registered; between them, events are published."""
    buses = []
    for n, site in enumerate(sites):
        buses.append(site.connect("office"))
        buses[-1].subscribe("orders.>", durable="billing").close()
        time.sleep(0.05)  # routers ask for what is a hundredth of a second older, too
        send(shop, n + 1)
        time.sleep(0.05)
    return buses


def send(bus: Bus, *numbers: int, **options: Any) -> None:
    for n in numbers:
        bus.publish("orders.new", Parcel(n=n), guaranteed=True, **options)


def taken(sub: DurableSubscription, count: int) -> list[DurableEvent]:
    """Take so many events, settle them, and see that no others come."""
    found = []
    for _ in range(count):
        found.append(sub.receive(20))
        found[-1].ack()
    with pytest.raises(TimeoutError):
        sub.receive(0.3)
    return found


def is_open(passage: GuaranteedPassage) -> bool:
    return passage.state == "open"


class TestCrossing:
    def test_a_durable_consumer_of_another_site_gets_each_event_once(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing", test=True)
        before_s = time.time()
        send(shop, 1)
        send(shop, 2, priority="emergency", headers={"trace": "ff"}, max_age=60.0, test=True)
        one, two = taken(billing, 2)
        assert [one.data, two.data] == [Parcel(n=1), Parcel(n=2)]
        assert (one.subject, one.priority, one.test) == ("orders.new", "regular", False)
        assert (two.priority, two.test, dict(two.headers)) == ("emergency", True, {"trace": "ff"})
        assert before_s <= one.time <= time.time()
        assert north.errors == south.errors == []

    def test_an_event_keeps_the_name_that_its_publisher_gave_it(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing")
        parcel = Parcel(n=1)
        shop.publish("orders.new", parcel, guaranteed=True)
        (event,) = taken(billing, 1)
        assert event.id == infobus.id_of(parcel) == infobus.id_of(event.data)
        assert event.sender in shop.served_ledgers()
        assert event.via and event.via not in shop.served_ledgers()

    def test_a_consumer_can_commit_its_position_with_its_effects(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing")
        send(shop, 1, 2)
        send(office, 3)
        positions, engine = PositionsIn("billing"), create_engine("sqlite://")
        with engine.begin() as connection:
            positions.create(connection)
            events = taken(billing, 3)
            assert [positions.settle(connection, event) for event in events] == [True] * 3
            assert [positions.settle(connection, event) for event in events] == [False] * 3

    def test_nothing_crosses_while_nobody_over_there_wants_it(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        routers = [north.join(), south.join()]
        office.subscribe("stock.>", durable="stock")
        office.subscribe("orders.>")
        send(shop, 1)
        time.sleep(0.5)
        states = {way.state for one in routers for way in (one.outward, one.inward)}
        assert states == {"unwanted"}

    def test_a_consumer_that_is_away_is_owed_its_events(self, north: Site, south: Site) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        far, near = north.join(), south.join()
        office.subscribe("orders.>", durable="billing").close()
        with office.subscribe("orders.>", durable="billing"):
            wait_until(lambda: is_open(far.outward))
        send(shop, 1)
        for router in (far, near):
            router.close()
        send(shop, 2)
        north.join(), south.join()
        send(shop, 3)
        billing = office.subscribe("orders.>", durable="billing")
        assert [event.data.n for event in taken(billing, 3)] == [1, 2, 3]

    def test_what_was_published_since_its_registration_crosses_even_if_the_routers_come_later(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        send(shop, 1)
        time.sleep(0.05)  # routers ask for what is a hundredth of a second older, too
        billing = office.subscribe("orders.>", durable="billing")
        send(shop, 2, 3)
        north.join(), south.join()
        assert [event.data.n for event in taken(billing, 2)] == [2, 3]

    def test_of_registrations_that_are_heard_together_the_earliest_counts(
        self, north: Site, south: Site, west: Site
    ) -> None:
        shop = north.connect("shop")
        early, late = registered_apart(shop, south, west)
        for site in (west, north, south):
            site.join()
        late.subscribe("orders.>", durable="billing")
        billing = early.subscribe("orders.>", durable="billing")
        assert [event.data.n for event in taken(billing, 2)] == [1, 2]

    def test_a_consumer_that_is_heard_of_late_is_owed_what_was_published_since_its_registration(
        self, north: Site, south: Site, west: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each event once, also if all routers die before they have settled any."""
        shop = north.connect("shop")
        early, late = registered_apart(shop, south, west)
        with monkeypatch.context() as patch:
            patch.setattr("infobus.bus.durable.feed.LedgerFeed.settle", lambda feed, taken: None)
            routers = [north.join(), west.join()]
            of_late = late.subscribe("orders.>", durable="billing")
            assert [event.data.n for event in taken(of_late, 1)] == [2]
            routers.append(south.join())
            of_early = early.subscribe("orders.>", durable="billing")
            send(shop, 3)
            assert sorted(event.data.n for event in taken(of_early, 3)) == [1, 2, 3]
            assert sorted(event.data.n for event in taken(of_late, 2)) == [1, 3]
            for router in routers:
                router.close()
        north.join(), south.join(), west.join()
        send(shop, 4)
        assert [event.data.n for event in taken(of_early, 1)] == [4]
        assert [event.data.n for event in taken(of_late, 1)] == [4]

    def test_of_a_transaction_only_what_may_cross_does(self, north: Site, south: Site) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        north.join(where="n < 10"), south.join()
        billing = office.subscribe(">", durable="billing")
        with shop.transaction(guaranteed=True) as tx:
            tx.publish("orders.new", Parcel(n=1))
            tx.publish("salaries", Parcel(n=2))
            tx.publish("orders.paid", Parcel(n=3))
            tx.publish("orders.large", Parcel(n=10))
        send(shop, 11, 4)
        with shop.transaction(guaranteed=True) as tx:
            tx.publish("salaries", Parcel(n=2))
        first, second = taken(billing, 2)
        assert [(one.subject, one.data.n) for one in first.data] == [
            ("orders.new", 1),
            ("orders.paid", 3),
        ]
        assert second.data.n == 4

    def test_nothing_goes_round(self, north: Site, south: Site, new_site: NewSite) -> None:
        sites = [north, south, new_site("west")]
        buses = [site.connect("office") for site in sites]
        routers = [site.join() for site in sites]
        subs = [bus.subscribe("orders.>", durable="billing") for bus in buses]
        wait_until(lambda: all(is_open(one.inward) for one in routers))
        for n, bus in enumerate(buses):
            send(bus, n)
        for sub in subs:
            assert sorted(event.data.n for event in taken(sub, 3)) == [0, 1, 2]
        assert [one.outward.carried for one in routers] == [1, 1, 1]
        assert [one.inward.carried for one in routers] == [2, 2, 2]

    def test_an_event_that_is_too_old_is_a_dead_letter_of_its_consumer(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        office.subscribe("orders.>", durable="billing").close()
        send(shop, 1, max_age=0.01)
        time.sleep(0.05)
        letters = office.subscribe("dead_letters.>", durable="letters")
        north.join(), south.join()
        office.subscribe("orders.>", durable="billing")
        letter = letters.receive(20).data
        assert (letter.consumer, letter.reason, letter.object.n) == ("billing", "expired", 1)
        assert letter.event.startswith(shop.served_ledgers()[0])


class TestTrouble:
    def test_what_was_kept_and_not_settled_is_left_out_the_next_time(
        self, north: Site, south: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        billing = office.subscribe("orders.>", durable="billing")
        with monkeypatch.context() as patch:
            # As if both routers died between the two.
            patch.setattr("infobus.bus.durable.feed.LedgerFeed.settle", lambda feed, taken: None)
            far, near = north.join(), south.join()
            send(shop, 1, 2, 3)
            assert [event.data.n for event in taken(billing, 3)] == [1, 2, 3]
            far.close(), near.close()
        far, near = north.join(), south.join()
        send(shop, 4)
        assert [event.data.n for event in taken(billing, 1)] == [4]
        assert (far.outward.carried, near.inward.carried) == (4, 4)

    def test_a_full_disk_holds_events_up_and_loses_none(
        self, north: Site, south: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        monkeypatch.setattr("infobus.router.guaranteed._PAUSE_S", 0.05)
        monkeypatch.setattr(
            "infobus.stores.ledger.ledger.Ledger.append_from",
            lambda *_, **__: (_ for _ in ()).throw(StoreFull("no room", path="store")),
        )
        far, near = north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing")
        send(shop, 1, 2)
        wait_until(lambda: far.outward.state == "waiting")
        assert "no room" in str(far.outward.error)
        monkeypatch.undo()
        assert [event.data.n for event in taken(billing, 2)] == [1, 2]
        assert is_open(far.outward) and is_open(near.inward)

    def test_of_two_routers_of_the_same_name_one_carries_until_it_ends(
        self, north: Site, south: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("infobus.router.guaranteed._PAUSE_S", 0.05)
        shop, office = north.connect("shop"), south.connect("office")
        first, _ = north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing")
        wait_until(lambda: is_open(first.outward))
        second = north.join()
        wait_until(lambda: second.outward.state == "waiting")
        assert "in use" in str(second.outward.error)
        send(shop, 1)
        assert [event.data.n for event in taken(billing, 1)] == [1]
        first.close()
        wait_until(lambda: is_open(second.outward))
        send(shop, 2)
        assert [event.data.n for event in taken(billing, 1)] == [2]

    def test_what_a_router_of_another_home_keeps_once_more_is_delivered_once(
        self, north: Site, south: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        billing = office.subscribe("orders.>", durable="billing")
        with monkeypatch.context() as patch:
            patch.setattr("infobus.bus.durable.feed.LedgerFeed.settle", lambda feed, taken: None)
            first, _ = north.join(), south.join()
            send(shop, 1, 2)
            assert [event.data.n for event in taken(billing, 2)] == [1, 2]
            first.close()
        second = north.join(home="another")
        send(shop, 3)
        assert [event.data.n for event in taken(billing, 1)] == [3]
        assert second.outward.carried >= 1

    def test_a_router_that_gets_another_ledger_knows_what_the_first_one_keeps(
        self, north: Site, south: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        billing = office.subscribe("orders.>", durable="billing")
        with monkeypatch.context() as patch:
            patch.setattr("infobus.bus.durable.feed.LedgerFeed.settle", lambda feed, taken: None)
            north.join(), south.join()
            send(shop, 1, 2)
            taken(billing, 2)
            south.leave()
        other = south.connect("router")  # it takes over the ledger in which the router kept them
        other.publish("stock", Parcel(n=0), guaranteed=True)
        near = south.join()
        send(shop, 3)
        assert [event.data.n for event in taken(billing, 1)] == [3]
        assert near.inward.carried == 3

    def test_a_way_without_patterns_takes_nothing_until_it_has_some(
        self, north: Site, south: Site
    ) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        north.join()
        near = south.join()
        way = near.inward.way
        near.inward.change(replace(way, patterns=[]))
        billing = office.subscribe("orders.>", durable="billing")
        send(shop, 1)
        with pytest.raises(TimeoutError):
            billing.receive(1.0)
        near.inward.change(way)
        assert [event.data.n for event in taken(billing, 1)] == [1]

    def test_a_way_can_change_while_it_is_open(self, north: Site, south: Site) -> None:
        shop, office = north.connect("shop"), south.connect("office")
        far, _ = north.join(), south.join()
        billing = office.subscribe("orders.>", durable="billing")
        send(shop, 1)
        assert [event.data.n for event in taken(billing, 1)] == [1]
        own = f"{north.name}."
        far.outward.change(
            GuaranteedWay(
                patterns=["purchases.>"],
                kept=[f"{own}orders.>"],
                translate=lambda subject: own + subject.replace("purchases", "orders"),
            )
        )
        wait_until(lambda: far.outward.way.patterns == ["purchases.>"])
        shop.publish("purchases.new", Parcel(n=2), guaranteed=True)
        assert [event.subject for event in taken(billing, 1)] == ["orders.new"]
