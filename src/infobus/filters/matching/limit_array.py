"""The limits of many rows as one array, to test those that the bitmaps leave all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.language.values import family
from infobus.filters.matching.interval import Key, Limit

KEYS_MAX = 16
"""With more attributes than this the array would be mostly empty."""


class Bounds:
    """For each row the lowest value of each attribute, and the negative of the highest.

    So "between two values" is two times "at most", and what a row does not ask about is minus
    infinity. Limits are exact as 64-bit reals, and so are the answers: a larger integer may be
    rounded, but never across a limit.
    """

    __slots__ = ("_array", "_keys", "decides")

    def __init__(self, slots: int) -> None:
        self._keys: dict[Key, int] = {}
        """Attributes, and where the array has their lowest values."""
        self._array: NDArray[np.float64] = np.empty((slots, 0))
        self.decides: NDArray[np.bool_] = np.zeros(slots, bool)
        """Whether all that the row in a slot asks for is in the array."""

    def widen(self, slots: int) -> None:
        """Make room for more rows."""
        self._array = self._resized(slots, self._array.shape[1])
        self.decides = np.concatenate([self.decides, np.zeros(slots - len(self.decides), bool)])

    def put(self, slot: int, limits: tuple[Limit, ...]) -> None:
        """Let a row that asks for limits only be in a slot; with no limits, none."""
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
        """What an event has to compare with the array."""
        values: list[float] = []
        for key in self._keys:
            value = get(key)
            if (value.__class__ is not float and family(value) != "number") or value != value:
                # Who asks for anything else was ruled out before: 0 rules out nobody else.
                value = 0.0
            number = float(value)
            values.append(number)
            values.append(-number)
        return values

    def within(self, slots: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the rows hold, for one event's values or for those of an event for each row."""
        # Turned round, so that rows lie side by side: much quicker than row by row.
        passed = np.less_equal(self._array.take(slots, 0).T, values, order="C")
        fits: NDArray[np.bool_] = np.logical_and.reduce(passed, 0)
        return fits

    def _resized(self, slots: int, width: int) -> NDArray[np.float64]:
        array = np.full((slots, width), -np.inf)
        array[: len(self._array), : self._array.shape[1]] = self._array
        return array
