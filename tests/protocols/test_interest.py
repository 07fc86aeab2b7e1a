"""The rows a node tells, against plain sets of what its subscriptions want."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infobus import filters
from infobus.protocols.interest.cover import Nest
from infobus.protocols.interest.own_rows import OwnRows, channel_pattern, reduced_filters, touches
from infobus.protocols.interest.peer_rows import PeerRows
from infobus.subjects import covers, matches

elements = st.sampled_from(["a", "b", "*"])
patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(elements, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)
wheres = st.sampled_from(
    ["", "n > 2", "n == 1", "n < 0", 'c == "red"', "n in [3, 4]", "n > 2 && n < 2"]
)
rows = st.tuples(patterns, wheres)
changes = st.lists(
    st.tuples(st.lists(rows, max_size=3), st.lists(rows, max_size=2)), min_size=1, max_size=12
)
limits = st.fixed_dictionaries(
    {
        "depth": st.integers(1, 2),
        "rows_count_max": st.sampled_from([2, 5, 100]),
        "filters_count_max": st.sampled_from([1, 2, 64]),
    }
)
subjects = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
events = st.fixed_dictionaries({"n": st.integers(-1, 5)}, optional={"c": st.just("red")})


compiled = cache(filters.compile)


def some_match(rows, subject, event):
    return any(
        matches(pattern, subject) and (not where or compiled(where).matches(event))
        for pattern, where in rows
    )


def reduce_all(own, now_s):
    while (reduction := own.next_reduction(now_s)) is not None:
        own.reduced(reduction, reduced_filters(reduction))
        now_s += 1.0
    return now_s


@given(patterns, subjects, st.integers(1, 3))
def test_a_pattern_touches_the_channel_of_every_subject_it_matches(pattern, subject, depth):
    channel = ".".join(subject.split(".")[:depth])
    if matches(pattern, subject):
        assert touches([channel_pattern(pattern, depth)], channel)


@given(changes)
def test_few_rows_are_told_as_they_are_wanted(steps):
    """Each as long as it is wanted more often than taken back, unless another asks for that too."""
    own, wanted = OwnRows(1), Counter()
    for add, remove in steps:
        told, version = set(own.added), own.version
        wanted.update(add)
        for row in remove:
            wanted[row] -= wanted[row] > 0
        rows = [row for row, uses in wanted.items() if uses]
        expected = {
            row
            for row in rows
            if not any(
                other != row and covers(other[0], row[0]) and other[1] in ("", row[1])
                for other in rows
            )
        }
        assert own.change(add, remove) == (expected != told)
        assert set(own.added) == expected
        assert own.version == version + (expected != told)


@given(changes, limits, st.lists(st.tuples(subjects, events), min_size=4, max_size=8), st.data())
def test_whatever_is_wanted_is_told_at_once_and_for_as_long(steps, limits, some, data):
    own, wanted, now_s, under_way = OwnRows(**limits), Counter(), 0.0, []
    for add, remove in steps:
        own.change(add, remove)
        wanted.update(add)
        for row in remove:
            wanted[row] -= wanted[row] > 0
        for step in data.draw(st.lists(st.sampled_from(["ask", "done"]), max_size=3)):
            now_s += 0.5
            if step == "ask" and (reduction := own.next_reduction(now_s)):
                under_way.append(reduction)
            elif step == "done" and under_way:
                reduction = under_way.pop(0)
                own.reduced(reduction, reduced_filters(reduction))
        for subject, event in some:
            if some_match(+wanted, subject, event):
                assert some_match(own.added, subject, event)
        assert len(own.added) <= max(limits["rows_count_max"], 4 * limits["filters_count_max"])


# So few that many are taken back, and wider ones go before narrower ones and after them.
overlapping = st.tuples(
    st.sampled_from(["*.>", "a.>", "a.a", "a.*.b", "a.a.>", "*.a.b", "b.*", "b.a.a"]),
    st.sampled_from(["", "", "n > 2"]),
)


@given(
    st.lists(st.tuples(*[st.lists(overlapping, max_size=2)] * 2), min_size=1, max_size=16),
    limits,
    st.sampled_from(["a", "b", "a.a", "a.b", "b.a"]),
)
@example([([("*.>", "")], []), ([("a.>", "")], []), ([], [("*.>", "")])], {}, "a")
@example([([("a.>", "")], []), ([("*.>", "")], []), ([], [("a.>", "")])], {}, "a")
@example([([("a.*.b", "")], []), ([("*.a.b", "")], []), ([], [("a.*.b", "")])], {}, "a.a")
def test_a_channel_is_wanted_without_a_break_since_the_version_that_is_told(steps, limits, channel):
    """However the rows that say so come and go: not from before, and all that it was wanted."""
    depth = channel.count(".") + 1
    own = OwnRows(**{**limits, "depth": depth})
    wanted, wanted_since = Counter(), None
    told_at, now_s = {1: False}, 0.0

    def is_touched(rows):
        return touches((channel_pattern(pattern, depth) for pattern, _ in rows), channel)

    for add, remove in steps:
        own.change(add, remove)
        told_at[own.version] = is_touched(own.added)
        wanted.update(add)
        for row in remove:
            wanted[row] -= wanted[row] > 0
        if not is_touched(+wanted):
            wanted_since = None
        elif wanted_since is None:
            wanted_since = own.version
        now_s = reduce_all(own, now_s)
        told_at[own.version] = is_touched(own.added)
    version = own.version_that_touched(channel)
    assert (version is not None) == told_at[own.version]
    if version is not None:
        assert all(is_told for v, is_told in told_at.items() if v >= version)
    if wanted_since is not None:
        assert version <= wanted_since


@given(
    changes,
    limits,
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_any_peer_is_brought_up_to_date_by_any_mix_of_deltas(
    steps, limits, told, forget_at, removed_max
):
    """Deltas are made at any time from any version, then lost, doubled and reordered."""
    own = OwnRows(**{**limits, "depth": 1}, removed_count_max=removed_max)
    deltas, history = [], {1: set()}
    for at, change in enumerate(steps):
        own.change(*change)
        history[own.version] = set(own.added)
        if at == forget_at:
            own.forget_removals(own.version // 2)
        for when, since in told:
            if when == at and since <= own.version:
                deltas.append((own.version, *own.since(since)))
    new, old = PeerRows(), PeerRows()  # the old one knows of patterns only
    for version, start, added, removed, dropped in [*reversed(deltas), *deltas, *deltas]:
        new.update("n", start, version, added, removed, dropped)
        old.update("n", start, version, [(p, "") for p, _ in added], removed)
        if "n" in new.records:
            version = new.records["n"].version
            assert held(new) == history[version]
            assert held(old) == {(pattern, "") for pattern, _ in history[version]}
    last = new.records["n"].version if "n" in new.records else 0
    start, added, removed, dropped = own.since(last)
    new.update("n", start, own.version, added, removed, dropped)
    assert held(new) == set(own.added)


def held(peer_rows):
    filters_of = peer_rows.records["n"].rows.items()
    return {(pattern, where) for pattern, some in filters_of for where in some}


def test_a_filter_is_replaced_under_one_version():
    own = OwnRows()
    own.add(["a.>"], "n > 1")
    own.change([("a.>", "n > 2")], [("a.>", "n > 1")])
    assert own.since(2) == (2, [("a.>", "n > 2")], [], [("a.>", "n > 1")])
    own.remove(["a.>"], "n > 2")
    assert own.since(2) == (2, [], ["a.>"], [])


def test_a_thousand_filters_become_few_rows():
    own = OwnRows()
    for number in range(1000):
        own.add(["trades.>"], f"n == {number}")
        assert len(own.added) <= 4 * 64
    reduce_all(own, 0.0)
    assert len(own.added) <= 64
    assert some_match(own.added, "trades.x", {"n": 999})
    assert not some_match(own.added, "trades.x", {"n": 1000})


def test_a_new_filter_among_many_is_told_at_once_as_one_row_more():
    own = OwnRows(filters_count_max=2)
    for number in range(5):
        own.add(["a"], f"n == {number}")
    now_s = reduce_all(own, 0.0)
    version = own.version
    assert own.add(["a"], "n == 9")
    assert own.since(version) == (version, [("a", "n == 9")], [], [])
    reduce_all(own, now_s)
    assert len(own.added) == 1


def test_one_without_a_filter_absorbs_the_others_until_it_goes():
    own = OwnRows(filters_count_max=2)
    for number in range(2):
        own.add(["a"], f"n == {number}")
    own.add(["a"])
    assert list(own.added) == [("a", "")]
    own.remove(["a"])
    assert list(own.added) == [("a", "n == 0"), ("a", "n == 1")]


def test_a_pattern_absorbs_those_it_covers_until_it_goes():
    own = OwnRows(1)
    own.add(["news.equity.gmc"], "n > 2")
    own.add(["news.equity.*"], "n == 1")
    assert own.add(["news.>"])
    assert list(own.added) == [("news.>", "")]
    assert not own.add(["news.equity.ibm"], "n < 0")
    assert own.change([("news.>", "n > 2")], [("news.>", "")])
    assert set(own.added) == {
        ("news.>", "n > 2"),
        ("news.equity.*", "n == 1"),
        ("news.equity.ibm", "n < 0"),
    }
    own.remove(["news.>"], "n > 2")
    assert ("news.equity.gmc", "n > 2") in own.added


def test_what_is_absorbed_and_told_again_is_one_delta():
    own = OwnRows(1)
    own.add(["news.>"])
    own.add(["news.equity"])
    version = own.version
    own.remove(["news.>"])
    assert own.since(version) == (version, [("news.equity", "")], ["news.>"], [])


@given(st.sets(patterns, max_size=8), st.sets(patterns, max_size=4), patterns)
def test_a_nest_knows_all_that_cover_a_pattern_and_all_that_it_covers(there, gone, pattern):
    nest = Nest()
    for one in sorted(there | gone):
        nest.add(one)
    for one in sorted(gone):
        nest.remove(one)
    others = there - gone - {pattern}
    assert sorted(nest.wider(pattern)) == sorted(o for o in others if covers(o, pattern))
    assert nest.narrower(pattern) == sorted(o for o in others if covers(pattern, o))


def test_filters_taken_back_from_among_many_go_once_an_eighth_is_gone():
    own = OwnRows(filters_count_max=8)
    for number in range(40):
        own.add(["a"], f"n == {number}")
    now_s = reduce_all(own, 0.0)
    for number in range(4):
        own.remove(["a"], f"n == {number}")
        assert own.next_reduction(now_s) is None
    own.remove(["a"], "n == 4")
    reduce_all(own, now_s)
    assert not some_match(own.added, "a", {"n": 4})
    assert some_match(own.added, "a", {"n": 5})


def test_the_answer_to_a_reduction_that_no_longer_applies_is_ignored():
    own = OwnRows(filters_count_max=1)
    own.add(["a"], "n == 1")
    own.add(["a"], "n == 2")
    late = own.next_reduction(0.0)
    own.remove(["a"], "n == 1")
    own.add(["a"], "n == 3")
    assert not own.reduced(late, ["n in [1, 2]"])
    assert some_match(own.added, "a", {"n": 3})


def test_a_filter_too_long_to_tell_makes_its_pattern_unfiltered():
    own = OwnRows()
    own.add(["a"], "n in [" + ", ".join(map(str, range(20_000))) + "]")
    assert list(own.added) == [("a", "")]


@pytest.mark.parametrize(
    ("subject", "told"),
    [("a.b{0}", "a.>"), ("a.b.c{0}.d", "a.b.>"), ("c{0}.x", ">")],
)
def test_very_many_subjects_are_told_as_their_common_beginning(subject, told):
    own = OwnRows(rows_count_max=1000)
    for number in range(3000):
        own.add([subject.format(number)])
        assert len(own.added) <= 1000
    assert list(own.added) == [(told, "")]
    for number in range(100, 3000):
        own.remove([subject.format(number)])
    assert set(own.added) == {(subject.format(number), "") for number in range(100)}


def test_the_smallest_beginnings_are_left_as_they_are():
    own = OwnRows(rows_count_max=100)
    own.add([f"many.x{number}" for number in range(99)])
    own.add(["few.x", "few.y"])
    assert list(own.added) == [("few.x", ""), ("few.y", ""), ("many.>", "")]


def test_names_of_the_bus_are_not_widened_into_what_does_not_cover_them():
    own = OwnRows(rows_count_max=100)
    own.add(["~test.x", "~audit.y"])
    own.add([f"c{number}.x" for number in range(200)])
    own.add(["~audit.z"])
    assert set(own.added) == {(">", ""), ("~test.x", ""), ("~audit.y", ""), ("~audit.z", "")}


def test_forgotten_removals_are_never_missing_from_a_delta():
    """A peer that had been away was given a delta without the removals it had missed."""
    own = OwnRows(1)
    own.add(["a"])
    held_by_peer = own.version
    own.remove(["a"])
    own.forget_removals(own.version)
    assert own.since(held_by_peer) == (0, [], [], [])


def test_long_filters_that_were_removed_are_remembered_within_bounds():
    own = OwnRows()
    for number in range(300):
        own.add(["a"], f"n == {number} || " + "m == 1 || " * 6000 + "o == 1")
        own.remove(["a"], f"n == {number} || " + "m == 1 || " * 6000 + "o == 1")
        own.add(["b"], f"n in [{'1, ' * 10_000}{number}]")
        own.remove(["b"], f"n in [{'1, ' * 10_000}{number}]")
        assert sum(len(where) for _, where in own.removed) <= 8 * 1024 * 1024 + 64 * 1024


def test_removals_are_remembered_within_bounds():
    own = OwnRows(1, removed_count_max=100)
    for number in range(1000):
        own.add([f"s{number}"])
        own.remove([f"s{number}"])
        assert len(own.removed) <= 100
