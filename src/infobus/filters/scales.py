"""Bitmaps that tell, for a value of one attribute, which rows it rules out.

Bit *n* stands for row *n* of a block. The constants that rows compare with divide the values of
a family into stretches; for each stretch a `Scale` knows the rows that fail there for certain
and the rows that are in doubt, because one of their ends lies inside the stretch. Rows that say
nothing about the attribute have no bit anywhere, so they cost nothing.

Python's own integers are the bitmaps: for some thousand rows they are quicker than arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import or_
from typing import Any

from infobus.filters.spans import ABSENT, PRESENT, Span
from infobus.filters.values import family

EDGE_COUNT_MAX = 40
"""More edges leave fewer rows in doubt, but take more memory: 40 measured best (32 to 96)."""

_INT64 = 2**63
_CLASSES: dict[type, str] = {int: "number", float: "number", str: "string", bool: "bool"}

Verdict = tuple[int, int]
"""The rows that fail, and the rows that fail or are in doubt."""


def mask_of(slots: Iterable[int]) -> int:
    """Return the integer that has just these bits set.

    >>> mask_of([0, 3])
    9
    """
    chosen = list(slots)
    if len(chosen) < 8:
        return sum(1 << slot for slot in chosen)
    octets = bytearray(max(chosen) // 8 + 1)
    for slot in chosen:
        octets[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(octets, "little")


def slots_of(mask: int) -> list[int]:
    """Return the positions of the bits that are set, in order.

    >>> slots_of(9)
    [0, 3]
    """
    if mask.bit_count() < 12:
        found = []
        while mask:
            lowest = mask & -mask
            found.append(lowest.bit_length() - 1)
            mask ^= lowest
        return found
    import numpy as np

    octets = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    slots: list[int] = np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
    return slots


class Scale:
    """The rows with a span of one family, by where a value lies.

    Stretches are numbered from below: below the first edge 0, on it 1, between it and the next
    2, and so on.
    """

    __slots__ = ("added", "basis", "doubts", "edges", "fails", "nan", "rows")

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self.edges: list[Any] = _edges(spans)
        count = 2 * len(self.edges) + 1
        self.fails = [0] * count
        self.doubts = [0] * count
        self.nan = 0
        """Rows that NaN does not fit."""
        self.rows = 0
        self.basis = len(spans)
        """Rows that the edges were chosen for."""
        self.added = 0

    def place(self, value: Any) -> int:
        """The number of the stretch in which `value` lies."""
        return bisect_left(self.edges, value) + bisect_right(self.edges, value)

    @property
    def is_outgrown(self) -> bool:
        """Whether the edges were chosen for few of the rows that have come."""
        return self.added > 4 * max(self.basis, 8)

    def update(self, gone: int, added: Sequence[tuple[int, Span]]) -> None:
        """Forget the rows of a mask, then take in others."""
        if gone & self.rows:
            keep = ~gone
            self.rows &= keep
            self.nan &= keep
            self.fails = [mask & keep for mask in self.fails]
            self.doubts = [mask & keep for mask in self.doubts]
        if not added:
            return
        last = len(self.fails) - 1
        # Slots by the first and the last stretch in which a row may hold, and surely holds.
        starts: list[list[int]] = [[] for _ in self.fails]
        sure_starts: list[list[int]] = [[] for _ in range(last + 2)]
        ends: list[list[int]] = [[] for _ in self.fails]
        sure_ends: list[list[int]] = [[] for _ in range(last + 2)]
        unsure = []
        for slot, span in added:
            if span.low is not None:
                place = self.place(span.low)
                on_edge = place & 1
                starts[place + (on_edge and span.low_open)].append(slot)
                sure_starts[place + (not on_edge or span.low_open)].append(slot)
            if span.high is not None:
                place = self.place(span.high)
                on_edge = place & 1
                ends[place - (on_edge and span.high_open)].append(slot)
                # One to the right, so that "nowhere" has a place, too.
                sure_ends[place + 1 - (not on_edge or span.high_open)].append(slot)
            if span.among is not None or span.barring is not None:
                unsure.append(slot)
        new = mask_of(slot for slot, _ in added)
        self.rows |= new
        self.nan |= mask_of(slot for slot, span in added if not span.nan)
        self.added += len(added)
        before = [*_suffixes(starts)[1:], 0]
        after = [0, *_prefixes(ends)[:-1]]
        self.fails = [old | a | b for old, a, b in zip(self.fails, before, after, strict=True)]
        before = _suffixes(sure_starts)[1:]
        after = _prefixes(sure_ends)[:-1]
        loose = mask_of(unsure)
        self.doubts = [
            old | a | b | loose for old, a, b in zip(self.doubts, before, after, strict=True)
        ]


class Column:
    """All rows of a block that say something about one attribute."""

    __slots__ = ("absent", "compared", "present", "scales")

    def __init__(self) -> None:
        self.scales: dict[str, Scale] = {}
        self.compared = 0
        """Rows that compare the attribute, in any family."""
        self.present = 0
        self.absent = 0

    def update(self, gone: int, added: Sequence[tuple[int, Span]]) -> None:
        """Forget the rows of a mask, then take in others."""
        self.compared &= ~gone
        self.present &= ~gone
        self.absent &= ~gone
        by_family: dict[str, list[tuple[int, Span]]] = {name: [] for name in self.scales}
        for one in added:
            by_family.setdefault(one[1].family, []).append(one)
        self.present |= mask_of(slot for slot, _ in by_family.pop(PRESENT, ()))
        self.absent |= mask_of(slot for slot, _ in by_family.pop(ABSENT, ()))
        for name, some in by_family.items():
            scale = self.scales.get(name)
            if scale is None:
                scale = self.scales[name] = Scale([span for _, span in some])
            scale.update(gone, some)
            if not scale.rows:
                del self.scales[name]
            self.compared |= scale.rows

    @property
    def is_empty(self) -> bool:
        """Whether no row says anything about the attribute any more."""
        return not (self.compared or self.present or self.absent)

    def verdict(self, value: Any) -> Verdict:
        """Which rows `value`, None if it is missing, rules out or leaves in doubt."""
        if value is None:
            fails = self.compared | self.present
            return fails, fails
        found = _CLASSES.get(value.__class__) or family(value)
        scale = self.scales.get(found) if found else None
        fails = self.compared | self.absent
        if scale is None:
            return fails, fails
        edges = scale.edges
        place = bisect_left(edges, value)
        place += bisect_right(edges, value, place)
        fails ^= scale.rows
        if place == 0 or place == len(scale.fails) - 1:
            # Beyond all edges, where also NaN and integers of more than 64 bits end up.
            if value != value:
                return fails | scale.nan, fails | scale.rows
            if value.__class__ is int and not -_INT64 <= value < _INT64:
                fails |= scale.rows
                return fails, fails
        if fails:
            return fails | scale.fails[place], fails | scale.doubts[place]
        return scale.fails[place], scale.doubts[place]


def _edges(spans: Sequence[Span]) -> list[Any]:
    """Constants that divide the ends of the spans evenly; all of them if they are few."""
    ends = [end for span in spans for end in (span.low, span.high) if end is not None]
    if ends and spans[0].family == "number":
        # Integers beyond are compared with nothing: so they never lie between two edges.
        ends = [end for end in ends if -_INT64 <= end < _INT64]
    edges = sorted(set(ends))
    if len(edges) > EDGE_COUNT_MAX:
        ends.sort()
        step = len(ends) / EDGE_COUNT_MAX
        edges = sorted({ends[int(step * (number + 0.5))] for number in range(EDGE_COUNT_MAX)})
    return edges


def _prefixes(groups: Sequence[list[int]]) -> list[int]:
    """For each place, the slots of all groups up to it, as a mask."""
    return list(accumulate(map(mask_of, groups), or_))


def _suffixes(groups: Sequence[list[int]]) -> list[int]:
    """For each place, the slots of all groups from it on, as a mask."""
    return list(accumulate(map(mask_of, reversed(groups)), or_))[::-1]
