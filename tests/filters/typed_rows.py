"""Rows as a table holds them, one type per column, over the vocabulary of `strategies`.

The values are those about which databases, Spark and Python are of different minds.
"""

import math
import random
from datetime import timedelta, timezone
from typing import Any

from infobus.errors import BadFilter
from infobus.filters import compile
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


ORDERS = ["==", "!=", "<", "<=", ">", ">="]
NUMBERS = ["0", "1.5", "40", "2147483648", "9007199254740993", "9007199254740992.0", "1e19"]
WORDS = ['""', '"a"', '"gm"', '"GM"', '"\u00c4"', '"%"', '"\0"']
COMPARED = {
    "a": NUMBERS,
    "b": NUMBERS,
    "s": [*WORDS, "5"],
    "flag": ["true", "5"],
    "when": ["datetime('2026-11-15T10:00:00Z')", '"a"'],
    "raw": ['"ab"', "5"],
    "tags": ['"GM"'],
}
PAIRS = ["a n", "a b", "b o.a", "s t", "s a", "flag o.p.flag", "raw raw", "when when", "tags tags"]
NAMES = ["a", "b", "s", "flag", "when", "raw", "tags", "o", "o.p.flag", "o.p.missing", "missing"]


def tests() -> list[str]:
    """Every test that a filter can make of every type of column."""
    found = [f"{name} {op} {it}" for name, its in COMPARED.items() for it in its for op in ORDERS]
    found += [pair.replace(" ", f" {op} ") for pair in PAIRS for op in ORDERS]
    found += [f"{name} in {some}" for name in "abs" for some in ("[1, 40.0, 1.5]", '["GM", "", 1]')]
    found += [f"{item} in {name}" for name in ("tags", "s", "missing") for item in ("5", *WORDS)]
    found += [
        f"{function}({name}, {word})"
        for function in ("begins-with", "ends-with", "contains")
        for name in ("s", "o.s", "a")
        for word in (*WORDS, '"GM", "b"')
    ]
    patterns = ["GM", "GM*", "*GM", "*GM*", "*", "?", "a*b", "*%", r"a\\*", r"*\\?", r"\\\\*"]
    found += [f'wildcard(s, "{pattern}")' for pattern in patterns]
    found += [
        f"{function}({name})"
        for function in "exists require nan string int32 int64 real64 opaque".split()
        for name in NAMES
    ]
    types = "string int32 int64 float bool datetime opaque".split()
    found += [f"datatype({name}) == {type_}" for name in NAMES for type_ in types]
    found += [f"size({name}) {op} 1" for name in NAMES for op in ("!=", ">")]
    found += [
        "flag",
        "o.p.flag",
        "s",
        'regex(s, "^a|GM")',
        'fold-case(s) == "gm"',
        "a + 1 > n",
        'isa("Story")',
    ]
    return [text for text in found if _is_sensible(text)]


def _is_sensible(text: str) -> bool:
    try:
        compile(text)
    except BadFilter:  # such as a comparison of bools by their order
        return False
    return True


def joined_tests(count: int) -> list[str]:
    """The same random combinations of tests in every run."""
    dice, some = random.Random(count), tests()
    joined = []
    for _ in range(count):
        parts = [dice.choice(["", "!"]) + f"({dice.choice(some)})" for _ in range(4)]
        joined.append("{0} {4} ({1} {5} {2}) {6} {3}".format(*parts, *dice.choices(JOINTS, k=3)))
    return joined


JOINTS = ["&&", "&&", "||", "||", "^^"]
