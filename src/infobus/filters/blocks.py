"""Many rows decided at once: bitmaps rule out most, and confirm most of the others.

Changes are gathered, and worked into the bitmaps many at a time: one more row would cost nearly
as much as many more, since a bitmap is changed by copying it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Any

from infobus.filters.bounds import Bounds
from infobus.filters.entries import Entry, Look
from infobus.filters.scales import (
    Column,
    Placed,
    Scale,
    Verdict,
    array_of,
    clear_bits,
    mask_of,
    slots_of,
)
from infobus.filters.spans import Key

BOUNDS_FROM = 1024
"""In blocks of more rows, so many can be in doubt that arrays are worth their room."""

ADDED_MAX = 24
"""New rows that are tried one by one: so each of them pays for a part of working them in."""

CHANGES_MAX = 256
"""Changes that are gathered before they are worked in, though no event asks for it."""


class Block:
    """Some thousand rows under bitmaps, one bit for each row in every bitmap."""

    __slots__ = (
        "added",
        "bounds",
        "columns",
        "entries",
        "free",
        "gone",
        "ids",
        "limited",
        "lines",
        "live",
        "loose",
        "shared",
    )

    def __init__(self) -> None:
        self.entries: list[Any] = []
        """By slot; None where a row is gone."""
        self.ids: list[Hashable] = []
        """By slot, the only subscription that has the row, unless it is shared."""
        self.shared = 0
        self.columns: dict[Key, Column] = {}
        self.lines: list[tuple[Key, dict[type, Scale], Column]] = []
        """The columns once more, as they are gone through for every event."""
        self.bounds: Bounds | None = None
        self.free: list[int] = []
        self.live = 0
        self.loose = 0
        """Rows with checks, which the bitmaps alone can never confirm."""
        self.limited = 0
        """Rows that ask for limits only."""
        self.added: list[int] = []
        """Rows that are not in the bitmaps yet, and are tried one by one."""
        self.gone: list[int] = []

    def __len__(self) -> int:
        return len(self.entries) - len(self.free) - len(self.gone)

    def add(self, entry: Entry) -> int:
        """Give a row a slot."""
        if self.free:
            slot = self.free.pop()
            self.entries[slot] = entry
        else:
            slot = len(self.entries)
            self.entries.append(entry)
            self.ids.append(None)
        self.added.append(slot)
        self.tell_owners(slot)
        if len(self.added) >= CHANGES_MAX:
            self._work_in()
        return slot

    def tell_owners(self, slot: int) -> None:
        """Note which subscriptions have a row, after that has changed."""
        owners = self.entries[slot].owners
        if len(owners) == 1:
            (self.ids[slot],) = owners
            self.shared = clear_bits(self.shared, 1 << slot)
        else:
            self.shared |= 1 << slot

    def remove(self, slot: int) -> None:
        """Take a row out; its slot can be used again when this was worked in."""
        self.gone.append(slot)
        self.entries[slot] = self.ids[slot] = None
        self.live = clear_bits(self.live, 1 << slot)
        if len(self.gone) >= CHANGES_MAX:
            self._work_in()

    def collect(self, look: Look, ids: list[Hashable]) -> None:
        """Append the subscriptions whose rows hold for an event."""
        sure, doubtful = self.sift(look)
        slots = slots_of(sure)
        if doubtful:
            slots += self._tried(doubtful, look)
        if self.added:
            slots += self._held(self.added, look)
        if self.shared:
            for slot in slots:
                ids += self.entries[slot].owners
        else:
            ids += map(self.ids.__getitem__, slots)

    def has_any(self, look: Look) -> bool:
        """Whether some row holds for an event."""
        sure, doubtful = self.sift(look)
        if sure:
            return True
        return next(self._held(chain(self.added, slots_of(doubtful)), look), None) is not None

    def sift(self, look: Look) -> Verdict:
        """The rows that hold for certain, and those that must be tried."""
        if len(self.added) > ADDED_MAX:
            self._work_in()
        fails = doubts = 0
        get = look.get
        # The inner loop of all matching, hence written out: mostly, the verdict is in a list.
        for key, by_class, column in self.lines:
            value = get(key)
            scale = by_class.get(value.__class__)
            if scale is None:
                wrong, unsure = column.verdict(value)
            else:
                place = bisect_right(scale.edges, value)
                if 0 < place < len(scale.edges):
                    wrong, unsure = scale.verdicts[place]
                else:
                    wrong, unsure = scale.verdict(value)
            fails |= wrong
            doubts |= unsure
        may = self.live & ~fails
        doubtful = may & (doubts | self.loose)
        return may ^ doubtful, doubtful

    def _tried(self, doubtful: int, look: Look) -> list[int]:
        """Those of the rows in doubt that hold."""
        held = []
        if self.bounds is not None:
            simple = doubtful & self.limited
            if simple.bit_count() > 8:
                held = self.bounds.within(array_of(simple), look.get)
                doubtful ^= simple
        return [*held, *self._held(slots_of(doubtful), look)]

    def _held(self, slots: Iterable[int], look: Look) -> Iterator[int]:
        for slot in slots:
            entry = self.entries[slot]
            if entry is not None and entry.fits(look):
                yield slot

    def _work_in(self) -> None:
        """Bring the bitmaps up to date with what was added and removed."""
        added = [(slot, entry) for slot in self.added if (entry := self.entries[slot])]
        gone = mask_of(self.gone)
        self.free += self.gone
        self.added, self.gone = [], []
        self.live |= mask_of(slot for slot, _ in added)
        self.loose = clear_bits(self.loose, gone)
        self.loose |= mask_of(slot for slot, entry in added if entry.left)
        self.limited = clear_bits(self.limited, gone)
        self.limited |= mask_of(slot for slot, one in added if not one.left and not one.spans)
        by_key: dict[Key, list[Placed]] = {key: [] for key in self.columns if gone}
        for slot, entry in added:
            for limit in entry.parts.limits:
                by_key.setdefault(limit[0], []).append((slot, limit))
            for span in entry.spans:
                by_key.setdefault(span.key, []).append((slot, span))
        for key, placed in by_key.items():
            column = self.columns.setdefault(key, Column())
            column.update(gone, placed)
            if column.is_empty:
                del self.columns[key]
        self.lines = [(key, column.by_class, column) for key, column in self.columns.items()]
        self._divide_anew()
        if self.bounds is None and len(self.entries) > BOUNDS_FROM:
            self.bounds = Bounds()
            added = [(slot, entry) for slot, entry in enumerate(self.entries) if entry]
        if self.bounds is not None:
            self.bounds.add([(slot, entry.parts.limits) for slot, entry in added])

    def _divide_anew(self) -> None:
        """Choose edges anew where they are outgrown; for one attribute at a time, to be quick."""
        for key, column in self.columns.items():
            for kind, scale in column.scales.items():
                if scale.is_outgrown:
                    column.divide_anew(kind, list(self._parts(key, kind)))
                    return

    def _parts(self, key: Key, kind: str) -> Iterator[Placed]:
        for slot, entry in enumerate(self.entries):
            if entry is not None:
                if kind == "number":
                    yield from ((slot, one) for one in entry.parts.limits if one[0] == key)
                for span in entry.spans:
                    if span.key == key and span.family == kind:
                        yield slot, span
