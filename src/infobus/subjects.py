"""Subjects: the names that events travel under, and the patterns that ask for them.

A subject is one or more elements joined by dots: `plant.line4.oven.temperature`. In a
pattern, an element that is exactly `*` stands for any one element, and a last element that
is exactly `>` for one or more. Inside a longer element both are ordinary characters, as in
NATS: `a*b` and `>>` are literal. Elements are compared character by character, without
Unicode normalisation and with case.

A subject that begins with `~` belongs to the bus. A pattern that begins with a wildcard does not
match it, so you get such events only if you ask for them by name.

An engine key is the same name in the engine's spelling. Elements are joined by `/`, `>` is
written as `*/**`, and each character that the engine reserves is written as `%` and two
hexadecimal digits. The translation is one to one.

A channel is the first elements of a subject, and all subjects of a channel share one engine
key. A subject shorter than the bus's depth is a channel of its own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Generic, TypeVar

from infobus.errors import BadSubject

SUBJECT_BYTES_MAX = 1024
"""Longest subject or pattern, in bytes of UTF-8."""

OWN = "~"
"""The first character of subjects that belong to the bus itself."""

TEST_SPACE = "~test."
"""The prefix of test events' subjects on the wire."""

STATS_SPACE = "~stats."
"""The prefix of the subjects under which nodes tell what they do."""

ELEMENT_COUNT_MAX = 64
"""Most elements in a subject or pattern."""

# The C0 and C1 controls (with DEL), and halves of surrogate pairs, which UTF-8 cannot carry.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

# A character takes at most 4 bytes of UTF-8, so up to this length a text cannot be too long, and
# need not be encoded to be measured.
_SURELY_SHORT = SUBJECT_BYTES_MAX // 4


def check_subject(subject: str) -> None:
    """Raise `BadSubject`, saying where and why, unless `subject` is a well-formed full name.

    >>> check_subject("plant.line4.oven")
    >>> check_subject("a..b")
    Traceback (most recent call last):
    infobus.errors.BadSubject: subject 'a..b' has an empty element (element 2, at character 2)
    """
    elements = _checked_elements(subject, "subject")
    if "*" in elements or ">" in elements:
        index = next(i for i, element in enumerate(elements) if element in ("*", ">"))
        what = f"holds the wildcard {elements[index]!r}; only a pattern may"
        raise _bad_element("subject", elements, index, what)


def check_publishable(subject: str) -> None:
    """Raise `BadSubject` unless an application may use `subject` for its events and services.

    >>> check_publishable("~internal")
    Traceback (most recent call last):
    infobus.errors.BadSubject: subject '~internal' begins with '~', as only the bus's own do \
(element 1, at character 0)
    """
    check_subject(subject)
    if subject.startswith(OWN):
        what = "begins with '~', as only the bus's own do"
        raise _bad_element("subject", subject.split("."), 0, what)


def check_pattern(pattern: str) -> None:
    """Raise `BadSubject`, saying where and why, unless `pattern` is well formed.

    Every subject is also a pattern, which matches itself alone.

    >>> check_pattern("plant.*.oven.>")
    """
    elements = _checked_elements(pattern, "pattern")
    if ">" in elements and (index := elements.index(">")) != len(elements) - 1:
        what = "has '>' before its end; use '*' for one element"
        raise _bad_element("pattern", elements, index, what)


def matches(pattern: str, subject: str) -> bool:
    """Return whether `subject` matches `pattern`. Both must be well formed.

    >>> matches("news.*.gmc", "news.equity.gmc"), matches("news.>", "news")
    (True, False)
    >>> matches(">", "~test.news"), matches("~test.>", "~test.news")
    (False, True)
    """
    wanted, elements = pattern.split("."), subject.split(".")
    if _is_foreign(wanted, elements):
        return False
    if wanted[-1] == ">":
        wanted.pop()
        if len(elements) <= len(wanted):
            return False
    elif len(elements) != len(wanted):
        return False
    return all(a in ("*", b) for a, b in zip(wanted, elements, strict=False))


def covers(wide: str, narrow: str) -> bool:
    """Return whether `wide` matches every subject that `narrow` matches. Both are patterns.

    >>> covers("news.>", "news.*.gmc"), covers("news.*", "news.>")
    (True, False)
    """
    # A pattern of fixed length cannot cover one of open length. Otherwise you can treat `narrow`
    # as a subject: only a wildcard of `wide` matches a wildcard of `narrow`.
    return (_is_open(wide) or not _is_open(narrow)) and matches(wide, narrow)


