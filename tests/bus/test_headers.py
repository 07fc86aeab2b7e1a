"""Headers on the bus: beside every event, seen by filters, kept with what is kept."""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infobus import BadValue, Bus, DataObject, Event, LossError
from infobus.headers import NO_HEADERS
from infobus.protocols.frames import wire
from tests.bus.conftest import Connect
from tests.bus.helpers import take, wait_until
from tests.patience import PATIENCE_S


class Quote(DataObject, name="headers.Quote"):
    price: float


TRACE = {"trace": "4bf92f", "attempt": 2, "share": 0.5, "is_last": True, "key": b"\0\xff"}


def told(events: list[Event]) -> list[dict[str, Any]]:
    return [dict(event.headers) for event in events]


@pytest.mark.parametrize("options", [{}, {"quality": "best_effort"}, {"priority": "emergency"}])
def test_headers_arrive_beside_the_object(bus: Bus, other: Bus, options: dict[str, Any]) -> None:
    here, there = bus.subscribe("q.>"), other.subscribe("q.>")
    bus.publish("q.a", Quote(price=1.0), headers=TRACE, **options)
    bus.publish("q.a", {"n": 1}, **options)
    for subscription in (here, there):
        first, second = take(subscription, 2)
        assert (first.data, dict(first.headers)) == (Quote(price=1.0), TRACE)
        assert second.headers is NO_HEADERS


def test_each_of_many_may_have_its_own(bus: Bus, other: Bus) -> None:
    there = other.subscribe("q.>")
    quotes = [("q.a", Quote(price=float(n))) for n in range(3)]
    bus.publish_many(quotes, headers={"batch": 7})
    bus.publish_many([*quotes[:2], ("q.b", quotes[2][1], {"row": 1})], headers={"batch": 8})
    assert told(take(there, 6)) == [{"batch": 7}] * 3 + [{"batch": 8}] * 2 + [{"row": 1}]


def test_a_long_run_keeps_each_at_its_event(bus: Bus, other: Bus) -> None:
    there = other.subscribe("q.>")
    events = [("q.a", {"n": n}, {"n": n} if n % 3 else None) for n in range(500)]
    bus.publish_many(events)
    for n, event in enumerate(take(there, 500)):
        assert (event.data, dict(event.headers)) == ({"n": n}, {"n": n} if n % 3 else {})


def test_in_a_transaction_each_event_has_its_own(bus: Bus, other: Bus) -> None:
    there = other.subscribe("q.>", where='header("n") >= 1')
    with bus.transaction() as block:
        for n in range(3):
            block.publish("q.a", {"n": n}, headers={"n": n})
        block.publish("q.a", {"n": 3})
    assert told(list(take(there, 1)[0].data)) == [{"n": 1}, {"n": 2}]


def test_what_cannot_be_sent_is_not_sent(bus: Bus, other: Bus) -> None:
    there = other.subscribe("q.>")
    for publish in (
        lambda: bus.publish("q.a", {}, headers={"large": "x" * 9000}),
        lambda: bus.publish("q.a", {}, guaranteed=True, headers={"large": "x" * 9000}),
        lambda: bus.publish_many([("q.a", {})], headers={"large": "x" * 9000}),
        lambda: bus.publish_many([("q.a", {}), ("q.a", {}, {"large": None})], guaranteed=True),
    ):
        with pytest.raises(BadValue, match="'large'"):
            publish()
    bus.publish("q.a", {"n": 1})
    assert take(there, 1)[0].data == {"n": 1}
    assert bus.stats().published == 1


def test_filters_see_them_at_both_ends(bus: Bus, other: Bus) -> None:
    here = bus.subscribe("q.>", where='header("attempt") > 1')
    there = other.subscribe("q.>", where='header("attempt") > 1 && price > 1.0')
    for attempt, price in ((1, 5.0), (2, 0.5), (3, 5.0), (None, 5.0)):
        headers = None if attempt is None else {"attempt": attempt}
        bus.publish("q.a", Quote(price=price), headers=headers)
    bus.publish("q.a", Quote(price=9.0), headers={"attempt": 9})
    assert told(take(here, 3)) == [{"attempt": 2}, {"attempt": 3}, {"attempt": 9}]
    assert told(take(there, 2)) == [{"attempt": 3}, {"attempt": 9}]


