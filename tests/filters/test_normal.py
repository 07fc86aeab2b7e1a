"""The normal form: true exactly when the filter evaluates to True, and bounded in size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.filters import Filter, compile
from infobus.filters.language import normal
from infobus.filters.language.literals import Rest, Test, needs, tree_of_literal
from infobus.filters.language.normal import AllOf, AnyOf, access, row_count, rows, tree_of
from infobus.filters.language.partial import decided
from infobus.filters.language.tree import Name
from infobus.filters.language.values import read
from tests.filters import strategies

things = strategies.events() | strategies.objects()


def form_of(text):
    return normal.normal(compile(text).tree)


def rows_as_text(text):
    return [
        " & ".join(str(Filter(tree_of_literal(literal))) for literal in row)
        for row in rows(compile(text).tree)
    ]


def is_true(form, x):
    match form:
        case AllOf(parts):
            return all(is_true(part, x) for part in parts)
        case AnyOf(parts):
            return any(is_true(part, x) for part in parts)
        case _:
            return decided(form, x, closed=True)


@settings(max_examples=150)
@given(strategies.filters(), st.lists(things, min_size=1, max_size=5))
def test_the_form_is_true_exactly_when_the_filter_is(filter, xs):
    form, opposite = normal.normal(filter.tree), normal.normal(filter.tree, negated=True)
    for x in xs:
        assert is_true(form, x) == (filter.evaluate(x) is True)
        assert is_true(opposite, x) == (filter.evaluate(x) is False)


@given(strategies.filters(), st.lists(things, min_size=1, max_size=5))
def test_rows_say_the_same_as_the_filter(filter, xs):
    found = rows(filter.tree, limit=10_000)
    for x in xs:
        assert filter.matches(x) == any(all(decided(one, x, True) for one in row) for row in found)


@given(strategies.filters(), things)
def test_a_form_can_be_written_as_a_filter_again(filter, x):
    form = normal.normal(filter.tree)
    if row_count(form) and form != normal.ALWAYS:
        again = Filter(tree_of(form))
        assert again.matches(x) == filter.matches(x)
        assert compile(str(again)) == again


@given(strategies.filters(), st.lists(things, min_size=1, max_size=5))
def test_one_of_the_access_keys_is_true_whenever_the_filter_is(filter, xs):
    keys = access(normal.normal(filter.tree))
    for x in xs:
        if keys is not None and filter.matches(x):
            assert any(decided(key, x, True) for key in keys)


@given(strategies.filters(), things)
def test_what_a_literal_needs_is_there_when_it_is_true(filter, x):
    for row in rows(filter.tree, limit=10_000):
        for literal in row:
            if decided(literal, x, True):
                assert all(read(x, name.path) is not None for name in needs(literal))


class TestRows:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a == 1", ["a == 1"]),
            ("a == 1 || a == 2", ["a in [1, 2]"]),
            ("a != 1 && a != 2", ["!(a in [1, 2])"]),
            ("!(a == 1 || b < 2)", ["a != 1 & !(b < 2)"]),
            ('!(a < "x")', ['a >= "x"']),
            ("flag", ["flag == true"]),
            ("!flag", ["flag == false"]),
            ("flag != false", ["flag == true"]),
            ("require(a)", ["exists(a)"]),
            ("!require(a)", []),
            ("!exists(a)", ["!exists(a)"]),
            ("a == 1 && (b == 2 || c == 3)", ["a == 1 & b == 2", "a == 1 & c == 3"]),
            ("a == 1 ^^ b == 2", ["a == 1 & b != 2", "a != 1 & b == 2"]),
            ('a in [1, "x"]', ["a == 1", 'a == "x"']),
            ('!(a in [1, "x"])', []),
            ("flag in [true, false]", ["flag in [false, true]"]),
            ("!(flag in [true, false])", []),
            ('regex(s, "x") || s matches("y")', ['regex(s, "x", "y")']),
            ("string(s)", ["datatype(s) == string"]),
        ],
    )
    def test_of_a_filter(self, text, expected):
        assert rows_as_text(text) == expected

    def test_are_counted_before_they_are_made(self):
        text = " && ".join(f"(a{i} == 1 || b{i} == 2 || c{i} == 3)" for i in range(40))
        assert row_count(form_of(text)) == 3**40
        assert rows(compile(text).tree) is None

    def test_of_a_nested_exclusive_or_do_not_explode(self):
        text = "a0 == 1"
        for i in range(1, 30):
            text = f"({text} && b{i} == 1) ^^ a{i} == 1"
        assert row_count(form_of(text)) < 100

    def test_keep_what_no_test_can_say(self):
        ((rest,),) = rows(compile("!(a + 1 > b)").tree)
        assert rest == Rest(compile("a + 1 > b").tree, negated=True)


class TestAccess:
    def test_takes_the_cheapest_of_what_must_hold(self):
        assert access(form_of('a > 5 && s == "x" && exists(b)')) == (
            Test(Name(("s",)), "==", ("x",), "string"),
        )

    def test_takes_all_alternatives(self):
        keys = access(form_of('(a == 1 && b > 2) || (s == "x" && b > 3)'))
        assert [key.name.path for key in keys] == [("a",), ("s",)]

    def test_has_no_more_keys_than_literals_however_many_rows(self):
        text = " && ".join(f"(a{i} == 1 || b{i} == 2)" for i in range(40))
        assert len(access(form_of(text))) == 2

    def test_falls_back_on_an_attribute_that_must_be_there(self):
        assert access(form_of("a + 1 > 5")) == (Test(Name(("a",)), "exists"),)

    def test_can_be_impossible(self):
        assert access(form_of("!exists(a)")) is None
        assert access(form_of("a == 1 || !exists(b)")) is None

    def test_of_what_is_never_true_is_empty(self):
        assert access(form_of("!require(a)")) == ()