def overlaps(one: str, other: str) -> bool:
    """Return whether some subject matches both patterns.

    >>> overlaps("news.*.gmc", "news.equity.>"), overlaps("news.*", "news.equity.>")
    (True, False)
    """
    if _is_open(other):
        one, other = other, one
    ours, theirs = one.split("."), other.split(".")
    if _is_foreign(ours, theirs) or _is_foreign(theirs, ours):
        return False
    if _is_open(one):
        ours.pop()
        if _is_open(other):
            theirs.pop()
        elif len(theirs) <= len(ours):
            return False
    elif len(ours) != len(theirs):
        return False
    return all(a == b or a == "*" or b == "*" for a, b in zip(ours, theirs, strict=False))


def intersection(one: str, other: str) -> str | None:
    """Return the pattern of the subjects that match both patterns; None if there are none.

    >>> intersection("news.*.gmc", "news.equity.>"), intersection("news.*", "mail.>")
    ('news.equity.gmc', None)
    """
    if not overlaps(one, other):
        return None
    ours, theirs = one.split("."), other.split(".")
    if _is_open(one):
        ours.pop()
    if _is_open(other):
        theirs.pop()
    longer, shorter = (ours, theirs) if len(ours) >= len(theirs) else (theirs, ours)
    common = [a if a != "*" else b for a, b in zip(longer, shorter, strict=False)]
    common += longer[len(shorter) :]
    if _is_open(one) and _is_open(other):
        common.append(">")
    return ".".join(common)


def to_key(pattern: str) -> str:
    """Translate a subject or pattern to the engine's key expression, in canonical form.

    >>> to_key("news.*.>"), to_key("mail.@home.50%.a/b")
    ('news/*/*/**', 'mail/%40home/50%25/a%2Fb')
    """
    check_pattern(pattern)
    return _key_of(pattern.split("."))


def from_key(key: str) -> str:
    """Translate a key expression made by `to_key` back to its subject or pattern.

    Raises:
        BadSubject: `key` is not the translation of any subject or pattern.

    >>> from_key("news/*/*/**"), from_key("mail/%40home/50%25/a%2Fb")
    ('news.*.>', 'mail.@home.50%.a/b')
    """
    chunks = key.split("/")
    if chunks[-2:] == ["*", "**"]:
        chunks[-2:] = [">"]
    pattern = ".".join(re.sub(_ESCAPE, _unescaped, chunk) for chunk in chunks)
    check_pattern(pattern)
    # Translating again refuses every other spelling of a name, so that one name has one key.
    canonical = _key_of(pattern.split("."))
    if canonical != key:
        position = next(
            (i for i, (a, b) in enumerate(zip(key, canonical, strict=False)) if a != b),
            min(len(key), len(canonical)),
        )
        message = f"key {key!r} names no subject (at character {position}; {canonical!r} would)"
        raise BadSubject(message, subject=key, position=position)
    return pattern


def channel_of(subject: str, depth: int = 1) -> str:
    """Return the channel of `subject`: its first `depth` elements, or all if there are fewer.

    >>> channel_of("news.equity.gmc"), channel_of("news.equity.gmc", 2), channel_of("news", 2)
    ('news', 'news.equity', 'news')
    """
    return ".".join(subject.split(".", depth)[:depth])


def channel_key(channel: str) -> str:
    """Return the engine key that carries the events of `channel`.

    >>> channel_key("news.equity")
    'c/news/equity'
    """
    check_subject(channel)
    return "c/" + _key_of(channel.split("."))


def channel_keys_of(pattern: str, depth: int = 1) -> str:
    """Return the engine key expression of exactly those channels in which `pattern` can match.

    >>> channel_keys_of("news.equity.>"), channel_keys_of("news.>", 2), channel_keys_of("*.a.b", 2)
    ('c/news', 'c/news/*', 'c/*/a')
    >>> channel_keys_of("news.>", 3)  # news.x is a channel of its own, beside those of news.x.y
    'c/news/*/**'
    """
    check_pattern(pattern)
    elements = pattern.split(".")[:depth]
    if len(elements) == depth and elements[-1] == ">":
        elements[-1] = "*"  # A channel has no elements beyond the depth.
    return "c/" + _key_of(elements)


V = TypeVar("V", bound=Hashable)


