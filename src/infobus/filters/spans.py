"""Where an attribute must lie for a row to hold: the part of a row that can be indexed.

All tests of one row about one attribute that compare it with constants come together in one
`Span`. Tests of other kinds (patterns, arithmetic, one attribute against another) are left
over, to be evaluated for the few events that pass the spans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from infobus.filters.literals import Literal, Test
from infobus.filters.tree import Name, Scalar
from infobus.filters.values import family

Key = str | tuple[str, ...]
"""An attribute as the index names it: its name, or the path of one inside another."""

PRESENT = "present"
ABSENT = "absent"
"""Families of spans that ask only whether the attribute is there."""

_ORDERS = frozenset({"<", "<=", ">", ">="})
# Classes whose values need no closer look; all others ask `values.family`.
_PLAIN: dict[type, str] = {float: "number", str: "string", bool: "bool"}


def key_of(name: Name) -> Key:
    """Return the key of an attribute.

    >>> key_of(Name(("price",))), key_of(Name(("story", "source")))
    ('price', ('story', 'source'))
    """
    return name.path[0] if len(name.path) == 1 else name.path


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
        """Whether `value`, None for a missing one, is wanted."""
        wanted = self.family
        if _PLAIN.get(value.__class__) != wanted:
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


def split(row: Iterable[Literal]) -> tuple[tuple[Span, ...], tuple[Literal, ...]] | None:
    """Divide a row into spans, at most one for each attribute, and the literals left over.

    None: the row can never hold. Rows that say the same in another order give equal results.
    """
    tests: dict[Key, list[Test]] = {}
    left: dict[Literal, None] = {}
    for literal in row:
        if isinstance(literal, Test) and (literal.op in _ORDERS or literal.op in ("==", "exists")):
            tests.setdefault(key_of(literal.name), []).append(literal)
        else:
            left[literal] = None
    spans = [_joined(key, some) for key, some in tests.items()]
    if None in spans:
        return None
    ordered = sorted((span for span in spans if span is not None), key=_by_key)
    return tuple(ordered), tuple(sorted(left, key=repr) if len(left) > 1 else left)


def _by_key(span: Span) -> str:
    return span.key if isinstance(span.key, str) else "\0".join(span.key)


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
