"""The matcher answers as if every filter were evaluated, whatever its index looks like inside."""

from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.filters import Matcher, clusters, compile
from infobus.filters.partial import residual
from tests.filters.strategies import events, filters, objects, simple_tests, tests

# Blocks of bitmaps are for many rows; with these bounds a handful will do. The second bound
# makes several blocks of them, the third lets rows outgrow their edges.
BOUNDS = st.sampled_from([(24, 16_384), (1, 4), (0, 64)])


@contextmanager
def bounded(few, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "FEW", few)
        patch.setattr(clusters, "BLOCK_ROWS_MAX", rows)
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
                for event in happening:
                    found = matcher.match(event)
                    assert len(found) == len(set(found))
                    assert set(found) == naive.match(event)
                    assert matcher.match_any(event) == bool(found)
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