class SubjectTrie(Generic[V]):
    """An index from patterns to values that you look up by subject.

    A lookup visits only the nodes whose path matches the beginning of the subject, and the
    values it returns. Patterns that differ from the subject early cost nothing.

    >>> trie = SubjectTrie[str]()
    >>> trie.add("news.>", "monitor")
    >>> trie.add("news.*.gmc", "trader")
    >>> trie.match("news.equity.gmc"), trie.match("news.equity.ibm")
    (['monitor', 'trader'], ['monitor'])
    """

    __slots__ = ("_count", "_root")

    def __init__(self) -> None:
        self._root: _TrieNode[V] = _TrieNode()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of values, counting each once per pattern."""
        return self._count

    def add(self, pattern: str, value: V) -> None:
        """Add `value` under `pattern`. Adding it again under that pattern changes nothing."""
        check_pattern(pattern)
        node = self._root
        for element in pattern.split("."):
            child = node.children.get(element)
            if child is None:
                child = node.children[element] = _TrieNode()
            node = child
        self._count += value not in node.values
        node.values[value] = None

    def remove(self, pattern: str, value: V) -> None:
        """Remove `value` from `pattern`; raise `KeyError` if it is not there."""
        path: list[tuple[_TrieNode[V], str]] = []
        node = self._root
        for element in pattern.split("."):
            path.append((node, element))
            node = node.children[element]
        del node.values[value]
        self._count -= 1
        for parent, element in reversed(path):
            if node.values or node.children:
                break
            del parent.children[element]
            node = parent

    def match(self, subject: str) -> list[V]:
        """Return the values under every pattern that matches `subject`, which is well formed.

        A value under several of these patterns is returned once for each. The order depends
        only on the additions and removals before this call.
        """
        found: list[V] = []
        elements = subject.split(".")
        nodes = [self._root]
        if subject[0] == OWN:  # wildcards at the beginning are not for these
            own = self._root.children.get(elements.pop(0))
            nodes = [] if own is None else [own]
        for element in elements:
            reached = []
            for node in nodes:
                children = node.children
                if (rest := children.get(">")) is not None:
                    found += rest.values
                if (child := children.get(element)) is not None:
                    reached.append(child)
                if (child := children.get("*")) is not None:
                    reached.append(child)
            nodes = reached
        for node in nodes:
            found += node.values
        return found


class _TrieNode(Generic[V]):
    """The node for the beginning of some patterns.

    `values` belong to the pattern that ends here.
    """

    __slots__ = ("children", "values")

    def __init__(self) -> None:
        # Wildcards share the dict with literal elements: no subject has an element `*` or `>`.
        self.children: dict[str, _TrieNode[V]] = {}
        self.values: dict[V, None] = {}  # A set in order of addition.


def _is_open(pattern: str) -> bool:
    return pattern == ">" or pattern.endswith(".>")


def _is_foreign(pattern: list[str], elements: list[str]) -> bool:
    """Whether `elements` are the bus's own, and `pattern` does not ask for such."""
    return elements[0][0] == OWN and pattern[0] in ("*", ">")


_ESCAPE = "%([0-9A-F]{2})"
_RESERVED = str.maketrans({char: f"%{ord(char):02X}" for char in "/*$#?%"})


def _key_of(elements: list[str]) -> str:
    chunks = [e if e == "*" else e.translate(_RESERVED) for e in elements]
    # In the engine, an element that begins with @ does not match wildcards.
    chunks = ["%40" + chunk[1:] if chunk[0] == "@" else chunk for chunk in chunks]
    if chunks[-1] == ">":
        chunks[-1] = "*/**"
    return "/".join(chunks)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _checked_elements(text: str, kind: str) -> list[str]:
    """Split a subject or pattern (`kind` says which) and check the rules that both share."""
    if not isinstance(text, str):
        message = f"a {kind} is text, got {type(text).__name__} {text!r}"
        raise BadSubject(message, subject=repr(text), position=0)
    elements = text.split(".")
    if "" in elements:
        if not text:
            raise BadSubject(f"the {kind} is empty", subject=text, position=0)
        raise _bad_element(kind, elements, elements.index(""), "has an empty element")
    if fault := _FORBIDDEN.search(text):
        code = ord(fault[0])
        name = "the lone surrogate" if code >= 0xD800 else "the control character"
        index = text.count(".", 0, fault.start())
        what = f"holds {name} U+{code:04X}, which no element may"
        raise _bad_element(kind, elements, index, what, position=fault.start())
    if len(elements) > ELEMENT_COUNT_MAX:
        what = f"has {len(elements)} elements, but at most {ELEMENT_COUNT_MAX} are allowed"
        raise _bad_element(kind, elements, ELEMENT_COUNT_MAX, what)
    if len(text) > _SURELY_SHORT and (size := len(text.encode())) > SUBJECT_BYTES_MAX:
        what = f"takes {size} bytes of UTF-8, but at most {SUBJECT_BYTES_MAX} are allowed"
        # The first character that does not fit. If the cut falls inside a character, `decode`
        # ignores the part of it that is left.
        position = len(text.encode()[:SUBJECT_BYTES_MAX].decode(errors="ignore"))
        raise _bad_element(kind, elements, text.count(".", 0, position), what, position=position)
    return elements


def _bad_element(
    kind: str, elements: list[str], index: int, what: str, *, position: int | None = None
) -> BadSubject:
    if position is None:
        position = sum(len(element) + 1 for element in elements[:index])
    subject = ".".join(elements)
    shown = subject if len(subject) <= 80 else subject[:77] + "..."
    message = f"{kind} {shown!r} {what} (element {index + 1}, at character {position})"
    return BadSubject(message, subject=subject, position=position)
