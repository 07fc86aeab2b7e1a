"""Many events at once arrive as if each had been published by itself."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import infobus
from infobus import BadValue, Batch, Bus, DataObject
from tests.bus.conftest import Connect
from tests.bus.helpers import take


class Price(DataObject):
    symbol: str
    cents: int


class Trade(DataObject):
    symbol: str
    shares: int = 0


def prices(count: int) -> list[Price]:
    return [Price(symbol="GMC", cents=cents) for cents in range(count)]


@pytest.fixture
def warm(bus: Bus, other: Bus) -> infobus.Subscription:
    """A subscription whose subjects the publisher has met already, so that runs form at once."""
    sub = other.subscribe("x.>")
    bus.publish_many([("x.a", Price(symbol="", cents=0)), ("x.b", Price(symbol="", cents=0))])
    take(sub, 2)
    return sub


def test_alike_objects_arrive_in_order_with_ids_of_their_own(
    bus: Bus, warm: infobus.Subscription
) -> None:
    sent = prices(3000)
    bus.publish_many(("x.a", price) for price in sent)
    events = take(warm, 3000)
    assert [event.data for event in events] == sent
    assert [event.seq for event in events] == list(range(3, 3003))
    assert [infobus.id_of(event.data) for event in events] == [infobus.id_of(p) for p in sent]
    assert [event.id for event in events] == [infobus.id_of(price) for price in sent]
    assert len({event.id for event in events}) == 3000


def test_subjects_types_dicts_and_repeated_objects_may_be_mixed(
    bus: Bus, warm: infobus.Subscription
) -> None:
    again = Price(symbol="IBM", cents=-1)
    makers: list[Any] = [
        lambda n: Price(symbol="GMC", cents=n),
        lambda n: Trade(symbol="GMC", shares=n),
        lambda n: {"n": n},
        lambda n: again,
    ]
    events = [(f"x.{'ab'[n % 2]}", makers[(n // 700) % 4](n)) for n in range(5600)]
    bus.publish_many(events)
    received = take(warm, 5600)
    assert [(event.subject, event.data) for event in received] == events
    ids = {infobus.id_of(e.data) for e in received if e.data == again}
    assert ids == {infobus.id_of(again)}


def test_what_came_before_an_error_is_sent(bus: Bus, warm: infobus.Subscription) -> None:
    def interrupted() -> Iterator[tuple[str, Price]]:
        yield from (("x.a", price) for price in prices(1500))
        raise KeyError("the source broke off")

    with pytest.raises(KeyError, match="broke off"):
        bus.publish_many(interrupted())
    assert [event.data.cents for event in take(warm, 1500)] == list(range(1500))


def test_an_object_that_cannot_be_sent_stops_there(bus: Bus, warm: infobus.Subscription) -> None:
    broken: list[Any] = [("x.a", price) for price in prices(5)]
    broken.insert(3, ("x.a", Price))
    with pytest.raises(BadValue, match="the class Price"):
        bus.publish_many(broken)
    assert [event.data.cents for event in take(warm, 3)] == [0, 1, 2]


def test_later_changes_to_the_objects_are_not_sent(bus: Bus, warm: infobus.Subscription) -> None:
    sent = prices(100)
    bus.publish_many(("x.a", price) for price in sent)
    for price in sent:
        price.cents = -7
    assert [event.data.cents for event in take(warm, 100)] == list(range(100))


def test_threads_that_publish_together_keep_their_own_order(
    bus: Bus, warm: infobus.Subscription
) -> None:
    def publish(symbol: str) -> None:
        for start in range(0, 2000, 100):
            some = [Price(symbol=symbol, cents=start + n) for n in range(100)]
            bus.publish_many(("x.a", price) for price in some)

    threads = [threading.Thread(target=publish, args=(symbol,)) for symbol in "ABC"]
    for thread in threads:
        thread.start()
    events = take(warm, 6000)
    for thread in threads:
        thread.join()
    assert len({event.id for event in events}) == 6000
    for symbol in "ABC":
        cents = [event.data.cents for event in events if event.data.symbol == symbol]
        assert cents == list(range(2000))


def test_frames_stay_within_the_batch(connect: Connect) -> None:
    publisher, consumer = connect(batch=Batch(bytes=1000, ms=1.0)), connect()
    sub = consumer.subscribe("x")
    publisher.publish("x", Price(symbol="GMC", cents=0))
    publisher.publish_many(zip(itertools.repeat("x"), prices(1000), strict=False))
    assert [event.data.cents for event in take(sub, 1001)] == [0, *range(1000)]
    assert publisher.stats().sent_frames > 25
