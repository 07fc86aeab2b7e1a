"""Rows and their replication, against plain sets."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.interest import OwnRows, channel_pattern, touches
from infobus.protocols.peer_rows import PeerRows
from infobus.subjects import matches

elements = st.sampled_from(["a", "b", "*"])
patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(elements, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
subjects = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
changes = st.lists(st.tuples(st.booleans(), st.lists(patterns, max_size=3)), max_size=12)


def change(own, adds, some):
    return own.add(some) if adds else own.remove(some)


@given(patterns, subjects, st.integers(1, 3))
def test_a_pattern_touches_the_channel_of_every_subject_it_matches(pattern, subject, depth):
    channel = ".".join(subject.split(".")[:depth])
    if matches(pattern, subject):
        assert touches([channel_pattern(pattern, depth)], channel)


@given(changes, st.integers(1, 2))
def test_own_rows_are_the_patterns_wanted_more_often_than_taken_back(steps, depth):
    own, wanted, version = OwnRows(depth), Counter(), 1
    for adds, some in steps:
        before = set(wanted)
        for pattern in some:
            if adds:
                wanted[pattern] += 1
            elif wanted[pattern]:
                wanted[pattern] -= 1
            wanted += Counter()  # drops what is zero
        assert change(own, adds, some) == (set(wanted) != before)
        version += set(wanted) != before
        assert set(own.added) == set(wanted)
        assert own.version == version
        assert own.channel_patterns() == {channel_pattern(p, depth) for p in wanted}


@given(changes, subjects)
def test_a_channel_is_wanted_without_a_break_since_the_version_that_is_told(steps, channel):
    own = OwnRows(1)
    channel = channel.split(".")[0]
    wanted_at = {1: False}
    for adds, some in steps:
        change(own, adds, some)
        wanted_at[own.version] = touches(own.channel_patterns(), channel)
    version = own.version_that_touched(channel)
    assert (version is not None) == wanted_at[own.version]
    if version is not None:
        assert all(is_wanted for v, is_wanted in wanted_at.items() if v >= version)


@given(
    changes,
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_any_peer_is_brought_up_to_date_by_any_mix_of_deltas(steps, told, forget_at, removed_max):
    """Deltas are made at any time from any version, then lost, doubled and reordered."""
    own = OwnRows(1, removed_count_max=removed_max)
    deltas, history = [], {1: set()}
    for at, (adds, some) in enumerate(steps):
        change(own, adds, some)
        history[own.version] = set(own.added)
        if at == forget_at:
            own.forget_removals(own.version // 2)
        for when, since in told:
            if when == at and since <= own.version:
                start, added, removed = own.since(since)
                deltas.append((start, own.version, added, removed))
    rows = PeerRows()
    for start, version, added, removed in reversed(deltas):
        rows.update("n", start, version, added, removed, 1)
    for start, version, added, removed in deltas * 2:
        rows.update("n", start, version, added, removed, 1)
        record = rows.records.get("n")
        if record is not None and record.version:
            assert record.patterns == history[record.version]
    last = rows.records["n"].version if "n" in rows.records else 0
    start, added, removed = own.since(last)
    rows.update("n", start, own.version, added, removed, 1)
    assert rows.records["n"].patterns == set(own.added)


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sets(patterns, max_size=4)), max_size=8),
    st.sets(st.sampled_from("xyz")),
    subjects,
)
def test_the_tries_agree_with_the_rows(told, dead, subject):
    rows, wanted = PeerRows(), {}
    for version, (peer, some) in enumerate(told, start=1):
        rows.update(peer, 0, version, sorted(some), [], 1)
        wanted[peer] = some
    for peer in dead:
        rows.forget(peer)
        wanted.pop(peer, None)
    assert rows.wants(subject) == any(matches(p, subject) for s in wanted.values() for p in s)
    channel = subject.split(".")[0]
    listeners = {
        peer for peer, s in wanted.items() if touches({channel_pattern(p, 1) for p in s}, channel)
    }
    assert set(rows.listeners(channel)) == listeners
    if not wanted:
        assert len(rows.trie) == len(rows.channel_trie) == 0


def test_rows_past_the_bound_are_counted_and_not_claimed_to_be_known():
    rows = PeerRows(rows_count_max=2)
    assert rows.update("n", 0, 5, ["a", "b", "c"], [], 1)
    assert rows.records["n"].version == 0
    assert rows.records["n"].patterns == {"a", "b"}
    assert rows.refused == 1


def test_changes_after_something_that_is_missing_are_not_taken_in():
    rows = PeerRows()
    rows.update("n", 0, 2, ["a"], [], 1)
    assert not rows.update("n", 3, 4, ["c"], [], 1)
    assert rows.records["n"].version == 2


def test_forgotten_removals_are_never_missing_from_a_delta():
    """A peer that had been away was given a delta without the removals it had missed."""
    own = OwnRows(1)
    own.add(["a"])
    held_by_peer = own.version
    own.remove(["a"])
    own.forget_removals(own.version)
    assert own.since(held_by_peer) == (0, [], [])


def test_removals_are_remembered_within_bounds():
    own = OwnRows(1, removed_count_max=100)
    for number in range(1000):
        own.add([f"s{number}"])
        own.remove([f"s{number}"])
        assert len(own.removed) <= 100
