"""Where an attribute must lie for a row to hold: the part of a row that can be indexed.

All tests of one row about one attribute that compare it with constants come together in one
`Span`. Tests of other kinds (patterns, arithmetic, one attribute against another) are left
over, to be evaluated for the few events that pass the spans.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from infobus.filters.language.literals import Literal, Test
from infobus.filters.language.partial import UNKNOWN
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.language.values import family, read

Key = str | tuple[str, ...]
"""An attribute as the index names it: its name, or the path of one inside another."""

PRESENT = "present"
ABSENT = "absent"
"""Families of spans that ask only whether the attribute is there."""

Limit = tuple[Key, float, float]
"""A number from one value to another, both included: what most rows ask for, in little room."""

EXACT = 2**52
"""Below this, no integer lies between a real number and the next one."""

# One number each, not one for every limit.
_ENDLESS = _LOWEST, _HIGHEST = (-math.inf, math.inf)
_ORDERS = frozenset({"<", "<=", ">", ">="})
_SPANNED = _ORDERS | {"==", "exists"}
# Classes whose values need no closer look; all others ask `values.family`.
_PLAIN: dict[type, str] = {float: "number", str: "string", bool: "bool"}


def key_of(name: Name) -> Key:
    """Return the key of an attribute.

    >>> key_of(Name(("price",))), key_of(Name(("story", "source")))
    ('price', ('story', 'source'))
    """
    return name.path[0] if len(name.path) == 1 else name.path


def value_at(attributes: Mapping[str, Any], key: Key) -> Any:
    """Return the value of the attribute with this key, or None."""
    return attributes.get(key) if isinstance(key, str) else read(attributes, key)


class Span(Struct, frozen=True, gc=False):
    """The values of one family that are wanted: between two ends, in a set, outside a set.

    An end that is None is open to infinity. `among` and `barring` are None if they say nothing
    that the ends do not say. `nan` says whether NaN, which lies nowhere, is wanted too.
    """

    key: Key
    family: str
    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    among: frozenset[Scalar] | None = None
    barring: frozenset[Scalar] | None = None
    nan: bool = False

    @property
    def points(self) -> Collection[Scalar]:
        """The values, if they can be counted: an index can find the row by them."""
        if self.among is not None:
            return self.among
        is_point = self.low is not None and self.low == self.high
        return (self.low,) if is_point and not (self.low_open or self.high_open) else ()

    def fits(self, value: Any) -> bool:
        """Whether `value`, None for a missing one, is wanted; `UNKNOWN` may be."""
        wanted = self.family
        if _PLAIN.get(value.__class__) != wanted:
            if value is UNKNOWN:
                return True
            if value is None or wanted == ABSENT:
                return value is None and wanted == ABSENT
            if wanted == PRESENT:
                return True
            if family(value) != wanted:
                return False
        if value != value:
            return self.nan
        low, high = self.low, self.high
        if low is not None and not (low < value if self.low_open else low <= value):
            return False
        if high is not None and not (value < high if self.high_open else value <= high):
            return False
        if self.among is not None and value not in self.among:
            return False
        return self.barring is None or value not in self.barring


class Parts(NamedTuple):
    """What a row asks for: limits and spans, at most one for each attribute, and the rest."""

    limits: tuple[Limit, ...] = ()
    spans: tuple[Span, ...] = ()
    literals: tuple[Literal, ...] = ()


def split(row: Iterable[Literal]) -> Parts | None:
    """Divide a row into its parts; None if it can never hold.

    Rows that say the same in another order give equal parts.
    """
    tests: dict[Key, list[Test]] = {}
    left: dict[Literal, None] = {}
    for literal in row:
        if isinstance(literal, Test) and literal.op in _SPANNED:
            path = literal.name.path
            key = path[0] if len(path) == 1 else path
            if key in tests:
                tests[key].append(literal)
            else:
                tests[key] = [literal]
        else:
            left[literal] = None
    limits, spans = [], []
    for key in sorted(tests, key=str) if len(tests) > 1 else tests:
        some = tests[key]
        part = _only(key, some[0]) if len(some) == 1 else None
        if part is None:
            span = _joined(key, some)
            if span is None:
                return None
            part = _limit(span) or span
        if isinstance(part, tuple):
            limits.append(part)
        else:
            spans.append(part)
    literals = tuple(sorted(left, key=repr) if len(left) > 1 else left)
    return Parts(tuple(limits), tuple(spans), literals)


def _only(key: Key, test: Test) -> Limit | Span | None:
    """What a single test says, as most are; None leaves it to the long way."""
    if test.negated or test.op == "exists":
        return None
    if test.op == "==":
        values = test.values
        some = frozenset(values) if len(values) > 1 else None
        return Span(key, test.family, values[0], values[-1], among=some)
    (end,) = test.values
    if test.family != "number":
        return None
    assert isinstance(end, int | float)
    if not -EXACT < end < EXACT:
        return None
    match test.op:
        case "<":
            return key, _LOWEST, math.nextafter(end, _LOWEST)
        case "<=":
            return key, _LOWEST, end
        case ">":
            return key, math.nextafter(end, _HIGHEST), _HIGHEST
        case _:
            return key, end, _HIGHEST


def _limit(span: Span) -> Limit | None:
    """The span as a limit, if that says the same."""
    if span.family != "number" or span.nan or span.among or span.barring:
        return None
    low = _LOWEST if span.low is None else span.low
    high = _HIGHEST if span.high is None else span.high
    if low == high or not all(end in _ENDLESS or abs(end) < EXACT for end in (low, high)):
        return None
    if low == _HIGHEST or high == _LOWEST:
        return None
    if span.low_open:
        low = math.nextafter(low, _HIGHEST)
    if span.high_open:
        high = math.nextafter(high, _LOWEST)
    return span.key, low, high


def _joined(key: Key, tests: list[Test]) -> Span | None:
    """One span for tests of one attribute; None if no value can pass them all."""
    families = {_family(test) for test in tests}
    if len(families) == 2 and ABSENT not in families:
        families.discard(PRESENT)
    if len(families) > 1:
        return None
    (kind,) = families
    low = high = None
    low_open = high_open = False
    among: set[Scalar] | None = None
    barring: set[Scalar] = set()
    nan = kind == "number"
    for test in tests:
        nan = nan and (test.negated or test.op == "exists")
        if test.op == "==" and not test.negated:
            among = set(test.values) if among is None else among & set(test.values)
        elif test.op == "==":
            barring |= set(test.values)
        elif test.op in _ORDERS:
            limit: Any = test.values[0]
            upwards, is_open = _direction(test)
            if upwards and (low is None or (limit, is_open) > (low, low_open)):
                low, low_open = limit, is_open
            elif not upwards and (high is None or (limit, not is_open) < (high, not high_open)):
                high, high_open = limit, is_open
    span = Span(key, kind, low, high, low_open, high_open, None, frozenset(barring) or None, nan)
    if among is not None:
        wanted = sorted(value for value in among if span.fits(value))
        if not wanted:
            return None
        some = frozenset(wanted) if len(wanted) > 1 else None
        return Span(key, kind, wanted[0], wanted[-1], among=some)
    if low is not None and high is not None and low > high and not nan:
        return None
    return span


def _family(test: Test) -> str:
    if test.op == "exists":
        return ABSENT if test.negated else PRESENT
    return test.family


def _direction(test: Test) -> tuple[bool, bool]:
    """Whether a test for an order bounds from below, and whether the limit itself is left out."""
    upwards, is_open = test.op in (">", ">="), test.op in ("<", ">")
    return (not upwards, not is_open) if test.negated else (upwards, is_open)
