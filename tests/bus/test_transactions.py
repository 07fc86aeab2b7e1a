"""Transactions: all events that a subscription asked for, in order and as one, or none."""

import pytest

import infobus
from infobus import BadValue, Bus, BusClosed, DataObject, Event, Transaction, UsageError
from infobus.protocols.frames import transactions, wire
from tests.bus.conftest import Connect
from tests.bus.helpers import LossyEngine, numbers_of, send, take


class Order(DataObject):
    item: str
    count: int = 1


def subjects(event: Event) -> list[str]:
    assert isinstance(event.data, Transaction)
    return [one.subject for one in event.data]


def test_the_events_of_a_block_arrive_as_one(bus: Bus, other: Bus) -> None:
    subs = [node.subscribe("orders.>") for node in (bus, other)]
    send(bus, "orders.old", 1)
    order = Order(item="valve", count=3)
    with bus.transaction() as tx:
        tx.publish("orders.new", order)
        tx.publish("orders.paid", {"sum": 12.5})
        order.count = 99
    send(bus, "orders.old", 2)
    for sub in subs:
        before, event, after = take(sub, 3)
        assert subjects(event) == ["orders.new", "orders.paid"]
        assert [one.data for one in event.data] == [Order(item="valve", count=3), {"sum": 12.5}]
        assert [before.seq, event.seq, after.seq] == [1, 2, 3]
        assert (event.subject, event.sender, event.type) == ("orders.new", bus.node, None)
        assert len(event.data) == 2
        assert infobus.id_of(event.data.events[0].data) == infobus.id_of(order)


def test_each_subscription_gets_its_own_part_whole(bus: Bus, other: Bus) -> None:
    everything, stock, large, news = (
        other.subscribe(">"),
        other.subscribe("stock.*"),
        other.subscribe_many(["orders.>", "stock.>"], where="n > 5"),
        other.subscribe("news.>"),
    )
    with bus.transaction() as tx:
        for n, subject in enumerate(["orders.a", "stock.b", "orders.c", "stock.d"]):
            tx.publish(subject, {"n": 3 * n})
    send(bus, "news.x", 1)
    assert subjects(everything.receive(20)) == ["orders.a", "stock.b", "orders.c", "stock.d"]
    assert subjects(stock.receive(20)) == ["stock.b", "stock.d"]
    assert subjects(large.receive(20)) == ["orders.c", "stock.d"]
    assert news.receive(20).data == {"n": 1}
    assert everything.receive(20).subject == "news.x"
    assert stock.waiting_count == large.waiting_count == 0


def test_one_over_many_channels_comes_once_to_each_node(bus: Bus, connect: Connect) -> None:
    both, one, none = connect(), connect(), connect()
    subs = [both.subscribe_many(["a.>", "b.>"]), one.subscribe("b.x"), none.subscribe("c.>")]
    with bus.transaction() as tx:
        for subject in ("a.x", "b.x", "d.x"):
            tx.publish(subject, {"n": 1})
    assert subjects(subs[0].receive(20)) == ["a.x", "b.x"]
    assert subjects(subs[1].receive(20)) == ["b.x"]
    send(bus, "a.x", 2)
    send(bus, "c.x", 3)
    assert numbers_of(take(subs[0], 1)) == [2]
    assert numbers_of(take(subs[2], 1)) == [3]


