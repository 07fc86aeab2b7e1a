"""The limits of many rows as one array, to test those that are in doubt all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.spans import Key, Limit
from infobus.filters.values import family

KEYS_MAX = 16
"""With more attributes than this the array would be mostly empty."""


class Bounds:
    """For each row the lowest value of each attribute, and the negative of the highest.

    So "between two values" is two times "at most", and what a row does not ask about is minus
    infinity. Limits are exact as 64-bit reals, and so are the answers: a larger integer may be
    rounded, but never across a limit.
    """

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._array: NDArray[np.float64] = np.full((2048, 0), -np.inf)

    def add(self, rows: Sequence[tuple[int, tuple[Limit, ...]]]) -> None:
        """Take in rows by slot, in place of what was there."""
        if not rows:
            return
        self._make_room(1 + max(slot for slot, _ in rows), (one[0] for _, r in rows for one in r))
        places = {key: 2 * number for number, key in enumerate(self._keys)}
        for slot, limits in rows:
            row = [-np.inf] * self._array.shape[1]
            for key, low, high in limits:
                if key in places:
                    row[places[key]] = low
                    row[places[key] + 1] = -high
            self._array[slot] = row

    def within(self, slots: NDArray[np.intp], get: Callable[[Key], Any]) -> list[int]:
        """The slots whose rows the event fulfils, of rows that ask for what it has."""
        values = []
        for key in self._keys:
            value = get(key)
            # Who asks about anything but a number was ruled out before: 0 rules out nobody else.
            number = value if family(value) == "number" and value == value else 0.0
            values += [number, -number]
        within = (self._array[slots] <= np.array(values, np.float64)).all(1)
        found: list[int] = slots[within].tolist()
        return found

    def _make_room(self, rows: int, keys: Any) -> None:
        for key in dict.fromkeys(keys):
            if key not in self._keys and len(self._keys) < KEYS_MAX:
                self._keys.append(key)
        count, width = self._array.shape
        if rows > count or 2 * len(self._keys) > width:
            while count < rows:
                count *= 2
            larger = np.full((count, 2 * len(self._keys)), -np.inf)
            larger[: self._array.shape[0], :width] = self._array
            self._array = larger
