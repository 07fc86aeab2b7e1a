"""Who is out there: servers, those who wait for one, and any other role."""

import asyncio

import pytest

import infobus
from infobus import BadFilter, Service, UsageError


class Nothing(Service):
    def ping(self) -> None:
        """Do nothing."""


def test_everyone_is_found_with_what_they_say(bus, other):
    bus.serve("svc.a", Nothing(), version="1", tags=["fast"], info={"region": "eu"})
    bus.serve("svc.b", Nothing())
    found = {one.subject: one for one in other.who_is_out_there("svc.>")}
    assert set(found) == {"svc.a", "svc.b"}
    assert (found["svc.a"].version, found["svc.a"].tags) == ("1", ["fast"])
    assert found["svc.a"].info["region"] == "eu"
    assert found["svc.a"].node == bus.stats().node
    assert found["svc.a"].interface.operations["ping"].doc == "Do nothing."


def test_participants_carry_the_name_of_their_program():
    with (
        infobus.connect("named", engine="memory", name="oven-3") as oven,
        infobus.connect("named", engine="memory") as other,
    ):
        oven.serve("svc.a", Nothing())
        other.serve("svc.b", Nothing())
        found = other.who_is_out_there("svc.>", where='application == "oven-3"')
        assert [(one.subject, one.application) for one in found] == [("svc.a", "oven-3")]
        names = {one.subject: one.application for one in oven.who_is_out_there("svc.>")}
        assert names == {"svc.a": "oven-3", "svc.b": ""}


def test_patterns_choose(bus, other):
    bus.serve("svc.a.one", Nothing())
    bus.serve("svc.b.one", Nothing())
    assert [one.subject for one in other.who_is_out_there("svc.*.one")] != []
    assert [one.subject for one in other.who_is_out_there("svc.a.>")] == ["svc.a.one"]
    assert other.who_is_out_there("other.>") == []


def test_the_question_can_say_what_is_wanted(bus, other):
    bus.serve("svc.a", Nothing(), version="1")
    bus.serve("svc.b", Nothing(), version="2")
    wanted = other.who_is_out_there("svc.*", where='version == "2" && load < 5')
    assert [one.subject for one in wanted] == ["svc.b"]
    with pytest.raises(BadFilter):
        other.who_is_out_there("svc.*", where="version ==")


def test_it_does_not_wait_when_everyone_has_answered(bus, other):
    assert other.who_is_out_there("nobody.>", timeout_s=60) == []


def test_any_role_can_be_found(bus, other):
    with bus.i_am("db.accounts", "replica", lag=3) as replica:
        (found,) = other.who_is_out_there("db.>", role="replica")
        assert (found.role, found.info["lag"]) == ("replica", 3)
        assert other.who_is_out_there("db.>") == [], "it is no server"
        assert len(other.who_is_out_there("db.>", role=None)) == 1
        replica.update(lag=0)
        assert other.who_is_out_there("db.>", role="replica")[0].info["lag"] == 0
    assert other.who_is_out_there("db.>", role="replica") == []


def test_a_new_server_learns_of_clients_that_wait_for_one(bus, other):
    call = other.service("svc.new").ping.start()
    with bus.watch("svc.new", role="client") as clients:
        change = clients.next(20)
        assert (change.what, change.found.node) == ("arrived", other.stats().node)
        assert change.found.info["waiting"] == 1
        bus.serve("svc.new", Nothing())
        assert call.result() is None
        assert clients.next(20).what == "departed"


def test_a_feed_tells_who_comes_changes_and_goes(bus, other, connect):
    bus.serve("svc.first", Nothing())
    with other.watch("svc.>") as changes:
        assert _told(changes) == ("arrived", "svc.first")
        second = bus.serve("svc.second", Nothing())
        assert _told(changes) == ("arrived", "svc.second")
        second.update(version="2")
        assert _told(changes) == ("changed", "svc.second")
        second.retire()
        assert _told(changes) == ("departed", "svc.second")
        third = connect()
        third.serve("svc.third", Nothing())
        assert _told(changes) == ("arrived", "svc.third")
        third.close()
        assert _told(changes) == ("departed", "svc.third")
    assert list(changes) == []


def _told(changes):
    change = changes.next(20)
    return change.what, change.found.subject


def test_a_feed_can_be_awaited(bus, other):
    bus.serve("svc.first", Nothing())

    async def watch():
        with other.watch("svc.>") as changes:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    async for change in changes:
                        assert change.found.subject == "svc.first"
                        await asyncio.wait_for(anext(changes), 0.01)
            bus.serve("svc.second", Nothing())
            second = await asyncio.wait_for(anext(changes), 20)
        assert [change async for change in changes] == []
        return second.found.subject

    assert asyncio.run(watch()) == "svc.second"


def test_a_node_announces_no_more_than_others_believe(bus):
    for number in range(1000):
        bus.i_am(f"plant.sensor{number}", "sensor")
    with pytest.raises(UsageError, match="serve some of them from another process"):
        bus.serve("svc.more", Nothing())
