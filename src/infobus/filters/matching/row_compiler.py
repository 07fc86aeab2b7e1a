"""Compiles a few rows into one Python function, which reads every attribute once.

With few subscriptions an index gains nothing; doing little work per event does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from infobus.filters.language.values import INT64_MAX, family
from infobus.filters.matching.interval import Key, Limit
from infobus.filters.matching.row import MatcherRow


class Compiled(NamedTuple):
    """`collect` appends the owners of all rows that hold; `has_any` looks for one such row."""

    collect: Callable[[Any, list[Hashable]], None]
    has_any: Callable[[Any], bool]
    is_plain: bool
    """Whether both also take the plain attributes of an event instead of an `EventView`."""


def compiled(rows: Iterable[MatcherRow]) -> Compiled:
    """Compile these rows."""
    bound: dict[str, Any] = {"nan": _number_or_nan, "bottom": -INT64_MAX - 1, "top": INT64_MAX}
    readings: dict[Key, str] = {}
    conditions = []
    is_plain = True
    for number, row in enumerate(rows):
        bound[f"e{number}"] = row
        if row.spans or row.left or not row.parts.limits:
            conditions.append(f"e{number}.fits(view)")
            is_plain = False
        else:
            tests = (_test(limit, readings) for limit in row.parts.limits)
            conditions.append(" and ".join(tests))
    lines = [" get = view.get"]
    for key, name in readings.items():
        lines.append(f" {name} = get({key!r})")
        # Plain numbers skip the call of a function.
        is_int = f"{name}.__class__ is int and bottom <= {name} <= top"
        lines.append(f" if {name}.__class__ is not float and not ({is_int}): {name} = nan({name})")
    collect = [f" if {test}: ids += e{number}.owners" for number, test in enumerate(conditions)]
    has_any = [f" return {' or '.join(conditions)}"]
    exec("\n".join(["def collect(view, ids):", *lines, *collect]), bound)
    exec("\n".join(["def has_any(view):", *lines, *has_any]), bound)
    is_plain = is_plain and all(isinstance(key, str) for key in readings)
    return Compiled(bound["collect"], bound["has_any"], is_plain)


def _test(limit: Limit, readings: dict[Key, str]) -> str:
    key, low, high = limit
    name = readings.setdefault(key, f"v{len(readings)}")
    text = name
    if low != -math.inf:
        text = f"{low!r} <= {text}"
    if high != math.inf:
        text = f"{text} <= {high!r}"
    # Without bounds any number passes, but not NaN, which does not equal itself.
    return text if text != name else f"{name} == {name}"


def _number_or_nan(value: Any) -> Any:
    """Return `value` if it is a number of the language, otherwise NaN, which passes no test."""
    return value if family(value) == "number" else math.nan