def test_a_filter_on_headers_quenches_what_it_excludes_and_nothing_else(
    bus: Bus, other: Bus
) -> None:
    there = other.subscribe("q.>", where='header("attempt") > 1')
    bus.publish("q.a", {"n": 1})
    bus.publish("q.a", {"n": 2}, headers={"attempt": 1})
    assert bus.stats().quenched == 2
    bus.publish("q.a", {"n": 3}, headers={"attempt": 2})
    assert [event.data for event in take(there, 1)] == [{"n": 3}]
    assert bus.stats().quenched == 2


def test_a_producer_that_does_not_say_its_headers_is_not_told_that_nobody_wants_it(
    bus: Bus, other: Bus
) -> None:
    with other.subscribe("q.>", where='header("attempt") > 1 && n == 1'), bus.quench("q.>") as seen:
        assert seen.wants({"n": 1}) is None
        assert seen.wants({"n": 1}, closed=True) is None
        assert seen.wants({"n": 2}) is False
        assert seen.wants({"n": 1}, headers={"attempt": 2}) is True
        assert seen.wants({"n": 1}, headers={}) is False
        assert str(seen.expression()) == 'header("attempt") > 1 && n == 1'


def test_a_filter_of_types_that_come_later_sees_headers(bus: Bus, connect: Connect) -> None:
    there = connect().subscribe("q.>", where='isa("headers.Quote") && header("n") == 1')
    bus.publish("q.a", Quote(price=1.0), headers={"n": 2})
    bus.publish("q.a", Quote(price=2.0), headers={"n": 1})
    assert [event.data.price for event in take(there, 1)] == [2.0]


def test_guaranteed_events_and_dead_letters_keep_them(connect: Connect, tmp_path: Path) -> None:
    publisher, consumer = connect(home=tmp_path / "a"), connect(home=tmp_path / "b")
    orders = consumer.subscribe(
        "q.>", durable="orders", where='exists(header("trace"))', deliveries_max=1
    )
    letters = consumer.subscribe("dead_letters.>", durable="letters")
    publisher.publish("q.a", {"n": 0}, guaranteed=True)
    publisher.publish("q.a", {"n": 1}, guaranteed=True, headers=TRACE)
    with publisher.transaction(guaranteed=True) as block:
        block.publish("q.a", {"n": 2})
        block.publish("q.a", {"n": 3}, headers=TRACE)
    for n in (1, 3):
        event = orders.receive(PATIENCE_S)
        [one] = event.data if n == 3 else [event]
        assert (one.data, dict(one.headers)) == ({"n": n}, TRACE)
        event.nack()
    assert dict(letters.receive(PATIENCE_S).headers) == TRACE
    group = letters.receive(PATIENCE_S).data.object
    assert group[1] == {"subject": "q.a", "object": {"n": 3}, "headers": TRACE}


def test_a_ledger_that_was_closed_still_has_them(connect: Connect, tmp_path: Path) -> None:
    with connect(home=tmp_path) as publisher:
        publisher.subscribe("q.>", durable="orders").close()
        publisher.publish_many([("q.a", {"n": 1}, TRACE), ("q.a", {"n": 2})], guaranteed=True)
    orders = connect(home=tmp_path).subscribe("q.>", durable="orders")
    assert [dict(orders.receive(PATIENCE_S).headers) for _ in range(2)] == [TRACE, {}]


