"""Joins domains of one attribute: exactly (`united`) or with little added (`hull`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from infobus.filters.domain import ABSENT, ANY, PRESENT, Domain, includes, listed
from infobus.filters.language.literals import TEXTUAL, Test
from infobus.filters.language.tree import Name, Scalar

VALUES_MAX = 1024
"""How many values a test may have in filters that are sent to other nodes."""

_CHARS_MAX = 16_384  # One test must stay well below the longest text of a filter.
_BEGINNING_CHARS_MAX = 64
_COMPARED_COUNT_MAX = 32  # More domains than this are not compared in pairs.
_FOLDED = TEXTUAL | {"has", "isa"}


def united(domains: Iterable[Domain]) -> list[Domain]:
    """Return fewer domains that together allow exactly the same states.

    Values become one set, intervals that overlap or touch become one interval, and domains that
    another one includes disappear.
    """
    found = list(dict.fromkeys(domains))
    if ANY in found or (ABSENT in found and PRESENT in found):
        return [ANY]
    if PRESENT in found:
        return [PRESENT]
    groups: dict[object, list[Domain]] = {}
    for one in found:
        groups.setdefault(_alike(one), []).append(one)
    joined = [one for group in groups.values() for one in _joined(group)]
    if len(joined) <= _COMPARED_COUNT_MAX:
        joined = _without_included(joined)
    return joined


def _alike(one: Domain) -> object:
    """Return a key: only domains with the same key can be joined."""
    test = _only_test(one)
    return (one.family, one.others) if test is None else (test.op, test.family)


def _only_test(one: Domain) -> Test | None:
    """Return the test that is the whole domain, if it accepts any of several values."""
    if len(one.others) == 1 and one == Domain(one.family, others=one.others):
        (test,) = one.others
        return test if test.op in _FOLDED and not test.negated else None
    return None


def _joined(group: list[Domain]) -> list[Domain]:
    first = group[0]
    if len(group) == 1:
        return group
    if (test := _only_test(first)) is not None:
        asked = {value for one in group for other in one.others for value in other.values}
        folded = Test(test.name, test.op, tuple(sorted(asked)), test.family)
        return [replace(first, others=frozenset([folded]))]
    values = {value for one in group for value in one.points}
    intervals = _swept(one for one in group if one.is_interval)
    left = _absorbed(values, intervals)
    intervals = _swept(intervals)  # A value may have closed the gap between two of them.
    if left:
        intervals.append(listed(first.family, left, first.others))
    return intervals


def _swept(intervals: Iterable[Domain]) -> list[Domain]:
    """Join intervals that overlap or touch; the result is sorted and disjoint."""
    swept: list[Domain] = []
    for one in sorted(intervals, key=_low):
        if swept and _touch(swept[-1], one):
            joined = _hull_of_two(swept[-1], one)
            is_bounded = joined.low is not None or joined.high is not None
            # No test can express "any number but NaN", so these two stay separate.
            if is_bounded or joined.nan or joined.family != "number":
                swept[-1] = joined
                continue
        swept.append(one)
    return swept


def _low(one: Domain) -> tuple[Any, ...]:
    return (0,) if one.low is None else (1, one.low, one.low_open)


def _high(one: Domain) -> tuple[Any, ...]:
    return (1,) if one.high is None else (0, one.high, not one.high_open)


def _touch(one: Domain, later: Domain) -> bool:
    if one.high is None or later.low is None:
        return True
    return bool(
        later.low < one.high or (later.low == one.high and not (later.low_open and one.high_open))
    )


def _hull_of_two(one: Domain, other: Domain) -> Domain:
    low, high = min(one, other, key=_low), max(one, other, key=_high)
    excluded = {value for value in one.excluded if not other.fits(value)}
    excluded |= {value for value in other.excluded if not one.fits(value)}
    return Domain(
        one.family,
        low.low,
        high.high,
        low.low_open,
        high.high_open,
        None,
        frozenset(excluded),
        one.nan or other.nan,
        one.others,
    )


def _absorbed(values: Iterable[Any], intervals: list[Domain]) -> list[Any]:
    """Extend intervals by values at their ends; return the values that lie in none of them."""
    lows = [_low(one) for one in intervals]
    left = []
    for value in values:
        # An open interval that begins at the value comes right after its place.
        place = bisect_right(lows, (1, value, True))
        for index in (place - 1, place - 2):
            if index >= 0 and (closed := _closed(intervals[index], value)) is not None:
                intervals[index] = closed
                break
        else:
            left.append(value)
    return left


def _closed(one: Domain, value: Any) -> Domain | None:
    if one.fits(value):
        return one
    if value in one.excluded:
        return replace(one, excluded=one.excluded - {value})
    if value == one.low:
        return replace(one, low_open=False)
    if value == one.high:
        return replace(one, high_open=False)
    return None


def _without_included(domains: list[Domain]) -> list[Domain]:
    kept: list[Domain] = []
    for index, one in enumerate(domains):
        later = domains[index + 1 :]
        if not any(includes(other, one) for other in (*kept, *later)):
            kept.append(one)
    return kept


def hull(domains: Sequence[Domain]) -> Domain:
    """Return one domain that includes all the others, and little more if possible."""
    families = {one.family for one in domains}
    if len(families) > 1:
        return ANY if families & {"any", "absent"} else PRESENT
    first, *rest = domains
    others = first.others.intersection(*(one.others for one in rest))
    if not any(one.is_interval for one in domains):
        if not first.points:
            return _bare(first) if not others else replace(first, others=others)
        return listed(first.family, {value for one in domains for value in one.points}, others)
    low, high = min(domains, key=_low), max(domains, key=_high)
    excluded = first.excluded.intersection(*(one.excluded for one in rest))
    unbounded = low.low is None and high.high is None
    nan = first.family == "number" and (unbounded or any(one.nan for one in domains))
    return Domain(
        first.family,
        low.low,
        high.high,
        low.low_open,
        high.high_open,
        None,
        excluded,
        nan,
        others,
    )


def _bare(one: Domain) -> Domain:
    """Return the domain of the family alone, without `others`."""
    return PRESENT if one.family == "list" else ANY if one.family == "isa" else Domain(one.family)


def place(one: Domain) -> tuple[Any, ...]:
    """Return a sort key that makes domains with a small hull neighbours."""
    return one.family, _low(one)


def coarse(name: Name, one: Domain) -> Domain:
    """Return a domain that includes this one and needs few values.

    Many numbers become the interval around them; many strings become their common beginnings.
    """
    kept = frozenset(test for test in one.others if is_short(test.values))
    points = one.points
    if not points or is_short(points):
        excluded = one.excluded if is_short(one.excluded) else frozenset()
        short = replace(one, excluded=excluded, others=kept)
        return hull([short])
    if one.family != "string":
        return replace(one, values=None, others=kept)
    beginnings: list[str] = []
    for length in range(1, _BEGINNING_CHARS_MAX):
        longer = {str(value)[:length] for value in points}
        if "" in longer or not is_short(longer):
            break
        beginnings = sorted(longer)
    if beginnings:
        kept |= {Test(name, "begins-with", tuple(beginnings))}
    return Domain("string", others=kept)


def is_short(values: Collection[Scalar]) -> bool:
    """Return whether a test in a filter that is sent to other nodes may have these values."""
    return len(values) <= VALUES_MAX and sum(len(str(value)) for value in values) <= _CHARS_MAX
