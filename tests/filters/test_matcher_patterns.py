"""Patterns are found by pieces of text that they cannot do without."""

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.filters import Matcher, compile
from infobus.filters.language.functions import string_test
from infobus.filters.matching import patterns
from infobus.filters.matching.patterns import required

atoms = st.sampled_from(
    ["a", "b", "ab", ".", "[ab]", "[^]a]", r"\.", r"\d", r"\bab", "^", "$", "é"]
)
repeats = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,1}", "+?"])
pieces = st.builds(lambda atom, repeat: atom + repeat, atoms, repeats)
expressions = st.recursive(
    st.lists(pieces, min_size=1, max_size=4).map("".join),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("|".join)
        | st.builds(lambda one, repeat: f"({one}){repeat}", inner, repeats)
        | st.builds(lambda one, two: f"(?:{one}){two}", inner, inner)
        | st.builds(lambda one, two: f"(?i){one}{two}", inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(expressions, st.lists(st.text("abAB.é1] ", max_size=8), max_size=5))
def test_what_a_regular_expression_requires_is_in_every_text_that_it_fits(pattern, texts):
    try:
        fits = string_test("regex", (pattern,))
    except re2.error:
        return
    for text in texts:
        if fits(text):
            assert any(piece in text for piece in required("regex", pattern))


def test_the_longest_literal_of_each_alternative_is_required():
    assert required("regex", r"^oil \(crude\)|na(ph)tha+|[gG]as\.") == ("oil (crude)", "tha", "as.")
    assert required("regex", r"(?i)oil") == ("",)
    assert required("regex", r"oil\x41") == ("",)
    assert required("regex", r"(oil|gas)") == ("",)
    assert required("wildcard", "a*bcd?e") == ("bcd",)
    assert required("wildcard", r"a*b\*c\\d?e") == (r"b*c\d",)


pieces_drawn = st.text("ab", min_size=0, max_size=4)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), pieces_drawn), max_size=40),
    st.lists(st.text("abc", max_size=8), min_size=1, max_size=3),
)
def test_patterns_that_come_and_go_are_found_while_they_are_there(changes, texts):
    matcher, kept = Matcher(), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "FRESH_MAX", 1)
        patch.setattr(patterns, "PIECES_MAX", 6)
        for is_new, piece in changes:
            if is_new and piece not in kept:
                kept.add(piece)
                matcher.add(piece, compile(f'contains(msg, "{piece}")'))
            elif not is_new and piece in kept:
                kept.remove(piece)
                matcher.remove(piece)
            for text in texts:
                assert set(matcher.match({"msg": text})) == {one for one in kept if one in text}


def test_thousands_of_patterns_are_matched_as_each_of_them_alone():
    words = [f"{a}{b}{c}" for a in ("ba", "ko", "ri") for b in ("tel", "mun") for c in ("sa", "x")]
    filters = [compile(f'msg matches("{one}.*{two}|{two}!")') for one in words for two in words]
    filters += [
        compile(f'{op}(msg, "{one}")') for op in ("contains", "begins-with") for one in words
    ]
    filters += [compile(f'contains(fold-case(msg), "{one}")') for one in words]
    filters += [compile(f'!contains(msg, "{one}")') for one in words]
    matcher = Matcher()
    for number, filter in enumerate(filters):
        matcher.add(number, filter)
    for text in ("batelsa komunx", "KOMUNX and ritelx!", "", "x" * 5000 + "ritelsa", "koba"):
        event = {"msg": text}
        expected = [number for number, filter in enumerate(filters) if filter.matches(event)]
        assert sorted(matcher.match(event)) == expected
