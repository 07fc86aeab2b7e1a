"""What a consumer gets of events that hold objects of other libraries."""

import dataclasses
import datetime as dt
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

import pytest

import infobus
from infobus import Bus, MismatchError
from infobus.objects import codec
from tests.bus.helpers import take, wait_until
from tests.patience import PATIENCE_S


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class Order:
    number: int
    side: Side = Side.BUY
    price: Decimal = Decimal("1.50")
    day: dt.date = dt.date(2026, 1, 1)
    tags: set[str] = dataclasses.field(default_factory=set)


class Person(TypedDict):
    name: str


class Plain(infobus.DataObject, name="PlainThing"):
    n: int


@pytest.fixture
def bus(tmp_path: Path) -> Any:
    with infobus.connect("payloads", engine="memory", home=str(tmp_path)) as bus:
        yield bus


def test_events_hold_what_was_published(bus: Bus) -> None:
    sub = bus.subscribe(">")
    sent = [Order(1, tags={"a"}), "text", b"bytes", {"a": 1}, Plain(n=1)]
    for one in sent:
        bus.publish("a", one)
    bus.publish_many([("a", one) for one in sent])
    bus.publish_nowait("a", sent[0])
    with bus.transaction() as tx:
        tx.publish("a", sent[0])
        tx.publish("a", "text")
    events = take(sub, 12)
    assert [event.data for event in events[:11]] == [*sent, *sent, sent[0]]
    assert [event.type for event in events[:3]] == ["Order", "payload.Text", "payload.Bytes"]
    assert [event.data for event in events[11].data] == [sent[0], "text"]


def test_long_runs_hold_what_was_published(bus: Bus) -> None:
    sub, only = bus.subscribe("a"), bus.subscribe("a", type=Order)
    sent = [Order(n) for n in range(300)]
    bus.publish_many([("a", one) for one in sent])
    assert [event.data for event in take(sub, 300)] == sent
    assert [event.data for event in take(only, 300)] == sent


def test_a_filter_sees_the_attributes_on_both_sides(bus: Bus) -> None:
    sub = bus.subscribe("a", where='price > 2 && side == "sell" && day > "2025-01-01"')
    bus.publish("a", Order(1))
    bus.publish("a", Order(2, Side.SELL, Decimal(3)))
    assert sub.receive(PATIENCE_S).data.number == 2
    assert bus.stats().quenched == 1


def test_a_type_asked_for_is_what_comes(bus: Bus) -> None:
    sub = bus.subscribe("a", type=Order | Person)
    bus.publish("a", {"name": "Ann"})
    bus.publish("a", {"number": 4, "side": "sell"})
    bus.publish("a", Plain(n=1))
    bus.publish("a", Order(5))
    assert sub.receive(PATIENCE_S).data == {"name": "Ann"}
    assert sub.receive(PATIENCE_S).data == Order(4, Side.SELL)
    with pytest.raises(MismatchError, match="expected Order or Person, it is Plain PlainThing"):
        sub.receive(PATIENCE_S)
    assert sub.receive(PATIENCE_S).data == Order(5)


@pytest.mark.parametrize(("on_mismatch", "expected"), [("skip", [2]), ("generic", ["x", 2])])
def test_what_is_of_another_type_follows_on_mismatch(
    bus: Bus, on_mismatch: Any, expected: list[Any]
) -> None:
    sub = bus.subscribe("a", type=Order, on_mismatch=on_mismatch)
    bus.publish("a", "x")
    bus.publish("a", Order(2))
    got = [event.data for event in take(sub, len(expected))]
    assert [one if isinstance(one, str) else one.number for one in got] == expected


def test_a_durable_consumer_gets_it_from_the_ledger(bus: Bus) -> None:
    with bus.subscribe("a", durable="d", type=Order) as sub:
        bus.publish("a", Order(1, tags={"x"}), guaranteed=True)
        bus.publish("a", {"number": 2}, guaranteed=True)
        bus.publish("a", "no order", guaranteed=True)
        assert sub.receive(PATIENCE_S).data == Order(1, tags={"x"})
        assert sub.receive(PATIENCE_S).data == Order(2)
        letters = bus.subscribe("dead_letters.d")
        bus.publish("a", Order(3), guaranteed=True)
        assert sub.receive(PATIENCE_S).data == Order(3)
        assert "expected Order" in letters.receive(PATIENCE_S).data.reason


def test_an_enum_value_that_is_unknown_here_is_a_mismatch(bus: Bus) -> None:
    sub = bus.subscribe("s", type=Order)
    bus.publish("s", {"number": 1, "side": "hold"})
    with pytest.raises(MismatchError, match=r"one of .buy., .sell."):
        sub.receive(PATIENCE_S)


def test_stores_keep_it(bus: Bus, tmp_path: Path) -> None:
    from infobus.repository import Repository
    from infobus.stores.journal import Journal, JournalWriter

    sub = bus.subscribe("a")
    sent = [Order(1, Side.SELL, Decimal("0.10000000000000000001"), tags={"b", "a"}), "text"]
    for one in sent:
        bus.publish("a", one)
    events = take(sub, 2)
    with JournalWriter.open(tmp_path / "journal") as writer:
        writer.append(events, now_s=0.0)
    journal = Journal.open(tmp_path / "journal")
    for where, count in [(None, 2), ("price > 0.05 && price < 0.2", 1), ('side == "buy"', 0)]:
        selected = journal.select(where=where)
        found = list(selected.events())
        assert len(found) == count, where
        for event in found:
            assert event.data == codec.carried(sent[event.offset])
    with Repository(f"sqlite:///{tmp_path}/r.db") as repository:
        assert repository.store(events) == 2
        [order] = repository.query("Order", where='price > 0.05 && side == "sell"')
        assert order.price == sent[0].price and order.tags == {"a", "b"}  # type: ignore[union-attr]


def test_a_handler_gets_what_its_annotation_says(bus: Bus) -> None:
    orders: list[Order] = []
    events: list[infobus.Event] = []
    errors: list[infobus.BusError] = []

    @bus.on("a", on_error=errors.append)
    def handle(order: Order) -> None:
        orders.append(order)

    @bus.on("a")
    def look(event: infobus.Event) -> None:
        events.append(event)

    bus.publish("a", Order(1))
    bus.publish("a", "text")
    bus.publish("a", {"number": 2})
    wait_until(lambda: len(orders) == 2 and len(events) == 3)
    assert [order.number for order in orders] == [1, 2]
    assert isinstance(errors[0], MismatchError) and events[1].data == "text"
    handle(Order(3))  # it stays the function that it was
    assert orders[-1] == Order(3)


@pytest.mark.parametrize("wrong", [lambda: None, complex])
def test_a_function_that_cannot_handle_is_refused(bus: Bus, wrong: Any) -> None:
    def odd(number: complex) -> None: ...

    with pytest.raises(infobus.UsageError):
        bus.on("a")(odd if wrong is complex else wrong)
