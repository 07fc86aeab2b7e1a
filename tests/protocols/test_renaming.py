"""Names across a border: every shared name has one name on the other side, rows ask for as much."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadSubject
from infobus.protocols.interest.renaming import Renaming
from infobus.subjects import matches

FORMS = [
    ("", ""),
    ("a", "x.y"),
    ("", "x"),
    ("a.b", ""),
    ("a.>", "x.>"),
    ("a.*.b", "x.*"),
    ("*.a.>", "x.{1}.>"),
    ("a.*.*.>", "{2}.x.{1}.>"),
    ("*.*", "{2}.{1}"),
]
LETTERS = ["a", "b", "x", "y"]
SUBJECTS = [
    ".".join(letters) for count in (1, 2, 3, 4) for letters in product(LETTERS, repeat=count)
]
patterns = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.sampled_from(["a", "b", "x", "*"]), min_size=1, max_size=4),
    st.sampled_from([[], [">"]]),
) | st.just(">")


@pytest.mark.parametrize(("inside", "outside"), FORMS)
def test_a_name_goes_back_the_way_it_came_and_no_two_meet(inside, outside):
    names = Renaming(inside, outside)
    told = {one: names.outward(one) for one in SUBJECTS}
    shared = {one: name for one, name in told.items() if name is not None}
    assert shared
    assert len(set(shared.values())) == len(shared)
    assert all(names.inward(name) == one for one, name in shared.items())


@given(st.sampled_from(FORMS), patterns)
def test_a_row_asks_on_the_other_side_for_exactly_what_it_asks_for_here(forms, pattern):
    names = Renaming(*forms)
    for rename, find in (
        (names.outward_patterns, names.outward),
        (names.inward_patterns, names.inward),
    ):
        renamed = rename(pattern)
        for subject in SUBJECTS:
            there = find(subject)
            is_asked_for = there is not None and any(matches(one, there) for one in renamed)
            assert is_asked_for == (there is not None and matches(pattern, subject))


def test_nothing_becomes_one_of_the_buses_own_subjects():
    names = Renaming("plant.*.>", "{1}.>")
    assert names.outward("plant.~stats.x") is None
    assert names.outward_patterns("plant.~stats.>") == []
    assert Renaming("", "eu").outward("~stats.x") is None
    assert Renaming("", "eu").outward_patterns("~stats.>") == []


def test_test_events_keep_their_space():
    names = Renaming("plant", "eu.plant")
    assert names.outward("~test.plant.x") == "~test.eu.plant.x"
    assert names.inward_patterns("~test.eu.>") == ["~test.plant", "~test.plant.>"]


def test_a_name_that_becomes_too_long_is_not_shared():
    names = Renaming("a", ".".join("x" * 60))
    assert names.outward("a.1.2.3.4") == ".".join("x" * 60) + ".1.2.3.4"
    assert names.outward("a.1.2.3.4.5") is None
    assert names.outward_patterns("a.1.2.3.4.5") == []


@pytest.mark.parametrize(
    ("inside", "outside", "told"),
    [
        ("a.*", "b", "needs each of {1} once, and has none"),
        ("a.*", "b.{1}.{1}", "and has {1}, {1}"),
        ("a.*", "b.{2}", "and has {2}"),
        ("a.*.*", "b.*.{1}", "both '*' and numbers"),
        ("a.*", "b.x{1}", "is a whole element"),
        ("a.{1}", "b", "write '*' there"),
        ("a.>", "b", "the rest has no place"),
        ("a", "b.>", "the rest has no place"),
        ("~stats", "b", "stay on their bus"),
        ("a", "~b", "stay on their bus"),
        ("a..b", "b", "empty element"),
    ],
)
def test_forms_that_do_not_fit_are_refused_with_a_reason(inside, outside, told):
    with pytest.raises(BadSubject, match=told.replace("{", r"\{").replace("*", r"\*")):
        Renaming(inside, outside)


@pytest.mark.parametrize(
    ("inside", "outside", "depths", "splits"),
    [
        ("plant", "eu.plant", (1, 1), False),
        ("", "eu", (1, 2), False),
        ("", "eu", (1, 3), True),
        ("plant.*.oven.>", "eu.{1}.ovens.>", (1, 1), False),
        ("plant.*.oven.>", "{1}.ovens.>", (1, 1), True),
        ("plant.*.oven.>", "{1}.ovens.>", (2, 1), False),
    ],
)
def test_a_name_that_shifts_to_the_left_may_split_a_channel(inside, outside, depths, splits):
    assert Renaming(inside, outside).splits(*depths) == splits


def test_two_forms_meet_if_a_subject_has_a_name_by_both():
    assert Renaming("plant.*.oven.>", "a.{1}.>").meets(Renaming("plant.line4", "b"))
    assert not Renaming("plant.*.oven", "a.{1}").meets(Renaming("plant.line4.press", "b"))
