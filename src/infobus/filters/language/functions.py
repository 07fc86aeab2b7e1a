"""The functions of the language: what they take and give, and how the string ones work."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from infobus.filters.language.errors import Complaint

TYPE_NAMES = ("string", "int32", "int64", "real64", "bool", "datetime", "opaque")
"""What `datatype(a)` can be; `float` is another spelling of `real64`."""

REGEX_MEMORY_MAX = 1 << 20
"""How many bytes RE2 may use for one regular expression; larger ones are refused."""

REGEX_SIZE_MAX = 50_000
"""How many instructions the regular expressions of one filter may have together: a tenth of a
second to compile. Usual ones have below a hundred."""


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
    searches = [_search(_as_regex(function, pattern))[0] for pattern in patterns]
    if len(searches) == 1:
        return searches[0]
    return lambda text: any(search(text) for search in searches)


def regex_size(function: str, pattern: str, position: int | None) -> int:
    """How many instructions a pattern takes; complains if it is none, or an absurd one.

    Functions that take no patterns need none.
    """
    if function not in ("regex", "wildcard"):
        return 0
    import re2

    try:
        return _search(_as_regex(function, pattern))[1]
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        raise Complaint(
            position,
            f"{function} cannot use this pattern: {reason}",
            "regular expressions are those of RE2, and of limited size",
        ) from None
    except UnicodeEncodeError:
        raise Complaint(position, "the pattern holds half a surrogate pair") from None


@functools.lru_cache(maxsize=256)
def _search(regex: str) -> tuple[Callable[[str], bool], int]:
    """The search for a regular expression, and the size of its program."""
    import re2  # Only here: most filters need no regular expressions.

    options = re2.Options()
    options.max_mem = REGEX_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True  # Whether is asked, not where.
    program = re2.compile(regex, options)
    search = program.search
    # Bytes spare the wrapper the way back to positions in characters.
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None, (
        program.programsize
    )


def _as_regex(function: str, pattern: str) -> str:
    if function == "regex":
        return pattern
    import re2

    parts = (f".{'*' * (c == '*')}" if c in "*?" else re2.escape(c) for c in pattern)
    return rf"(?s:\A{''.join(parts)}\z)"
