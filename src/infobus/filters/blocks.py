"""Many rows decided at once: bitmaps rule out most, and arrays confirm most of the others.

Changes are gathered, and worked into the bitmaps many at a time: one more row would cost nearly
as much as many more, since a bitmap is changed by copying it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Any

from infobus.filters.bounds import Bounds
from infobus.filters.entries import Entry, Look
from infobus.filters.scales import Column, Placed, Scale, clear_bits, mask_of, slots_of
from infobus.filters.spans import Key

BOUNDS_FROM = 512
"""Blocks of more rows also keep limits in arrays."""

ARRAY_FROM = 16
"""More rows than this are tested in arrays rather than one by one."""

ADDED_MAX = 24
"""New rows that are tried one by one: so each of them pays for a part of working them in."""

BITS_AT_ONCE = 1 << 19
"""How many rows times events of a batch are unpacked together: what fits into a cache."""

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
        "lines",
        "live",
        "simple",
    )

    def __init__(self) -> None:
        self.entries: list[Any] = []
        """By slot; None where a row is gone."""
        self.columns: dict[Key, Column] = {}
        self.lines: list[tuple[Key, dict[type, Scale], Column]] = []
        """The columns once more, as they are gone through for every event."""
        self.live = 0
        self.bounds: Bounds | None = None
        self.simple = 0
        """Rows that `bounds` decides: they have one owner, and ask for limits only."""
        self.free: list[int] = []
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
        self.added.append(slot)
        if len(self.added) >= CHANGES_MAX:
            self._work_in()
        return slot

    def tell_owners(self, slot: int) -> None:
        """Note which subscriptions have a row, after that has changed."""
        if self.bounds is not None and self.live >> slot & 1:
            self.simple = clear_bits(self.simple, 1 << slot)
            self._bind([(slot, self.entries[slot])])

    def remove(self, slot: int) -> None:
        """Take a row out; its slot can be used again when this was worked in."""
        self.gone.append(slot)
        self.entries[slot] = None
        self.live = clear_bits(self.live, 1 << slot)
        if len(self.gone) >= CHANGES_MAX:
            self._work_in()

    def collect(self, look: Look, ids: list[Hashable]) -> None:
        """Append the subscriptions whose rows hold for an event."""
        may = self.sift(look)
        if self.bounds is not None:
            simple = may & self.simple
            if simple.bit_count() > ARRAY_FROM:
                ids += self.bounds.ids_within(simple, look.get)
                may ^= simple
        self._try(may, look, ids)

    def collect_many(self, looks: Sequence[tuple[Look, list[Hashable]]]) -> None:
        """The same for many events, each with the list to append to."""
        if self.bounds is None:
            for look, ids in looks:
                self.collect(look, ids)
            return
        step = max(2, BITS_AT_ONCE // len(self.entries))
        for start in range(0, len(looks), step):
            some = looks[start : start + step]
            masks = [self.sift(look) for look, _ in some]
            found = self.bounds.ids_within_many(
                [mask & self.simple for mask in masks], [look.get for look, _ in some]
            )
            for mask, (look, ids), more in zip(masks, some, found, strict=True):
                ids += more
                self._try(clear_bits(mask, self.simple), look, ids)

    def _try(self, may: int, look: Look, ids: list[Hashable]) -> None:
        for slot in chain(slots_of(may), self.added):
            entry = self.entries[slot]
            if entry is not None and entry.fits(look):
                ids += entry.owners

    def has_any(self, look: Look) -> bool:
        """Whether some row holds for an event."""
        may = self.sift(look)
        # Most rows that may hold do, so it is not worth asking where all of them are.
        while may:
            lowest = may & -may
            if self.entries[lowest.bit_length() - 1].fits(look):
                return True
            may ^= lowest
        entries = (self.entries[slot] for slot in self.added)
        return any(entry is not None and entry.fits(look) for entry in entries)

    def sift(self, look: Look) -> int:
        """The rows that may hold, but for those added last."""
        if len(self.added) > ADDED_MAX:
            self._work_in()
        fails = 0
        get = look.get
        # The inner loop of all matching, hence written out: mostly, the verdict is in a list.
        for key, by_class, column in self.lines:
            value = get(key)
            scale = by_class.get(value.__class__)
            if scale is None:
                fails |= column.verdict(value)
            else:
                place = bisect_right(scale.edges, value)
                if 0 < place < len(scale.edges):
                    fails |= scale.verdicts[place]
                else:
                    fails |= scale.verdict(value)
        return clear_bits(self.live, fails)

    def _work_in(self) -> None:
        """Bring the bitmaps up to date with what was added and removed."""
        added = [(slot, entry) for slot in self.added if (entry := self.entries[slot])]
        gone = mask_of(self.gone)
        self.free += self.gone
        self.added, self.gone = [], []
        self.live |= mask_of(slot for slot, _ in added)
        self.simple = clear_bits(self.simple, gone)
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
        self._bind(added)

    def _bind(self, rows: Sequence[tuple[int, Entry]]) -> None:
        """Put rows into the arrays, as far as these can decide them."""
        if self.bounds is not None:
            simple = [
                (slot, entry.parts.limits, next(iter(entry.owners)))
                for slot, entry in rows
                if len(entry.owners) == 1 and not entry.spans and not entry.left
            ]
            self.simple |= mask_of(self.bounds.add(simple))

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