def test_tasks_may_say_them_too(bus: Bus) -> None:
    here = bus.subscribe("q.>")

    async def main() -> None:
        await bus.aio.publish("q.a", {}, headers={"n": 1})
        await bus.aio.publish_many([("q.a", {})], headers={"n": 2})
        await bus.aio.publish("q.a", {}, guaranteed=True, headers={"n": 3})

    asyncio.run(main())
    assert told(take(here, 3)) == [{"n": 1}, {"n": 2}, {"n": 3}]


# Others.

ME = "stranger"


_numbers = itertools.count(0, 2)


def events(*more: Any) -> bytes:
    """A frame of two events at best effort, as other programs may send it."""
    bodies = [msgspec.msgpack.encode({"n": n}) for n in range(2)]
    columns = [["q.a"], [next(_numbers)], [time.time()], [0], bodies, {}, [], *more]
    return msgspec.msgpack.encode([1, ME, "q", 0, columns])


def feed(bus: Bus, payload: bytes) -> None:
    bus._runtime.on_frame(payload)


@pytest.fixture
def stranger(bus: Bus) -> Any:
    subscription = bus.subscribe("q.>", on_loss="ignore")
    bus._runtime._on_token(f"l/{ME}", True)
    feed(bus, wire.encode(wire.Known(ME, 2, 1, {"q": 1})))
    return subscription


def test_nodes_of_the_version_before_and_of_the_next_are_understood(
    bus: Bus, stranger: Any
) -> None:
    feed(bus, events())  # 1.1: no column of headers
    feed(bus, events([b"\x81\xa1n\x01"]))
    feed(bus, events([b"", b"\x81\xa1n\x02"], "a column of 1.3"))
    found = take(stranger, 6)
    assert told(found) == [{}, {}, {"n": 1}, {"n": 1}, {}, {"n": 2}]
    assert bus.stats().bad_frames == 0


def test_a_node_of_the_version_before_reads_the_frames_of_this_one() -> None:
    class OldItems(msgspec.Struct, array_like=True):  # as it was in 1.1
        subjects: list[str]
        numbers: list[int]
        times: list[float]
        types: list[int]
        bodies: list[bytes]
        object_ids: dict[int, str] = {}
        qos: list[Any] = []

    items = wire.Items.of([wire.Item("q.a", 1, 1.5, 0, b"\x80", headers=b"\x81\xa1n\x01")])
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(items), type=OldItems)
    assert (old.subjects, old.bodies, old.qos) == (["q.a"], [b"\x80"], [])


@pytest.mark.parametrize(
    "column",
    [[b"\x80" * 9000], [5], [b"", b"", b""], ["text"], {"a": 1}],
    ids=["too large", "a number", "too many", "text", "a map"],
)
def test_a_frame_with_an_absurd_column_is_counted_and_dropped(
    bus: Bus, other: Bus, stranger: Any, column: Any
) -> None:
    before = bus.stats().bad_frames
    feed(bus, events(column))
    assert bus.stats().bad_frames == before + 1
    other.publish("q.a", {"n": 9}, headers={"n": 1})
    assert told(take(stranger, 1)) == [{"n": 1}]


def test_an_event_whose_headers_are_none_is_counted_and_left_out(bus: Bus, stranger: Any) -> None:
    filtered = bus.subscribe("q.>", where="n >= 0", on_loss="ignore")
    feed(bus, events([b"\x81\xa1n\x01", b"\x91\x01"]))
    feed(bus, events([b"\xc1"]))
    feed(bus, events([b"\x81\xa1n\x03"]))
    for subscription in (stranger, filtered):
        assert told(take(subscription, 3)) == [{"n": 1}, {"n": 3}, {"n": 3}]
    assert bus.stats().bad_objects >= 3


def test_headers_take_room_in_a_queue(bus: Bus, other: Bus) -> None:
    slow = other.subscribe("q.>", when_full="drop_oldest", queue_count_max=8, on_loss="raise")
    for n in range(10):
        bus.publish("q.a", {"n": n}, headers={"blob": b"x" * 8000})
    wait_until(lambda: other.stats().dropped_by_queue > 0)
    with pytest.raises(LossError):
        take(slow, 10)
