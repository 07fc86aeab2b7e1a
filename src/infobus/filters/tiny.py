"""A handful of rows as one generated function, which reads every attribute once.

With few subscriptions there is nothing to gain by an index; what counts is to do little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from infobus.filters.entries import Entry, Look
from infobus.filters.spans import Key, Limit
from infobus.filters.values import INT64_MAX, family

Collect = Callable[[Look, list[Hashable]], None]
HasAny = Callable[[Look], bool]


def compiled(entries: Iterable[Entry]) -> tuple[Collect, HasAny]:
    """The functions that collect the owners of all rows that hold, and that ask for one row."""
    bound: dict[str, Any] = {"nan": _number_or_nan, "bottom": -INT64_MAX - 1, "top": INT64_MAX}
    readings: dict[Key, str] = {}
    conditions = []
    for number, entry in enumerate(entries):
        bound[f"e{number}"] = entry
        if entry.spans or entry.left or not entry.parts.limits:
            conditions.append(f"e{number}.fits(look)")
        else:
            tests = (_test(limit, readings, bound) for limit in entry.parts.limits)
            conditions.append(" and ".join(tests))
    lines = [" get = look.get"]
    for name in readings.values():
        lines.append(f" {name} = get(k{name})")
        # Only what is no plain number takes the way through a function.
        is_int = f"{name}.__class__ is int and bottom <= {name} <= top"
        lines.append(f" if {name}.__class__ is not float and not ({is_int}): {name} = nan({name})")
    collect = [f" if {test}: ids += e{number}.owners" for number, test in enumerate(conditions)]
    has_any = [f" return {' or '.join(conditions)}"]
    exec("\n".join(["def collect(look, ids):", *lines, *collect]), bound)
    exec("\n".join(["def has_any(look):", *lines, *has_any]), bound)
    return bound["collect"], bound["has_any"]


def _test(limit: Limit, readings: dict[Key, str], bound: dict[str, Any]) -> str:
    key, low, high = limit
    name = readings.setdefault(key, f"v{len(readings)}")
    bound[f"k{name}"] = key
    text = name
    if low != -math.inf:
        bound[f"c{len(bound)}"] = low
        text = f"c{len(bound) - 1} <= {text}"
    if high != math.inf:
        bound[f"c{len(bound)}"] = high
        text = f"{text} <= c{len(bound) - 1}"
    # With both ends open, any number will do; NaN is none.
    return text if text != name else f"{name} == {name}"


def _number_or_nan(value: Any) -> Any:
    """`value` if numbers can be compared with it, otherwise NaN, which passes no test."""
    return value if family(value) == "number" else math.nan
