"""The functions of the language: their signatures, and the tests and conversions of strings."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from infobus.filters.language.errors import Complaint

TYPE_NAMES = ("string", "int32", "int64", "real64", "bool", "datetime", "opaque")
"""The possible values of `datatype(a)`; `float` is another spelling of `real64`."""

REGEX_MEMORY_MAX = 1 << 20
"""How many bytes of memory RE2 may use for one regular expression."""

REGEX_SIZE_MAX = 50_000
"""How many instructions all regular expressions of one filter may have, which takes a tenth of a
second to compile. A typical expression has fewer than a hundred."""


class Signature(NamedTuple):
    """The types of the arguments and of the result of a function.

    `takes` is the kind of the first argument: `name`, `text` (an attribute or another string
    expression) or `string` (a constant). With `takes_more`, one or more string constants follow.
    `gives` is a type as in `typecheck`.
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
"""The functions that can occur in a tree."""

FUNCTION_NAMES = (*SIGNATURES, "equals", "datetime", "header")
"""The functions that you can call in the text of a filter."""

TYPE_TESTS = frozenset({"string", "int32", "int64", "real64", "opaque"})
"""The functions that test whether an attribute has the type of their name."""

_SIGN = re.compile(r"\\([\\*?])|[*?]")  # of a pattern of `wildcard`

CONVERSIONS: dict[str, Callable[[str], str]] = {
    "fold-case": str.casefold,
    "decompose": functools.partial(unicodedata.normalize, "NFD"),
    "decompose-compat": functools.partial(unicodedata.normalize, "NFKD"),
}


def string_test(function: str, patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that tests whether any of `patterns` fits a string.

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
    """Return how many instructions a pattern takes; 0 for functions without patterns.

    Raises:
        Complaint: RE2 does not accept the pattern, or it is too large.
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
    """Return the search function of a regular expression, and the size of its program."""
    import re2  # late: most filters have no regular expression

    options = re2.Options()
    options.max_mem = REGEX_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True  # Only whether it is found matters, not where.
    program = re2.compile(regex, options)
    search = program.search
    # With bytes, the wrapper need not convert positions back to characters.
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None, (
        program.programsize
    )


def _as_regex(function: str, pattern: str) -> str:
    if function == "regex":
        return pattern
    import re2

    parts = wildcard_parts(pattern)
    parts[::2] = map(re2.escape, parts[::2])
    parts[1::2] = [".*" if sign == "*" else "." for sign in parts[1::2]]
    return rf"(?s:\A{''.join(parts)}\z)"


def wildcard_parts(pattern: str) -> list[str]:
    r"""Split a pattern of `wildcard`: texts at even places, and the `*` or `?` between them.

    A backslash makes `*`, `?` and itself literal. Before other characters it stands for itself.

    >>> wildcard_parts(r"a\*b*c?")
    ['a*b', '*', 'c', '?', '']
    """
    parts, end = [""], 0
    for found in _SIGN.finditer(pattern):
        parts[-1] += pattern[end : found.start()] + (found[1] or "")
        end = found.end()
        if found[1] is None:
            parts += [found[0], ""]
    parts[-1] += pattern[end:]
    return parts
