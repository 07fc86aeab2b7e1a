"""Sessions across sites: conversations by way of routers, at a quality that both ends agree to."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from infobus import Backpressure, BusClosed, DataObject, LossError, RemoteError, UsageError
from infobus.router import sessions
from infobus.router.sessions import SessionPair
from infobus.services.sessions import QoS, Session
from tests.router.sites import CHAIN, PATIENCE_S, Sites, eventually

AGREED = {"inside": "desk", "outside": "eu.desk", "services": True}


class Order(DataObject, name="test.sessions_across.Order"):
    number: int
    items: list[str]


def echo(session: Session) -> None:
    for obj in session:
        session.send(obj)


def pairs(world: Sites, name: str) -> list[SessionPair]:
    """The sessions that cross at a site's router."""
    services = [one.crossings._services for one in world.routers[name]._passages]
    ways = [way for one in services if one for way in (one.outward, one.inward)]
    return [pair for way in ways for pair in way.session_pairs._running]


def offer(world: Sites, converse: Any = echo, site: str = "a", seen_at: str = "c", **more: Any):
    """Offer sessions at one site, and wait until another one knows."""
    supplier = world.bus(site)
    supplier.offer_sessions("desk.orders", converse, **more)
    consumer = world.buses[seen_at]
    eventually(lambda: consumer.who_is_out_there("desk.orders", timeout_s=0.2))
    return supplier, consumer


def test_the_first_words_arrive_and_all_that_follow_in_order(sites):
    world = sites(CHAIN)
    world.start_all(AGREED)
    _, consumer = offer(world)
    for _ in range(5):
        with consumer.open_session("desk.orders") as session:
            said = [Order(number=number, items=["valve"]) for number in range(200)]
            for one in said:
                session.send(one)
            assert [session.receive(PATIENCE_S) for _ in said] == said
    for name in "ac":
        eventually(lambda n=name: not pairs(world, n))


def test_the_supplier_may_speak_first_and_its_last_words_arrive(sites):
    def tell(session: Session) -> None:
        for number in range(300):
            session.send({"n": number})
        session.close("that is all")

    world = sites(CHAIN)
    world.start_all(AGREED)
    _, consumer = offer(world, tell)
    session = consumer.open_session("desk.orders")
    assert [one["n"] for one in session] == list(range(300))
    assert session.reason == "that is all"
    with pytest.raises(BusClosed, match="that is all"):
        session.send({})


def test_the_lowest_rate_and_age_of_both_ends_and_the_agreement_are_agreed(sites):
    agreed: list[QoS] = []
    world = sites(["ab"])
    world.start_all({**AGREED, "max_rate": 50.0})
    _, consumer = offer(
        world, lambda session: agreed.append(session.qos), seen_at="b", qos=QoS(max_age=5.0)
    )
    wanted = QoS(priority="business", max_age=9.0, max_rate=80.0)
    with consumer.open_session("desk.orders", qos=wanted) as session:
        assert session.qos == QoS("business", 5.0, 50.0)
        assert list(session) == []
    assert agreed == [session.qos]


def test_the_agreed_class_holds_at_both_sites_and_between_them(sites):
    world = sites(["ab"])
    world.start_all(AGREED)
    backbone = world.routers["a"]._opened()[1]
    overheard = [bus.subscribe(">") for bus in (world.bus("a"), world.bus("b"), backbone)]
    _, consumer = offer(world, seen_at="b")
    with consumer.open_session("desk.orders", qos=QoS(priority="emergency")) as session:
        session.send({"n": 1})
        assert session.receive(PATIENCE_S) == {"n": 1}
    for one in overheard:
        found = [one.receive(PATIENCE_S) for _ in range(2)]
        assert {(event.data["n"], event.priority) for event in found} == {(1, "emergency")}


def test_a_class_that_may_not_cross_is_not_agreed_to(sites):
    world = sites(["ab"])
    world.start_all({**AGREED, "classes": ["regular"]})
    _, consumer = offer(world, seen_at="b", qos=QoS(priority="emergency"))
    with consumer.open_session("desk.orders", qos=QoS(priority="business")) as session:
        assert session.qos.priority is None
        session.send({"n": 1})
        assert session.receive(PATIENCE_S) == {"n": 1}


def test_what_is_too_old_after_all_hops_together_is_not_delivered(sites, monkeypatch):
    """Each of two routers takes 0.4 s: within the limit alone, and not together."""
    ways: list[float] = []
    pass_on = Session.pass_on

    def slow(self: Session, event: Any) -> None:
        time.sleep(0.4)
        ways.append(event.time)
        pass_on(self, event)

    monkeypatch.setattr(Session, "pass_on", slow)
    world = sites(["ab"])
    world.start_all(AGREED)
    heard: list[Any] = []
    _, consumer = offer(world, lambda session: heard.extend(session), seen_at="b")
    with consumer.open_session("desk.orders", qos=QoS(max_age=0.7)) as session:
        session.send({"n": 1})
        eventually(lambda: len(ways) == 2)
    eventually(lambda: not pairs(world, "a") and not pairs(world, "b"))
    assert heard == []


