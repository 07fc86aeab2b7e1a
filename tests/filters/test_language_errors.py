"""What is refused, where, and how fast."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import infobus.filters.language.parser as parser
from infobus.errors import BadFilter, UsageError
from infobus.filters import Filter, compile
from infobus.filters.language.tree import (
    And,
    Compare,
    Constant,
    FunctionCall,
    Name,
    Not,
    Tree,
    TypeName,
)


def refused(text: str) -> BadFilter:
    with pytest.raises(BadFilter) as caught:
        compile(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "problem", "hint"),
    [
        ("", 0, "empty", "every event"),
        ("   ", 0, "empty", "every event"),
        ("(1 > a", 6, "expected ')', got the end", ""),
        ("(a > 2) (a > 1)", 8, "expected an operator or the end, got '('", ""),
        ("a == 1 and b == 2", 7, "got 'and'", "&&"),
        ("a = 1", 2, "'=' is not an operator", "=="),
        ("a == 'x", 5, "no closing '", ""),
        ("a == .5", 5, "begin with '.'", "0.5"),
        ("a == 0.", 5, "0. is not a number", "1.5"),
        ("a == 0.1f", 5, "0.1f is not a number", "1.5"),
        ("a == 0.1e-", 5, "0.1e is not a number", "1.5"),
        ("a == 1.5L", 5, "takes no L", ""),
        ("a == 010", 5, "begin with 0", "octal"),
        ("a == 9223372036854775808", 5, "does not fit 64 bits", "real"),
        ("a == 1.0e999", 5, "too large", ""),
        ("a..b == 1", 1, "begin with '.'", ""),
        ("--", 2, "expected a name", ""),
        ("foo(a, 'x')", 0, "no function 'foo'", ""),
        ("begins_with(a, 'x')", 0, "no function 'begins_with'", "begins-with"),
        ("matches(a, 'x')", 0, "no function 'matches'", 'name matches("...")'),
        ("exists(a, b)", 0, "takes 1 argument, got 2", ""),
        ("regex(a)", 0, "takes 2 arguments or more, got 1", ""),
        ("exists('a')", 7, "takes the name of an attribute", "without quotes"),
        ("size(a + 1) > 3", 5, "takes the name of an attribute", ""),
        ("begins-with(a, 1)", 15, "takes a string in quotes", ""),
        ("contains(a, b)", 12, "takes a string in quotes", ""),
        ("fold-case(1) == a", 10, "takes an attribute or a string", ""),
        ("a < b < c", 0, "< compares values, not conditions", "&&"),
        ("exists(a) == true", 0, "not conditions", ""),
        ("a in []", 0, "empty list", ""),
        ("a in [b]", 6, "constants only", ""),
        ("a in ()", 0, "empty list", ""),
        ("a in (1, b)", 9, "constants only", ""),
        ("a in 5", 5, "expected a list attribute", ""),
        ("exists(a) in b", 0, "takes a value", ""),
    ],
)
def test_syntax(text: str, position: int, problem: str, hint: str) -> None:
    error = refused(text)
    assert isinstance(error, UsageError)
    assert (error.text, error.position) == (text, position)
    assert problem in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("5 > 'name'", 2, "an integer (5) cannot be compared with a string ('name')"),
        ("size(a) == 'x'", 8, "cannot be compared"),
        ("fold-case(a) == 5", 13, "cannot be compared"),
        ("a + 1 == 'x'", 6, "cannot be compared"),
        ("size(a) in ['x']", 12, "cannot be compared"),
        ("1 + 'hello' == a", 4, "+ calculates with numbers, got a string ('hello')"),
        ("'hello' + 'hello' == a", 0, "calculates with numbers"),
        ("a + true == 1", 4, "calculates with numbers"),
        ("- 'hello' == a", 2, "calculates with numbers"),
        ("1.0 << 2 == a", 0, "<< works on integers"),
        ("a << 2.0 == 1", 5, "<< works on integers"),
        ("~1.5 == a", 1, "~ works on integers"),
        ("a == 1 / 0", 5, "division by zero"),
        ("a < true", 2, "< has no meaning for true or false"),
        ("datatype(a) < string", 12, "< has no meaning"),
        ("datatype(a) == strng", 15, "no data type 'strng'"),
        ("datatype(a) == 'string'", 15, "expected a data type"),
        ("regex(name, '(abc')", 12, "missing ): (abc"),
        ("a matches('*')", 10, "cannot use this pattern"),
        ("a > datetime('soon')", 13, "not a datetime"),
        ("a > datetime('2026-11-15T10:00:00')", 13, "does not say its zone"),
        ("a > datetime('0001-01-01T00:00:00+14:00')", 13, "not a datetime"),
        ("a > 3 || 'name'", 9, "expected a condition"),
        ("a > 3 || 42", 9, "expected a condition"),
        ("size(a)", 0, "expected a condition, got an integer"),
        ("!fold-case(a)", 1, "expected a condition, got a string"),
    ],
)
def test_types(text: str, position: int, problem: str) -> None:
    error = refused(text)
    assert error.position == position
    assert problem in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "2",
        "'hello'",
        "1 == 1",
        "1 + 1 == 3",
        "1.0 / 0.0 > 3",
        "a > 5 || 1 == 1",
        "a == 1 && true",
        "begins-with('abc', 'a')",
        "1 in [1, 2]",
    ],
)
def test_what_says_the_same_about_every_event_is_refused(text: str) -> None:
    assert "the same about every event" in str(refused(text))


def test_the_message_points_at_the_place() -> None:
    assert str(refused("price > 40 && fold_case(name) == 'gm'")) == (
        "there is no function 'fold_case'\n"
        "  price > 40 && fold_case(name) == 'gm'\n"
        "                ^\n"
        "hint: did you mean 'fold-case'?"
    )


def test_the_message_shows_a_window_of_a_long_filter() -> None:
    text = " && ".join(f"attribute{number} >\n{number}" for number in range(1000))
    lines = str(refused(text.replace("attribute500 >", "attribute500 ="))).splitlines()
    assert max(map(len, lines)) < 100
    assert lines[1][lines[2].index("^")] == "="


def shortly(call: str) -> BadFilter:
    """The error, which must come at once.

    Work is counted, not time: a thread that has to wait for a processor does none.
    """
    start_s = time.thread_time()
    error = refused(call)
    assert time.thread_time() - start_s < 5.0
    assert len(str(error)) < 1000
    return error


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a" + ")" * 10_000,
        "!" * 10_000 + "a",
        "a == " + "-" * 10_000 + "b",
        "a == " + "~" * 10_000 + "b",
        "fold-case(" * 5_000 + "a",
        "a in [" * 5_000,
        "a+" * 20_000 + "1 == 3",
        "a && (b || " * 5_000,
        "a || b ^^ c && d == e | f ^ g & h << i + j * (" * 1_000,
    ],
)
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    assert "nested deeper" in str(shortly(text))


@pytest.mark.parametrize("thing", [None, 5, b"price > 40", ["price > 40"]])
def test_what_is_no_text_is_no_filter(thing: Any) -> None:
    with pytest.raises(BadFilter, match=f"is a string, got .*{type(thing).__name__}"):
        compile(thing)


def test_long_text_is_refused_at_once() -> None:
    assert "1000000 characters" in str(shortly("x" * 1_000_000))
    assert "would print as more" in str(shortly("a^^" * 20_000 + "a"))
    assert "does not fit" in str(shortly("a == " + "9" * 60_000))


@pytest.mark.parametrize(
    "text",
    [
        'a matches("((a{0,100}){0,100}){0,100}")',
        r'a matches("\pL{500}")',
        'regex(a, "' + '", "'.join(f"x{{1,900}}{n}" for n in range(1000)) + '")',
        " || ".join(f'a matches("x{{1,900}}{n}")' for n in range(1000)),
        'wildcard(a, "' + "?" * 60_000 + '")',
    ],
)
def test_expensive_patterns_are_refused_at_once(text: str) -> None:
    shortly(text)


def test_catastrophic_patterns_are_harmless() -> None:
    made = compile('a matches("^(a+)+$") || wildcard(a, "*a*a*a*a*a*a*a*a*a*a*b")')
    assert made.matches({"a": "a" * 5_000 + "!"}) is False


def deep(levels: int) -> Tree:
    tree: Tree = Name(("a",))
    for _ in range(levels):
        tree = And((Not(tree), Name(("b",))))
    return tree


@pytest.mark.parametrize(
    "tree",
    [
        Constant(True, "bool"),
        Compare("=", Name(("a",)), Constant(1, "int32")),
        Compare("==", Name(("a",)), Constant(2**40, "int32")),
        Compare("==", Name(("a",)), Constant(True, "int32")),
        Compare("==", Name(("a",)), Constant(b"x", "opaque")),
        Compare("==", Name(("a",)), Constant(float("nan"), "real64")),
        Compare("==", Name(()), Constant(1, "int32")),
        Compare("==", Name(("a", "")), Constant(1, "int32")),
        Compare("==", Name(("a",)), TypeName("string")),
        FunctionCall("foo", (Name(("a",)),)),
        And((Name(("a",)),)),
        deep(10_000),
    ],
    ids=range(12),
)
def test_trees_that_make_no_sense_are_refused(tree: Tree) -> None:
    with pytest.raises(BadFilter) as caught:
        Filter.from_tree(tree)
    assert caught.value.position is None


def test_the_deepest_tree_that_is_taken_prints_and_parses_back() -> None:
    made = Filter.from_tree(deep(31))
    assert compile(str(made)) == made
    assert made.matches({"a": True, "b": True}) is False
    with pytest.raises(BadFilter):
        Filter.from_tree(deep(32))


PIECES = st.sampled_from(
    [
        *parser.POWERS,
        *"! ~ ( ) [ ] , a b.c 1 2.5 3L 0x1f 'x' \"y\" true exists size(a) datatype(a)".split(),
        *"regex(a,'x') equals( isa( datetime( string \\ . = ' \" - é \ud800 \x00".split(" "),
        *" \n",
    ]
)


@settings(max_examples=250, deadline=None)
@given(st.text(max_size=60) | st.lists(PIECES, max_size=20).map("".join))
@example("a matches('\ud800')")
@example("a\\")
def test_any_text_is_a_filter_or_a_bad_filter(text: str) -> None:
    try:
        made = compile(text)
    except BadFilter as error:
        assert error.position is None or 0 <= error.position <= len(text)
    else:
        assert compile(str(made)).tree == made.tree
        made.evaluate({"a": "x", "b": {"c": 1}})
