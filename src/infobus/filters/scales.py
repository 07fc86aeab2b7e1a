"""Bitmaps that tell, for a value of one attribute, which rows it rules out.

Bit *n* stands for row *n* of a block. The constants that rows compare with divide the values of
a family into stretches; for each stretch a `Scale` knows the rows that fail everywhere in it.
Rows that say nothing about the attribute have no bit anywhere, so they cost nothing.

Python's own integers are the bitmaps: for some thousand rows they are quicker than arrays.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.partial import UNKNOWN
from infobus.filters.spans import ABSENT, EXACT, PRESENT, Limit, Span
from infobus.filters.values import INT64_MAX, family

EDGE_COUNT_MAX = 40
"""More edges rule out more rows, but take more memory. Few rows get fewer of them."""

# Classes whose values need no closer look than whether they are NaN or too large.
_CLASSES: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "bool": (bool,)}

Part = Limit | Span
Placed = tuple[int, Part]
"""What the row in a slot asks for."""


def mask_of(slots: Iterable[int]) -> int:
    """Return the integer that has just these bits set.

    >>> mask_of([0, 3])
    9
    """
    chosen = list(slots)
    if len(chosen) == 1:
        return 1 << chosen[0]
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
    # Measured: below this, taking bit after bit is quicker than the way through an array.
    if mask.bit_count() * (mask.bit_length() + 1000) < 15_000:
        found = []
        while mask:
            lowest = mask & -mask
            found.append(lowest.bit_length() - 1)
            mask ^= lowest
        return found
    slots: list[int] = array_of(mask).tolist()
    return slots


def clear_bits(mask: int, bits: int) -> int:
    """Return `mask` without `bits`.

    >>> clear_bits(9, 3)
    8
    """
    return mask ^ (mask & bits)


def array_of(mask: int) -> NDArray[np.intp]:
    """Return the same as an array."""
    octets = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    return np.unpackbits(octets, bitorder="little").view(bool).nonzero()[0]


class Scale:
    """The rows with a limit or span of one family, by where a value lies.

    Stretches are numbered from below: below the first edge 0, on it 1, between it and the next
    2, and so on. `edges` has every edge and its successor, so one search tells the stretch.
    """

    __slots__ = ("added", "basis", "edges", "fails", "nan", "rows", "strangers", "verdicts")

    def __init__(self, family: str, parts: Sequence[Part]) -> None:
        self.edges: list[Any] = _edges(family, parts)
        self.fails = [0] * (len(self.edges) + 1)
        self.verdicts = self.fails
        """The same, and everywhere the strangers."""
        self.strangers = 0
        """Rows that want a value of another family, or none."""
        self.nan = 0
        """Rows that NaN does not fit."""
        self.rows = 0
        self.basis = len(parts)
        """Rows that the edges were chosen for."""
        self.added = 0

    @property
    def is_outgrown(self) -> bool:
        """Whether the edges were chosen for few of the rows that have come.

        A thousand rows are enough to go by, and dividing many rows anew would take long.
        """
        return self.basis < 1024 and self.added > 4 * max(self.basis, 8)

    def clear(self, gone: int) -> None:
        """Forget the rows of a mask."""
        self.rows = clear_bits(self.rows, gone)
        self.nan = clear_bits(self.nan, gone)
        self.fails = [clear_bits(mask, gone) for mask in self.fails]

    def add(self, added: Sequence[Placed]) -> None:
        """Take in rows."""
        # Slots by the first and by the last stretch in which a row may hold.
        starts: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        for slot, part in added:
            low, low_open, high, high_open = _ends(part)
            if low is not None:
                place = bisect_right(self.edges, low)
                starts.setdefault(place + (low_open and place & 1), []).append(slot)
            if high is not None:
                place = bisect_right(self.edges, high)
                ends.setdefault(place - (high_open and place & 1), []).append(slot)
        self.added += len(added)
        self.rows |= mask_of(slot for slot, _ in added)
        not_nan = (slot for slot, part in added if isinstance(part, tuple) or not part.nan)
        self.nan |= mask_of(not_nan)
        _mark(self.fails, starts, ends)

    def settle(self, strangers: int) -> None:
        """Make the verdicts, in which strangers always fail."""
        self.strangers = strangers
        self.verdicts = [fails | strangers for fails in self.fails] if strangers else self.fails

    def verdict(self, value: Any) -> int:
        """The rows that a value of this family rules out."""
        place = bisect_right(self.edges, value)
        # Beyond all edges is also where NaN and integers of more than 64 bits end up.
        if place == 0 or place == len(self.edges):
            if value != value:
                return self.strangers | self.nan
            if value.__class__ is int and not -INT64_MAX - 1 <= value <= INT64_MAX:
                return self.strangers | self.rows
        return self.verdicts[place]


class Column:
    """All rows of a block that say something about one attribute."""

    __slots__ = ("_missing", "_other", "absent", "by_class", "present", "scales")

    def __init__(self) -> None:
        self.scales: dict[str, Scale] = {}
        self.present = 0
        self.absent = 0
        self.by_class: dict[type, Scale] = {}
        """The scale for values of a class, unless they need a closer look."""
        self._missing = 0
        self._other = 0

    def update(self, gone: int, added: Sequence[Placed]) -> None:
        """Forget the rows of a mask, then take in others."""
        if gone:
            self.present = clear_bits(self.present, gone)
            self.absent = clear_bits(self.absent, gone)
            for scale in self.scales.values():
                scale.clear(gone)
        by_family: dict[str, list[Placed]] = {}
        for slot, part in added:
            name = "number" if isinstance(part, tuple) else part.family
            by_family.setdefault(name, []).append((slot, part))
        self.present |= mask_of(slot for slot, _ in by_family.pop(PRESENT, ()))
        self.absent |= mask_of(slot for slot, _ in by_family.pop(ABSENT, ()))
        for name, some in by_family.items():
            if name not in self.scales:
                self.scales[name] = Scale(name, [part for _, part in some])
            self.scales[name].add(some)
        self._settle()

    def divide_anew(self, family: str, rows: Sequence[Placed]) -> None:
        """Choose edges that suit the rows there are now."""
        scale = self.scales[family] = Scale(family, [part for _, part in rows])
        scale.add(rows)
        self._settle()

    def _settle(self) -> None:
        self.scales = {name: scale for name, scale in self.scales.items() if scale.rows}
        compared = 0
        for scale in self.scales.values():
            compared |= scale.rows
        self._missing = compared | self.present
        self._other = compared | self.absent
        # Emptied and filled, not made anew: the block holds on to it.
        self.by_class.clear()
        for name, scale in self.scales.items():
            scale.settle(clear_bits(self._other, scale.rows))
            self.by_class.update(dict.fromkeys(_CLASSES.get(name, ()), scale))

    @property
    def is_empty(self) -> bool:
        """Whether no row says anything about the attribute any more."""
        return not (self.scales or self.present or self.absent)

    def verdict(self, value: Any) -> int:
        """The rows that `value`, None if it is missing, rules out."""
        if value is None:
            return self._missing
        if value is UNKNOWN:
            return 0
        scale = self.scales.get(family(value) or "")
        return self._other if scale is None else scale.verdict(value)


def _ends(part: Part) -> tuple[Any, bool, Any, bool]:
    """The lower end, whether it is left out, the upper end, whether it is left out."""
    if isinstance(part, tuple):
        _, low, high = part
        return (
            None if low == -math.inf else low,
            False,
            None if high == math.inf else high,
            False,
        )
    return part.low, part.low_open, part.high, part.high_open


def _edges(family: str, parts: Sequence[Part]) -> list[Any]:
    """Constants that divide the ends of all parts evenly, each followed by its successor."""
    ends = [end for part in parts for end in _ends(part)[::2] if end is not None]
    if family == "number":
        # Only of these the successor is known in any case.
        ends = [end for end in ends if abs(end) < EXACT]
    elif family == "datetime":
        ends = [end for end in ends if end.year < datetime.max.year]
    edges = sorted(set(ends))
    count = min(EDGE_COUNT_MAX, max(8, len(parts) // 8))
    if len(edges) > count:
        ends.sort()
        edges = sorted(
            {ends[len(ends) * (2 * number + 1) // (2 * count)] for number in range(count)}
        )
    return [one for edge in edges for one in (edge, _successor(edge))]


def _successor(edge: Any) -> Any:
    """Something above `edge`, with no value of its family between them."""
    match edge:
        case str():
            return edge + "\0"
        case datetime():
            return edge + timedelta(microseconds=1)
        case bool():
            return edge + 0.5
        case _:
            return math.nextafter(edge, math.inf)


def _mark(masks: list[int], starts: dict[int, list[int]], ends: dict[int, list[int]]) -> None:
    """Mark in each stretch the rows that start after it or end before it."""
    rows = 0
    # The rows gathered so far are marked from each start down to the next start below.
    for place, below in pairwise([*sorted(starts, reverse=True), 0]):
        rows |= mask_of(starts[place])
        for stretch in range(below, place):
            masks[stretch] |= rows
    rows = 0
    for place, above in pairwise([*sorted(ends), len(masks) - 1]):
        rows |= mask_of(ends[place])
        for stretch in range(place + 1, above + 1):
            masks[stretch] |= rows
