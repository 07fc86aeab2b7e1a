"""Routers find all shortest paths, choose among them, and do not trust their neighbours."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.protocols.frames.routing import (
    CONTROL,
    DATA,
    HOPS_COUNT_MAX,
    TOKEN,
    Hello,
    Parcel,
    RouterTable,
    SeenSoFar,
    id_of,
)
from infobus.protocols.qos.classes import Marks
from infobus.protocols.routing.effects import TokenChanged, Unacceptable
from infobus.protocols.routing.paths import Paths, links_of
from infobus.protocols.routing.relays import Relays
from infobus.protocols.routing.terms import RoutingTerms
from infobus.testing.simulation.routing import oracle
from tests.protocols.routers import Routers

# What paper 002 says of Figure 4: channel 2 keeps the paths {1,3} {5,3} {4,7} {5,7}.
FIGURE_4 = [(1, 2), (1, 3), (2, 4), (2, 5), (3, 5), (4, 7), (5, 7)]
POSSIBLE = [e for e in itertools.combinations(range(1, 8), 2) if e not in FIGURE_4]


def links_between(edges):
    links = {}
    for one, other in edges:
        links.setdefault(str(one), set()).add(str(other))
        links.setdefault(str(other), set()).add(str(one))
    return links


def topologies_of_the_paper():
    """All graphs of channels 1 to 7 of which everything that the paper says is true."""
    for count in range(1, len(POSSIBLE) + 1):
        for more in itertools.combinations(POSSIBLE, count):
            links = links_between([*FIGURE_4, *more])
            if "6" not in links:
                continue
            from_2 = oracle(links, "2")
            if from_2["3"] != {("1", "3"), ("5", "3")} or from_2["7"] != {("4", "7"), ("5", "7")}:
                continue
            if len(min(oracle(links, "1")["7"])) > 2:
                yield [*FIGURE_4, *more]


TOPOLOGIES = list(topologies_of_the_paper())


def built(edges):
    routers = Routers()
    for one, other in edges:
        routers.link(str(one), str(other))
    return routers


def assert_paths(routers, edges):
    links = links_between(edges)
    for name, router in routers.routers.items():
        found = {to: set(router.paths.to(to)) for to in router.paths.hops}
        assert found == {to: paths for to, paths in oracle(links, name).items() if to != name}


def test_the_text_of_the_paper_allows_62_topologies():
    assert len(TOPOLOGIES) == 62


def test_channel_2_of_figure_4_keeps_the_four_paths_of_the_paper():
    routers = built([*FIGURE_4, (6, 7)])
    paths = routers["2"].paths
    assert paths.to("3") == [("1", "3"), ("5", "3")]
    assert paths.to("7") == [("4", "7"), ("5", "7")]


def test_after_channel_8_of_figure_5_is_added_channel_1_reaches_7_through_it_alone():
    routers = built([*FIGURE_4, (6, 7)])
    assert min(map(len, routers["1"].paths.to("7"))) == 3
    routers.link("1", "8")
    routers.link("7", "8")
    assert routers["1"].paths.to("7") == [("8", "7")]
    routers.remove("8")
    assert all(len(path) == 3 for path in routers["1"].paths.to("7"))


@pytest.mark.parametrize("first", range(0, 62, 31))
def test_paths_are_right_in_every_topology_of_the_paper_with_and_without_channel_8(first):
    for edges in TOPOLOGIES[first : first + 31]:
        routers = built(edges)
        assert_paths(routers, edges)
        routers.link("1", "8")
        routers.link("7", "8")
        assert_paths(routers, [*edges, (1, 8), (7, 8)])
        assert routers["1"].paths.to("7") == [("8", "7")]
        routers.remove("8")
        assert_paths(routers, edges)


graphs = st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda e: e[0] < e[1]))


@given(graphs.filter(bool), st.sets(st.integers(1, 8), max_size=2))
@settings(max_examples=200)
def test_paths_are_all_shortest_ones_around_those_to_avoid(edges, avoid):
    links = links_between(edges)
    own, without = min(links), {str(one) for one in avoid} - {min(links)}
    kept = {r: {n for n in ns if n not in without} for r, ns in links.items() if r not in without}
    expected = {to: paths for to, paths in oracle(kept, own).items() if to != own}
    paths = Paths(own, links, without)
    assert {to: set(paths.to(to, 10_000)) for to in paths.hops} == expected
    for to, all_paths in expected.items():
        told = paths.to(to)
        assert len(told) == min(8, len(all_paths))
        assert {path[0] for path in told} == {path[0] for path in all_paths}


def test_a_link_that_only_one_end_tells_of_is_none():
    assert links_of({"a": ["b"], "b": [], "c": ["a", "x"]}) == dict.fromkeys("abc", frozenset())


# Choosing.


def split_of(relays, to, hops, load=lambda _: 0, now_s=0.0):
    return relays.split((1, "c/x"), to, now_s, lambda one: hops.get(one, ()), load)


def test_few_relays_cover_all_destinations_and_the_least_loaded_one_is_chosen():
    relays = Relays()
    hops = {1: ("a", "b"), 2: ("b", "c"), 3: ("c", "d")}
    split = split_of(relays, (1, 2, 3), hops, {"a": 0, "b": 5, "c": 0, "d": 0}.__getitem__)
    assert split == {"c": (2, 3), "a": (1,)}


def test_a_flow_keeps_its_way_while_that_is_good_and_chooses_anew_when_it_is_not():
    relays = Relays()
    hops = {1: ("a", "b")}
    assert split_of(relays, (1,), hops, {"a": 0, "b": 5}.__getitem__) == {"a": (1,)}
    hops[2] = ("b",)
    assert split_of(relays, (1, 2), hops, {"a": 9, "b": 5}.__getitem__) == {"a": (1,), "b": (2,)}
    hops[1] = ("b",)
    relays.forget_splits()
    assert split_of(relays, (1,), hops) == {"b": (1,)}
    assert split_of(relays, (3,), hops) == {}


def test_flows_that_are_over_are_forgotten():
    relays = Relays()
    split_of(relays, (1,), {1: ("a",)}, now_s=0.0)
    relays.split((2, "c/x"), (1,), 20.0, lambda _: ("a",), lambda _: 0)
    relays.prune(40.0)
    assert len(relays) == 1


def test_there_are_never_more_flows_than_the_limit(monkeypatch):
    monkeypatch.setattr("infobus.protocols.routing.relays._FLOWS_COUNT_MAX", 16)
    relays = Relays()
    for source in range(100):
        relays.split((source, "c/x"), (1,), 0.0, lambda _: ("a",), lambda _: 0)
    assert 14 <= len(relays) <= 16


# Carrying.


@pytest.fixture
def square():
    """A ring of four; `d` is two hops from `a`, by `b` and by `c`."""
    routers = built([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    routers.declare("d", "c/x")
    return routers


def carried(routers, name):
    return routers[name].counts["carried"]


def test_each_router_gets_one_copy_over_one_link(square):
    square.declare("b", "c/*")
    assert square.put("a", "c/x", b"1")
    square.carry()
    assert sorted(square.got) == [("b", b"1"), ("d", b"1")]
    assert (square["a"].counts["sent"], carried(square, "b"), carried(square, "c")) == (1, 1, 0)


def test_nothing_is_sent_where_nobody_wants_it(square):
    assert square.put("a", "c/other", b"1")
    before = square.messages_count
    square.carry()
    assert square.messages_count == before


def test_what_waits_for_a_lost_link_goes_another_way(square):
    square.put("a", "c/x", b"0")
    square.carry()
    used, other = ("b", "c") if carried(square, "b") else ("c", "b")
    square.put("a", "c/x", b"1")
    square.unlink("a", used)
    assert square.got == [("d", b"0"), ("d", b"1")]
    assert carried(square, other) == 1


def test_a_relay_that_knows_of_a_broken_path_before_the_sender_finds_a_way_around(square):
    square.link("b", "c")
    square.mute.add("b")  # `a` does not hear from it that its link with `d` is gone
    square.unlink("c", "d")
    square.mute.add("c")
    for _ in range(2):
        square.put("a", "c/x", b"1")
    square.carry()
    square.mute.clear()
    square.carry()
    assert square.got == [("d", b"1")] * 2


def test_a_parcel_that_comes_back_is_refused(square):
    back = Parcel(
        "b", 1, id_of("a"), "c/x", [id_of("d")], [id_of("a"), id_of("b")], 0, DATA, 0, 0.0, b""
    )
    effects = square["a"].take(back, square.now_s)
    assert isinstance(effects[0], Unacceptable)
    assert square["a"].counts["refused: was here before"] == 1


def test_a_parcel_goes_no_further_than_so_many_hops(square):
    trail = list(range(HOPS_COUNT_MAX))
    far = Parcel("b", 1, 5, "c/x", [id_of("d")], trail, 0, DATA, 0, 0.0, b"")
    assert square["a"].take(far, square.now_s) == []
    assert square["a"].counts["dropped: too many hops"] == 1


# Tables.


def test_a_token_is_seen_by_all_and_goes_with_its_router(square):
    square["d"].add_entry(TOKEN + "l/d")
    square["d"].tell_changes(square.now_s)
    square.carry()
    assert square.others.count(TokenChanged("l/d", True)) == 3
    square.remove("d")
    assert square.others.count(TokenChanged("l/d", False)) == 3
    square.pass_time(40.0)
    assert "d" not in square["a"].tables.tables


def test_who_says_to_be_this_router_does_not_have_the_last_word(square):
    forged = RouterTable("b", "a", 1_000, 0, "a", "", [], [], [])
    assert square["a"].take(forged, square.now_s) == []
    square.carry()
    assert square["d"].tables.tables["a"].version == 1_001
    assert square["d"].tables.tables["a"].neighbours == ("b", "c")


def test_a_table_that_is_too_large_is_refused(square):
    rows = [f"cc/{number}" for number in range(30_000)]
    assert square["a"].take(RouterTable("b", "x", 1, 0, "", "", [], rows), square.now_s) == []
    more = RouterTable("b", "x", 2, 1, "", "", [], ["cc/more"])
    assert isinstance(square["a"].take(more, square.now_s)[0], Unacceptable)


@pytest.mark.parametrize("origin", ["a", "d", "x"])
def test_a_version_that_leaves_no_room_for_another_is_refused(square, origin):
    last = RouterTable("b", origin, 2**63 - 1, 0, "", "", [], [])
    assert isinstance(square["a"].take(last, square.now_s)[0], Unacceptable)
    assert_paths(square, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])


def test_strangers_are_not_listened_to(square):
    table = RouterTable("stranger", "stranger", 1, 0, "", "", ["a"], [])
    assert square["a"].take(table, square.now_s) == []
    assert "stranger" not in square["a"].tables.tables


def test_a_neighbour_that_is_not_accepted_has_no_link():
    routers = Routers()
    routers["a"].accepts = "c".__eq__
    routers.link("a", "b")
    routers.link("a", "c")
    assert list(routers["a"].paths.hops) == ["c"]
    assert routers["a"].links["b"].is_refused and routers["b"].links["a"].refuses
    assert routers["a"].is_met() and routers["b"].is_met()


def test_a_silent_neighbour_is_no_neighbour(square):
    square.mute.add("d")
    square.pass_time(2.0)
    assert sorted(square["a"].paths.hops) == ["b", "c"]
    square.mute.clear()
    square.pass_time(1.0)
    assert sorted(square["a"].paths.hops) == ["b", "c", "d"]


# Overload.

NARROW = RoutingTerms(window_bytes=2_000, marks=Marks(high=4_000, low=1_000))


def narrow_chain():
    """From `a` by `b` to `c`, which confirms nothing for now."""
    routers = Routers(NARROW)
    routers.link("a", "b")
    routers.link("b", "c")
    routers.declare("c", "c/**")
    routers.mute.add("c")
    return routers


def test_a_full_class_is_held_by_neighbours_and_no_other_class_is():
    routers = narrow_chain()
    while routers.put("a", "c/x", bytes(900)):
        routers.carry()
    assert routers["b"].held_for("a") == ["regular"]
    assert routers["a"].links["b"].held == ("regular",)
    assert routers.put("a", "c/911", b"help", rank=0)
    routers.carry()
    # Of its own, a router puts far less than what it carries for others may fill.
    assert 0 < routers["a"].links["b"].queues.waiting("regular") < NARROW.marks.high
    assert routers["b"].links["c"].queues.waiting("emergency") > 0
    routers.mute.clear()
    routers.carry()
    assert routers["a"].links["b"].held == ()
    assert all(
        link.is_idle for router in routers.routers.values() for link in router.links.values()
    )
    first_of_b = [payload for _, payload in routers.got].index(b"help")
    assert first_of_b <= 3  # only what was under way was before it


def test_control_is_not_held_up_by_data():
    routers = narrow_chain()
    while routers.put("a", "c/x", bytes(900)):
        routers.carry()
    assert routers.put("a", "c/y", b"control", kind=CONTROL)
    routers.carry()
    assert ("c", b"control") in routers.got


def test_a_class_that_stays_full_lets_its_oldest_go_and_counts_them():
    routers = narrow_chain()
    while routers.put("a", "c/x", bytes(900)):
        routers.carry()
    for _ in range(60):  # `c` is there, but takes nothing
        routers.now_s += 0.1
        for link in routers["b"].links.values():
            link.heard_s = routers.now_s
        routers["b"].tick(routers.now_s)
    assert routers["b"].counts["dropped: stuck"] > 0
    assert routers["b"].held_for("a") == []


def test_a_lost_confirmation_does_not_close_the_window_for_ever():
    routers = narrow_chain()
    for _ in range(3):
        routers.put("a", "c/x", bytes(900))
        routers["a"].links["b"].must_greet = True
        while isinstance(message := routers["a"].next("b", 10.0), Parcel | Hello):
            routers["b"].take(message, 10.0)
    while (message := routers["b"].next("c", 10.0)) is not None:
        assert not isinstance(message, SeenSoFar)
    routers.carry()
    assert routers["b"].links["c"].under_way >= NARROW.window_bytes
    routers.mute.clear()  # what `b` took out above never arrives
    routers.pass_time(4.0)
    assert routers["b"].links["c"].under_way == 0


def test_a_message_for_somebody_else_is_refused(square):
    hello = Hello("b", "d", 1)
    assert square["a"].take(hello, square.now_s) == []
    assert square["a"].counts["refused: not for me"] == 1
