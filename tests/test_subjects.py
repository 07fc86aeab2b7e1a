"""Subjects against slow, obvious oracles, and against the engine's own key expressions."""

from functools import cache
from itertools import product

import pytest
import zenoh
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from infobus.errors import BadSubject
from infobus.subjects import (
    SubjectTrie,
    channel_key,
    channel_keys_of,
    channel_of,
    check_pattern,
    check_publishable,
    check_subject,
    covers,
    from_key,
    intersection,
    matches,
    overlaps,
    to_key,
)

# Any element at all, with what the engine and the pattern language reserve made likely.
CHARACTERS = st.sampled_from("/*$#?%@>2A aé") | st.characters(
    exclude_categories=["Cc", "Cs"], exclude_characters="."
)
LITERALS = st.text(CHARACTERS, min_size=1, max_size=8).filter(lambda e: e not in ("*", ">"))
SUBJECTS = st.lists(LITERALS, min_size=1, max_size=6).map(".".join)


def patterns_of(literals: st.SearchStrategy[str], size_max: int) -> st.SearchStrategy[str]:
    return st.builds(
        lambda elements, is_open: ".".join([*elements[:-1], ">"] if is_open else elements),
        st.lists(literals | st.just("*"), min_size=1, max_size=size_max),
        st.booleans(),
    )


PATTERNS = patterns_of(LITERALS, 6)
# All patterns of up to three elements over two names, one of them the bus's own, and all subjects
# that can tell them apart: `z` stands for every name that no pattern mentions, a fourth element for
# every longer subject.
SMALL_PATTERNS = [
    ".".join([*elements, *end])
    for size in range(4)
    for elements in product("a~*", repeat=size)
    for end in ([], [">"])
    if 1 <= size + len(end) <= 3
]
SMALL_SUBJECTS = [".".join(s) for size in range(1, 5) for s in product("a~z", repeat=size)]
# Few names, so that two patterns often meet, but ones that would be wildcards or errors if they
# were handed to the engine as they are.
AWKWARD_NAMES = st.sampled_from(["a", "b", "@a", "a*b", "**", "$*", "%2A", ">>", "a/b", "é?#"])
AWKWARD_PATTERNS = patterns_of(AWKWARD_NAMES, 4)


def oracle(pattern: str, subject: str) -> bool:
    is_own, asks_for_any = subject.startswith("~"), pattern.split(".")[0] in ("*", ">")
    return not (is_own and asks_for_any) and slow_match(pattern.split("."), subject.split("."))


def slow_match(pattern: list[str], subject: list[str]) -> bool:
    match pattern, subject:
        case [], []:
            return True
        case [">"], [_, *_]:
            return True
        case [first, *rest], [name, *names]:
            return first in ("*", name) and slow_match(rest, names)
    return False


@cache
def wanted_by(pattern: str) -> frozenset[str]:
    return frozenset(s for s in SMALL_SUBJECTS if oracle(pattern, s))


class TestWellFormed:
    @given(SUBJECTS)
    def test_any_unicode_text_can_be_an_element(self, subject):
        check_subject(subject)
        check_pattern(subject)

    @given(PATTERNS)
    def test_wildcards_are_for_patterns_only(self, pattern):
        check_pattern(pattern)
        assume({"*", ">"} & set(pattern.split(".")))
        with pytest.raises(BadSubject, match="only a pattern may"):
            check_subject(pattern)

    @pytest.mark.parametrize("subject", ["a*b", "**", ">>", "a>", "*x.y", "x.>y", " ", "Ω.温度.🔥"])
    def test_wildcard_characters_inside_an_element_are_literal(self, subject):
        check_subject(subject)

    @pytest.mark.parametrize(
        ("subject", "position", "message"),
        [
            ("", 0, "the subject is empty"),
            (
                "plant..oven",
                6,
                "subject 'plant..oven' has an empty element (element 2, at character 6)",
            ),
            (".a", 0, "subject '.a' has an empty element (element 1, at character 0)"),
            ("a.", 2, "subject 'a.' has an empty element (element 2, at character 2)"),
            (
                "a.*.c",
                2,
                "subject 'a.*.c' holds the wildcard '*'; only a pattern may "
                "(element 2, at character 2)",
            ),
            (
                "a.b.>",
                4,
                "subject 'a.b.>' holds the wildcard '>'; only a pattern may "
                "(element 3, at character 4)",
            ),
            (
                "a.b\tc",
                3,
                r"subject 'a.b\tc' holds the control character U+0009, which no element may "
                "(element 2, at character 3)",
            ),
            (
                "a.b.\x85",
                4,
                r"subject 'a.b.\x85' holds the control character U+0085, which no element may "
                "(element 3, at character 4)",
            ),
            (
                "a\udc80",
                1,
                r"subject 'a\udc80' holds the lone surrogate U+DC80, which no element may "
                "(element 1, at character 1)",
            ),
        ],
    )
    def test_the_error_says_what_is_wrong_and_where(self, subject, position, message):
        with pytest.raises(BadSubject) as caught:
            check_subject(subject)
        assert str(caught.value) == message
        assert (caught.value.subject, caught.value.position) == (subject, position)

    def test_the_rest_wildcard_stands_last_or_nowhere(self):
        with pytest.raises(BadSubject) as caught:
            check_pattern("plant.>.oven.>")
        assert str(caught.value) == (
            "pattern 'plant.>.oven.>' has '>' before its end; use '*' for one element "
            "(element 2, at character 6)"
        )
        assert caught.value.position == 6

    def test_a_subject_has_at_most_64_elements(self):
        check_subject(".".join("x" * 64))
        with pytest.raises(BadSubject, match="has 65 elements, but at most 64") as caught:
            check_subject(".".join("x" * 65))
        assert caught.value.position == 128

    def test_a_subject_takes_at_most_1024_bytes(self):
        check_subject("a." + "x" * 1022)
        check_subject("é" * 512)
        with pytest.raises(BadSubject, match="takes 1025 bytes of UTF-8, but at most 1024") as long:
            check_subject("a." + "x" * 1023)
        assert long.value.position == 1024
        assert len(str(long.value)) < 250, "a long subject is not repeated in full"
        with pytest.raises(BadSubject, match="takes 1026 bytes") as wide:
            check_subject("é" * 513)
        assert wide.value.position == 512

    @pytest.mark.parametrize("check", [check_subject, check_pattern])
    @pytest.mark.parametrize("value", [None, 5, b"a.b", ["a"]])
    def test_only_text_is_a_subject(self, check, value):
        with pytest.raises(BadSubject, match=f"is text, got {type(value).__name__}"):
            check(value)


