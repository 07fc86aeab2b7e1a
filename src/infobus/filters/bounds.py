"""The limits of many rows as one array, to test those that the bitmaps leave all at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.scales import array_of
from infobus.filters.spans import Key, Limit
from infobus.filters.values import family

Row = tuple[int, tuple[Limit, ...], Hashable]
"""A slot, what the row there asks for, and the id of the subscription that has it."""

KEYS_MAX = 16
"""With more attributes than this the array would be mostly empty."""


class Bounds:
    """For each row the lowest value of each attribute, and the negative of the highest.

    So "between two values" is two times "at most", and what a row does not ask about is minus
    infinity. Limits are exact as 64-bit reals, and so are the answers: a larger integer may be
    rounded, but never across a limit.
    """

    def __init__(self) -> None:
        self._keys: dict[Key, int] = {}
        """Attributes, and where the array has their lowest values."""
        self._array: NDArray[np.float64] = np.full((1024, 0), -np.inf)
        self._ids: NDArray[np.object_] = np.full(1024, None, object)

    def add(self, rows: Sequence[Row]) -> list[int]:
        """Take in rows, in place of what was in their slots; returns the slots of those it can."""
        self._make_room(rows)
        taken = []
        for slot, limits, id in rows:
            if all(key in self._keys for key, _, _ in limits):
                row = [-np.inf] * self._array.shape[1]
                for key, low, high in limits:
                    place = self._keys[key]
                    row[place], row[place + 1] = low, -high
                self._array[slot] = row
                self._ids[slot] = id
                taken.append(slot)
        return taken

    def ids_within(self, rows: int, get: Callable[[Key], Any]) -> list[Hashable]:
        """The ids of the rows that an event fulfils, of a mask of rows it was not ruled out by."""
        slots = array_of(rows)
        fulfilled = (self._array[slots] <= np.array(self._values(get))).all(1)
        ids: list[Hashable] = self._ids[slots[fulfilled]].tolist()
        return ids

    def ids_within_many(
        self, rows: Sequence[int], gets: Sequence[Callable[[Key], Any]]
    ) -> Iterable[list[Hashable]]:
        """The same for many events at once."""
        width = (max(mask.bit_length() for mask in rows) + 7) // 8
        octets = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in rows), np.uint8)
        found = np.unpackbits(octets, bitorder="little").view(bool).nonzero()[0]
        events, slots = np.divmod(found, 8 * width or 1)
        values = np.array([self._values(get) for get in gets])
        fulfilled = (self._array[slots] <= values[events]).all(1)
        ids: list[Hashable] = self._ids[slots[fulfilled]].tolist()
        ends = np.bincount(events[fulfilled], minlength=len(rows)).cumsum().tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _values(self, get: Callable[[Key], Any]) -> list[float]:
        values: list[float] = []
        for key in self._keys:
            value = get(key)
            if (value.__class__ is not float and family(value) != "number") or value != value:
                # Who asks for anything else was ruled out before: 0 rules out nobody else.
                value = 0.0
            values += [float(value), -float(value)]
        return values

    def _make_room(self, rows: Sequence[Row]) -> None:
        for key in {key for _, limits, _ in rows for key, _, _ in limits}:
            if len(self._keys) < KEYS_MAX:
                self._keys.setdefault(key, 2 * len(self._keys))
        needed = 1 + max((slot for slot, _, _ in rows), default=0)
        count, width = self._array.shape
        if needed > count or 2 * len(self._keys) > width:
            while count < needed:
                count *= 2
            array = np.full((count, 2 * len(self._keys)), -np.inf)
            array[: len(self._array), :width] = self._array
            ids = np.full(count, None, object)
            ids[: len(self._ids)] = self._ids
            self._array, self._ids = array, ids
