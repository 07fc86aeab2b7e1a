"""Rows across the border between two buses: renamed, filtered, and within limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import filters
from infobus.protocols.interest.federation import Agreement, Imports
from infobus.subjects import matches

names = st.lists(st.sampled_from(["a", "b"]), max_size=2).map(".".join)
patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")
wheres = st.sampled_from(
    ["", "n > 2", "n == 1", "n in [3, 4] || exists(c)", "from a newer version("]
)
rows = st.lists(st.tuples(patterns, wheres), max_size=5)
subjects = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)
events = st.fixed_dictionaries({"n": st.integers(0, 5)}, optional={"c": st.just(1)})


def below(name, subject):
    return f"{name}.{subject}" if name else subject


def fits(where, event):
    return not where or filters.compile(where).matches(event)


@given(rows, names, names, wheres.filter(lambda w: "newer" not in w), subjects, events)
def test_a_neighbour_is_asked_for_exactly_what_is_wanted_and_agreed(
    rows, inside, outside, mandatory, subject, event
):
    exported = Agreement(inside, outside, mandatory).exported(rows)
    is_asked_for = any(matches(p, below(outside, subject)) and fits(w, event) for p, w in exported)
    is_wanted = any(
        matches(pattern, below(inside, subject)) and ("newer" in where or fits(where, event))
        for pattern, where in rows
    )
    assert is_asked_for == (is_wanted and fits(mandatory, event))


@given(rows, names, names)
def test_what_is_imported_goes_back_the_way_it_came(rows, inside, outside):
    agreement = Agreement(inside, outside)
    there = agreement.exported(rows)
    assert agreement.exported(agreement.imported(there)) == there


@given(st.lists(st.tuples(rows, st.floats(0, 2)), max_size=8), st.integers(1, 4))
def test_a_neighbour_gets_at_least_what_it_asks_for_within_the_agreement(tables, most):
    """However many rows it tells, and however fast; and no more rows than agreed are held."""
    agreement = Agreement("a", "b", "n < 5")
    imports = Imports(agreement, rows_count_max=most, changes_per_s=2.0, changes_count_max=4)
    held, now_s = set(), 0.0
    for rows, pause_s in tables:
        now_s += pause_s
        added, removed = imports.import_rows("next", rows, now_s)
        assert held.isdisjoint(added)
        assert held.issuperset(removed)
        held = (held | set(added)) - set(removed)
        assert len(held) <= max(most, len(agreement.widest()))
        if held != set(agreement.widest()):
            assert held == set(agreement.imported(rows))
    assert set(imports.forget("next")) == held
    assert imports.forget("next") == []


def test_a_neighbour_with_a_million_rows_costs_one():
    imports = Imports(Agreement("plant", "eu.plant", "n > 1"))
    widest = [("plant", "n > 1"), ("plant.>", "n > 1")]
    table = [(f"eu.plant.s{number}", "") for number in range(1_000_000)]
    assert imports.import_rows("eu", table, 0.0) == (widest, [])
    assert imports.refused == {"eu": 1_000_000}
    assert imports.import_rows("eu", table[:1], 0.0) == (
        [("plant.s0", "n > 1")],
        widest,
    )


def test_a_neighbour_that_changes_its_rows_too_fast_gets_everything_until_it_is_calm():
    imports = Imports(Agreement(), changes_per_s=1.0, changes_count_max=5)
    tables = [[(f"s{turn}.{number}", "") for number in range(3)] for turn in range(3)]
    assert imports.import_rows("n", tables[0], 0.0) == (tables[0], [])
    assert imports.import_rows("n", tables[1], 0.0) == ([(">", "")], tables[0])
    assert imports.import_rows("n", tables[2], 1.0) == ([], [])
    assert imports.refused == {"n": 6}
    assert imports.import_rows("n", tables[2], 60.0) == (tables[2], [(">", "")])


def test_going_and_coming_back_does_not_renew_the_allowance():
    imports = Imports(Agreement(), changes_per_s=1.0, changes_count_max=3)
    table = [("a", ""), ("b", ""), ("c", "")]
    imports.import_rows("n", table, 0.0)
    imports.forget("n")
    assert imports.import_rows("n", table, 0.0) == ([(">", "")], [])


@pytest.mark.parametrize("pattern", ["", "a..b", "a.>.b", "\x00", "x" * 5000])
def test_malformed_rows_are_refused_one_by_one(pattern):
    imports = Imports(Agreement())
    assert imports.import_rows("n", [(pattern, ""), ("a", "")], 0.0) == ([("a", "")], [])
    assert imports.refused == {"n": 1}
