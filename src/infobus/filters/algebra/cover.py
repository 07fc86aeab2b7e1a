"""Comparing filters: does one match whatever another matches, can both match one event.

Both answers are sound and not complete. Deciding them exactly is intractable already for
conjunctions against disjunctions, and nothing depends on it: what is not seen costs an event
sent in vain, never one that is missing.
"""

from __future__ import annotations

from infobus.filters.algebra import box
from infobus.filters.language.filter import Filter

_PAIRS_MAX = 10_000  # Filters that would take longer are answered "not known to".


def covers(outer: Filter, inner: Filter) -> bool:
    """Whether `outer` certainly matches every event that `inner` matches.

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
    """Whether both may match one event; False only if that is certainly impossible.

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
