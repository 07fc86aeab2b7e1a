"""Random filters and events over a small vocabulary, so that they meet often.

`conditions()` gives trees as the parser makes them, `filters()` the filters of those, `events()`
plain dicts, `objects()` data objects with the same attributes. Values include those that are
easily got wrong: edges of widths, integers that no float can hold, NaN, bools beside 0 and 1.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from infobus.errors import BadFilter
from infobus.filters import Filter
from infobus.filters.language.tree import (
    And,
    Binary,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
    TypeName,
    Unary,
    Xor,
)
from infobus.objects.data import DataObject

NUMBERS = ("a", "b", "n")
STRINGS = ("s", "t")
OTHERS = ("flag", "when", "tags", "raw")
NESTED = (("o", "a"), ("o", "s"), ("o", "p", "flag"))

INTEGERS = [
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    40,
    -7,
    2**31 - 1,
    -(2**31),
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
]
REALS = [0.0, -0.0, 0.5, 1.0, -1.5, 2.0, 40.0, 1e300, 2.0**31, 2.0**53, 2.0**63]
WORDS = ["", "a", "b", "ab", "GM", "gm", "a GM b", "x.y", "Ä", "A\u0308", "ß", "ss", "a\nb", 'q"\\']
MOMENTS = [datetime(2026, 11, 15, 10, tzinfo=UTC), datetime(2026, 11, 15, 10, 0, 0, 1, tzinfo=UTC)]
PATTERNS = ["GM", "^a", "b$", "a.b", r"[A-Z]+", "(?i)gm", ""]
WILDCARDS = ["*", "a*", "?", "*GM*", "a?b", r"a\*", r"*\?b", r"\\*", r"a\b"]
TYPES = ["strategies.Tick", "strategies.Base", "DataObject", "Nothing"]


class Base(DataObject, name="strategies.Base"):
    """What `isa` can find above `Tick`."""


class Tick(Base, name="strategies.Tick"):
    """An object with the attributes of `events()`."""

    a: Any = None
    b: Any = None
    n: Any = None
    s: Any = None
    t: Any = None
    flag: Any = None
    when: Any = None
    tags: Any = None
    raw: Any = None
    o: Any = None


def integer(value: int, long: bool = False) -> Constant:
    return Constant(value, "int64" if long or not -(2**31) <= value < 2**31 else "int32")


numbers = st.builds(integer, st.sampled_from(INTEGERS), st.booleans()) | st.sampled_from(
    [Constant(value, "real64") for value in REALS]
)
strings = st.sampled_from([Constant(word, "string") for word in WORDS])
bools = st.sampled_from([Constant(True, "bool"), Constant(False, "bool")])
moments = st.sampled_from([Constant(moment, "datetime") for moment in MOMENTS])
constants = numbers | strings | bools | moments

number_names = st.sampled_from([Name((name,)) for name in NUMBERS])
string_names = st.sampled_from([Name((name,)) for name in STRINGS])
names = st.sampled_from(
    [*(Name((name,)) for name in NUMBERS + STRINGS + OTHERS), *(Name(path) for path in NESTED)]
)
orders = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
equalities = st.sampled_from(["==", "!="])


def arithmetic(max_leaves: int = 4) -> st.SearchStrategy[Tree]:
    """Expressions that calculate; a few of them never give a number."""
    leaves = number_names | numbers | st.builds(lambda n: FunctionCall("size", (n,)), names)
    operators = st.sampled_from("+ - * / % & | ^ << >> >>>".split())
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Binary, operators, inner, inner)
            | st.builds(Unary, st.sampled_from("-+~"), inner)
        ),
        max_leaves=max_leaves,
    )


texts: st.SearchStrategy[Tree] = st.recursive(
    string_names,
    lambda inner: st.builds(
        lambda function, text: FunctionCall(function, (text,)),
        st.sampled_from(["fold-case", "decompose", "decompose-compat"]),
        inner,
    ),
    max_leaves=3,
)


def _string_tests(function: str, patterns: list[str]) -> st.SearchStrategy[Tree]:
    some = st.lists(st.sampled_from(patterns), min_size=1, max_size=3)
    return st.builds(
        lambda text, chosen: FunctionCall(
            function, (text, *(Constant(c, "string") for c in chosen))
        ),
        texts,
        some,
    )


name_calls = st.builds(
    lambda function, name: FunctionCall(function, (name,)),
    st.sampled_from("exists require nan string int32 int64 real64 opaque".split()),
    names,
)
type_tests = st.builds(
    lambda op, name, other: Compare(op, FunctionCall("datatype", (name,)), other),
    equalities,
    names,
    st.sampled_from("string int32 int64 real64 bool datetime opaque".split()).map(TypeName)
    | names.map(lambda name: FunctionCall("datatype", (name,))),
)
memberships = st.builds(
    lambda name, items: Member(name, Constants(tuple(items))),
    names,
    st.lists(numbers, min_size=1, max_size=4)
    | st.lists(strings, min_size=1, max_size=4)
    | st.lists(constants, min_size=1, max_size=3),
) | st.builds(Member, numbers | strings | names, st.just(Name(("tags",))) | names)

simple_tests: st.SearchStrategy[Tree] = (
    st.builds(Compare, orders, number_names, numbers)
    | st.builds(Compare, orders, string_names, strings)
    | st.builds(Compare, equalities, names, bools)
    | st.builds(Compare, orders, st.just(Name(("when",))), moments)
    | st.builds(Compare, orders, names, numbers | strings)
    | st.builds(Compare, orders, st.just(Name(("o", "a"))), numbers)
    | st.sampled_from([Name(("flag",)), Name(("o", "p", "flag"))])
    | memberships
    | name_calls
)
"""One attribute against constants."""

string_tests = (
    _string_tests("begins-with", WORDS)
    | _string_tests("ends-with", WORDS)
    | _string_tests("contains", WORDS)
    | _string_tests("regex", PATTERNS)
    | _string_tests("wildcard", WILDCARDS)
    | st.builds(Compare, orders, texts, strings)
)
other_tests: st.SearchStrategy[Tree] = (
    st.builds(Compare, orders, names, names)
    | st.builds(Compare, orders, arithmetic(), arithmetic())
    | type_tests
    | st.sampled_from(TYPES).map(lambda name: FunctionCall("isa", (Constant(name, "string"),)))
)
tests = simple_tests | string_tests | other_tests


def conditions(
    leaves: st.SearchStrategy[Tree] = tests, max_leaves: int = 8
) -> st.SearchStrategy[Tree]:
    """Trees as the parser makes them, of `leaves` joined by `! && || ^^`."""
    return filters(leaves, max_leaves).map(lambda filter: filter.tree)


def filters(
    leaves: st.SearchStrategy[Tree] = tests, max_leaves: int = 8
) -> st.SearchStrategy[Filter]:
    """Filters of `leaves` joined by `! && || ^^`; those that say nothing are left out."""

    def joined(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return (
            st.builds(And, several)
            | st.builds(Or, several)
            | st.builds(Not, inner)
            | st.builds(Xor, several)
        )

    sensible = leaves.filter(lambda leaf: _filter_of(leaf) is not None)
    return st.recursive(sensible, joined, max_leaves=max_leaves).map(Filter.from_tree)


def _filter_of(tree: Tree) -> Filter | None:
    try:
        return Filter.from_tree(tree)
    except BadFilter:
        return None


number_values = st.sampled_from([*INTEGERS, 2**63, 2**70, *REALS, float("inf"), float("nan")])
scalar_values = (
    number_values
    | st.sampled_from(WORDS)
    | st.booleans()
    | st.sampled_from([*MOMENTS, MOMENTS[0].astimezone(timezone(timedelta(hours=2)))])
    | st.sampled_from([b"", b"ab"])
)
list_values = st.lists(scalar_values, max_size=3)
values = scalar_values | list_values | st.none()


def events() -> st.SearchStrategy[dict[str, Any]]:
    """Events as plain dicts: each attribute may be missing, and may be of a strange kind."""
    fitting = {
        **dict.fromkeys(NUMBERS, number_values),
        **dict.fromkeys(STRINGS, st.sampled_from(WORDS)),
        "flag": st.booleans(),
        "when": st.sampled_from(MOMENTS),
        "tags": list_values,
        "raw": st.sampled_from([b"", b"ab"]),
        "o": st.fixed_dictionaries(
            {},
            optional={
                "a": values,
                "s": values,
                "p": st.fixed_dictionaries({}, optional={"flag": values}) | values,
            },
        ),
    }
    # Most values are there and fit, or hardly any comparison would be defined.
    mixed = {name: st.one_of(fit, fit, fit, fit, values) for name, fit in fitting.items()}
    return st.builds(
        lambda event, missing: {n: value for n, value in event.items() if n not in missing},
        st.fixed_dictionaries(mixed),
        st.just(frozenset()) | st.frozensets(st.sampled_from(sorted(fitting)), max_size=3),
    )


def objects() -> st.SearchStrategy[Tick]:
    """The same as data objects, of a type with a supertype."""
    return events().map(_sendable).map(lambda event: Tick(**event))


def _sendable(value: Any) -> Any:
    """`value` without the integers that are too large for the bus."""
    match value:
        case dict():
            return {name: _sendable(inner) for name, inner in value.items()}
        case list():
            return [_sendable(inner) for inner in value]
        case int() if not -(2**63) <= value < 2**63:
            return None
    return value
