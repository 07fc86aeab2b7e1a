"""Comparing filters: does one match whatever another matches, can both match one event.

Both answers are sound and not complete. Deciding them exactly is intractable already for
conjunctions against disjunctions, and nothing depends on it: what is not seen costs an event
sent in vain, never one that is missing.
"""

from __future__ import annotations

from infobus.filters import boxes
from infobus.filters.filter import Filter


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
    wide = boxes.boxes(outer.tree)
    return outer == inner or all(
        any(boxes.covers(other, one) for other in wide) for one in boxes.boxes(inner.tree)
    )


def overlaps(one: Filter, other: Filter) -> bool:
    """Whether both may match one event; False only if that is certainly impossible.

    >>> from infobus.filters import compile
    >>> overlaps(compile('symbol == "GMC" && price > 10'), compile("price < 10"))
    False
    >>> overlaps(compile('symbol == "GMC"'), compile("price < 10"))
    True
    """
    return any(
        boxes.box((*boxes.row(first), *boxes.row(second))) is not None
        for first in boxes.boxes(one.tree)
        for second in boxes.boxes(other.tree)
    )