def test_an_end_that_is_gone_ends_it_at_the_other_end(sites):
    ended: list[str] = []

    def converse(session: Session) -> None:
        assert list(session) == []
        ended.append(session.reason)

    world = sites(CHAIN)
    world.start_all(AGREED)
    supplier, _ = offer(world, converse)
    leaver, stayer = world.bus("c"), world.bus("c")
    leaver.open_session("desk.orders")
    session = stayer.open_session("desk.orders")
    leaver.close(0)
    eventually(lambda: ended)
    assert ended == ["the other side has died"]
    supplier.close(0)
    assert list(session) == []
    assert session.reason in ("the other side has died", "the other side has closed it")


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_router_that_is_gone_ends_it_at_both_ends(sites, name):
    ended: list[str] = []

    def converse(session: Session) -> None:
        assert list(session) == []
        ended.append(session.reason)

    world = sites(CHAIN)
    world.start_all(AGREED)
    _, consumer = offer(world, converse)
    session = consumer.open_session("desk.orders")
    world.routers[name].close()
    assert list(session) == []
    eventually(lambda: ended)
    assert session.reason
    assert ended[0]


def test_an_agreement_that_is_taken_back_ends_it(sites):
    world = sites(["ab"])
    world.start_all(AGREED)
    _, consumer = offer(world, seen_at="b")
    session = consumer.open_session("desk.orders")
    router = world.routers["a"]
    router.change(replace(router.settings, agreement=()))
    assert list(session) == []
    assert session.reason == "a router on the way carries it no longer"


def test_it_needs_an_agreement_on_services(sites):
    world = sites(["ab"])
    world.start_all({**AGREED, "services": False})
    world.bus("a").offer_sessions("desk.orders", echo)
    time.sleep(0.3)
    assert not world.buses["b"].who_is_out_there("desk.orders", timeout_s=0.2)


def test_a_loss_on_the_way_is_reported_and_the_session_goes_on(sites):
    world = sites(["ab"])
    world.start_all(AGREED)
    _, consumer = offer(world, seen_at="b")
    with consumer.open_session("desk.orders") as session:
        (pair,) = pairs(world, "b")
        lost = LossError("3 events are lost", sender="x", channel="y", first=4, last=6)
        pair._sessions[0].pass_loss_on(lost)
        with pytest.raises(LossError, match="3 events are lost") as raised:
            session.receive(PATIENCE_S)
        assert (raised.value.first, raised.value.last) == (4, 6)
        session.send({"n": 1})
        assert session.receive(PATIENCE_S) == {"n": 1}


def test_a_loss_that_a_router_hears_of_is_passed_on(sites, monkeypatch):
    said: list[Any] = []
    lost = LossError("2 events are lost", sender="x", channel="y", first=1, last=2)
    world = sites(["ab"])
    world.start_all(AGREED)

    def listen(session: Session) -> None:
        while True:
            try:
                said.append(session.receive())
            except LossError as error:
                said.append(str(error))

    _, consumer = offer(world, listen, seen_at="b")
    receive = Session.receive_event
    failing = [lost]

    def fail_once(self: Session, timeout_s: float | None = None) -> Any:
        event = receive(self, timeout_s)
        is_router = self._bus is world.routers["b"].inside
        if is_router and failing:
            raise failing.pop()
        return event

    monkeypatch.setattr(Session, "receive_event", fail_once)
    with consumer.open_session("desk.orders") as session:
        for number in range(2):
            session.send({"n": number})
        eventually(lambda: len(said) == 2)
    assert said == ["2 events are lost", {"n": 1}]


def test_programs_under_development_hold_sessions_across_sites(sites):
    world = sites(["ab"])
    world.start_all(AGREED)
    supplier = world.bus("a", test=True)
    supplier.offer_sessions("desk.orders", echo)
    consumer = world.bus("b", test=True)
    eventually(lambda: consumer.who_is_out_there("desk.orders", timeout_s=0.2))
    with consumer.open_session("desk.orders") as session:
        session.send({"n": 1})
        assert session.receive(PATIENCE_S) == {"n": 1}
    eventually(lambda: not pairs(world, "a"))


def test_what_the_supplier_refuses_is_told_as_within_a_site(sites):
    world = sites(["ab"])
    world.start_all(AGREED)
    _, consumer = offer(world, seen_at="b")
    with pytest.raises(UsageError, match="nonsense"):
        consumer.service("desk.orders").begin_session("0", priority="nonsense")
    for name in "ab":
        eventually(lambda n=name: not pairs(world, n))


def test_a_router_carries_so_many_and_no_more(sites, monkeypatch):
    monkeypatch.setattr(sessions, "_PAIRS_COUNT_MAX", 2)
    world = sites(["ab"])
    world.start_all(AGREED)
    _, consumer = offer(world, seen_at="b")
    open_ones = [consumer.open_session("desk.orders") for _ in range(2)]
    with pytest.raises(RemoteError, match="carries 2 sessions") as refused:
        consumer.open_session("desk.orders")
    assert isinstance(refused.value.__cause__, Backpressure)
    open_ones[0].close()
    eventually(lambda: all(len(pairs(world, name)) == 1 for name in "ab"))
    with consumer.open_session("desk.orders") as session:
        session.send({"n": 1})
        assert session.receive(PATIENCE_S) == {"n": 1}