class TestPatternAlgebra:
    @pytest.mark.parametrize("pattern", SMALL_PATTERNS)
    def test_a_pattern_matches_what_the_oracle_says(self, pattern):
        assert {s for s in SMALL_SUBJECTS if matches(pattern, s)} == wanted_by(pattern)

    @given(PATTERNS, SUBJECTS)
    def test_matching_agrees_with_the_oracle_on_any_text(self, pattern, subject):
        assert matches(pattern, subject) == oracle(pattern, subject)

    @pytest.mark.parametrize("a", SMALL_PATTERNS)
    def test_a_pattern_covers_those_that_want_nothing_else(self, a):
        for b in SMALL_PATTERNS:
            assert covers(a, b) == (wanted_by(a) >= wanted_by(b)), (a, b)

    @pytest.mark.parametrize("a", SMALL_PATTERNS)
    def test_a_pattern_overlaps_those_that_want_something_it_wants(self, a):
        for b in SMALL_PATTERNS:
            assert overlaps(a, b) == bool(wanted_by(a) & wanted_by(b)), (a, b)

    @pytest.mark.parametrize("a", SMALL_PATTERNS)
    def test_what_two_patterns_both_want_is_one_pattern_or_nothing(self, a):
        for b in SMALL_PATTERNS:
            both = intersection(a, b)
            assert (both is None) == (not wanted_by(a) & wanted_by(b)), (a, b)
            assert both is None or wanted_by(both) == wanted_by(a) & wanted_by(b), (a, b)

    @pytest.mark.parametrize("subject", ["~test.news", "~"])
    def test_what_belongs_to_the_bus_is_wanted_by_name_only(self, subject):
        assert not any(matches(pattern, subject) for pattern in (">", "*", "*.>", "*.news"))
        assert matches(subject, subject)
        assert matches("~test.>", "~test.news")
        with pytest.raises(BadSubject, match="only the bus's own do"):
            check_publishable(subject)

    def test_an_element_that_ends_like_a_wildcard_is_not_one(self):
        assert not matches("a>", "a.b")
        assert not covers("a.b>", "a.c")
        assert not overlaps("a.b>", "a.c")


