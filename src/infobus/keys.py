"""Decides whether two keys meet; in either, `*` is one element, `**` any number of them."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=65_536)
def keys_intersect(one: str, other: str) -> bool:
    """Return whether some key without wildcards fits both `one` and `other`.

    >>> keys_intersect("c/**", "c"), keys_intersect("n/*", "n/a/b"), keys_intersect("*/b", "a/*")
    (True, False, True)
    """
    if "*" not in one and "*" not in other:
        return one == other
    return _intersect(tuple(one.split("/")), tuple(other.split("/")))


def _intersect(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if not one or not other:
        return all(element == "**" for element in one or other)
    if one[0] == "**":
        return _intersect(one[1:], other) or _intersect(one, other[1:])
    if other[0] == "**":
        return _intersect(other, one)
    return ("*" in (one[0], other[0]) or one[0] == other[0]) and _intersect(one[1:], other[1:])
