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

from infobus.filters.clusters import Cluster
from infobus.filters.functions import string_test

GRAM = 4
"""Characters that a pattern is filed under; shorter pieces are filed whole."""

# What may follow a backslash and stands for no literal text, but is nothing worse either.
_ESCAPES = frozenset("dDwWsSbBAzfnrtv")
_REPEAT = re.compile(r"\{\d+(,\d*)?\}")
_FOLDS_CASE = re.compile(r"\(\?[A-Za-z]*i")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)


def required(op: str, value: str) -> str:
    """Return a piece of text that is in every string that fulfils the pattern, or "".

    >>> required("regex", r"oil (price|stock)s? up+"), required("wildcard", "*.py?")
    ('oil ', '.py')
    """
    if op == "regex":
        return _required_by_regex(value)
    if op == "wildcard":
        return max(re.split(r"[*?]", value), key=len)
    return value


def _required_by_regex(pattern: str) -> str:
    """The longest run of literals outside groups; "" wherever the syntax leaves a doubt."""
    if _FOLDS_CASE.search(pattern):
        return ""
    runs, run = [""], ""
    position, end = 0, len(pattern)
    while position < end:
        sign = pattern[position]
        position += 1
        if sign == "\\":
            escaped = pattern[position : position + 1]
            position += 1
            if escaped.isalnum() and escaped not in _ESCAPES:
                return ""
            sign = "" if escaped.isalnum() else escaped
            if sign:
                run += sign
                continue
        elif sign == "[":
            found = _CLASS.match(pattern, position - 1)
            if not found:
                return ""
            position = found.end()
        elif sign == "(":
            after = _end_of_group(pattern, position)
            if after is None:
                return ""
            position = after
        elif sign in "*?":
            run = run[:-1]
        elif sign == "{":
            repeat = _REPEAT.match(pattern, position - 1)
            if not repeat:
                return ""
            run, position = run[:-1], repeat.end()
        elif sign == "|":
            return ""
        elif sign not in ".^$+":
            run += sign
            continue
        runs.append(run)
        run = ""
    return max(*runs, run, key=len)


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

    __slots__ = ("cluster", "fits", "gram", "piece")

    def __init__(self, op: str, value: str, cluster: Cluster) -> None:
        self.piece = required(op, value)
        self.gram = ""
        self.fits = string_test(op, (value,))
        self.cluster = cluster


class Patterns:
    """The patterns for one attribute."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[str, str], Pattern] = {}
        self._filed: dict[str, dict[Pattern, None]] = {}
        self._sizes: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._patterns)

    def cluster(self, op: str, value: str) -> Cluster:
        """The rows that are found by a pattern."""
        key = (op, value)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = Pattern(op, value, Cluster(self, key))
            pattern.gram = min(
                _grams(pattern.piece), key=lambda gram: len(self._filed.get(gram, ()))
            )
            self._filed.setdefault(pattern.gram, {})[pattern] = None
            self._sizes[len(pattern.gram)] += 1
        return pattern.cluster

    def __delitem__(self, key: tuple[str, str]) -> None:
        """Forget a pattern that finds nothing any more."""
        pattern = self._patterns.pop(key)
        del self._filed[pattern.gram][pattern]
        if not self._filed[pattern.gram]:
            del self._filed[pattern.gram]
        self._sizes[len(pattern.gram)] -= 1
        self._sizes += Counter()

    def found(self, text: str) -> Iterator[Cluster]:
        """The rows of every pattern that `text` fulfils."""
        for pattern in self._candidates(text):
            if pattern.piece in text and pattern.fits(text):
                yield pattern.cluster

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
        return chain.from_iterable(filed[gram] for gram in filter(filed.__contains__, grams))


def _grams(piece: str) -> list[str]:
    """What a pattern with this piece can be filed under."""
    return [piece[start : start + GRAM] for start in range(max(1, len(piece) - GRAM + 1))]