class TestEngineKeys:
    @given(SUBJECTS | PATTERNS)
    def test_the_translation_loses_nothing(self, pattern):
        assert from_key(to_key(pattern)) == pattern

    @given(SUBJECTS | PATTERNS)
    def test_the_engine_takes_every_key_as_canonical(self, pattern):
        key = to_key(pattern)
        assert str(zenoh.KeyExpr(key)) == str(zenoh.KeyExpr.autocanonize(key)) == key

    @settings(max_examples=500)
    @given(AWKWARD_PATTERNS, AWKWARD_PATTERNS)
    def test_the_engine_agrees_on_what_covers_and_overlaps(self, a, b):
        key_a, key_b = zenoh.KeyExpr(to_key(a)), zenoh.KeyExpr(to_key(b))
        assert key_a.includes(key_b) == covers(a, b)
        assert key_a.intersects(key_b) == overlaps(a, b)

    def test_only_what_the_engine_reserves_is_escaped(self):
        assert to_key("a b.é.x@y.@z.{1}~!") == "a b/é/x@y/%40z/{1}~!"
        assert to_key("a/b.*c.$*.#?.100%.**") == "a%2Fb/%2Ac/%24%2A/%23%3F/100%25/%2A%2A"

    @pytest.mark.parametrize("key", ["", "/a", "a//b", "**", "a/**", "*/**/a", "@a", "a$*", "x?"])
    def test_a_key_of_another_make_is_refused(self, key):
        with pytest.raises(BadSubject):
            from_key(key)

    @pytest.mark.parametrize("key", [">", "a.b", "%2A", "a%2Eb", "%41", "%2a", "%3E", "%00", "a%2"])
    def test_a_second_spelling_of_a_name_is_refused(self, key):
        with pytest.raises(BadSubject):
            from_key(key)

    @given(st.text(CHARACTERS | st.sampled_from("/%*."), max_size=12))
    def test_a_key_from_anywhere_is_translated_exactly_or_refused(self, key):
        try:
            pattern = from_key(key)
        except BadSubject:
            return
        assert to_key(pattern) == key


class TestChannels:
    @pytest.mark.parametrize("depth", [1, 2, 3, 4])
    @pytest.mark.parametrize("pattern", SMALL_PATTERNS)
    def test_a_pattern_reaches_exactly_the_channels_that_hold_what_it_wants(self, pattern, depth):
        channels = {channel_of(subject, depth) for subject in SMALL_SUBJECTS}
        wanted = {channel_of(subject, depth) for subject in wanted_by(pattern)}
        reach = zenoh.KeyExpr(channel_keys_of(pattern, depth))
        reached = {c for c in channels if reach.intersects(zenoh.KeyExpr(channel_key(c)))}
        own = {channel for channel in channels if channel.startswith("~")}
        assert reached - own == wanted - own
        assert reached >= wanted

    @given(PATTERNS, st.integers(1, 7), st.data())
    def test_a_pattern_reaches_the_channel_of_any_subject_it_matches(self, pattern, depth, data):
        elements = [data.draw(LITERALS) if e == "*" else e for e in pattern.split(".")]
        if elements[-1] == ">":
            elements[-1:] = data.draw(st.lists(LITERALS, min_size=1, max_size=3))
        channel = channel_of(".".join(elements), depth)
        reach = zenoh.KeyExpr(channel_keys_of(pattern, depth))
        assert reach.includes(zenoh.KeyExpr(channel_key(channel)))

    def test_a_short_subject_is_a_channel_of_its_own(self):
        assert channel_of("news", depth=2) == "news"
        assert channel_key("news") == channel_keys_of("news", depth=2) == "c/news"

    def test_a_channel_has_no_wildcards(self):
        with pytest.raises(BadSubject):
            channel_key("news.*")


class TestTrie:
    @given(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from(SMALL_PATTERNS), st.integers(0, 3)),
            max_size=40,
        ),
        st.lists(st.sampled_from(SMALL_SUBJECTS), min_size=1, max_size=10),
    )
    def test_it_finds_what_matching_one_by_one_finds(self, changes, subjects):
        trie, filed = SubjectTrie[int](), set()
        for is_added, pattern, value in changes:
            if is_added:
                trie.add(pattern, value)
                filed.add((pattern, value))
            elif (pattern, value) in filed:
                trie.remove(pattern, value)
                filed.remove((pattern, value))
            else:
                with pytest.raises(KeyError):
                    trie.remove(pattern, value)
            assert len(trie) == len(filed)
        for subject in subjects:
            expected = [value for pattern, value in filed if matches(pattern, subject)]
            assert sorted(trie.match(subject)) == sorted(expected)

    @given(st.lists(PATTERNS))
    def test_nothing_is_left_when_everything_was_removed(self, patterns):
        trie = SubjectTrie[str]()
        for pattern in patterns:
            trie.add(pattern, "value")
        for pattern in set(patterns):
            trie.remove(pattern, "value")
        assert len(trie) == 0
        assert not trie._root.children

    def test_the_same_history_gives_the_same_order(self):
        def found() -> list[int]:
            trie = SubjectTrie[int]()
            for number, pattern in enumerate(["a.b", "a.*", ">", "a.>", "*.b", "a.b"]):
                trie.add(pattern, number)
            return trie.match("a.b")

        assert found() == found()

    def test_a_bad_pattern_is_refused_and_not_filed(self):
        trie = SubjectTrie[int]()
        with pytest.raises(BadSubject):
            trie.add("a.>.b", 1)
        assert len(trie) == 0

    def test_the_longest_pattern_works(self):
        trie = SubjectTrie[int]()
        trie.add(".".join("*" * 63 + ">"), 1)
        assert trie.match(".".join("x" * 64)) == [1]
