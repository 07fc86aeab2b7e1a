"""The functions of the language: what they take and give, and how the string ones work."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from infobus.filters.complaints import Complaint

TYPE_NAMES = ("string", "int32", "int64", "real64", "bool", "datetime", "opaque")
"""What `datatype(a)` can be; `float` is another spelling of `real64`."""

REGEX_MEMORY_MAX = 1 << 20
"""How much memory RE2 may use for one regular expression; larger ones are refused."""


class Signature(NamedTuple):
    """What a function takes and gives.

    `takes` says what the first argument must be: `name`, `text` (an attribute or another
    expression of strings) or `string` (a constant). With `takes_more`, one or more string
    constants follow. `gives` is a type as in `checking`.
    """

    takes: str
    takes_more: bool
    gives: str


SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(
        "exists require nan string int32 int64 real64 opaque".split(),
        Signature("name", False, "condition"),
    ),
    "size": Signature("name", False, "integer"),
    "datatype": Signature("name", False, "datatype"),
    **dict.fromkeys(
        "begins-with contains ends-with wildcard regex".split(),
        Signature("text", True, "condition"),
    ),
    **dict.fromkeys(
        "fold-case decompose decompose-compat".split(), Signature("text", False, "string")
    ),
    "isa": Signature("string", False, "condition"),
}
"""The functions that occur in a tree."""

FUNCTION_NAMES = (*SIGNATURES, "equals", "datetime")
"""Everything that may be called in a filter."""

TYPE_TESTS = frozenset({"string", "int32", "int64", "real64", "opaque"})
"""Functions that are true if an attribute has the type of that name."""

CONVERSIONS: dict[str, Callable[[str], str]] = {
    "fold-case": str.casefold,
    "decompose": functools.partial(unicodedata.normalize, "NFD"),
    "decompose-compat": functools.partial(unicodedata.normalize, "NFKD"),
}


def string_test(function: str, patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """The test whether any of `patterns` fits a string.

    >>> string_test("wildcard", ("*.log", "core?"))("core7")
    True
    """
    match function:
        case "begins-with":
            return lambda text: text.startswith(patterns)
        case "ends-with":
            return lambda text: text.endswith(patterns)
        case "contains":
            return lambda text: any(pattern in text for pattern in patterns)
        case "wildcard":
            return _search("|".join(map(_wildcard_as_regex, patterns)))
    assert function == "regex", function
    searches = [_search(pattern) for pattern in patterns]
    if len(searches) == 1:
        return searches[0]
    return lambda text: any(search(text) for search in searches)


def check_patterns(function: str, patterns: tuple[str, ...], position: int | None) -> None:
    """Complain about patterns that cannot be used, or only at an absurd price."""
    if function not in ("regex", "wildcard"):
        return
    import re2

    try:
        string_test(function, patterns)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise Complaint(
            position,
            f"{function} cannot use this pattern: {reason}",
            "regular expressions are those of RE2, of limited size",
        ) from None
    except UnicodeEncodeError:
        raise Complaint(position, "the pattern holds half a surrogate pair") from None


@functools.lru_cache(maxsize=256)
def _search(pattern: str) -> Callable[[str], bool]:
    import re2  # Only here: most filters need no regular expressions.

    options = re2.Options()
    options.max_mem = REGEX_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True  # Whether is asked, not where.
    search = re2.compile(pattern, options).search
    # Bytes spare the wrapper the way back to positions in characters.
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None


def _wildcard_as_regex(pattern: str) -> str:
    import re2

    parts = (f".{'*' * (c == '*')}" if c in "*?" else re2.escape(c) for c in pattern)
    return rf"(?s:\A{''.join(parts)}\z)"
