"""What the peers want, as a publisher sees it, against a plain list of rows."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import filters
from infobus.filters import Matcher
from infobus.protocols.interest.own_rows import channel_pattern, touches
from infobus.protocols.interest.peer_rows import PeerRows
from infobus.subjects import matches, overlaps

patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
wheres = st.sampled_from(["", "n > 2", "n == 1", "n in [3, 4]", "not a filter"])
tables = st.lists(
    st.tuples(
        st.sampled_from("xyz"), st.lists(st.tuples(patterns, wheres), max_size=4, unique=True)
    ),
    max_size=8,
)
subjects = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


def wanted(peer_rows, subject, event):
    answer = peer_rows.wanted(subject)
    return answer if isinstance(answer, bool) else answer(event)


def fits(where, event):
    # One that is not understood counts as none.
    return where in ("", "not a filter") or filters.compile(where).matches(event)


def told(tables, dead=(), **limits):
    """The rows held after these tables were told one after the other, and what is wanted then."""
    peer_rows, rows_of = PeerRows(**limits), {}
    for version, (peer, rows) in enumerate(tables, start=1):
        peer_rows.update(peer, 0, version, rows)
        rows_of[peer] = rows
    for peer in dead:
        peer_rows.forget(peer)
        rows_of.pop(peer, None)
    return peer_rows, rows_of


@given(tables, st.sets(st.sampled_from("xyz")), subjects, st.integers(0, 5), st.integers(1, 2))
def test_a_publisher_asks_exactly_what_is_wanted(tables, dead, subject, n, depth):
    peer_rows, rows_of = told(tables, dead, depth=depth)
    fitting = [
        where for rows in rows_of.values() for pattern, where in rows if matches(pattern, subject)
    ]
    assert (peer_rows.wanted(subject) is False) == (not fitting)
    if "not a filter" not in fitting:
        assert wanted(peer_rows, subject, {"n": n}) == any(fits(w, {"n": n}) for w in fitting)
    elif any(fits(where, {"n": n}) for where in fitting):
        assert wanted(peer_rows, subject, {"n": n})
    channel = ".".join(subject.split(".")[:depth])
    assert set(peer_rows.listeners(channel)) == {
        peer
        for peer, rows in rows_of.items()
        if touches({channel_pattern(pattern, depth) for pattern, _ in rows}, channel)
    }
    if not rows_of:
        assert not (len(peer_rows.trie) or len(peer_rows.channel_trie) or peer_rows.patterns)
        assert peer_rows.count == 0


@given(tables, patterns)
def test_the_rows_that_overlap_a_pattern_are_found_once(tables, pattern):
    peer_rows, rows_of = told(tables)
    expected = {row for rows in rows_of.values() for row in rows if overlaps(row[0], pattern)}
    assert sorted(peer_rows.overlapping(pattern)) == sorted(expected)


@given(
    tables,
    st.lists(subjects, max_size=4),
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from(["x", ""]),
)
def test_rows_that_are_not_held_are_never_missed(tables, published, spare, most, dead):
    """Whatever is let go for lack of room: who wants an event gets it, and is a listener."""
    limits = {"spare_count_max": spare, "rows_count_max": most}
    peer_rows = PeerRows(**limits)
    rows_of = {}
    for version, (peer, rows) in enumerate(tables, start=1):
        for subject in published[version - 1 : version]:
            peer_rows.need(subject.split(".")[0])
        peer_rows.update(peer, 0, version, rows)
        rows_of[peer] = rows
    peer_rows.forget(dead)
    rows_of.pop(dead, None)
    for peer, rows in rows_of.items():
        for pattern, where in rows:
            for subject in ("a", "b", "a.b", "b.a.b"):
                for n in (1, 3):
                    if matches(pattern, subject) and fits(where, {"n": n}):
                        assert wanted(peer_rows, subject, {"n": n})
                        assert peer in peer_rows.listeners(subject.split(".")[0])
    for peer in list(rows_of):
        peer_rows.forget(peer)
    assert not (len(peer_rows.let_go_trie) or len(peer_rows.channel_trie) or peer_rows.count)


def test_a_channel_that_is_published_on_after_its_rows_were_let_go_is_unsure_until_asked():
    peer_rows = PeerRows(spare_count_max=1)
    table = [("a.x", "n == 1"), ("b.x", "n == 1"), ("c.x", "n == 1")]
    peer_rows.update("p", 0, 2, table)
    assert list(peer_rows.records["p"].rows) == ["a.x"]
    peer_rows.need("b")
    assert peer_rows.wanted("b.x") is True
    assert peer_rows.records["p"].is_missed
    assert peer_rows.update("p", 0, 2, table)
    assert list(peer_rows.records["p"].rows) == ["a.x", "b.x"]
    assert not wanted(peer_rows, "b.x", {"n": 2})
    assert peer_rows.wanted("b.y") is False
    assert not peer_rows.records["p"].is_missed
    assert not peer_rows.update("p", 0, 2, table)


def test_a_publisher_holds_the_rows_of_what_it_publishes_however_many_there_are_on_the_bus():
    peer_rows = PeerRows(spare_count_max=100)
    peer_rows.need("c7")
    for peer in range(20):
        table = [(f"c{number % 100}.s{number}", "n == 1") for number in range(1000)]
        peer_rows.update(f"p{peer}", 0, 2, table)
    assert peer_rows.count <= 100 + 20 * 10
    assert not wanted(peer_rows, "c7.s107", {"n": 2})
    assert peer_rows.wanted("c7.s108") is False


def test_a_peer_with_a_million_rows_is_sent_everything_of_their_channels():
    peer_rows = PeerRows(rows_count_max=1000)
    peer_rows.update("p", 0, 2, ((f"a.s{number}", "n == 1") for number in range(1_000_000)))
    assert peer_rows.count == 1000
    assert peer_rows.refused == 999_000
    assert peer_rows.records["p"].version == 2
    assert peer_rows.wanted("a.s999999") is True
    assert peer_rows.wanted("b.x") is False
    peer_rows.need("a")
    assert not peer_rows.records["p"].is_missed, "asking again would bring no more"


def test_a_peer_with_very_many_channels_is_sent_everything():
    peer_rows = PeerRows(rows_count_max=10)
    peer_rows.update("p", 0, 2, ((f"c{number}.x", "") for number in range(30_000)))
    assert peer_rows.wanted("anything.else") is True
    assert peer_rows.wanted("~test.anything") is True
    assert len(peer_rows.let_go_trie) <= 10_003


def test_a_filter_that_is_not_understood_counts_as_none():
    peer_rows = PeerRows()
    peer_rows.update("p", 0, 2, [("a", "newer-function(n)"), ("a", "n == 1")])
    assert peer_rows.wanted("a") is True
    assert peer_rows.wanted("a") is True
    assert peer_rows.unreadable == 1


def test_an_answer_stays_what_it_was_while_rows_change():
    peer_rows = PeerRows()
    peer_rows.update("p", 0, 2, [("a", "n == 1")])
    before = peer_rows.wanted("a")
    peer_rows.update("p", 2, 3, [("a", "n == 2")], (), [("a", "n == 1")])
    assert before({"n": 1})
    assert not wanted(peer_rows, "a", {"n": 1})
    assert wanted(peer_rows, "a", {"n": 2})


def test_one_filter_more_or_less_among_many_does_not_make_everything_anew(monkeypatch):
    made, peer_rows = [], PeerRows()
    monkeypatch.setattr(
        Matcher, "__init__", lambda self, make=Matcher.__init__: made.append(make(self))
    )
    peer_rows.update("p", 0, 1, [("a", f"n == {n}") for n in range(800)])
    for n in range(800, 1200):
        changes = [("a", f"n == {n}")], (), [("a", f"n == {n - 800}")]
        peer_rows.update("p", 1, n, *changes)
        assert wanted(peer_rows, "a", {"n": n})
    assert len(made) <= 1 + 2 * 400 // 100
    assert not wanted(peer_rows, "a", {"n": 0})


def test_peers_that_want_the_same_share_it():
    peer_rows = PeerRows()
    for peer in "pqr":
        peer_rows.update(peer, 0, 2, [("a", "n == 1")])
    before = peer_rows.wanted("a")
    peer_rows.forget("q")
    assert peer_rows.wanted("a") == before
    assert peer_rows.overlapping("a") == [("a", "n == 1")]


def test_changes_after_something_that_is_missing_are_not_taken_in():
    peer_rows = PeerRows()
    peer_rows.update("n", 0, 2, [("a", "")])
    assert not peer_rows.update("n", 3, 4, [("c", "")])
    assert peer_rows.records["n"].version == 2


@pytest.mark.world
@pytest.mark.parametrize(("where", "is_loaded"), [("", False), ("n == 1", True)])
def test_a_bus_without_filters_does_not_load_the_language(where, is_loaded):
    code = f"""
import sys
from infobus.protocols.reliable.node import Node
from infobus.protocols.frames import wire
node = Node("me")
node.add_interest(["b"], 0.0, {where!r})
node.peer_up("p", 0.0)
node.take(wire.Interest("p", (1, 1), 1, 0, 2, ["a"], [], 0, [{where!r}]), 0.0)
node.wanted("a")
node.tick(1.0)
print("infobus.filters" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(is_loaded), done.stderr
