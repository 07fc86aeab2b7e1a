"""What anyone wants: partial evaluation, the live set of filters, and the values in it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import UsageError
from infobus.filters import Filter, compile
from infobus.filters.algebra.wants import Wants
from infobus.filters.language.literals import Test
from infobus.filters.language.partial import is_true, residual
from infobus.filters.language.tree import Name
from tests.filters import strategies

things = strategies.events() | strategies.objects()


def wants_of(*texts):
    wants = Wants()
    for number, text in enumerate(texts):
        wants.add(number, compile(text) if text else None)
    return wants


def split(event, known_names):
    return {name: value for name, value in event.items() if name in known_names}


known_names = st.sets(st.sampled_from("a b n s t flag when tags o".split()))


class TestResidual:
    @settings(max_examples=200)
    @given(strategies.filters(), strategies.events(), known_names)
    def test_leaves_what_decides_for_every_way_the_event_can_go_on(self, filter, event, names):
        left = residual(filter.tree, split(event, names))
        truth = left if isinstance(left, bool) else Filter(left).matches(event)
        unsaid = {name: None for name in names if name not in event}
        assert truth == filter.matches(event)
        assert filter.matches(event) == residual(filter.tree, event | unsaid, closed=True)

    @given(strategies.filters(), things)
    def test_of_all_there_is_decides(self, filter, x):
        assert residual(filter.tree, x, closed=True) is filter.matches(x)

    @pytest.mark.parametrize(
        ("text", "known", "expected"),
        [
            ("a > 5 && b == 1", {"a": 6}, "b == 1"),
            ("a > 5 && b == 1", {"a": 5}, False),
            ("a > 5 && b == 1", {"a": "x"}, False),
            ("a > 5 || b == 1", {"a": 6}, True),
            ("!exists(a)", {}, "!exists(a)"),
            ("!exists(a)", {"a": None}, True),
            ("a + b > 5", {"a": None}, False),
            ("a + b > 5", {"a": 1}, "a + b > 5"),
            ("a + b > 5", {"a": 1, "b": 5}, True),
            ("o.a == 1", {"o": {}}, "o.a == 1"),
            ("o.a == 1", {"o": 5}, False),
            ("o.a == 1", {"o": {"a": 1}}, True),
            ('isa("T") && a == 1', {"a": 1}, 'isa("T")'),
        ],
    )
    def test_by_example(self, text, known, expected):
        left = residual(compile(text).tree, known)
        assert (left if isinstance(left, bool) else str(Filter(left))) == expected

    def test_a_closed_event_has_nothing_more_to_say(self):
        assert residual(compile("a == 1 && !exists(b)").tree, {"a": 1}, closed=True) is True
        assert residual(compile("a == 1 && b == 2").tree, {"a": 1}, closed=True) is False


class TestWants:
    @settings(max_examples=100)
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.none() | strategies.filters(max_leaves=4))),
        strategies.events(),
        known_names,
    )
    def test_answers_for_the_filters_that_are_there_now(self, changes, event, names):
        wants, filters = Wants(), {}
        for id, filter in changes:
            if id in filters and filter == filters[id]:
                wants.remove(id)
                del filters[id]
            else:
                (wants.replace if id in filters else wants.add)(id, filter)
                filters[id] = filter
            wants.expression()
        matched = any(filter is None or filter.matches(event) for filter in filters.values())
        assert len(wants) == len(filters)
        assert wants.expression().matches(event) == matched
        assert wants.wants(event, closed=True) == matched
        assert wants.wants(split(event, names)) in (matched, None)
        assert matched <= wants.expression(limit=1).matches(event)

    def test_everything_as_soon_as_one_subscription_has_no_filter(self):
        wants = wants_of("a == 1", "")
        assert str(wants.expression()) == "everything"
        assert wants.wants({}) is True
        assert wants.values("a") == [[]]
        wants.remove(1)
        assert str(wants.expression()) == "a == 1"

    def test_nothing_when_there_are_no_subscriptions(self):
        wants = Wants()
        assert str(wants.expression()) == "nothing"
        assert wants.wants({"a": 1}) is False
        assert wants.values("a") == []

    def test_the_same_filter_twice_is_gone_when_both_are(self):
        wants = wants_of("a == 1", "a == 1")
        wants.remove(0)
        assert wants.wants({"a": 1}) is True
        wants.remove(1)
        assert wants.wants({"a": 1}) is False

    def test_the_version_tells_whether_anything_changed(self):
        wants = wants_of("a == 1")
        before = wants.version
        wants.add("again", compile("a == 1"))
        assert wants.version == before
        wants.replace("again", compile("a == 2"))
        assert wants.version > before

    def test_an_id_is_there_or_not(self):
        wants = wants_of("a == 1")
        assert 0 in wants and 1 not in wants
        with pytest.raises(UsageError, match="subscription 0 already"):
            wants.add(0, None)
        for change in (wants.remove, lambda id: wants.replace(id, None)):
            with pytest.raises(UsageError, match="no subscription 1"):
                change(1)


class TestValues:
    @pytest.mark.parametrize(
        ("texts", "options", "expected"),
        [
            (["s == 'x'", "s == 'y'"], {}, [[("in", ("x", "y"))]]),
            (["s == 'x'", "s == 'y'"], {"operators": {"=="}}, [[("==", "x")], [("==", "y")]]),
            (["s == 'x'"], {"operators": {"in"}}, [[("in", ("x",))]]),
            (["s matches('x') && a == 1"], {}, [[("matches", "x")]]),
            (["s matches('x')"], {"operators": {"regex"}}, [[("regex", "x")]]),
            (["s matches('x')", "s == 'y'"], {"operators": {"=="}}, [[]]),
            (["s matches('x') && s != 'ax'"], {"operators": {"!="}}, [[("!=", "ax")]]),
            (["a == 1"], {}, [[]]),
            (["a == 1", "s == 'x'"], {}, [[]]),
            (["!exists(s)"], {}, [[("!exists", None)]]),
            (["!(s matches('x'))"], {}, [[("!matches", "x")]]),
            (["!(s < 5)"], {}, [[("!<", 5)]]),
            (["s in [1, 5, 9]"], {"range": (2, 8)}, [[("==", 5)]]),
            (["s in [1, 5, 9]"], {"range": (5, None)}, [[("in", (5, 9))]]),
            (["s > 9", "s < 1"], {"range": (2, 20)}, [[(">", 9)]]),
            (["s in ['x', 'y']", "s matches('^z')"], {"range": ["y", "a"]}, [[("==", "y")]]),
            (["s matches('^x')"], {"range": {"xy", "z"}}, [[("matches", "^x")]]),
            (["s in ['x', 'y']"], {"range": str.isupper}, []),
            (["s matches('x')"], {"range": str.isupper}, [[("matches", "x")]]),
            (["'x' in s"], {}, [[("has", "x")]]),
        ],
    )
    def test_of_one_attribute(self, texts, options, expected):
        assert wants_of(*texts).values("s", **options) == expected

    def test_of_several_attributes_name_them(self):
        wants = wants_of("s == 'x' && a > 1 && b == 2", "s == 'y' && a > 1")
        assert wants.values("s", "a") == [[("a", ">", 1), ("s", "in", ("x", "y"))]]

    def test_ranges_of_several_attributes_are_given_by_name(self):
        wants = wants_of("s == 'x' && a == 1", "s == 'y' && a == 9")
        assert wants.values("s", "a", range={"a": (0, 5)}) == [[("a", "==", 1), ("s", "==", "x")]]

    def test_very_many_combinations_say_less_instead(self):
        both = " && ".join(f"{name} in {list(range(200))}" for name in "sa")
        assert len(wants_of(both).values("s", "a", operators={"=="})) == 200

    @settings(max_examples=100)
    @given(
        st.lists(strategies.filters(max_leaves=4), min_size=1, max_size=4),
        strategies.events(),
        st.none() | st.sets(st.sampled_from(["==", "in", "<", ">", "matches", "exists"])),
    )
    def test_a_wanted_event_fits_one_of_the_lists(self, filters, event, operators):
        wants = Wants()
        for number, filter in enumerate(filters):
            wants.add(number, filter)
        lists = wants.values("a", "s", operators=operators)
        if any(filter.matches(event) for filter in filters):
            assert any(all(fits(event, *one) for one in conditions) for conditions in lists)


def fits(event, attribute, operator, value):
    """Whether the event fulfils a condition of such a list."""
    op = {"in": "==", "matches": "regex", "!=": "=="}.get(operator, operator.removeprefix("!"))
    values = value if operator == "in" else () if value is None else (value,)
    return any(
        is_true(
            Test(Name((attribute,)), op, values, family, operator.startswith("!")),
            event.get(attribute),
        )
        for family in ("number", "string", "bool", "datetime")
    )