def test_one_that_waits_goes_to_those_who_come_meanwhile_by_all_their_channels(
    bus_name: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went out on the channels wanted before, and so arrived after later ones of the others."""
    engine = LossyEngine(bus_name)
    bus, early, late = connect(engine=engine), connect(), connect()
    early.subscribe("b.>")
    subs: list[infobus.Subscription] = []
    wait_for_consumers = bus._publisher._routing.wait_for_consumers

    def wait(takers: tuple[infobus.Subscription, ...], class_: str) -> None:
        if not subs:
            subs.append(late.subscribe("a.>"))
        wait_for_consumers(takers, class_)

    monkeypatch.setattr(bus._publisher._routing, "wait_for_consumers", wait)
    with bus.transaction() as tx:
        tx.publish("a.x", {"n": 1})
        tx.publish("b.x", {"n": 2})
    assert sorted(engine.put_keys) == ["c/a", "c/b"]
    assert subjects(subs[0].receive(20)) == ["a.x"]


def test_nothing_is_sent_of_what_nobody_wants(bus: Bus, other: Bus) -> None:
    other.subscribe("x", where="n > 5")
    with bus.transaction() as tx:
        tx.publish("x", {"n": 1})
        tx.publish("y", {"n": 9})
    assert bus.stats().quenched == 2
    assert bus.stats().sent_events == 0


def test_a_block_left_by_an_exception_sends_nothing(bus: Bus, other: Bus) -> None:
    sub = other.subscribe(">")
    with pytest.raises(KeyError), bus.transaction() as tx:
        tx.publish("x", {"n": 1})
        raise KeyError
    with bus.transaction():
        pass
    send(bus, "x", 2)
    assert numbers_of(take(sub, 1)) == [2]


def test_a_lost_one_is_lost_whole(bus_name: str, connect: Connect) -> None:
    engine = LossyEngine(bus_name)
    publisher, other = connect(engine=engine), connect()
    sub = other.subscribe("x")
    engine.drop = {1}
    engine.lose = {2}
    for n in range(3):
        with publisher.transaction() as tx:
            tx.publish("x", {"n": n})
            tx.publish("x", {"n": n + 10})
        publisher.flush()
    assert [one.data["n"] for one in sub.receive(20).data] == [0, 10]
    with pytest.raises(infobus.LossError):
        sub.receive(20)
    assert [one.data["n"] for one in sub.receive(20).data] == [2, 12]


def test_callbacks_and_filters_on_types_see_it(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x", where='isa("Order") && count > 1')
    with bus.transaction() as tx:
        tx.publish("x", Order(item="pipe"))
        tx.publish("x", Order(item="valve", count=2))
    assert [one.data for one in sub.receive(20).data] == [Order(item="valve", count=2)]


class TestBadInput:
    def test_an_object_that_cannot_be_sent_is_refused_at_once(self, bus: Bus) -> None:
        with bus.transaction() as tx, pytest.raises(BadValue):
            tx.publish("x", object())

    def test_a_transaction_has_a_beginning_and_an_end(self, bus: Bus) -> None:
        tx = bus.transaction()
        with pytest.raises(UsageError, match="within the block"):
            tx.publish("x", {})
        with tx:
            pass
        with pytest.raises(UsageError, match="within the block"):
            tx.publish("x", {})

    def test_too_large_a_transaction_is_refused(self, bus: Bus) -> None:
        with pytest.raises(UsageError, match="may have 10000 events"), bus.transaction() as tx:
            for _ in range(10_001):
                tx.publish("x", {})

    def test_a_closed_bus_refuses_it(self, bus: Bus) -> None:
        bus.close()
        with pytest.raises(BusClosed), bus.transaction() as tx:
            tx.publish("x", {})

    @pytest.mark.parametrize("body", [b"", b"\x93\x01\x01\x01", b"\xc1"])
    def test_a_malformed_one_is_counted_and_left_out(self, bus: Bus, body: bytes) -> None:
        sub = bus.subscribe("x")
        items = wire.Items.of(
            [wire.Item("x", 1, 0.0, transactions.GROUP, body), wire.Item("x", 2, 0.0, 0, b"\x80")]
        )
        bus._runtime.on_frame(wire.encode(wire.Data("stranger", "x", 0, items)))
        assert sub.receive(20).data == {}
        assert bus.stats().bad_objects == 1

    def test_one_that_says_it_is_longer_is_not_whole(self) -> None:
        events = wire.Items.of([wire.Item("x", 1, 0.0, 0, b"\x80")])
        body = transactions.encode(transactions.Group(1, 1, 1, events, 2))
        with pytest.raises(infobus.BadFrame, match="not whole"):
            transactions.decode(body)
