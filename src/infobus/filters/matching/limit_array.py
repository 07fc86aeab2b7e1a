"""The limits of many rows as one array, which tests all rows that bitmaps leave undecided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.language.values import family
from infobus.filters.matching.interval import Key, Limit

KEYS_MAX = 16
"""The array covers no more attributes than this; with more it would be mostly empty."""


class LimitArray:
    """Holds the lowest value of each attribute and the negative of the highest, for every row.

    So "between two values" becomes "at most" twice, and minus infinity means no condition. The
    answers are exact: limits are exact as 64-bit reals, and rounding a large integer never moves
    it across a limit.
    """

    __slots__ = ("_array", "_keys", "decides")

    def __init__(self, slots: int) -> None:
        self._keys: dict[Key, int] = {}
        """Attributes, each with the place of its lowest value in a line of the array."""
        self._array: NDArray[np.float64] = np.empty((slots, 0))
        self.decides: NDArray[np.bool_] = np.zeros(slots, bool)
        """By slot, whether the array holds all conditions of the row."""

    def widen(self, slots: int) -> None:
        """Grow to this many slots."""
        self._array = self._resized(slots, self._array.shape[1])
        self.decides = np.concatenate([self.decides, np.zeros(slots - len(self.decides), bool)])

    def put(self, slot: int, limits: tuple[Limit, ...]) -> None:
        """Store the limits of a row that has no other conditions; with none, free the slot."""
        self.decides[slot] = False
        if not limits:
            return
        row = [-np.inf] * 2 * KEYS_MAX
        for key, low, high in limits:
            place = self._keys.get(key)
            if place is None:
                if len(self._keys) == KEYS_MAX:
                    return
                place = self._keys[key] = 2 * len(self._keys)
                self._array = self._resized(len(self._array), place + 2)
            row[place], row[place + 1] = low, -high
        self._array[slot] = row[: self._array.shape[1]]
        self.decides[slot] = True

    def values(self, get: Callable[[Key], Any]) -> list[float]:
        """Return the values of an event in the order of the array."""
        values: list[float] = []
        for key in self._keys:
            value = get(key)
            if (value.__class__ is not float and family(value) != "number") or value != value:
                # The bitmaps have ruled out all rows that need a number here; 0 rules out no other.
                value = 0.0
            number = float(value)
            values.append(number)
            values.append(-number)
        return values

    def within(self, slots: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rows hold, for the values of one event or of one event per row."""
        # Transposed, so that rows lie side by side: much faster than row by row.
        passed = np.less_equal(self._array.take(slots, 0).T, values, order="C")
        fits: NDArray[np.bool_] = np.logical_and.reduce(passed, 0)
        return fits

    def _resized(self, slots: int, width: int) -> NDArray[np.float64]:
        array = np.full((slots, width), -np.inf)
        array[: len(self._array), : self._array.shape[1]] = self._array
        return array
