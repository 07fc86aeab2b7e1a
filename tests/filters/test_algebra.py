"""Covering, overlap, reduction and partial evaluation: never wrong, and right where it counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.filters import Filter, compile
from infobus.filters.algebra import box
from infobus.filters.algebra.cover import covers, overlaps
from infobus.filters.algebra.reduce import project, reduce
from infobus.filters.algebra.union import coarse, hull, united
from infobus.filters.domain import as_tests, domain, includes
from infobus.filters.language.literals import Test, literals
from infobus.filters.language.normal import normal
from infobus.filters.language.partial import is_true
from infobus.filters.language.tree import And, Compare, Name
from infobus.filters.matching.interval import split
from tests.filters import strategies

A = Name(("a",))
# Few constants that lie close together, so that domains touch, overlap and contradict.
CLOSE = [*range(-2, 6), 0.5, 2.5, 2**53, 2**53 + 1]
WORDS = ["", "a", "ab", "abc", "b", "ba", "cab"]
VALUES = [
    *CLOSE,
    *(value + step for value in CLOSE for step in (-0.25, 0.25)),
    float("nan"),
    float("inf"),
    2**64,
    *WORDS,
    True,
    False,
    None,
    [],
    [1],
    ["a"],
    b"a",
]


def some(values, **kwargs):
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True, **kwargs).map(
        lambda found: tuple(sorted(found))
    )


one_test = st.one_of(
    st.builds(Test, st.just(A), st.just("=="), some(CLOSE), st.just("number"), st.booleans()),
    st.builds(Test, st.just(A), st.just("=="), some(WORDS), st.just("string"), st.booleans()),
    st.builds(Test, st.just(A), st.just("=="), some([True, False]), st.just("bool")),
    st.builds(
        Test,
        st.just(A),
        st.sampled_from(["<", "<=", ">", ">="]),
        st.sampled_from(CLOSE).map(lambda value: (value,)),
        st.just("number"),
        st.booleans(),
    ),
    st.builds(
        Test,
        st.just(A),
        st.sampled_from(["<", "<=", ">", ">="]),
        st.sampled_from(WORDS).map(lambda value: (value,)),
        st.just("string"),
    ),
    st.builds(
        Test,
        st.just(A),
        st.sampled_from(["begins-with", "ends-with", "contains", "wildcard"]),
        some(["a", "b", "ab", "*b"]),
        st.just(""),
        st.booleans(),
    ),
    st.builds(
        Test,
        st.just(A),
        st.just("datatype"),
        some(["int32", "int64", "real64", "string", "bool"]),
        st.just(""),
        st.booleans(),
    ),
    st.builds(Test, st.just(A), st.just("exists"), st.just(()), st.just(""), st.booleans()),
    st.builds(Test, st.just(A), st.just("has"), some([1, 2]), st.just("number"), st.booleans()),
)
several_tests = st.lists(one_test, min_size=1, max_size=3)
domains = several_tests.map(domain).filter(lambda found: found is not None)


def allows(found, value):
    return all(is_true(test, value) for test in as_tests(A, found))


comparisons = st.builds(Compare, strategies.orders, strategies.names, strategies.constants)


@given(st.lists(comparisons, min_size=1, max_size=4))
def test_plain_comparisons_make_the_same_boxes_in_the_quick_way_and_the_long_one(some):
    tree = some[0] if len(some) == 1 else And(tuple(some))
    assert box.boxes(tree) == box._boxes(normal(tree))


@given(st.lists(comparisons, min_size=1, max_size=3))
def test_a_limit_is_the_same_whether_it_is_said_once_or_twice(some):
    row = [one for tree in some for one in literals(tree, negated=False)]
    assert split(row) == split([*row, *row])


class TestDomains:
    @settings(max_examples=150)
    @given(several_tests)
    def test_a_domain_allows_what_its_tests_allow(self, some_tests):
        found = domain(some_tests)
        for value in VALUES:
            expected = all(is_true(test, value) for test in some_tests)
            assert (found is not None and allows(found, value)) == expected

    @settings(max_examples=150)
    @given(domains, domains)
    def test_what_is_included_is_allowed(self, outer, inner):
        if includes(outer, inner):
            assert not [v for v in VALUES if allows(inner, v) and not allows(outer, v)]

    @settings(max_examples=150)
    @given(st.lists(domains, min_size=1, max_size=5))
    def test_united_domains_allow_the_same_as_each_of_them(self, found):
        joined = united(found)
        assert len(joined) <= len(found)
        for value in VALUES:
            before = any(allows(one, value) for one in found)
            assert any(allows(one, value) for one in joined) == before

    @settings(max_examples=150)
    @given(st.lists(domains, min_size=1, max_size=4))
    def test_a_hull_allows_all_and_is_known_to(self, found):
        around = hull(found)
        for one in found:
            assert not [v for v in VALUES if allows(one, v) and not allows(around, v)]

    def test_many_strings_become_their_beginnings(self):
        many = domain([Test(A, "==", tuple(f"/etc/x{i:05}" for i in range(5000)), "string")])
        (test,) = as_tests(A, coarse(A, many))
        assert (test.op, len(test.values)) == ("begins-with", 500)
        assert includes(coarse(A, many), many)

    def test_many_numbers_become_their_interval(self):
        many = domain([Test(A, "==", tuple(range(5000)), "number")])
        around = coarse(A, many)
        assert [(test.op, test.values) for test in as_tests(A, around)] == [
            (">=", (0,)),
            ("<=", (4999,)),
        ]


class TestCovering:
    @settings(max_examples=150)
    @given(
        strategies.filters(max_leaves=4),
        strategies.filters(max_leaves=4),
        st.lists(strategies.events() | strategies.objects(), min_size=1, max_size=8),
    )
    def test_is_never_claimed_wrongly(self, one, other, xs):
        both = Filter.from_tree(compile(f"({one}) && ({other})").tree)
        for x in xs:
            if covers(one, other) and other.matches(x):
                assert one.matches(x)
            if one.matches(x) and other.matches(x):
                assert overlaps(one, other)
        assert covers(one, both) or box.boxes(one.tree)[0].loose

    @pytest.mark.parametrize(
        ("outer", "inner"),
        [
            ("price > 10", "price > 10"),
            ("price > 10", "price >= 11"),
            ("price > 10", 'price == 40 && symbol == "GMC"'),
            ("price != 5", "price > 5"),
            ("price != 5", "price == 6"),
            ("!(price < 5)", "price >= 5"),
            ("exists(price)", "price > 10"),
            ("exists(price)", "price in [1, 2]"),
            ('symbol in ["GMC", "IBM"]', 'symbol == "GMC"'),
            ('begins-with(s, "ab")', 's == "abc"'),
            ('begins-with(s, "ab")', 'begins-with(s, "abc", "abd")'),
            ('contains(s, "b")', 'begins-with(s, "abc")'),
            ('regex(s, "^a.*c$")', 's in ["abc", "aac"]'),
            ('!contains(s, "b")', '!contains(s, "b", "c")'),
            ("string(s)", 's matches("x")'),
            ("datatype(a) == string", 'a == "x"'),
            ("a == 1 || b == 2", "a == 1 && c == 3"),
            ('isa("T")', 'isa("T") && a == 1'),
            ("a + b > 5", "a + b > 5 && a > 1"),
            ('"oil" in topics || "gas" in topics', '"oil" in topics'),
            ("exists(a)", "a > 5 && a < 3"),
        ],
    )
    def test_is_seen(self, outer, inner):
        assert covers(compile(outer), compile(inner))

    @pytest.mark.parametrize(
        ("outer", "inner"),
        [
            ("price > 10", "price >= 10"),
            ("price >= 5", "!(price < 5)"),  # NaN
            ('symbol == "GMC"', 'symbol in ["GMC", "IBM"]'),
            ("a == 1", "a == true"),
            ("a == 1 && b == 2", "a == 1"),
            ("exists(a)", "!exists(a)"),
            ("int32(a)", "a == 1"),  # 1.0
        ],
    )
    def test_is_not_claimed(self, outer, inner):
        assert not covers(compile(outer), compile(inner))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("a > 5", "a < 5"),
            ("a == 1", 'a == "1"'),
            ("exists(a)", "!exists(a)"),
            ("a", "!a"),
            ('begins-with(s, "ab")', 'begins-with(s, "ac")'),
            ('ends-with(s, ".py")', 's == "x.c"'),
            ('s matches("x")', '!(s matches("x"))'),
            ('isa("T")', '!isa("T")'),
            ("a + b > 5", "!(a + b > 5)"),
            ("a == 1 && b == 1", "(a == 2 && b == 1) || (a == 1 && b == 2)"),
        ],
    )
    def test_filters_that_exclude_each_other_do_not_overlap(self, one, other):
        assert not overlaps(compile(one), compile(other))

    @pytest.mark.parametrize(
        "text",
        [
            " || ".join(f"(a == {i} && b > {i})" for i in range(2000)),
            " && ".join(f'contains(s, "{i}")' for i in range(1500)),
            " && ".join(f"(a == {i} || b == {i})" for i in range(2000)),
            " ^^ ".join(f"a{i} == {i}" for i in range(2000)),
        ],
        ids=["alternatives", "tests of one attribute", "rows", "exclusive"],
    )
    def test_of_huge_filters_is_answered_soon(self, text):
        huge, other = compile(text), compile(text + " && c == 1")
        assert overlaps(huge, other)
        assert not covers(other, huge)
        assert covers(huge, huge)


class TestReduction:
    @settings(max_examples=100)
    @given(
        st.lists(strategies.filters(max_leaves=5), min_size=1, max_size=6),
        st.none() | st.integers(1, 3),
        st.lists(strategies.events() | strategies.objects(), min_size=1, max_size=8),
    )
    def test_nothing_is_lost_and_exact_is_exact(self, filters, limit, xs):
        combined = reduce(filters, limit)
        assert limit is None or len(combined.filters) <= limit
        assert combined.exact or limit is not None
        for x in xs:
            asked = any(one.matches(x) for one in filters)
            assert combined.matches(x) if asked else not (combined.exact and combined.matches(x))
        assert [compile(str(one)) for one in combined.filters] == list(combined.filters)
        if combined.filters:
            assert compile(str(combined)).matches(xs[0]) == combined.matches(xs[0])

    @given(
        st.lists(strategies.filters(max_leaves=5), min_size=1, max_size=4),
        st.sets(st.sampled_from(["a", "b", "s", "t", "flag", "o.a"])),
        strategies.events(),
    )
    def test_projection_only_weakens_and_asks_about_nothing_else(self, filters, attributes, x):
        combined = project(filters, attributes)
        assert combined.matches(x) or not any(one.matches(x) for one in filters)
        assert all(one.attributes <= attributes for one in combined.filters)

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            ([], "nothing"),
            (["a > 5 && a < 3"], "nothing"),
            (["a == 1", "a == 2", "a == 2 && b == 3"], "a in [1, 2]"),
            (["a > 1 && a < 5", "a >= 5 && a <= 9"], "a > 1 && a <= 9"),
            (["a > 1 && a < 5", "a > 5 && a <= 9"], "(a > 1 && a < 5) || (a > 5 && a <= 9)"),
            (["a > 1 && a < 5", "a > 5 && a <= 9", "a == 5"], "a > 1 && a <= 9"),
            (["a > 5", "a == 5"], "a >= 5"),
            (
                ["a != 5", "a == 5"],
                "datatype(a) == int32 || datatype(a) == int64 || datatype(a) == real64",
            ),
            (["exists(a)", "!exists(a)"], "everything"),
            (['s < "m"', 's >= "m"'], "datatype(s) == string"),
            (["exists(a)", "a > 5", 'a == "x"'], "exists(a)"),
            (
                ["a == 1 && b == 1", "a == 1 && b == 2", "a == 2 && b in [1, 2]"],
                "a in [1, 2] && b in [1, 2]",
            ),
            (['isa("T")', 'isa("U")'], 'isa("T") || isa("U")'),
            (['s matches("x")', 's matches("y")'], 'regex(s, "x", "y")'),
        ],
    )
    def test_joins_what_belongs_together(self, texts, expected):
        assert str(reduce(map(compile, texts))) == expected

    def test_very_many_filters_fit_the_limit_and_none_is_lost(self):
        filters = [
            compile(f'symbol == "S{i % 70}" && price > {i * 37 % 101} && day != {i % 7}')
            for i in range(700)
        ]
        combined = reduce(filters, limit=16)
        assert 4 <= len(combined.filters) <= 16 and not combined.exact
        for one in filters:
            assert any(covers(wide, one) for wide in combined.filters)
        assert not combined.matches({"symbol": "T", "price": 1000, "day": 0})

    def test_filters_about_many_different_attributes_keep_the_common_ones(self):
        filters = [compile(f'symbol == "S{i}" && price > {i} && x{i} == 1') for i in range(100)]
        combined = reduce(filters, limit=8)
        assert 4 <= len(combined.filters) <= 8
        assert all({"symbol", "price"} <= one.attributes for one in combined.filters)
        for one in filters:
            assert any(covers(wide, one) for wide in combined.filters)

    def test_long_lists_of_values_are_cut_into_filters_that_can_be_written(self):
        filters = [compile(f'file == "/var/spool/{i:05}"') for i in range(3000)]
        exact = reduce(filters)
        assert exact.exact and len(exact.filters) == 4
        short = reduce(filters, limit=64)
        assert not short.exact and len(str(short)) < 10_000
        assert all(short.matches({"file": f"/var/spool/{i:05}"}) for i in range(3000))
        assert not short.matches({"file": "/var/spool/1"})

    def test_a_filter_with_too_many_rows_says_what_it_can(self):
        text = " && ".join(f"(a{i} == 1 || b{i} == 2)" for i in range(8))
        assert reduce([compile(text)], limit=2).filters == (compile(text),)
        combined = reduce([compile(f"c == {i} && {text}") for i in range(5)])
        assert str(combined) == f"c in [0, 1, 2, 3, 4] && {text}"
        unlike = [compile(text), compile(text.replace("== 1", "== 7"))]
        assert set(reduce(unlike, limit=2).filters) == set(unlike)

    def test_a_filter_with_many_alternatives_is_taken_apart(self):
        text = " || ".join(f"(a == {i} && b == {i % 2})" for i in range(100))
        assert len(reduce([compile(text)]).filters) == 2

    def test_what_has_nothing_in_common_becomes_everything(self):
        assert reduce(map(compile, ["a == 1", "b == 2", "!exists(c)"]), limit=1).everything
