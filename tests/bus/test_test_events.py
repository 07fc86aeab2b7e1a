"""Events of programs under development reach only those who ask for them."""

import pytest

import infobus
from infobus import Bus, UsageError
from tests.bus.conftest import Connect
from tests.bus.helpers import numbers_of, send, take


def test_only_subscriptions_that_ask_get_test_events(bus: Bus, other: Bus) -> None:
    subs = [node.subscribe(pattern) for node in (bus, other) for pattern in ("x.y", "x.>", ">")]
    asking = [node.subscribe("x.>", test=True) for node in (bus, other)]
    bus.publish("x.y", {"n": 1}, test=True)
    bus.publish_many([("x.y", {"n": 2}), ("x.y", {"n": 3})], test=True)
    send(bus, "x.y", 4)
    for sub in subs:
        assert numbers_of(take(sub, 1)) == [4]
        assert sub.waiting_count == 0
    for sub in asking:
        events = take(sub, 4)
        assert {(e.data["n"], e.subject, e.test) for e in events} == {
            *((n, "x.y", True) for n in (1, 2, 3)),
            (4, "x.y", False),
        }


def test_they_are_not_counted(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x", test=True)
    for number in range(3):
        bus.publish("x", {"n": number}, test=True)
        bus.publish("y", {"n": number}, test=True)
    assert numbers_of(take(sub, 3)) == [0, 1, 2]
    stats = bus.stats()
    assert (stats.published, stats.quenched, stats.sent_events) == (0, 0, 0)
    assert other.stats().received_events == 0


def test_a_quench_leaves_them_out(bus: Bus, other: Bus) -> None:
    other.subscribe("x", where="n > 1", test=True)
    assert str(bus.quench(">").expression()) == "n > 1"


def test_filters_and_transactions_work_as_ever(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x.>", where="n > 1", test=True)
    with bus.transaction(test=True) as tx:
        for number in range(4):
            tx.publish("x.y", {"n": number})
    event = sub.receive(20)
    assert event.test
    assert [(e.subject, e.data["n"], e.test) for e in event.data] == [
        ("x.y", 2, True),
        ("x.y", 3, True),
    ]
    sub.change_filter("n == 1")
    bus.publish("x.y", {"n": 1}, test=True)
    assert sub.receive(20).data == {"n": 1}


def test_a_program_can_run_wholly_in_test_mode(bus: Bus, connect: Connect) -> None:
    program, another = connect(test=True), connect(test=True)
    regular, testing = bus.subscribe("x"), another.subscribe("x")
    send(program, "x", 1)
    with program.transaction() as tx:
        tx.publish("x", {"n": 2})
    send(bus, "x", 3)
    assert numbers_of(take(regular, 1)) == [3]
    events = take(testing, 3)
    assert sorted(event.test for event in events) == [False, True, True]
    assert regular.waiting_count == 0


@pytest.mark.parametrize(("value", "test"), [("1", True), ("0", False), ("", False)])
def test_the_environment_can_say_so(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, value: str, test: bool
) -> None:
    monkeypatch.setenv("INFOBUS_TEST", value)
    assert connect().test is test
    assert connect(test=True).test


def test_nonsense_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOBUS_TEST", "maybe")
    with pytest.raises(UsageError, match="INFOBUS_TEST='maybe'"):
        infobus.connect("x", engine="memory")


def test_names_of_the_bus_are_refused_for_events_and_services(bus: Bus, other: Bus) -> None:
    class Clock(infobus.Service):
        def now(self) -> int:
            return 0

    publish_all = [
        lambda: bus.publish("~internal", {}),
        lambda: bus.publish("~internal", {}, test=True),
        lambda: bus.publish("~internal", {}, guaranteed=True),
        lambda: bus.publish_many([("~internal.a", {})]),
        lambda: bus.serve("~clock", Clock()),
    ]
    other.subscribe("~internal")
    for publish in publish_all:
        with pytest.raises(infobus.BadSubject, match="only the bus's own do"):
            publish()
    with bus.transaction() as tx, pytest.raises(infobus.BadSubject):
        tx.publish("~internal", {})
