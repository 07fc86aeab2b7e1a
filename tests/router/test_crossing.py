"""What crosses between sites, and what does not."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

import infobus
from infobus import Bounds, LossError, UsageError
from infobus.bus.bus import interior
from infobus.bus.runtime.runtime import Runtime
from infobus.protocols.reliable.effects import Lost
from infobus.router.settings import AgreementSettings
from tests.router.sites import CHAIN, DOUBLE_RING, FULL, RING, TREE, eventually, is_quiet, received

ALL = {"inside": "plant", "outside": "plant"}


def crossed(router) -> int:
    return sum(one.out.events + one.into.events for one in router.status().agreements)


@pytest.mark.parametrize("links", [CHAIN, RING, DOUBLE_RING, FULL, TREE], ids=len)
def test_every_site_that_wants_an_event_gets_it_once_in_order_whatever_the_links(sites, links):
    world = sites(links)
    world.start_all(ALL)
    names = world.names()
    subscriptions = {name: world.buses[name].subscribe("plant.>") for name in names}
    for name in names:
        world.until_wanted(name, f"plant.{name}", "".join(one for one in names if one != name))
    for number in range(50):
        for name in names:
            world.buses[name].publish(f"plant.{name}", {"of": name, "n": number})
    for subscription in subscriptions.values():
        found = received(subscription, 50 * len(names))
        for name in names:
            assert [one["n"] for one in found if one["of"] == name] == list(range(50))
    assert all(is_quiet(one) for one in subscriptions.values())


def test_an_event_keeps_its_id_number_time_headers_class_and_sender(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    here = world.buses["a"].subscribe("plant.>")
    there = world.buses["c"].subscribe("plant.>")
    world.until_wanted("a", "plant.x", "c")
    world.buses["a"].publish("plant.x", {"n": 1}, priority="emergency", headers={"trace": "t"})
    one, other = here.receive(timeout_s=5), there.receive(timeout_s=5)
    assert (one.id, one.time, one.headers, one.priority) == (
        other.id,
        other.time,
        other.headers,
        other.priority,
    )
    assert one.sender == other.sender == world.buses["a"].node
    assert (one.via, other.via) == ("", world.routers["c"].inside.node)


def test_what_nobody_beyond_wants_does_not_leave_its_site(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    world.buses["c"].subscribe("plant.wanted")
    world.until_wanted("a", "plant.wanted", "c")
    before = world.buses["a"].stats().quenched
    for _ in range(10):
        world.buses["a"].publish("plant.other", {"n": 1})
    assert world.buses["a"].stats().quenched == before + 10
    assert crossed(world.routers["a"]) == 0
    assert all(
        link.sent_frames == link.sent_bytes == 0
        for router in world.routers.values()
        for link in router.status().neighbours
    )


def test_a_link_carries_one_copy_however_many_sites_behind_it_want_an_event(sites):
    world = sites(["at", "tb", "tc", "td"])
    world.start_all(ALL)
    there = [world.buses[name].subscribe("plant.x") for name in "bc"]
    world.until_wanted("a", "plant.x", "bc")
    for number in range(20):
        world.buses["a"].publish("plant.x", {"n": number})
    for subscription in there:
        received(subscription, 20)
    sent = {
        (name, link.name[0]): link.sent_bytes
        for name, router in world.routers.items()
        for link in router.status().neighbours
    }
    copy = sent["a", "t"]
    assert copy > 0
    used = {("a", "t"), ("t", "b"), ("t", "c")}
    assert sent == {pair: copy if pair in used else 0 for pair in sent}


def test_interest_that_ends_beyond_ends_here(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    with world.buses["c"].subscribe("plant.x"):
        world.until_wanted("a", "plant.x", "c")
    world.until_wanted("a", "plant.x", "")


def test_a_producer_is_told_what_filters_beyond_ask_for(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    world.buses["c"].subscribe("plant.x", where="n > 40")
    world.until_wanted("a", "plant.x", "c")
    assert world.buses["a"].quench("plant.x").wants({"n": 3}) is False


def test_names_are_translated_both_ways(sites):
    world = sites(["ab"])
    world.start("a", {"inside": "plant.*.oven.>", "outside": "eu.{1}.ovens.>"})
    world.start("b", {"inside": "swedish.*.>", "outside": "eu.*.>"})
    world.until_linked()
    swedes = world.buses["b"].subscribe("swedish.line4.>")
    locals_ = world.buses["a"].subscribe("plant.>")
    world.until_wanted("a", "plant.line4.oven.heat", "b")
    world.until_wanted("b", "swedish.line1.ovens.heat", "a")
    world.buses["a"].publish("plant.line4.press.heat", {"n": 0})
    world.buses["a"].publish("plant.line4.oven.heat", {"n": 1})
    world.buses["b"].publish("swedish.line1.ovens.heat", {"n": 2})
    assert swedes.receive(timeout_s=5).subject == "swedish.line4.ovens.heat"
    told = [locals_.receive(timeout_s=5) for _ in range(3)]
    assert [
        (one.subject, one.data["n"]) for one in sorted(told, key=lambda one: one.data["n"])
    ] == [
        ("plant.line4.press.heat", 0),
        ("plant.line4.oven.heat", 1),
        ("plant.line1.oven.heat", 2),
    ]
    assert is_quiet(swedes)


def test_a_mandatory_filter_holds_both_ways_at_either_end(sites):
    world = sites(["ab"])
    world.start("a", {**ALL, "where": "secret == false"})
    world.start("b", ALL)
    world.until_linked()
    for name, other in ("ab", "ba"):
        subscription = world.buses[other].subscribe(f"plant.{name}")
        world.until_wanted(name, f"plant.{name}", other)
        world.buses[name].publish(f"plant.{name}", {"secret": True, "n": 1})
        world.buses[name].publish(f"plant.{name}", {"n": 2})
        world.buses[name].publish(f"plant.{name}", {"secret": False, "n": 3})
        assert received(subscription, 1) == [{"secret": False, "n": 3}]
    assert world.routers["b"].status().agreements[0].out.events == 1


def test_the_first_agreement_that_fits_a_subject_governs_it(sites):
    world = sites(["ab"])
    world.start("a", {"inside": "plant.open", "outside": "open"}, ALL)
    world.start("b", {"inside": "", "outside": ""})
    world.until_linked()
    seen = set()
    world.buses["b"].subscribe(">", callback=lambda event: seen.add(event.subject))

    def both_came() -> bool:
        world.buses["a"].publish("plant.open.x", {"n": 1})
        world.buses["a"].publish("plant.x", {"n": 2})
        return len(seen) >= 2

    eventually(both_came)
    assert seen == {"open.x", "plant.x"}


def test_transactions_stay_whole_and_test_events_apart(sites):
    world = sites(CHAIN)
    world.start_all({"inside": "", "outside": ""})
    there = world.buses["c"].subscribe(">")
    tests = world.buses["c"].subscribe("orders.>", test=True)
    world.until_wanted("a", "orders.x", "c")
    eventually(lambda: world.routers["a"].status().agreements[0].rows_wanted >= 2)
    with world.buses["a"].transaction() as block:
        block.publish("orders.new", {"n": 1})
        block.publish("stock.out", {"n": 2})
    world.buses["a"].publish("orders.x", {"n": 3}, test=True)
    one = there.receive(timeout_s=5)
    assert [event.subject for event in one.data] == ["orders.new", "stock.out"]
    assert is_quiet(there)
    assert [event.test for event in (tests.receive(timeout_s=5), tests.receive(timeout_s=5))] == [
        False,
        True,
    ]


def test_a_transaction_that_two_agreements_share_is_refused_and_its_loss_is_told(sites):
    world = sites(["ab"])
    one, other = {"inside": "orders", "outside": "o"}, {"inside": "stock", "outside": "s"}
    world.start("a", one, other)
    world.start("b", {"inside": "", "outside": ""})
    world.until_linked()
    there = world.buses["b"].subscribe_many(["o.>", "s.>"])
    world.until_wanted("a", "orders.x", "b")
    world.until_wanted("a", "stock.x", "b")
    with world.buses["a"].transaction() as block:
        block.publish("orders.new", {"n": 1})
        block.publish("stock.out", {"n": 2})
    for _ in "os":
        with pytest.raises(LossError):
            there.receive(timeout_s=30)
    with world.buses["a"].transaction() as block:  # what nobody beyond wants shares nothing
        block.publish("orders.new", {"n": 3})
        block.publish("private.x", {"n": 4})
    assert [event.data["n"] for event in there.receive(timeout_s=30).data] == [3]
    assert [one.out.lost for one in world.routers["a"].status().agreements] == [1, 1]


def test_a_transaction_that_two_agreements_share_where_it_comes_in_is_refused_there(sites):
    world = sites(["ab"])
    world.start("a", {"inside": "", "outside": ""})
    world.start("b", *({"inside": one, "outside": one} for one in ("orders", "stock")))
    world.until_linked()
    there = world.buses["b"].subscribe_many(["orders.>", "stock.>"])
    world.until_wanted("a", "orders.x", "b")
    world.until_wanted("a", "stock.x", "b")
    with world.buses["a"].transaction() as block:
        block.publish("orders.new", {"n": 1})
        block.publish("stock.out", {"n": 2})
    for _ in "os":
        with pytest.raises(LossError):
            there.receive(timeout_s=30)
    assert [one.into.lost for one in world.routers["b"].status().agreements] == [1, 1]


def test_classes_that_are_not_agreed_go_as_regular(sites):
    world = sites(["ab"])
    world.start("a", {**ALL, "classes": ["business", "regular"]})
    world.start("b", ALL)
    world.until_linked()
    there = world.buses["b"].subscribe("plant.>")
    world.until_wanted("a", "plant.x", "b")
    for number, class_ in enumerate(["emergency", "business", "regular"]):
        world.buses["a"].publish("plant.x", {"n": number}, priority=class_)
    told = {
        event.data["n"]: event.priority for event in (there.receive(timeout_s=5) for _ in "123")
    }
    assert told == {0: "regular", 1: "business", 2: "regular"}


def test_a_rate_holds_back_and_loses_nothing(sites):
    world = sites(["ab"])
    world.start("a", {**ALL, "max_rate": 200.0})
    world.start("b", ALL)
    world.until_linked()
    there = world.buses["b"].subscribe("plant.>")
    world.until_wanted("a", "plant.x", "b")
    for number in range(100):
        world.buses["a"].publish("plant.x", {"n": number})
    first = there.receive(timeout_s=5)
    began_s = time.monotonic()
    assert first.data["n"] == 0
    assert [one["n"] for one in received(there, 99)] == list(range(1, 100))
    assert time.monotonic() - began_s > 0.2  # half a second, less the burst that is allowed


def test_too_many_rows_from_beyond_become_one(sites):
    world = sites(["ab"])
    world.start("a", {**ALL, "rows_max": 5})
    world.start("b", ALL)
    world.until_linked()
    for number in range(8):
        world.buses["b"].subscribe(f"plant.x{number}")
    eventually(lambda: world.routers["a"].status().agreements[0].rows_refused)
    agreement = world.routers["a"].status().agreements[0]
    assert agreement.rows_wanted == 2  # `plant`, and what is below it
    assert str(world.buses["a"].quench("plant.unheard").expression()) == "everything"


def test_a_loss_before_the_router_is_told_beyond(sites):
    world = sites(["ab"])
    bounds = Bounds(queue_count_max=500)
    world.start("a", {**ALL, "when_full": "drop_oldest", "max_rate": 50.0}, bounds=bounds)
    world.start("b", ALL)
    world.until_linked()
    there = world.buses["b"].subscribe("plant.>", on_loss="raise")
    world.until_wanted("a", "plant.x", "b")
    for number in range(2_000):
        world.buses["a"].publish("plant.x", {"n": number})

    def is_told() -> bool:
        try:
            there.receive(timeout_s=1)
        except LossError as loss:
            return loss.sender == world.routers["b"].inside.node
        except TimeoutError:
            return False
        return False

    eventually(is_told)


def test_a_loss_that_may_be_of_any_class_is_told_in_each_that_has_crossed(sites):
    world = sites(["ab"])
    world.start_all(ALL)
    there = world.buses["b"].subscribe("plant.>", on_loss="raise")
    world.until_wanted("a", "plant.x", "b")
    for class_ in ("regular", "emergency"):
        world.buses["a"].publish("plant.x", {"n": class_}, priority=class_)
    received(there, 2)
    runtime = interior(world.routers["a"].inside).runtime
    with runtime.lock:  # as when a publisher cannot be reached any more
        runtime.report(Lost("somebody", "", 0, None, "unreachable"), ("plant",))
    told = []
    for _ in range(2):
        with pytest.raises(LossError) as loss:
            there.receive(timeout_s=20)
        told.append(loss.value.priority)
    assert sorted(told) == ["emergency", "regular"]


class TestDomains:
    @pytest.fixture
    def world(self, sites):
        """a in eu.se, b in us (between them), c in eu.de."""
        world = sites(CHAIN)
        for name, domain in (("a", "eu.se"), ("b", "us"), ("c", "eu.de")):
            bounds = {"domains": ["eu"]} if domain != "us" else {}
            world.start(
                name,
                {"inside": "plant", "outside": "plant", **bounds},
                {"inside": "open", "outside": "open"},
                domain=domain,
            )
        world.until_linked()
        return world

    def test_what_is_bounded_to_a_domain_passes_through_others_and_stays_in_it(self, world):
        there = {name: world.buses[name].subscribe(">") for name in "bc"}
        world.until_wanted("a", "plant.x", "c")
        world.until_wanted("a", "open.x", "bc")
        world.buses["a"].publish("plant.x", {"n": 1})
        world.buses["a"].publish("open.x", {"n": 2})
        assert there["b"].receive(timeout_s=5).subject == "open.x"
        assert {there["c"].receive(timeout_s=5).subject for _ in "12"} == {"plant.x", "open.x"}
        assert is_quiet(there["b"])

    def test_interest_from_outside_is_not_heard_in_the_domain(self, world):
        world.buses["b"].subscribe("plant.>")
        world.buses["b"].subscribe("open.>")
        world.until_wanted("a", "open.x", "b")
        assert world.routers["a"].paths("plant.x").wanted_by == ()
        assert str(world.buses["a"].quench("plant.x").expression()) == "nothing"

    def test_an_unbounded_router_is_heard_only_by_whom_it_lies_within_the_reach_of(self, world):
        world.buses["c"].subscribe("plant.>")
        world.buses["c"].subscribe("open.>")
        world.until_wanted("b", "open.x", "c")
        assert world.routers["b"].paths("plant.x").wanted_by == ()


def test_hops_bound_what_is_told_and_what_is_passed(sites):
    world = sites(["ab", "bc", "cd"])
    for name in "abcd":
        world.start(name, {**ALL, "hops_max": 2} if name == "a" else ALL)
    world.until_linked()
    there = {name: world.buses[name].subscribe("plant.>") for name in "bcd"}
    world.until_wanted("a", "plant.x", "bc")
    world.until_wanted("d", "plant.x", "bc")
    world.buses["a"].publish("plant.x", {"n": 1})
    assert received(there["b"], 1) == received(there["c"], 1) == [{"n": 1}]
    assert is_quiet(there["d"])


def test_an_agreement_may_name_its_routers(sites):
    world = sites(FULL)
    for name in "abcd":
        bound = {"routers": [world.called("b"), world.called("c")]} if name == "a" else {}
        world.start(name, {**ALL, **bound})
    world.until_linked()
    for name in "bcd":
        world.buses[name].subscribe("plant.>")
    world.until_wanted("a", "plant.x", "bc")


def test_two_routers_of_a_site_do_not_ask_for_what_the_other_asks_for(sites):
    """Else each would believe for ever that somebody wants it."""
    world = sites(["ab", "bc", "ca"])
    world.start("a", ALL)
    world.start("b", ALL)
    world.start("c", ALL, site="a")
    world.until_linked()
    with world.buses["b"].subscribe("plant.x"):
        world.until_wanted("a", "plant.x", "b")
    world.until_wanted("a", "plant.x", "")
    world.until_wanted("b", "plant.x", "")


def test_what_came_in_by_one_router_of_a_site_is_not_taken_out_by_another_one(sites):
    world = sites(["da", "cb"])  # `a` and `c` are on one bus, and know nothing of each other
    for name in "dab":
        world.start(name, ALL)
    world.start("c", ALL, site="a")
    here = world.buses["a"].subscribe("plant.>")
    beyond = world.buses["b"].subscribe("plant.>")
    world.until_wanted("d", "plant.x", "a")
    world.until_wanted("c", "plant.x", "b")
    world.buses["d"].publish("plant.x", {"of": "d"})
    assert received(here, 1) == [{"of": "d"}]
    world.buses["a"].publish("plant.x", {"of": "a"})
    assert received(beyond, 1) == [{"of": "a"}]
    assert is_quiet(beyond)


def test_what_a_site_has_sent_itself_does_not_come_in_by_another_agreement(sites):
    world = sites(["ab"])
    world.start_all(
        {"inside": "plant", "outside": "shared"}, {"inside": "copy", "outside": "shared"}
    )
    copies = world.buses["a"].subscribe("copy.>")
    there = world.buses["b"].subscribe("plant.>")
    world.until_wanted("a", "plant.x", "b")
    world.buses["a"].publish("plant.x", {"n": 1})
    assert received(there, 1) == [{"n": 1}]
    assert is_quiet(copies)


def test_of_a_router_that_is_started_again_nothing_old_is_waited_for(sites, monkeypatch):
    told = []
    monkeypatch.setattr(Runtime, "say_replaced", lambda runtime, node: told.append(node))
    world = sites(["ab", "bc"])
    world.start_all(ALL)
    world.routers["c"].close()
    eventually(lambda: len(world.routers["a"].status().routers) == 1)
    assert not told
    world.start("c", ALL)
    eventually(lambda: len(told) >= 2)  # `a` and `b` say it
    assert len(set(told)) == 1


def test_what_passes_is_written_down_under_the_name_where_it_goes(sites, tmp_path):
    pytest.importorskip("pyarrow")
    from infobus.stores.journal import Journal

    world = sites(["ab"])
    world.start("a", ALL, journal=str(tmp_path / "forwarded"))
    world.start("b", ALL)
    world.until_linked()
    there = {other: world.buses[other].subscribe(f"plant.{name}") for name, other in ("ab", "ba")}
    for name, other in ("ab", "ba"):
        world.until_wanted(name, f"plant.{name}", other)
        world.buses[name].publish(f"plant.{name}", {"of": name})
        received(there[other], 1)
    with world.buses["a"].transaction() as block:
        block.publish("plant.a", {"of": "a"})
    assert len(there["b"].receive(timeout_s=5).data) == 1
    world.routers["a"].close()
    events = list(Journal.open(tmp_path / "forwarded").select().events())
    site = world.called("a")
    assert sorted(event.subject for event in events) == [
        f"{site}.all.plant.a",
        f"{site}.all.plant.a",
        "plant.b",
    ]


def test_guaranteed_events_and_calls_cross_if_an_agreement_says_so(sites):
    class Desk(infobus.Service):
        def double(self, n: int) -> int:
            return 2 * n

    world = sites(CHAIN)
    world.start_all(
        {"inside": "orders", "outside": "eu.orders", "guaranteed": True},
        {"inside": "svc", "outside": "eu.svc", "services": True},
        {"inside": "private", "outside": "eu.private"},
    )
    consumer = world.buses["c"].subscribe("orders.>", durable="billing")
    eventually(lambda: world.routers["a"].status().agreements[0].guaranteed[0].state == "open")
    for number in range(5):
        world.buses["a"].publish("orders.x", {"n": number}, guaranteed=True)
    assert [one["n"] for one in received(consumer, 5)] == list(range(5))
    world.buses["a"].serve("svc.desk", Desk())
    world.buses["a"].serve("private.desk", Desk())
    eventually(lambda: world.buses["c"].who_is_out_there("svc.>", timeout_s=0.2))
    assert world.buses["c"].service("svc.desk").double(21) == 42
    assert not world.buses["c"].who_is_out_there("private.>", timeout_s=0.2)


def test_a_guaranteed_event_crosses_as_a_plain_one_where_nothing_guaranteed_was_agreed(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    durable = world.buses["c"].subscribe("plant.>", durable="journal", live=True)
    world.until_wanted("a", "plant.x", "c")
    world.buses["a"].publish("plant.x", {"n": 1}, guaranteed=True)
    event = durable.receive(timeout_s=20)
    assert (event.data, event.guaranteed) == ({"n": 1}, False)


def test_a_neighbour_that_is_not_agreed_any_more_is_not_linked_and_others_stay(sites):
    world = sites(CHAIN)
    world.start_all(ALL)
    router = world.routers["b"]
    both = router.settings.neighbour
    there = world.buses["c"].subscribe("plant.>")
    world.until_wanted("b", "plant.x", "c")

    def is_up() -> dict[str, bool]:
        return {link.name[0]: link.is_up for link in router.status().neighbours}

    router.change(replace(router.settings, neighbour=both[1:]))
    eventually(lambda: not is_up().get("a") and is_up()["c"])
    eventually(lambda: len(world.routers["a"].status().routers) == 0)
    world.buses["b"].publish("plant.x", {"n": 1})
    assert received(there, 1) == [{"n": 1}]
    router.change(replace(router.settings, neighbour=both))
    eventually(lambda: is_up() == {"a": True, "c": True})


def test_a_change_that_needs_a_new_start_is_refused_and_changes_nothing(sites):
    world = sites(["ab"])
    router = world.start("a", ALL)
    with pytest.raises(UsageError, match="domain: changed"):
        router.change(replace(router.settings, domain="us", agreement=()))
    assert len(router.status().agreements) == 1


def test_agreements_change_while_the_router_runs(sites):
    world = sites(["ab"])
    router = world.start("a", ALL)
    world.start("b", ALL, {"inside": "more", "outside": "more"})
    world.until_linked()
    there = world.buses["b"].subscribe(">")
    world.until_wanted("a", "plant.x", "b")
    more = AgreementSettings("more", "more")
    told = router.change(replace(router.settings, agreement=(*router.settings.agreement, more)))
    assert told == ["begun: more as more"]
    world.until_wanted("a", "more.x", "b")
    told = router.change(replace(router.settings, agreement=(more,)))
    assert told == ["ended: plant as plant"]
    world.until_wanted("a", "plant.x", "")
    world.buses["a"].publish("plant.x", {"n": 1})
    world.buses["a"].publish("more.x", {"n": 2})
    assert received(there, 1) == [{"n": 2}]
