"""Finding the string patterns that a text fulfils, without trying all of them.

Most patterns can only fit where some fixed piece of text occurs: the prefix of `begins-with`,
the longest literal run of a regular expression. Patterns are filed under a few characters of
that piece, so a text finds its candidates by looking up what it is made of. Filing is by plain
dicts: one more pattern costs nothing but itself, and nothing is ever rebuilt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from infobus.filters.clusters import Cluster
from infobus.filters.functions import string_test

GRAM = 4
"""Characters that a pattern is filed under; shorter pieces are filed whole."""

# What may follow a backslash and stands for no literal text, but is nothing worse either.
_ESCAPES = frozenset("dDwWsSbBAzfnrtv")
_REPEAT = re.compile(r"\{\d+(,\d*)?\}")
_FOLDS_CASE = re.compile(r"\(\?[A-Za-z]*i")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)


def required(op: str, value: str) -> tuple[str, ...]:
    """Return pieces of text of which every string that fulfils the pattern holds at least one.

    >>> required("regex", r"oil (price|stock)s? up+|gas"), required("wildcard", "*.py?")
    (('oil ', 'gas'), ('.py',))

    A piece can be empty, which every string holds.
    """
    if op == "regex":
        return _required_by_regex(value)
    if op == "wildcard":
        return (max(re.split(r"[*?]", value), key=len),)
    return (value,)


def _required_by_regex(pattern: str) -> tuple[str, ...]:
    """For each alternative its longest run of literals outside groups.

    Wherever the syntax leaves a doubt, nothing is required.
    """
    if _FOLDS_CASE.search(pattern):
        return ("",)
    alternatives: list[str] = []
    longest = run = ""
    position = 0
    while position < len(pattern):
        sign = pattern[position]
        end: int | None = position + 1
        if sign == "\\":
            sign = pattern[position + 1 : position + 2]
            end = position + 2 if not sign.isalnum() or sign in _ESCAPES else None
            is_literal = not sign.isalnum()
        else:
            is_literal = sign not in "[({.^$*?+|"
            if sign == "[":
                end = _end_of(_CLASS, pattern, position)
            elif sign == "(":
                end = _end_of_group(pattern, position + 1)
            elif sign == "{":
                end = _end_of(_REPEAT, pattern, position)
        if end is None:
            return ("",)
        position = end
        if is_literal:
            run += sign
            continue
        if sign in "*?{":  # What it repeats may be missing.
            run = run[:-1]
        longest, run = max(longest, run, key=len), ""
        if sign == "|":
            alternatives.append(longest)
            longest = ""
    return (*alternatives, max(longest, run, key=len))


def _end_of(syntax: re.Pattern[str], pattern: str, position: int) -> int | None:
    found = syntax.match(pattern, position)
    return found.end() if found else None


def _end_of_group(pattern: str, position: int) -> int | None:
    """The position after the parenthesis that closes the one before `position`."""
    depth = 1
    while position < len(pattern):
        sign = pattern[position]
        if sign == "\\":
            if pattern[position + 1 : position + 2] == "Q":
                return None
            position += 1
        elif sign == "[":
            found = _CLASS.match(pattern, position)
            if not found:
                return None
            position = found.end() - 1
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        position += 1
        if depth == 0:
            return position
    return None


class Pattern:
    """One pattern, and the rows that are found by it."""

    __slots__ = ("cluster", "fits", "grams", "pieces")

    def __init__(self, op: str, value: str, cluster: Cluster) -> None:
        self.pieces = required(op, value)
        self.grams: set[str] = set()
        self.fits = string_test(op, (value,))
        self.cluster = cluster


class Patterns:
    """The patterns for one attribute."""

    def __init__(self, inside: dict[Any, Patterns], key: Any) -> None:
        """They stand in `inside` under `key` until the last of them is gone."""
        inside[key] = self
        self._inside = inside
        self._key = key
        self._patterns: dict[tuple[str, str], Pattern] = {}
        self._filed: dict[str, dict[Pattern, None]] = {}
        self._sizes: Counter[int] = Counter()

    def cluster(self, op: str, value: str) -> Cluster:
        """The rows that are found by a pattern."""
        key = (op, value)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = Pattern(op, value, Cluster(self, key))
            for piece in pattern.pieces:
                # Under the gram that fewest others are filed under.
                gram = min(_grams(piece), key=lambda gram: len(self._filed.get(gram, ())))
                pattern.grams.add(gram)
            for gram in pattern.grams:
                self._filed.setdefault(gram, {})[pattern] = None
                self._sizes[len(gram)] += 1
        return pattern.cluster

    def __delitem__(self, key: tuple[str, str]) -> None:
        """Forget a pattern that finds nothing any more."""
        pattern = self._patterns.pop(key)
        for gram in pattern.grams:
            del self._filed[gram][pattern]
            if not self._filed[gram]:
                del self._filed[gram]
            self._sizes[len(gram)] -= 1
        self._sizes += Counter()  # drops what is 0
        if not self._patterns:
            del self._inside[self._key]

    def found(self, text: str) -> Iterator[Cluster]:
        """The rows of every pattern that `text` fulfils."""
        for pattern in self._candidates(text):
            for piece in pattern.pieces:
                if piece in text:
                    if pattern.fits(text):
                        yield pattern.cluster
                    break

    def all(self) -> Iterator[Cluster]:
        """The rows of every pattern."""
        return (pattern.cluster for pattern in self._patterns.values())

    def _candidates(self, text: str) -> Iterable[Pattern]:
        # Searching a text for a piece takes time for each two thousand characters or so.
        if len(self._patterns) * (1 + len(text) // 2048) < len(text):
            return self._patterns.values()
        filed = self._filed
        grams = {
            text[start : start + size]
            for size in self._sizes
            for start in range(len(text) - size + 1 if size else 1)
        }
        found = [filed[gram] for gram in filter(filed.__contains__, grams)]
        return dict.fromkeys(chain.from_iterable(found))


def _grams(piece: str) -> list[str]:
    """What a pattern with this piece can be filed under."""
    return [piece[start : start + GRAM] for start in range(max(1, len(piece) - GRAM + 1))]
