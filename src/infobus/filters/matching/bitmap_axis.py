"""Chooses the bitmap for the value of one attribute.

Cuts divide the values of a family into stretches, and every stretch has a bitmap. If the ends of
a row are among the cuts, each stretch decides the row; otherwise the two stretches that contain
the ends leave it undecided. A row without a condition on the attribute has its bit in every
bitmap.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from infobus.filters.language.partial import UNKNOWN
from infobus.filters.language.values import INT64_MAX, family
from infobus.filters.matching.bitmaps import FRAME, LIVE, Bitmaps
from infobus.filters.matching.interval import EXACT, Limit, Span

# The bitmaps of a frame: one for a missing value, one for values that no row compares with, one
# for NaN, and one for each stretch.
_MISSING, _OTHER, _NAN, _STRETCHES = range(4)

CUT_COUNT_MAX = FRAME - _STRETCHES - 1
_BASIS_MAX = 512

# Classes whose values all belong to one family, except NaN and integers that are too large.
_CLASSES: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "bool": (bool,)}

Part = Limit | Span
Placed = tuple[int, Part]
"""A slot, and the limit or span that its row has for the attribute."""


class Scale:
    """The bitmaps of one family of values, and the cuts that choose between them."""

    __slots__ = ("_bitmaps", "added", "basis", "cuts", "first", "frame")

    def __init__(self, bitmaps: Bitmaps, frame: int) -> None:
        self._bitmaps = bitmaps
        self.frame = frame
        self.first = frame + _STRETCHES
        """The bitmap of the lowest stretch."""
        self.cuts: Sequence[Any] = ()
        """The lowest value of each stretch but the first."""
        self.basis = 0
        """How many rows the cuts were chosen for."""
        self.added = 0
        """How many rows were added since then."""

    def divide(self, others: int, placed: Iterable[Placed]) -> None:
        """Choose new cuts for these rows; `others` is the bitmap for all other values."""
        rows = list(placed)
        self.cuts = _cuts(part for _, part in rows)
        self.basis, self.added = len(rows), 0
        bitmaps, frame = self._bitmaps, self.frame
        bitmaps.array[frame + _NAN : frame + FRAME] = bitmaps.array[others]
        for slot, part in rows:
            bitmaps.set(frame + _NAN, frame + FRAME, slot)
            self.add(slot, part)

    def add(self, slot: int, part: Part) -> bool:
        """Add a row: clear its bits wherever it does not hold.

        Returns True if the cuts need to be chosen again because they suit too few of the rows.
        Some hundred rows are enough to choose by; with more it would take too long.
        """
        self.added += 1
        base, bitmaps = self.first, self._bitmaps
        first, surely_first, last, surely_last = self._stretches(*_ends(part))
        bitmaps.clear(self.frame, base + first, slot)
        if last < len(self.cuts):
            bitmaps.clear(base + last + 1, base + len(self.cuts) + 1, slot)
        if isinstance(part, Span):
            if part.nan:
                bitmaps.set(base - 1, base, slot)
            if part.values is not None or part.excluded:
                surely_first = last + 1
        if first < surely_first:
            bitmaps.doubt(base + first, base + surely_first, slot)
        if surely_last < last:
            bitmaps.doubt(base + surely_last + 1, base + last + 1, slot)
        return self.basis < _BASIS_MAX and self.added > 4 * max(self.basis, 2)

    def _stretches(self, low: Any, start: Any, high: Any, stop: Any) -> tuple[int, int, int, int]:
        """Return the stretches in which a row may hold, and those in which it surely holds.

        The order is: first, surely first, last, surely last.
        """
        cuts = self.cuts
        first = surely_first = 0
        last = surely_last = len(cuts)
        if low is not None:
            first = bisect_right(cuts, low if start is None else start)
            is_cut = start is not None and first > 0 and cuts[first - 1] == start
            surely_first = first if is_cut else first + 1
        if high is not None:
            last = bisect_right(cuts, high) if stop is None else bisect_left(cuts, stop)
            is_cut = stop is not None and last < len(cuts) and cuts[last] == stop
            surely_last = last if is_cut else last - 1
        return first, surely_first, last, surely_last

    def bitmap(self, value: Any, others: int) -> int:
        """Return the bitmap for a value of this family; `others` for too large an integer."""
        place = bisect_right(self.cuts, value)
        # `bisect` also puts NaN and integers beyond 64 bits before or after all cuts.
        if place == 0 or place == len(self.cuts):
            if value != value:
                return self.frame + _NAN
            if value.__class__ is int and not -INT64_MAX - 1 <= value <= INT64_MAX:
                return others
        return self.first + place


class BitmapColumn:
    """The bitmaps of one attribute, for all rows of a block that have a condition on it."""

    __slots__ = ("_bitmaps", "_frames", "by_class", "scales", "users")

    def __init__(self, bitmaps: Bitmaps) -> None:
        self._bitmaps = bitmaps
        self._frames = [bitmaps.frame()]
        """The first one has the bitmaps for missing values and for all other values."""
        self.scales: dict[str, Scale] = {}
        self.by_class: dict[type, Scale] = {}
        """The scale for values of a class, if the class alone decides the family."""
        self.users = 0
        """How many rows have a condition on the attribute."""

    @property
    def others(self) -> int:
        """The number of the bitmap for values that no row compares with."""
        return self._frames[0] + _OTHER

    def add(self, slot: int, part: Part) -> bool:
        """Add a row; return True if the cuts of its family need to be chosen again."""
        self.users += 1
        kind = kind_of(part)
        frame = self._frames[0]
        if kind == "present":
            self._bitmaps.clear(frame + _MISSING, frame + _OTHER, slot)
            return False
        scale = None if kind == "absent" else self.scales.get(kind) or self._new_scale(kind)
        for frame in self._frames:
            if scale is None or frame != scale.frame:
                self._bitmaps.clear(frame + (kind == "absent"), frame + FRAME, slot)
        return scale is not None and scale.add(slot, part)

    def divide(self, kind: str, placed: Iterable[Placed]) -> None:
        """Choose new cuts for the rows of a family."""
        self.scales[kind].divide(self.others, placed)

    def remove(self, slot: int) -> None:
        """Remove a row: set its bits everywhere again."""
        self.users -= 1
        for frame in self._frames:
            self._bitmaps.set(frame, frame + FRAME, slot)

    def release(self) -> None:
        """Give the frames back when no row is left."""
        for frame in self._frames:
            self._bitmaps.release(frame)

    def _new_scale(self, kind: str) -> Scale:
        if self.scales:
            self._frames.append(self._bitmaps.frame())
        scale = self.scales[kind] = Scale(self._bitmaps, self._frames[-1])
        scale.divide(self.others, ())
        self.by_class.update(dict.fromkeys(_CLASSES.get(kind, ()), scale))
        return scale

    def bitmap(self, value: Any) -> int:
        """Return the bitmap for a value; None stands for a missing one."""
        if value is None:
            return self._frames[0] + _MISSING
        if value is UNKNOWN:
            return LIVE
        scale = self.scales.get(family(value) or "")
        return self.others if scale is None else scale.bitmap(value, self.others)


def kind_of(part: Part) -> str:
    """Return the family of values that a row asks for, or `present` or `absent`."""
    return "number" if isinstance(part, tuple) else part.family


def _ends(part: Part) -> tuple[Any, Any, Any, Any]:
    """Return the lower end, the least value, the upper end, and the least value above it.

    An end is None if there is no bound; a value is None if it is not known exactly.
    """
    if isinstance(part, tuple):
        _, lowest, highest = part
        low = None if lowest == -math.inf else lowest
        if highest == math.inf:
            return low, low, None, None
        return low, low, highest, math.nextafter(highest, math.inf)
    low, high = part.low, part.high
    start = low if low is None or not part.low_open else _after(low)
    stop = high if high is None or part.high_open else _after(high)
    return low, start, high, stop


def _after(value: Any) -> Any:
    """Return the next greater value of the family; None if it is not known."""
    match value:
        case str():
            return value + "\0"
        case datetime():
            return value + timedelta(microseconds=1) if value.year < datetime.max.year else None
        case bool():
            return value + 0.5
        case _:
            return math.nextafter(value, math.inf) if abs(value) < EXACT else None


def _cuts(parts: Iterable[Part]) -> Sequence[Any]:
    """Return cuts that divide the ends of all parts evenly."""
    ends = sorted(_known_cuts(parts))
    cuts = sorted(set(ends))
    if len(cuts) > CUT_COUNT_MAX:
        step = len(ends) / CUT_COUNT_MAX
        cuts = sorted({ends[int(step * (number + 0.5))] for number in range(CUT_COUNT_MAX)})
    # An array keeps them side by side in memory, which makes the search faster.
    return array("d", cuts) if cuts and isinstance(cuts[0], int | float) else cuts


def _known_cuts(parts: Iterable[Part]) -> Iterator[Any]:
    for part in parts:
        _, start, _, stop = _ends(part)
        for cut in (start, stop):
            if cut is not None and (not isinstance(cut, int | float) or abs(cut) < EXACT):
                yield cut
