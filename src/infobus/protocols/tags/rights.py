"""Rights: patterns of application names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_PATTERN = re.compile(r"[\w.*-]{1,64}")
_PATTERNS_COUNT_MAX = 4_096


def is_name_pattern(pattern: str) -> bool:
    """Whether this is a pattern of names: letters, digits, `_`, `-`, `.`, and `*` for any of them.

    >>> is_name_pattern("oven-*"), is_name_pattern("*"), is_name_pattern("a b"), is_name_pattern("")
    (True, True, False, False)
    """
    return _PATTERN.fullmatch(pattern) is not None


def allows(patterns: Iterable[str], name: str) -> bool:
    """Whether a program of this name is among those that are meant.

    >>> allows(["oven-*", "press"], "oven-3"), allows(["oven-*"], "oven"), allows([], "oven-3")
    (True, False, False)
    """
    return any(pattern == "*" or _compiled(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(_PATTERNS_COUNT_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", pattern))))
