"""The matcher answers as if every filter were evaluated, whatever its index looks like inside."""

from contextlib import contextmanager

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import UsageError
from infobus.filters import Matcher, compile
from infobus.filters.language.partial import residual
from infobus.filters.matching import bitmap_axis, block, cluster
from infobus.filters.matching.columns import columns_of, rows_of_columns
from tests.filters.strategies import events, filters, objects, simple_tests, tests

# Blocks of bitmaps are for many rows; with these bounds a handful will do. The second bound
# makes several blocks of them, the third lets rows outgrow their edges.
BOUNDS = st.sampled_from([(48, 16_384), (1, 4), (0, 64)])


@contextmanager
def bounded(few, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "FEW", few)
        patch.setattr(cluster, "BLOCK_ROWS_MAX", rows)
        patch.setattr(cluster, "COMPILE_AFTER", 1)
        patch.setattr(block, "BOUNDS_FROM", few)
        patch.setattr(block, "ARRAY_FROM", few // 4)
        patch.setattr(block, "COLUMN_COUNT_MAX", max(few, 2))
        patch.setattr(bitmap_axis, "CUT_COUNT_MAX", max(few, 3))
        yield


def matcher_of(*texts):
    matcher = Matcher()
    for number, text in enumerate(texts):
        matcher.add(number, compile(text))
    return matcher


pools = st.lists(filters(simple_tests, 3) | filters(tests, 6), min_size=1, max_size=12)
changes = st.tuples(
    st.sampled_from(["add", "add", "add", "remove", "replace"]),
    st.integers(0, 9),
    st.integers(0, 11),
)


EDGE_CASES = [
    {"a": 2, "b": 2.0},
    {"a": True, "b": "2"},
    {"a": 2**63, "b": -(2**70)},
    {"a": float("nan"), "b": float("-inf")},
    {"b": 1, "s": "x", "t": []},
    {"a": 1.0, "t": 0},
    {},
]


class Naive:
    """Every filter, evaluated."""

    def __init__(self):
        self.filters = {}

    def change(self, kind, id, filter, matcher):
        """Do the same to both, if it can be done."""
        if kind == "add" and id not in self.filters:
            self.filters[id] = filter
            matcher.add(id, filter)
        elif kind == "remove" and id in self.filters:
            del self.filters[id]
            matcher.remove(id)
        elif kind == "replace" and id in self.filters:
            self.filters[id] = filter
            matcher.replace(id, filter)

    def match(self, event):
        return {id for id, filter in self.filters.items() if filter.matches(event)}


class TestAnswers:
    @settings(max_examples=80, deadline=None)
    @given(
        BOUNDS,
        pools,
        st.lists(events() | objects(), min_size=1, max_size=3),
        st.lists(st.lists(changes, max_size=12), max_size=4),
    )
    def test_are_those_of_every_filter_through_all_changes(self, bounds, pool, happening, rounds):
        matcher, naive = Matcher(), Naive()
        with bounded(*bounds):
            for some in rounds:
                for kind, id, number in some:
                    naive.change(kind, id, pool[number % len(pool)], matcher)
                for event in [*happening, *happening]:
                    found = matcher.match(event)
                    assert len(found) == len(set(found))
                    assert set(found) == naive.match(event)
                    assert matcher.match_any(event) == bool(found)
                batch = columns_of(happening * 4)
                for event, found in zip(
                    rows_of_columns(batch), matcher.match_batch(batch), strict=True
                ):
                    assert set(found) == naive.match(event)
        assert len(matcher) == len(naive.filters)

    @settings(max_examples=60, deadline=None)
    @given(BOUNDS, pools, events(), st.sets(st.sampled_from("a b n s t flag when tags o".split())))
    def test_about_a_part_of_an_event_never_deny_what_can_match(self, bounds, pool, event, hidden):
        known = {name: value for name, value in event.items() if name not in hidden}
        with bounded(*bounds):
            matcher = Matcher()
            for number, filter in enumerate(pool):
                matcher.add(number, filter)
            if any(filter.matches(event) for filter in pool):
                assert matcher.possible(known)
            if matcher.possible(known):
                assert any(residual(filter.tree, known) is not False for filter in pool)
            assert matcher.possible(known, closed=True) == matcher.match_any(known)


class TestIds:
    def test_can_be_anything_hashable(self):
        matcher = Matcher()
        matcher.add(("node", 7), compile("a == 1"))
        assert matcher.match({"a": 1}) == [("node", 7)]
        assert ("node", 7) in matcher

    def test_are_given_once(self):
        matcher = matcher_of("a == 1")
        with pytest.raises(UsageError, match="there is a filter under the id 0 already"):
            matcher.add(0, compile("a == 2"))
        assert matcher.match({"a": 1}) == [0]

    @pytest.mark.parametrize("change", ["remove", "replace"])
    def test_must_be_known(self, change):
        arguments = ["gone"] if change == "remove" else ["gone", compile("a == 2")]
        with pytest.raises(UsageError, match="there is no filter under the id 'gone'"):
            getattr(Matcher(), change)(*arguments)

    @pytest.mark.parametrize("change", ["add", "replace"])
    def test_stand_for_filters_and_keep_theirs_where_something_else_is_given(self, change):
        matcher = matcher_of("a == 1")
        with pytest.raises(UsageError, match="expected a filter, got 'a == 2'; compile its text"):
            getattr(matcher, change)(0 if change == "replace" else 1, "a == 2")
        assert matcher.match({"a": 1}) == [0]


class TestFewRows:
    def test_that_are_asked_about_often_become_a_function_that_answers_the_same(self):
        texts = [
            "a > 1 && b <= 2",
            "a >= 1",
            "b < 5 && s == 'x'",
            "a < 3 && exists(t)",
            "a <= 1e300",
        ]
        matcher = matcher_of(*texts)
        before = [sorted(matcher.match(event)) for event in EDGE_CASES]
        for _ in range(100):
            matcher.match(EDGE_CASES[0])
        assert matcher._index._always[None].compiled
        assert [sorted(matcher.match(event)) for event in EDGE_CASES] == before
        assert [matcher.match_any(event) for event in EDGE_CASES] == list(map(bool, before))
        assert matcher.possible({})
        matcher.add("more", compile("b == b"))
        assert matcher.match({"b": 1}) == ["more"]


class TestManyRows:
    def test_filters_that_are_equal_are_one_row(self):
        matcher = matcher_of(*["a > 1 && b < 2"] * 40, "b < 2 && a > 1")
        assert len(matcher._rows) == 1
        assert len(matcher.match({"a": 2, "b": 1})) == 41
        for id in range(41):
            matcher.remove(id)
        assert matcher.match({"a": 2, "b": 1}) == []

    def test_a_filter_of_too_many_rows_is_evaluated_whole(self):
        text = " && ".join(f"(a == {n} || b > {n})" for n in range(12))
        matcher = matcher_of(text)
        assert matcher.match({"a": 0, "b": 12}) == [0]
        assert matcher.match({"a": 0, "b": 1}) == []

    def test_thousands_of_rows_are_matched_as_each_of_them_alone(self):
        texts = [
            f"a > {n % 97} && b <= {n % 89}" + (' && s == "GM"' if n % 3 else "")
            for n in range(6000)
        ]
        matcher = matcher_of(*texts)
        for id in range(0, 6000, 7):
            matcher.remove(id)
        for event in ({"a": 50, "b": 30.5, "s": "GM"}, {"a": 97.5, "b": 0}, {"a": 2**70, "b": 1}):
            expected = [
                id
                for id, text in enumerate(texts)
                if id % 7 and event["a"] > id % 97 and event["b"] <= id % 89
                if (id % 3 == 0 or event.get("s") == "GM") and event["a"] < 2**63
            ]
            assert sorted(matcher.match(event)) == expected

    def test_what_is_removed_leaves_nothing_behind(self):
        texts = ['s == "x" && a > 1', "tags == 1", '"oil" in tags', 'regex(s, "oil|gas")']
        texts += ['isa("news.Story")', "a + b > 3", "o.a < 5", "!exists(n) && a in [1, 2]"]
        matcher = matcher_of(*texts * 3)
        for id in range(len(texts) * 3):
            matcher.remove(id)
        assert not matcher._rows
        assert not matcher._checks
        left = {name: value for name, value in vars(matcher._index).items() if value}
        assert set(left) <= {"_distinct", "_common"}


class TestBatches:
    def test_may_come_from_lists_arrays_and_arrow(self):
        matcher = matcher_of("a > 1", 's == "x"')
        for columns in (
            {"a": [2, 0, None], "s": ["x", None, "y"]},
            {"a": numpy.array([2.0, 0.0, numpy.nan]), "s": ["x", None, "y"]},
            {"a": numpy.ma.masked_array([2, 0, 5], [False, False, True]), "s": ("x", None, "y")},
            {"a": pyarrow.array([2, 0, None]), "s": pyarrow.chunked_array([["x", None], ["y"]])},
        ):
            assert list(map(sorted, matcher.match_batch(columns))) == [[0, 1], [], []]

    def test_are_made_from_events(self):
        happening = [{"a": 2}, {"s": "x"}, {}]
        assert matcher_of("a > 1", 's == "x"').match_batch(columns_of(happening)) == [[0], [1], []]

    def test_have_columns_of_one_length(self):
        with pytest.raises(UsageError, match="not equally long"):
            Matcher().match_batch({"a": [1], "s": []})


class TestNaN:
    @pytest.mark.parametrize("row_count", [1, 60])
    def test_is_found_by_negated_orders_that_leave_one_number_beside_it(self, row_count):
        """`!(a < 5) && !(a > 5)` holds for 5 and for NaN, so 5 is not all there is to look up."""
        matcher = matcher_of(*[f"!(a < {n}) && !(a > {n})" for n in range(row_count)])
        assert len(matcher.match({"a": float("nan")})) == row_count
        assert matcher.match({"a": 0}) == [0]
        assert matcher.match({"a": 0.5}) == []

    def test_is_all_that_contradicting_negated_orders_leave(self):
        matcher = matcher_of("!(a < 5) && !(a > 3)")
        assert matcher.match({"a": float("nan")}) == [0]
        assert matcher.match({"a": 4}) == []
