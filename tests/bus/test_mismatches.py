"""Objects whose sender has another definition of their type: never a value that nobody sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import Bus, DataObject, MismatchError, UsageError, sent_values, type_of
from infobus.objects import codec, define_type
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until
from tests.objects import worlds
from tests.patience import PATIENCE_S


class Order(DataObject, name="mismatch.Order"):
    number: int
    total: int = 7


Theirs = type[DataObject]


@pytest.fixture
def theirs() -> Iterator[Theirs]:
    """The class of the other program, in which `total` is a float."""
    with worlds.another_process():
        cls = define_type("mismatch.Order", [], {"number": int, "total": float})
    before = dict(codec.registry.types)
    codec.learn(cls.__bus_type__.descriptor)
    yield cls
    codec.registry.types.clear()
    codec.registry.types.update(before)


def shop(theirs: Theirs, count: int = 1) -> list[tuple[str, DataObject]]:
    """Objects of ours and, in each third place, one of theirs."""
    return [
        ("o.x", theirs(number=n, total=99.5) if n % 3 == 1 else Order(number=n))
        for n in range(count)
    ]


def heard(sub: Any, count: int) -> list[int | str]:
    """The numbers of the events, and for each error the number in the object that was sent."""
    found: list[int | str] = []
    while len(found) < count:
        try:
            found.append(sub.receive(PATIENCE_S).data.number)
        except MismatchError as error:
            found.append(f"error {error.event.data.number}")  # type: ignore[attr-defined]
    return found


def test_the_consumer_is_told_what_does_not_fit_and_goes_on(
    bus: Bus, other: Bus, theirs: Theirs
) -> None:
    sub = bus.subscribe("o.>")
    other.publish("o.x", theirs(number=1, total=99.5))
    other.publish("o.x", Order(number=2))
    with pytest.raises(MismatchError) as told:
        sub.receive(PATIENCE_S)
    error = told.value
    assert str(error).startswith("o.x: mismatch.Order.total: expected int, got float 99.5; ")
    assert (error.subject, error.type, error.attribute) == ("o.x", "mismatch.Order", "total")
    assert (error.expected, error.sent) == ("int", 99.5)
    assert isinstance(error.event, infobus.Event)
    assert sent_values(error.event.data) == {"number": 1, "total": 99.5}
    assert sub.receive(PATIENCE_S).data == Order(number=2)
    assert bus.stats().mismatched == 1
    assert "expected int, got float 99.5" in bus.stats().complaints[other.node]


@pytest.mark.parametrize("many", [False, True])
def test_errors_stand_where_the_events_stood(bus: Bus, theirs: Theirs, many: bool) -> None:
    sub, count = bus.subscribe("o.>"), 200 if many else 8  # above and below what is read at once
    bus.publish_many(shop(theirs, count))
    assert heard(sub, count) == [f"error {n}" if n % 3 == 1 else n for n in range(count)]
    assert sub.queue.is_empty()


def test_an_error_does_not_end_the_iteration_of_a_patient_consumer(
    bus: Bus, theirs: Theirs
) -> None:
    sub = bus.subscribe("o.>")
    bus.publish_many(shop(theirs, 6))
    found: list[int] = []
    for _ in range(3):
        with pytest.raises((MismatchError, TimeoutError)):
            while True:
                found.append(sub.receive(0.05).data.number)
    assert found == [0, 2, 3, 5]


def test_skipped_objects_are_counted(bus: Bus, theirs: Theirs) -> None:
    sub = bus.subscribe("o.>", on_mismatch="skip")
    bus.publish_many(shop(theirs, 199))
    assert heard(sub, 133) == [n for n in range(199) if n % 3 != 1]
    assert bus.stats().mismatched == 66


def test_generic_objects_have_the_type_and_the_values_that_were_sent(
    bus: Bus, theirs: Theirs
) -> None:
    sub = bus.subscribe("o.>", on_mismatch="generic")
    bus.publish_many(shop(theirs, 200))
    found = [sub.receive(PATIENCE_S).data for _ in range(200)]
    assert [one.number for one in found] == list(range(200))
    assert [type(one) for one in found[:3]] == [Order, DataObject, Order]
    assert type_of(found[1]) == theirs.__bus_type__ and found[1].total == 99.5
    assert bus.stats().mismatched == 67


def test_a_callback_goes_on_and_its_error_handler_is_told(bus: Bus, theirs: Theirs) -> None:
    seen: list[int] = []
    errors: list[Any] = []
    bus.subscribe("o.>", lambda event: seen.append(event.data.number), on_error=errors.append)
    bus.publish_many(shop(theirs, 9))
    wait_until(lambda: len(seen) == 6)
    assert seen == [0, 2, 3, 5, 6, 8]
    assert [type(error) for error in errors] == [MismatchError] * 3


def test_a_filter_sees_the_value_that_was_sent(bus: Bus, other: Bus, theirs: Theirs) -> None:
    """Not the default of the class here: an event must not match by what nobody sent."""
    by_default = bus.subscribe("o.>", where="total == 7", on_mismatch="generic")
    by_sent = bus.subscribe("o.>", where="total > 50", on_mismatch="generic")
    strict = bus.subscribe("o.>", where="total > 50")
    other.publish("o.x", theirs(number=1, total=99.5))
    other.publish("o.x", Order(number=2))
    assert by_sent.receive(PATIENCE_S).data.total == 99.5
    assert by_default.receive(PATIENCE_S).data == Order(number=2)
    with pytest.raises(MismatchError):
        strict.receive(PATIENCE_S)


def test_one_object_that_does_not_fit_is_an_error_of_its_transaction(
    bus: Bus, theirs: Theirs
) -> None:
    sub = bus.subscribe("o.>")
    generic = bus.subscribe("o.>", on_mismatch="generic")
    with bus.transaction() as tx:
        tx.publish("o.a", Order(number=1))
        tx.publish("o.b", theirs(number=2, total=99.5))
    bus.publish("o.x", Order(number=3))
    with pytest.raises(MismatchError, match=r"^o\.b: "):
        sub.receive(PATIENCE_S)
    assert sub.receive(PATIENCE_S).data.number == 3
    assert [event.data.total for event in generic.receive(PATIENCE_S).data] == [7, 99.5]


class TestDurable:
    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def bus(self, connect: Connect, home: Path) -> Bus:
        return connect(home=home)

    def test_the_event_becomes_a_dead_letter_with_the_reason(
        self, bus: Bus, theirs: Theirs
    ) -> None:
        letters = bus.subscribe("dead_letters.>")
        sub = bus.subscribe("o.>", durable="billing")
        bus.publish("o.x", theirs(number=1, total=99.5), guaranteed=True)
        bus.publish("o.x", Order(number=2), guaranteed=True)
        assert sub.receive(PATIENCE_S).data == Order(number=2)
        letter = letters.receive(PATIENCE_S).data
        assert letter.reason == "mismatch.Order.total: expected int, got float 99.5"
        assert (letter.consumer, letter.subject, letter.deliveries) == ("billing", "o.x", 1)
        assert sent_values(letter.object) == {"number": 1, "total": 99.5}
        assert bus.stats().mismatched == 1

    def test_skipped_events_are_settled(self, bus: Bus, theirs: Theirs) -> None:
        sub = bus.subscribe("o.>", durable="billing", on_mismatch="skip")
        bus.publish("o.x", theirs(number=1, total=99.5), guaranteed=True)
        bus.publish("o.x", Order(number=2), guaranteed=True)
        assert sub.receive(PATIENCE_S).data == Order(number=2)
        sub.close()
        again = bus.subscribe("o.>", durable="billing", on_mismatch="generic")
        assert again.receive(PATIENCE_S).data == Order(number=2)  # which was not settled
        assert bus.stats().mismatched == 1

    def test_generic_events_come_as_they_were_sent_also_in_transactions(
        self, bus: Bus, theirs: Theirs
    ) -> None:
        sub = bus.subscribe("o.>", durable="billing", on_mismatch="generic", live=True)
        bus.publish("o.x", theirs(number=1, total=99.5), guaranteed=True)
        assert sub.receive(PATIENCE_S).data.total == 99.5
        with bus.transaction(guaranteed=True) as tx:
            tx.publish("o.a", theirs(number=2, total=0.5))
        (event,) = sub.receive(PATIENCE_S).data
        assert event.data.total == 0.5
        bus.publish("o.x", theirs(number=3, total=1.5))
        assert sub.receive(PATIENCE_S).data.total == 1.5


def test_an_unknown_choice_is_refused(bus: Bus) -> None:
    with pytest.raises(UsageError, match="on_mismatch='ignore' is not known; choose one of"):
        bus.subscribe("o.>", on_mismatch="ignore")  # type: ignore[call-overload]


def test_all_definitions_of_a_name_are_among_the_types_of_the_bus(
    bus: Bus, other: Bus, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes of this test share one process, so the answer of the other one is made up."""
    from infobus.protocols.frames import wire

    answer = wire.encode(wire.Types("elsewhere", [theirs.__bus_type__.descriptor]))
    monkeypatch.setattr(bus._runtime.engine, "query", lambda *_: [answer])
    found = [kind for kind in bus.types() if kind.name == "mismatch.Order"]
    assert found == [type_of(Order), theirs.__bus_type__]
