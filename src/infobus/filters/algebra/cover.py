"""Compares two filters: whether one covers the other, and whether they overlap.

Both answers are sound but not complete. Exact answers are intractable even for a conjunction
against a disjunction, and nothing depends on them: a cover that is not seen may cost an event
that is sent in vain, but never one that is missing.
"""

from __future__ import annotations

from infobus.filters.algebra import box
from infobus.filters.language.filter import Filter

_PAIRS_MAX = 10_000  # Filters with more pairs of boxes get the safe answer at once.


def covers(outer: Filter, inner: Filter) -> bool:
    """Return whether `outer` certainly matches every event that `inner` matches.

    >>> from infobus.filters import compile
    >>> covers(compile("price > 10"), compile('price >= 20 && symbol == "GMC"'))
    True
    >>> covers(compile('begins-with(file, "/etc/")'), compile('file in ["/etc/a", "/etc/b"]'))
    True
    >>> covers(compile("price > 10"), compile("price >= 10"))
    False
    """
    if outer == inner:
        return True
    wide, narrow = box.boxes(outer.tree), box.boxes(inner.tree)
    return len(wide) * len(narrow) <= _PAIRS_MAX and all(
        any(box.covers(other, one) for other in wide) for one in narrow
    )


def overlaps(one: Filter, other: Filter) -> bool:
    """Return whether both may match the same event; False is certain.

    >>> from infobus.filters import compile
    >>> overlaps(compile('symbol == "GMC" && price > 10'), compile("price < 10"))
    False
    >>> overlaps(compile('symbol == "GMC"'), compile("price < 10"))
    True
    """
    first, second = box.boxes(one.tree), box.boxes(other.tree)
    return len(first) * len(second) > _PAIRS_MAX or any(
        box.box((*box.row(a), *box.row(b))) is not None for a in first for b in second
    )
