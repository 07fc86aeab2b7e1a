"""Sets of numbers that are mostly consecutive, such as the numbers of a ledger in a journal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

RANGE_COUNT_MAX = 4_096
"""Older ones are forgotten. What comes again after a crash is among the last 2,000 or so."""


class Numbers:
    """A set of numbers, stored as ranges; if there are too many ranges, the lowest are dropped.

    >>> numbers = Numbers([(1, 3)])
    >>> for number in (4, 7, 6):
    ...     numbers.add(number)
    >>> numbers.ranges, 5 in numbers, 6 in numbers
    ([(1, 4), (6, 7)], False, True)
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges = [(first, last) for first, last in ranges]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, (number, number)) - 1
        # A range that begins at the number itself may end later, and then sorts behind it.
        return any(first <= number <= last for first, last in self.ranges[max(at, 0) : at + 2])

    def add(self, number: int) -> None:
        """Add a number to the set, unless it is there."""
        if number in self:
            return
        at = bisect_right(self.ranges, (number, number))
        first = last = number
        if at < len(self.ranges) and self.ranges[at][0] == number + 1:
            last = self.ranges.pop(at)[1]
        if at > 0 and self.ranges[at - 1][1] == number - 1:
            at -= 1
            first = self.ranges.pop(at)[0]
        self.ranges.insert(at, (first, last))
        del self.ranges[:-RANGE_COUNT_MAX]

    def copy(self) -> Numbers:
        """Return another set of the same numbers."""
        return Numbers(self.ranges)
