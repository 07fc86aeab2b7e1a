"""Sessions: private, two-way, at an agreed quality, until somebody ends them."""

import asyncio
import threading
import time

import pytest

from infobus import BusClosed, NoServer, Service, UsageError
from infobus.services.sessions import QoS
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S


def echo(session):
    for obj in session:
        session.send({"echo": obj["n"]})


@pytest.mark.parametrize("name", ["max_age", "max_rate"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), "soon"])
def test_a_quality_that_cannot_be_kept_is_refused_at_once(name, value):
    with pytest.raises(UsageError, match=f"{name}=.*expected a number of .* above 0"):
        QoS(**{name: value})


def test_a_class_that_is_not_known_is_not_agreed_to(bus, other):
    with pytest.raises(UsageError, match="nonsense"):
        bus.offer_sessions("video.feed", echo, qos=QoS(priority="nonsense"))
    bus.offer_sessions("video.feed", echo)
    with pytest.raises(UsageError, match="nonsense"):
        other.open_session("video.feed", qos=QoS(priority="nonsense"))
    strange = other.service("video.feed")
    with pytest.raises(UsageError, match="nonsense"):
        strange.begin_session("0", priority="nonsense")
    with pytest.raises(UsageError, match="max_rate=0"):
        strange.begin_session("0", max_rate=0)


def test_both_sides_send_and_receive(bus, other):
    bus.offer_sessions("video.feed", echo)
    with other.open_session("video.feed") as session:
        for n in range(5):
            session.send({"n": n})
            assert session.receive(20) == {"echo": n}
        assert session.peer == bus.stats().node


def test_the_lower_of_what_is_wanted_and_offered_is_agreed(bus, other):
    agreed = []
    bus.offer_sessions(
        "video.feed", lambda session: agreed.append(session.qos), qos=QoS(max_rate=10.0)
    )
    wanted = QoS(priority="business", max_age=5.0, max_rate=100.0)
    with other.open_session("video.feed", qos=wanted) as session:
        assert session.qos == QoS("business", 5.0, 10.0)
        assert list(session) == []
    assert agreed == [session.qos]


def test_events_travel_in_the_agreed_class(bus, other, connect):
    bus.offer_sessions("video.feed", echo)
    with other.open_session("video.feed", qos=QoS(priority="emergency")) as session:
        overheard = connect().subscribe(f"session-{session.id}.>")
        session.send({"n": 1})
        assert session.receive(20) == {"echo": 1}
        assert {overheard.receive(20).priority for _ in range(2)} == {"emergency"}


def test_nobody_sends_faster_than_agreed(bus, other):
    bus.offer_sessions("video.feed", lambda session: list(session))
    with other.open_session("video.feed", qos=QoS(max_rate=50.0)) as session:
        start_s = time.monotonic()
        for n in range(6):
            session.send({"n": n})
        assert time.monotonic() - start_s >= 0.1


def test_either_side_ends_it(bus, other):
    def say_goodbye(session):
        session.send({"n": 1})
        session.close("that is all")

    bus.offer_sessions("video.feed", say_goodbye)
    session = other.open_session("video.feed")
    assert list(session) == [{"n": 1}]
    assert session.reason == "that is all"
    with pytest.raises(BusClosed, match="that is all"):
        session.send({"n": 2})


def test_the_death_of_the_supplier_ends_it(connect, other):
    supplier = connect()
    supplier.offer_sessions("video.feed", lambda session: list(session))
    session = other.open_session("video.feed")
    supplier.close(0)
    with pytest.raises(BusClosed, match="has ended"):
        session.receive(20)


def test_the_death_of_the_consumer_ends_it(bus, connect):
    ended = []

    def converse(session):
        assert list(session) == []
        ended.append(session.reason)

    bus.offer_sessions("video.feed", converse)
    consumer = connect()
    consumer.open_session("video.feed")
    consumer.close(0)
    wait_until(lambda: ended)
    assert ended == ["the other side has died"]


def test_a_conversation_that_works_ends_before_its_bus_is_closed(bus, other):
    begun, go_on = threading.Event(), threading.Event()

    def work(session):
        for obj in session:
            begun.set()
            go_on.wait(PATIENCE_S)
            session.send({"done": obj["n"]})

    bus.offer_sessions("svc.work", work)
    with other.open_session("svc.work") as session:
        session.send({"n": 1})
        assert begun.wait(PATIENCE_S)
        closing = threading.Thread(target=bus.close, args=(PATIENCE_S,))
        closing.start()
        go_on.set()
        assert list(session) == [{"done": 1}]
        closing.join()
        assert session.reason == "the other side has closed it"


def test_a_conversation_that_takes_too_long_is_named(bus, other, caplog):
    begun, go_on = threading.Event(), threading.Event()

    def work(session):
        begun.set()
        go_on.wait(PATIENCE_S)

    bus.offer_sessions("svc.work", work)
    other.open_session("svc.work")
    assert begun.wait(PATIENCE_S)
    bus.close(0.1)
    go_on.set()
    assert f"work with {other.stats().node} still goes on" in caplog.text


def test_a_conversation_may_close_the_bus(bus, other):
    bus.offer_sessions("svc.end", lambda session: bus.close())
    with other.open_session("svc.end") as session:
        assert list(session) == []


def test_the_consumer_chooses_among_suppliers(bus, other, connect):
    bus.offer_sessions("video.feed", echo, tags=["slow"])
    fast = connect()
    fast.offer_sessions("video.feed", echo, tags=["fast"])

    def fastest(found):
        return next(one for one in found if "fast" in one.tags)

    with other.open_session("video.feed", choose=fastest) as session:
        assert session.peer == fast.stats().node


def test_an_event_loop_can_open_one(bus, other):
    bus.offer_sessions("video.feed", echo)

    async def main():
        with await other.aio.open_session("video.feed") as session:
            session.send({"n": 1})
            return await asyncio.to_thread(session.receive, 20)

    assert asyncio.run(main()) == {"echo": 1}


def test_nobody_supplies(other):
    with pytest.raises(NoServer, match=r"'video.feed' within 0.2 s; begin_session has not run"):
        other.open_session("video.feed", timeout_s=0.2)


def test_a_service_without_sessions(bus, other):
    class Plain(Service):
        def ping(self) -> None: ...

    bus.serve("svc.plain", Plain())
    with pytest.raises(UsageError, match="is served, but not for sessions"):
        other.open_session("svc.plain")


def test_a_supplier_that_fails_ends_the_session(bus, other, caplog):
    def fail(session):
        raise RuntimeError("broken")

    bus.offer_sessions("video.feed", fail)
    session = other.open_session("video.feed")
    assert list(session) == []
    assert session.reason == "the supplier failed"
