"""Headers in filters: what is true of an attribute is true of a header."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from infobus.errors import BadFilter
from infobus.filters import Filter, Matcher, compile
from infobus.filters.algebra.reduce import reduce
from infobus.filters.algebra.wants import Wants
from infobus.filters.language.explanation import why
from infobus.filters.language.tree import HEADERS, Name, Tree
from infobus.headers import Headers, with_headers
from tests.filters import strategies

MOVED = ("a", "s", "flag", "raw")
"""Attributes that are headers instead."""


def moved(tree: Any) -> Any:
    """The same condition, of headers where it is of these attributes."""
    match tree:
        case Name((name,)) if name in MOVED:
            return Name((HEADERS, name))
        case tuple():
            return tuple(map(moved, tree))
        case msgspec.Struct():
            fields = {name: moved(getattr(tree, name)) for name in tree.__struct_fields__}
            return type(tree)(**fields)
    return tree


def filter_on_headers(tree: Tree) -> Filter:
    try:
        return Filter.from_tree(moved(tree))
    except BadFilter:  # such as `5 in (a)`, where `a` is a header now
        assume(False)
        raise


def parted(event: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], object]:
    """The event without what no header can hold, its attributes, and it with headers instead."""
    kinds = (bool, int, float, str, bytes)
    fitting = {n: v for n, v in event.items() if n not in MOVED or isinstance(v, kinds)}
    headers = {name: value for name, value in fitting.items() if name in MOVED}
    rest = {name: value for name, value in fitting.items() if name not in MOVED}
    return fitting, rest, with_headers(rest, Headers(headers))


@settings(max_examples=200)
@given(strategies.filters(), strategies.events())
def test_a_filter_sees_a_header_as_it_would_see_an_attribute(
    filter: Filter, event: dict[str, Any]
) -> None:
    on_headers = filter_on_headers(filter.tree)
    event, _, seen = parted(event)
    assert on_headers.evaluate(seen) is filter.evaluate(event)
    assert on_headers.matches(seen) is filter.matches(event)
    assert compile(on_headers.text) == on_headers


@given(st.lists(strategies.filters(max_leaves=4), max_size=6), strategies.events())
def test_so_do_many_filters_together(filters: list[Filter], event: dict[str, Any]) -> None:
    matcher, wants = Matcher(), Wants()
    on_headers = [filter_on_headers(one.tree) for one in filters]
    for number, one in enumerate(on_headers):
        matcher.add(number, one)
        wants.add(number, one)
    event, rest, seen = parted(event)
    wanted = {number for number, one in enumerate(filters) if one.matches(event)}
    assert set(matcher.match(seen)) == wanted
    assert matcher.match_any(seen) is bool(wanted)
    # Whoever knows the attributes alone must not rule out what headers may yet decide.
    if wanted:
        assert wants.wants(rest, closed=True) is not False
        assert matcher.possible(rest, closed=True)
        assert wants.expression().matches(seen)
        assert reduce(on_headers, 1).matches(seen)
    headers = {name: event[name] for name in MOVED if name in event}
    assert wants.wants({**rest, HEADERS: headers}, closed=True) is bool(wanted)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("header(trace) == 1", "header takes a string in quotes here"),
        ('header("a", "b") == 1', "header takes 1 argument, got 2"),
        ('header("") == 1', "is empty"),
        ('"x" in header("a")', "a header is no list"),
        ('headers("a") == 1', "did you mean 'header'?"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadFilter, match=problem.replace("(", r"\(").replace("?", r"\?")):
        compile(text)


def test_an_attribute_of_the_name_header_is_still_one() -> None:
    assert compile("header == 1 && header.x != 2").matches({"header": 1}) is False
    assert compile("header == 1").attributes == {"header"}
    assert compile('header("x y") == 1').attributes == {'header("x y")'}


def test_why_not_is_said_of_headers_too() -> None:
    reasons = why(compile('header("trace") == "a" && header("n") > 3'), {"trace": "a"})
    assert [str(one) for one in reasons] == [
        'header("trace") == "a": undefined (no header("trace"))',
        'header("n") > 3: undefined (no header("n"))',
    ]


def test_databases_leave_headers_to_the_residual() -> None:
    pushed = compile('header("n") > 3').to_sql({})
    assert pushed.condition is None
    assert str(pushed.residual) == 'header("n") > 3'
