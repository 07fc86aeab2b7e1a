"""Bitmaps over the rows of a block, all in one array.

Bit *n* stands for the row in slot *n*. Each bitmap has two halves. The first has the bits of the
rows that *may* hold; the second has those of the rows that hold *beyond doubt* if they may hold.
Bitmaps are combined by "and", so a row has its bit in every bitmap that says nothing about it.
Bitmap 0 has the bits of all rows in use. The others come in frames of equal size, one for each
attribute and family of values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FRAME = 84
"""How many bitmaps a frame has."""

LIVE = 0
"""The number of the bitmap of all rows in use."""

_WORD = 64
_FULL = np.uint64(2**64 - 1)
_BITS = np.left_shift(np.uint64(1), np.arange(_WORD, dtype=np.uint64))
_HOLES = np.bitwise_not(_BITS)
_LONG_FROM = 512
_SPARSE_FROM = 1024  # From this many words on, it is faster to drop the empty ones first.


class Bitmaps:
    """The bitmaps for `slots` rows."""

    __slots__ = ("_free", "_used", "array", "words")

    def __init__(self) -> None:
        self.words = 1
        """How many words one half of a bitmap has."""
        self.array: NDArray[np.uint64] = np.zeros((1, 2), np.uint64)
        self._used = 1
        self._free: list[int] = []

    @property
    def slots(self) -> int:
        """How many rows fit; a power of two."""
        return self.words * _WORD

    def widen(self) -> None:
        """Double the number of slots."""
        old, words = self.array, self.words
        self.words = 2 * words
        self.array = self._filled(len(old))
        self.array[:, :words] = old[:, :words]
        self.array[:, self.words : self.words + words] = old[:, words : 2 * words]

    def frame(self) -> int:
        """Return the first bitmap of a free frame; all its bits are set."""
        if self._free:
            return self._free.pop()
        first = self._used
        self._used += FRAME
        if self._used > len(self.array):
            array = self._filled(self._used + self._used // 8)
            array[:first] = self.array[:first]
            self.array = array
        return first

    def release(self, frame: int) -> None:
        """Take back a frame; all its bits must be set again."""
        self._free.append(frame)

    def _filled(self, count: int) -> NDArray[np.uint64]:
        # Bitmaps that begin a power of two apart would compete for the same few cache lines of the
        # processor, so some words lie between them. In bitmap 0 these stay empty.
        between = 8 if self.words >= _WORD else 0
        array = np.full((count, 2 * self.words + between), _FULL)
        array[LIVE] = 0
        return array

    def set(self, first: int, stop: int, slot: int) -> None:
        """Set both bits of a row in consecutive bitmaps: it holds there beyond doubt."""
        word, bit = slot >> 6, _BITS[slot & 63]
        for half in (word, self.words + word):
            bits = self.array[first:stop, half]
            np.bitwise_or(bits, bit, out=bits)

    def note(self, slot: int, *, is_live: bool, is_certain: bool) -> None:
        """Note whether a slot is in use, and whether bitmaps alone can decide on its row."""
        word, bit, hole = slot >> 6, _BITS[slot & 63], _HOLES[slot & 63]
        live = self.array[LIVE]
        live[word] = live[word] | bit if is_live else live[word] & hole
        word += self.words
        live[word] = live[word] | bit if is_certain else live[word] & hole

    def clear(self, first: int, stop: int, slot: int) -> None:
        """Rule out a row in consecutive bitmaps."""
        bits = self.array[first:stop, slot >> 6]
        np.bitwise_and(bits, _HOLES[slot & 63], out=bits)

    def doubt(self, first: int, stop: int, slot: int) -> None:
        """Mark a row as undecided in consecutive bitmaps."""
        word, hole = self.words + (slot >> 6), _HOLES[slot & 63]
        if stop - first == 1:  # the usual case, and faster without an array
            self.array[first, word] &= hole
        else:
            bits = self.array[first:stop, word]
            np.bitwise_and(bits, hole, out=bits)

    def common(self, bitmaps: Sequence[int]) -> NDArray[np.uint64]:
        """Combine some bitmaps by "and" into one, which has two halves."""
        if self.words < _LONG_FROM:
            both: NDArray[np.uint64] = np.bitwise_and.reduce(self.array.take(bitmaps, 0), 0)
            return both
        # For long bitmaps, copying all of them first would take longer.
        both = self.array[bitmaps[0]].copy()
        for bitmap in bitmaps[1:]:
            np.bitwise_and(both, self.array[bitmap], out=both)
        return both

    def common_to_each(self, chosen: Sequence[Sequence[int]]) -> NDArray[np.uint64]:
        """Like `common`, for many choices at once; the result has one line for each."""
        if self.words < _LONG_FROM:
            both: NDArray[np.uint64] = np.bitwise_and.reduce(self.array.take(chosen, 0), 1)
            return both
        return np.stack([self.common(bitmaps) for bitmaps in chosen])


def slots_of(mask: int) -> list[int]:
    """Return the positions of the set bits, in order.

    >>> slots_of(9)
    [0, 3]
    """
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def positions(words: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the positions of the set bits in one long bitmap, in order.

    >>> positions(np.array([9, 1], np.uint64))
    array([ 0,  3, 64])
    """
    if len(words) < _SPARSE_FROM:
        return _unpacked(words)
    some = words.nonzero()[0]
    bits = _unpacked(words[some])
    found: NDArray[np.intp] = (some[bits >> 6] << 6) + (bits & 63)
    return found


def _unpacked(words: NDArray[np.uint64]) -> NDArray[np.intp]:
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(bool).nonzero()[0]
