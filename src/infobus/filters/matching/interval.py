"""The part of a row that an index can use: where each attribute must lie.

All tests of one attribute that compare it with constants give one `Domain`. The matcher stores
it as a `Limit` if it can, otherwise as a `Span`. Other tests (patterns, arithmetic, one
attribute against another) stay literals, which are evaluated for the few events that pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from infobus.filters.domain import ORDERS, Domain, domain
from infobus.filters.language.literals import Literal, Test
from infobus.filters.language.tree import Name
from infobus.filters.language.values import read

Key = str | tuple[str, ...]
"""An attribute as the index names it: its name, or the path of one inside another."""

Limit = tuple[Key, float, float]
"""An interval of numbers, both ends included. Most rows ask for these, and they are small."""

EXACT = 2**52
"""Below this, no integer lies between a real number and the next one."""

# Every limit shares these two objects.
_LOWEST, _HIGHEST = -math.inf, math.inf
_SPANNED = ORDERS | {"==", "exists"}


class Span(Domain, frozen=True, gc=False, kw_only=True):
    """The domain of the attribute with this key."""

    # A field of the domain itself, and not a pair of both: a pair would take 56 bytes more.
    key: Key


class Parts(NamedTuple):
    """A row taken apart: at most one limit or span for each attribute, and the other literals."""

    limits: tuple[Limit, ...] = ()
    spans: tuple[Span, ...] = ()
    literals: tuple[Literal, ...] = ()


def key_of(name: Name) -> Key:
    """Return the key of an attribute.

    >>> key_of(Name(("price",))), key_of(Name(("story", "source")))
    ('price', ('story', 'source'))
    """
    return name.path[0] if len(name.path) == 1 else name.path


def value_at(attributes: Mapping[str, Any], key: Key) -> Any:
    """Return the value of the attribute with this key, or None."""
    return attributes.get(key) if isinstance(key, str) else read(attributes, key)


def split(row: Iterable[Literal]) -> Parts | None:
    """Take a row apart; None if it can never hold.

    Rows that say the same in another order give equal parts.
    """
    tests: dict[Key, list[Test]] = {}
    left: dict[Literal, None] = {}
    for literal in row:
        if isinstance(literal, Test) and literal.op in _SPANNED:
            key = key_of(literal.name)
            if key in tests:
                tests[key].append(literal)
            else:
                tests[key] = [literal]
        else:
            left[literal] = None
    limits, spans = [], []
    for key in sorted(tests, key=str) if len(tests) > 1 else tests:
        allowed = domain(tests[key])
        if allowed is None:
            return None
        limit = _limit(key, allowed)
        if limit is None:
            spans.append(_span(key, allowed))
        else:
            limits.append(limit)
    literals = tuple(sorted(left, key=repr) if len(left) > 1 else left)
    return Parts(tuple(limits), tuple(spans), literals)


def _limit(key: Key, allowed: Domain) -> Limit | None:
    """Return the domain as a limit if that says the same."""
    if allowed.family != "number" or allowed.nan or allowed.excluded:
        return None
    low, high = allowed.low, allowed.high
    if allowed.values is not None or low == high:
        return None  # The index files a row under its values, which is better than an interval.
    if low is None:
        low = _LOWEST
    elif not -EXACT < low < EXACT:
        return None
    elif allowed.low_open:
        low = math.nextafter(low, _HIGHEST)
    if high is None:
        high = _HIGHEST
    elif not -EXACT < high < EXACT:
        return None
    elif allowed.high_open:
        high = math.nextafter(high, _LOWEST)
    return key, low, high


def _span(key: Key, one: Domain) -> Span:
    return Span(
        one.family,
        one.low,
        one.high,
        one.low_open,
        one.high_open,
        one.values,
        one.excluded,
        one.nan,
        key=key,
    )
