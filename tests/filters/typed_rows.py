"""Rows as a table holds them, one type per column, over the vocabulary of `strategies`.

The values are those about which databases, Spark and Python are of different minds.
"""

import math
import random
from datetime import timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from infobus.filters import Filter
from infobus.filters.tree import Compare, Name
from tests.filters import strategies

INTEGERS = [*strategies.INTEGERS, -(2**31) - 1, 2**53]
REALS = [*strategies.REALS, 1.5, math.inf, -math.inf]
STRINGS = [*strategies.WORDS, "%", "_b", "\ue000", "😀", "a\0b", "\0", "GM\0", "b\0GM", "a ", "1"]
EAST = timezone(timedelta(hours=5, minutes=30))
MOMENTS = [*strategies.MOMENTS, strategies.MOMENTS[0].replace(tzinfo=EAST)]

VALUES: dict[tuple[str, ...], list[Any]] = {
    ("a",): INTEGERS,
    ("b",): REALS,
    ("n",): INTEGERS,
    ("s",): STRINGS,
    ("t",): STRINGS,
    ("flag",): [True, False],
    ("when",): MOMENTS,
    ("tags",): [[], ["GM", "a"], ["gm", None], ["", "ab\0"]],
    ("raw",): [b"", b"ab", b"\xff"],
    ("o", "a"): REALS,
    ("o", "s"): STRINGS,
    ("o", "p", "flag"): [True, False],
}


def rows(count: int, values_of: dict[tuple[str, ...], list[Any]] = VALUES) -> list[dict[str, Any]]:
    """The same random rows in every run; each attribute may be missing."""
    choose = random.Random(count).choice
    made = []
    for _ in range(count):
        row: dict[str, Any] = {}
        for path, values in values_of.items():
            inner = row
            for element in path[:-1]:
                inner = inner.setdefault(element, {})
            inner[path[-1]] = choose([None, *values])
        made.append(row)
    return made


def filters() -> st.SearchStrategy[Filter]:
    """Filters of every kind, with comparisons of two columns that can be compared."""
    alike = [("a", "n"), ("b", "o.a"), ("s", "t"), ("t", "o.s"), ("flag", "o.p.flag"), ("n", "b")]
    pairs = st.sampled_from([[Name(tuple(name.split("."))) for name in pair] for pair in alike])
    compared = st.builds(lambda op, pair: Compare(op, *pair), strategies.orders, pairs)
    tests = strategies.tests
    return strategies.filters(tests | tests | tests | compared, max_leaves=6)
