"""Finds the string patterns that fit a text, without trying each of them.

Most patterns fit only if the text contains some fixed piece: the prefix of `begins-with`, or the
longest literal run of a regular expression. Aho-Corasick automata search for all pieces at once,
in one pass over the text. An automaton cannot be changed, only rebuilt. So there are several:
new pieces are gathered first, and small automata are merged into larger ones, up to a size that
can be built in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import ahocorasick

from infobus.filters.language.functions import string_test, wildcard_parts
from infobus.filters.matching.cluster import Cluster

FRESH_MAX = 24
"""Up to this many new pieces are searched one by one."""

PIECES_MAX = 8192
"""How many pieces one automaton may have; building it takes about 10 ms."""

# Letters that, after a backslash, stand for no literal text and change nothing else.
_ESCAPES = frozenset("dDwWsSbBAzfnrtv")
_REPEAT = re.compile(r"\{\d+(,\d*)?\}")
_FOLDS_CASE = re.compile(r"\(\?[A-Za-z]*i")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)


def required(op: str, value: str) -> tuple[str, ...]:
    """Return pieces of text such that every fitting string contains at least one of them.

    >>> required("regex", r"oil (price|stock)s? up+|gas"), required("wildcard", "*.py?")
    (('oil ', 'gas'), ('.py',))

    A piece can be empty; every string contains it.
    """
    if op == "regex":
        return _required_by_regex(value)
    if op == "wildcard":
        return (max(wildcard_parts(value)[::2], key=len),)
    return (value,)


def _required_by_regex(pattern: str) -> tuple[str, ...]:
    """Return the longest run of literals outside groups, for each alternative.

    If the syntax leaves any doubt, return the empty piece.
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
        if sign in "*?{":  # The character before may be missing.
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
    """Return the position after the parenthesis that closes the one before `position`."""
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
    """One pattern, and the rows that are filed under it."""

    __slots__ = ("cluster", "fits", "pieces")

    def __init__(self, op: str, value: str, cluster: Cluster) -> None:
        self.pieces = set(required(op, value))
        self.fits = string_test(op, (value,))
        self.cluster = cluster


class PieceAutomaton:
    """Searches for many pieces in one pass over a text."""

    __slots__ = ("_automaton", "count", "live", "places")

    def __init__(self, pieces: Iterable[str]) -> None:
        self._automaton = ahocorasick.Automaton()
        for piece in pieces:
            self._automaton.add_word(piece, piece)
        self.count = self.live = len(self._automaton)
        """How many pieces there are, and how many of them still have patterns."""
        self._automaton.make_automaton()
        self.places = self._automaton.iter
        """Returns the places and the pieces found in a text; a piece may come up repeatedly."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._automaton)


class Patterns:
    """All patterns for one attribute."""

    def __init__(self, inside: dict[Any, Patterns], key: Any) -> None:
        """Enter `inside` under `key`, until the last pattern is removed."""
        inside[key] = self
        self._inside = inside
        self._key = key
        self._patterns: dict[tuple[str, str], Pattern] = {}
        self._by_piece: dict[str, dict[Pattern, None]] = {}
        self._fresh: set[str] = set()
        self._segments: list[PieceAutomaton] = []
        self._segment_of: dict[str, PieceAutomaton] = {}

    def cluster(self, op: str, value: str) -> Cluster:
        """Return the cluster of a pattern; make it if there is none."""
        key = (op, value)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = self._patterns[key] = Pattern(op, value, Cluster(self, key))
            for piece in pattern.pieces:
                if piece not in self._by_piece:
                    self._by_piece[piece] = {}
                    self._look_for(piece)
                self._by_piece[piece][pattern] = None
        return pattern.cluster

    def __delitem__(self, key: tuple[str, str]) -> None:
        """Remove a pattern whose cluster has become empty."""
        pattern = self._patterns.pop(key)
        for piece in pattern.pieces:
            del self._by_piece[piece][pattern]
            if not self._by_piece[piece]:
                del self._by_piece[piece]
                self._forget(piece)
        if not self._patterns:
            del self._inside[self._key]

    def found(self, text: str) -> list[Cluster]:
        """Return the clusters of all patterns that fit `text`."""
        # Patterns that require no text have the empty piece, which is in every text.
        pieces = [piece for piece in self._fresh if piece in text]
        for segment in self._segments:
            pieces += [piece for _, piece in segment.places(text)]
        if not pieces:
            return []
        by_piece = self._by_piece
        found = chain.from_iterable(by_piece[piece] for piece in pieces if piece in by_piece)
        return [pattern.cluster for pattern in dict.fromkeys(found) if pattern.fits(text)]

    def all(self) -> Iterator[Cluster]:
        """Return the clusters of all patterns."""
        return (pattern.cluster for pattern in self._patterns.values())

    def _look_for(self, piece: str) -> None:
        self._fresh.add(piece)
        if len(self._fresh) <= FRESH_MAX:
            return
        keep = self._fresh & {""}
        pieces, self._fresh = list(self._fresh - keep), keep
        while self._segments and self._segments[-1].live <= len(pieces) <= PIECES_MAX // 2:
            pieces += self._pieces_of(self._segments.pop())
        self._segments.append(self._segment(pieces))

    def _forget(self, piece: str) -> None:
        self._fresh.discard(piece)
        segment = self._segment_of.pop(piece, None)
        if segment is not None:
            segment.live -= 1
            if 2 * segment.live <= segment.count:
                self._segments.remove(segment)
                if segment.live:
                    self._segments.append(self._segment(self._pieces_of(segment)))

    def _segment(self, pieces: list[str]) -> PieceAutomaton:
        segment = PieceAutomaton(pieces)
        self._segment_of.update(dict.fromkeys(pieces, segment))
        return segment

    def _pieces_of(self, segment: PieceAutomaton) -> list[str]:
        """Return its pieces that still have patterns and are in no other automaton."""
        return [piece for piece in segment if self._segment_of.get(piece) is segment]
