"""What filters say about events."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.filters import Filter, compile
from infobus.filters.language.compiler import evaluator, predicate
from infobus.filters.language.tree import Compare, Name
from infobus.filters.language.values import arithmetic, attributes_of
from infobus.objects import DataObject
from infobus.objects.data import Foreign, set_tag
from tests.filters import oracle, strategies


def evaluate(text: str, **event: Any) -> bool | None:
    """The truth, after a look that the fast way agrees."""
    made = compile(text)
    result = made.evaluate(event)
    assert made.matches(event) is (result is True)
    assert compile(f"!({text})").matches(event) is (result is False)
    return result


THREE = (True, False, None)


class TestThreeValues:
    @pytest.mark.parametrize(("a", "b"), list(itertools.product(THREE, repeat=2)))
    def test_truth_tables(self, a: bool | None, b: bool | None) -> None:
        assert evaluate("a && b", a=a, b=b) is (
            False if a is False or b is False else None if a is None or b is None else True
        )
        assert evaluate("a || b", a=a, b=b) is (
            True if a is True or b is True else None if a is None or b is None else False
        )
        assert evaluate("a ^^ b", a=a, b=b) is (None if a is None or b is None else a is not b)
        assert evaluate("!a", a=a) is (None if a is None else not a)

    def test_several_exclusive_conditions_ask_for_an_odd_number(self) -> None:
        assert evaluate("a ^^ b ^^ c", a=True, b=True, c=True) is True
        assert evaluate("a ^^ b ^^ c", a=True, b=True, c=False) is False

    def test_a_missing_attribute_is_undefined(self) -> None:
        assert evaluate("a == 1") is None
        assert evaluate("a == 1", a=None) is None
        assert evaluate("!(a == 1)") is None
        assert evaluate("a != 1") is None
        assert evaluate("a <= b || a > b", a=1) is None

    def test_exists_is_never_undefined_and_require_never_false(self) -> None:
        assert evaluate("exists(a)") is evaluate("exists(a)", a=None) is False
        assert evaluate("exists(a)", a=0) is evaluate("exists(a)", a=[]) is True
        assert evaluate("require(a)", a="") is True
        assert evaluate("require(a)") is None
        assert evaluate("!require(a)") is None

    @pytest.mark.parametrize("value", [1, "true", b"", 1.0, [True], {}])
    def test_a_bare_name_is_about_bools_only(self, value: object) -> None:
        assert evaluate("a", a=value) is None


class TestComparing:
    @pytest.mark.parametrize("constant", ["1", "1.0", "'1'", "true", "datetime('2026-01-01T00Z')"])
    @pytest.mark.parametrize("op", ["==", "!=", "<", ">="])
    def test_families_do_not_meet(self, op: str, constant: str) -> None:
        if constant == "true" and op not in ("==", "!="):
            return
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        for value in (1, 1.0, "1", True, moment, b"1"):
            number = type(value) in (int, float)
            meet = {"1": number, "1.0": number, "'1'": type(value) is str, "true": value is True}
            is_defined = meet.get(constant, value is moment)
            assert (evaluate(f"a {op} {constant}", a=value) is not None) is is_defined

    @pytest.mark.parametrize("value", [[1], {"x": 1}, 2**63, -(2**63) - 1, datetime(2026, 1, 1)])
    def test_what_is_no_scalar_of_the_bus_has_no_comparison(self, value: object) -> None:
        for text in ("a == 1", "a != 1", "a > 1", "a < 1", "a == b", "a in [1, 2]", "1.5 < a"):
            assert evaluate(text, a=value, b=value) is None
        assert evaluate("exists(a)", a=value) is True

    def test_integers_and_reals_compare_exactly(self) -> None:
        assert evaluate("a == 9007199254740992.0", a=2**53 + 1) is False
        assert evaluate("a > 9007199254740992.0", a=2**53 + 1) is True
        assert evaluate("a == b", a=1, b=1.0) is True
        assert evaluate("a == 1L", a=1) is True

    def test_not_a_number_compares_as_ieee_says(self) -> None:
        nan = float("nan")
        assert evaluate("a == a", a=nan) is False
        assert evaluate("a != 1.0", a=nan) is True
        assert evaluate("a < 1.0", a=nan) is evaluate("a >= 1.0", a=nan) is False
        assert evaluate("!(a < 1.0)", a=nan) is True
        assert evaluate("nan(a)", a=nan) is True
        assert evaluate("nan(a)", a=1.0) is False
        assert evaluate("nan(a)", a=1) is evaluate("nan(a)") is None

    def test_strings_have_an_order_and_bools_and_bytes_have_none(self) -> None:
        assert evaluate("a < 'b'", a="a") is True
        assert evaluate("a < b", a=True, b=False) is None
        assert evaluate("a < b", a=b"a", b=b"b") is None
        assert evaluate("a == b", a=b"a", b=b"a") is True

    def test_datetimes_compare_as_moments(self) -> None:
        moment = datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(hours=2)))
        assert evaluate("a == datetime('2026-11-15T10:00:00Z')", a=moment) is True
        assert evaluate("a > datetime('2026-11-15T10:00:00Z')", a=moment) is False
        assert evaluate("a in [datetime('2026-11-15T10:00:00Z'), 3]", a=moment) is True

    def test_subclasses_count_as_what_they_are(self) -> None:
        class Side(StrEnum):
            BUY = "buy"

        class Level(IntEnum):
            HIGH = 3

        assert evaluate("a == 'buy' && a in ['buy', 'sell']", a=Side.BUY) is True
        assert evaluate("a != 'sell' && begins-with(a, 'b')", a=Side.BUY) is True
        assert evaluate("a > 2 && a < 4 && a == 3 && a != 4", a=Level.HIGH) is True


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "a"),
        [
            ("a + 1 == -2147483648", 2**31 - 1),
            ("a + 1L == 2147483648", 2**31 - 1),
            ("a + 1 == -9223372036854775808", 2**63 - 1),
            ("a * a == 1", 2**31 + 1 - 2**31),
            ("-a == -2147483648", -(2**31)),
            ("a / 2 == -3", -7),
            ("a % 3 == -1", -7),
            ("a % -3 == 1", 7),
            ("a / 2.0 == -3.5", -7),
            ("a % 2.0 == -1.0", -7),
            ("a >>> 28 == 15", -1),
            ("a >>> 60 == 15L", -(2**40)),
            ("a >> 28 == -1", -1),
            ("a << 33 == 2", 1),
            ("a << 33L == 8589934592", 1),
            ("~a == -1", 0),
            ("a & 0xF0 == 0x50", 0x5F),
            ("a ^ 3 == 6", 5),
            ("a | 8 == 13", 5),
            ("1.0 / a > 1.0e300", 0),
            ("-1.0 / a < -1.0e300", 0.0),
            ("+a == 5", 5),
        ],
    )
    def test_arithmetic(self, text: str, a: float) -> None:
        assert evaluate(text, a=a) is True

    def test_what_is_undefined(self) -> None:
        assert evaluate("1 / a == 1", a=0) is None
        assert evaluate("1 % a == 1", a=0) is None
        assert evaluate("a + 1 == 1", a="x") is None
        assert evaluate("a + 1 == 1", a=True) is None
        assert evaluate("a & 1 == 1", a=1.0) is None
        assert evaluate("~a == 1", a=1.0) is None
        assert evaluate("-a == 1") is None

    @given(
        st.sampled_from("+ - * / % & | ^ << >> >>>".split()),
        st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9),
        st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9),
        st.booleans(),
    )
    def test_integers_stay_in_their_width(self, op: str, a: int, b: int, long: bool) -> None:
        """Against the oracle, which calculates without bounds and cuts bit by bit."""
        kinds = [oracle.kind(a) or "", "int64" if long else oracle.kind(b) or ""]
        expected = oracle.calculated(op, (kinds[0], a), (kinds[1], b))
        widths = [int(kind.removeprefix("int")) for kind in kinds]
        result = arithmetic(op, (a, widths[0]), (b, widths[1]))
        assert result == (expected and (expected[1], int(expected[0].removeprefix("int"))))


class TestFunctions:
    def test_types(self) -> None:
        values = {"string": "", "int32": 1, "int64": 2**31, "real64": 1.0, "opaque": b""}
        for function, (kind, value) in itertools.product(values, values.items()):
            assert evaluate(f"{function}(a)", a=value) is (function == kind)
            assert evaluate(f"datatype(a) == {function}", a=value) is (function == kind)
        assert evaluate("int32(a)") is evaluate("datatype(a) == int32") is None
        assert evaluate("int32(a)", a=True) is evaluate("string(a)", a=["x"]) is False
        assert evaluate("datatype(a) == bool", a=True) is True
        assert evaluate("datatype(a) == datetime", a=datetime.now(UTC)) is True
        assert evaluate("datatype(a) == string", a=["x"]) is None
        assert evaluate("datatype(a) == float && float == datatype(b)", a=1.0, b=0.5) is True
        assert evaluate("datatype(a) == datatype(b)", a=1, b=2) is True
        assert evaluate("datatype(a) != datatype(b)", a=1, b=2**40) is True

    def test_size_counts_characters_bytes_and_items(self) -> None:
        assert evaluate("size(a) == 2 && size(b) == 3 && size(c) == 1", a="äö", b=b"abc", c=[1])
        assert evaluate("size(a) > 0", a=5) is evaluate("size(a) > 0", a={"x": 1}) is None

    @pytest.mark.parametrize(
        ("text", "yes", "no"),
        [
            ("begins-with(a, 'GM', 'IB')", ["GM", "IBM"], ["", "xGM", "gm"]),
            ("ends-with(a, '.py', '.c')", ["x.py", ".c"], ["x.pyc", ""]),
            ("contains(a, 'oil', 'gas')", ["boiling", "gas"], ["oi", ""]),
            ("wildcard(a, '*.log', 'core?')", [".log", "a\nb.log", "coreä"], ["a.logs", "core"]),
            ("wildcard(a, 'a.b')", ["a.b"], ["axb"]),
            (r"wildcard(a, 'fo\\*a')", ["fo*a"], ["fooa", r"fo\a", r"fo\*a", "fo*ab"]),
            (r"wildcard(a, 'fo\*a')", ["fo*a"], ["fooa", r"fo\*a"]),
            (r"wildcard(a, '\\?*')", ["?", "?x"], ["x", "\\?"]),
            (r"wildcard(a, 'c:\\\\*')", ["c:\\", r"c:\x"], ["c:", "c:*"]),
            (r"wildcard(a, 'c:\temp')", [r"c:\temp"], ["c:temp"]),
            ("regex(a, '^G.*M$', 'IBM')", ["GM", "xIBMx"], ["GMx", "ibm"]),
            ("a matches('(?i)gm')", ["xGmx"], ["g m"]),
            ("equals(a, 'x', 'y')", ["x", "y"], ["xy", ""]),
            ("fold-case(a) == 'gm'", ["GM", "gM"], ["g"]),
            ("contains(fold-case(a), '|elvin|')", ["|ELVIN|"], ["elvin"]),
            ("decompose(a) == 'A\u0308ﬃ'", ["Äﬃ"], ["Ä"]),
            ("decompose-compat(a) == 'A\u0308ffi'", ["Äﬃ", "Äffi"], ["Affi"]),
        ],
    )
    def test_strings(self, text: str, yes: list[str], no: list[str]) -> None:
        for value in yes:
            assert evaluate(text, a=value) is True
        for value in no:
            assert evaluate(text, a=value) is False
        for value in (1, None, b"GM", ["GM"]):
            assert evaluate(text, a=value) is None

    def test_half_a_surrogate_pair_does_no_harm(self) -> None:
        assert evaluate("a matches('x') && wildcard(a, '*x')", a="\ud800x") in (True, False)

    def test_sets_of_constants(self) -> None:
        assert evaluate("a in ['x', 'y']", a="x") is True
        assert evaluate("a in ['x', 'y']", a="z") is False
        assert evaluate("a in ['x', 'y']", a=1) is evaluate("a in ['x', 'y']", a=["x"]) is None
        assert evaluate("a in [1, 2.5]", a=1.0) is True
        assert evaluate("a in [1, 2]", a=True) is None
        assert evaluate("a in ['x', 1]", a="x") is True
        assert evaluate("a in ['x', 1]", a="y") is None  # as `a == 'x' || a == 1` would be

    def test_lists(self) -> None:
        assert evaluate("'oil' in a", a=["gas", "oil"]) is True
        assert evaluate("'oil' in a", a=["gas", 1, None]) is False
        assert evaluate("1 in a", a=[True, "1"]) is False
        assert evaluate("1 in a", a=[1.0]) is True
        assert evaluate("b in a", a=["x"], b="x") is True
        assert evaluate("'oil' in a", a="oil") is evaluate("'oil' in a") is None
        assert evaluate("b in a", a=["x"]) is evaluate("b in a", a=[[1]], b=[1]) is None


class Source(DataObject, name="meaning.Source"):
    name: str


class Story(DataObject, name="meaning.Story"):
    headline: str
    source: Source | None = None
    topics: list[str] = []  # noqa: RUF012 - each object gets its own
    details: dict[str, Any] = {}  # noqa: RUF012 - each object gets its own


class ReutersStory(Story, name="meaning.ReutersStory"):
    urgency: int = 0


class TestObjects:
    story = ReutersStory(
        headline="GM up",
        source=Source(name="Reuters"),
        topics=["autos"],
        details={"page": {"number": 7}, "a.b": 1},
    )

    @pytest.mark.parametrize(
        "text",
        [
            "headline matches('GM')",
            "source.name == 'Reuters'",
            "'autos' in topics",
            "details.page.number == 7",
            r"details.a\.b == 1",
            "urgency < 1",
            "exists(source) && exists(source.name) && !exists(source.city)",
            "isa('meaning.Story') && isa('meaning.ReutersStory') && isa('DataObject')",
            "!isa('meaning.Source') && !isa('Story')",
        ],
    )
    def test_attributes_reach_into_objects(self, text: str) -> None:
        assert compile(text).evaluate(self.story) is True
        assert compile(text).matches(self.story) is True

    def test_a_mapping_may_hold_objects(self) -> None:
        assert compile("story.source.name == 'Reuters'").matches({"story": self.story})

    def test_a_plain_event_is_of_no_type(self) -> None:
        assert evaluate("isa('DataObject')", a=1) is False

    def test_data_without_attributes_matches_nothing(self) -> None:
        for data in ("text", 5, None, [1, 2]):
            assert compile("a == 1").evaluate(data) is None
            assert compile("exists(a)").matches(data) is False

    def test_received_objects_have_the_attributes_that_were_sent(self) -> None:
        received = Story(headline="GM", topics=[])
        set_tag(received, Foreign(1, extra={"city": "Bonn"}, filled={"topics": []}))
        assert compile("city == 'Bonn' && headline == 'GM'").matches(received)
        assert compile("exists(topics)").matches(received) is False
        received.topics = ["autos"]
        assert compile("'autos' in topics").matches(received)


@settings(max_examples=250, deadline=None)
@given(strategies.filters(), st.lists(strategies.events(), min_size=3, max_size=3))
def test_filters_mean_what_the_oracle_says(made: Filter, events: list[dict[str, Any]]) -> None:
    for event in events:
        expected = oracle.truth(made.tree, event)
        assert made.evaluate(event) is expected
        assert made.matches(event) is (expected is True)


@settings(max_examples=100, deadline=None)
@given(strategies.filters(), strategies.objects())
def test_objects_mean_the_same_as_their_attributes(made: Filter, x: strategies.Tick) -> None:
    types = frozenset({"strategies.Tick", "strategies.Base", "DataObject"})
    expected = oracle.truth(made.tree, vars(x), types)
    assert made.evaluate(x) is expected
    assert predicate(made.tree)(attributes_of(x), x) is (expected is True)


@settings(max_examples=200, deadline=None)
@given(strategies.arithmetic(max_leaves=5), strategies.events())
def test_arithmetic_means_what_the_oracle_says(tree: Any, event: dict[str, Any]) -> None:
    """Unfolded; a comparison shows the value, since equal numbers of all kinds are equal."""
    expected = oracle.value(tree, event)
    result = evaluator(Compare("==", tree, Name(("expected",))))({**event, "expected": expected})
    assert result is oracle.compared("==", expected, expected)


def test_large_filters_are_evaluated_like_small_ones() -> None:
    made = compile(" || ".join(f"a == {number} && b" for number in range(500)))
    assert made.matches({"a": 499, "b": True}) is True
    assert made.matches({"a": 500, "b": True}) is False
    assert made.evaluate({"a": 3}) is None
