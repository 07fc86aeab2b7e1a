"""Decides many rows at once.

Bitmaps rule out most rows and accept most of the others; an array of limits decides the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infobus.filters.matching.bitmap_axis import BitmapColumn, Part, Placed, Scale, kind_of
from infobus.filters.matching.bitmaps import LIVE, Bitmaps, positions, slots_of
from infobus.filters.matching.interval import Key
from infobus.filters.matching.limit_array import LimitArray
from infobus.filters.matching.row import EventView, MatcherRow

BOUNDS_FROM = 512
"""Blocks with room for more rows than this also store limits in an array."""

ARRAY_FROM = 6
"""More undecided rows than this are tested in the array rather than one by one."""

COLUMN_COUNT_MAX = 32
"""How many attributes get bitmaps; conditions on others are tested row by row."""

WORDS_FEW = 16
"""Up to this many words in a bitmap, Python's own integers are faster than arrays."""

WORDS_AT_ONCE = 1 << 17
"""How many words of bitmaps a batch combines at once: as many as fit into the cache."""


class Block:
    """Up to `BLOCK_ROWS_MAX` rows with bitmaps, which hold one bit for each row."""

    __slots__ = ("bitmaps", "bounds", "columns", "free", "ids", "lines", "rows", "unplaced")

    def __init__(self) -> None:
        self.rows: list[Any] = []
        """By slot; None in a free one."""
        self.ids: NDArray[np.object_] = np.empty(0, object)
        """By slot, the owner of a row that has exactly one."""
        self.free: list[int] = []
        self.bitmaps = Bitmaps()
        self.columns: dict[Key, BitmapColumn] = {}
        self.lines: list[tuple[Key, dict[type, Scale], BitmapColumn]] = []
        """The columns again, in the form that is fastest to iterate for every event."""
        self.unplaced: dict[int, set[Key]] = {}
        """By slot, the attributes that a row uses but that have no column."""
        self.bounds: LimitArray | None = None

    def __len__(self) -> int:
        return len(self.rows) - len(self.free)

    def add(self, row: MatcherRow) -> int:
        """Add a row; return its slot."""
        slot = self._new_slot()
        self.rows[slot] = row
        for key, part in _parts(row):
            column = self.columns.get(key)
            if column is None and len(self.columns) < COLUMN_COUNT_MAX:
                column = self.columns[key] = BitmapColumn(self.bitmaps)
                self._note_columns()
            if column is None:
                self.unplaced.setdefault(slot, set()).add(key)
                continue
            if column.add(slot, part):
                kind = kind_of(part)
                column.divide(kind, self._placed(key, kind))
        if self.bounds is None and self.bitmaps.slots > BOUNDS_FROM:
            self.bounds = LimitArray(self.bitmaps.slots)
            for one in range(len(self.rows)):
                self.tell_owners(one)
        elif row.owners:
            self.tell_owners(slot)
        return slot

    def remove(self, slot: int) -> None:
        """Remove the row in a slot."""
        unplaced = self.unplaced.pop(slot, ())
        for key, _ in _parts(self.rows[slot]):
            if key not in unplaced:
                column = self.columns[key]
                column.remove(slot)
                if not column.users:
                    column.release()
                    del self.columns[key]
                    self._note_columns()
        self.rows[slot] = None
        self.tell_owners(slot)
        self.free.append(slot)

    def tell_owners(self, slot: int) -> None:
        """Note the owners of a row after they have changed."""
        row = self.rows[slot]
        is_live = row is not None and len(row.owners) > 0
        is_certain = is_live and not (len(row.owners) > 1 or row.left or slot in self.unplaced)
        self.bitmaps.note(slot, is_live=is_live, is_certain=is_certain)
        if is_certain:
            (self.ids[slot],) = row.owners
        else:
            self.ids[slot] = None
        if self.bounds is not None:
            limits = row.parts.limits if is_certain and not row.spans else ()
            self.bounds.put(slot, limits)

    def collect(self, view: EventView, ids: list[Hashable]) -> None:
        """Append the ids of subscriptions whose rows hold for an event."""
        bitmaps = self.bitmaps
        both = bitmaps.common(self._bitmaps_for(view))
        if bitmaps.words <= WORDS_FEW:
            number = int.from_bytes(both.tobytes(), "little")
            certain = number >> bitmaps.slots
            found = number ^ (certain << bitmaps.slots)
            ids += [self.ids[slot] for slot in slots_of(found & certain)]
            self._try(slots_of(found & ~certain), view, ids)
            return
        possible = both[: bitmaps.words]
        sure = possible & both[bitmaps.words : 2 * bitmaps.words]
        ids += self.ids[positions(sure)].tolist()
        slots = positions(possible ^ sure)
        if self.bounds is not None and len(slots) > ARRAY_FROM:
            values = np.array(self.bounds.values(view.get))[:, None]
            decided = self.bounds.decides[slots]
            some = slots[decided]
            ids += self.ids[some[self.bounds.within(some, values)]].tolist()
            slots = slots[~decided]
        self._try(slots.tolist(), view, ids)

    def _try(self, slots: Iterable[int], view: EventView, ids: list[Hashable]) -> None:
        for slot in slots:
            row = self.rows[slot]
            if row.fits(view):
                ids += row.owners

    def collect_many(self, views: Sequence[tuple[EventView, list[Hashable]]]) -> None:
        """Like `collect`, for many events, each with its own list."""
        step = max(1, WORDS_AT_ONCE // self.bitmaps.array.shape[1])
        if len(views) < 4:
            for view, ids in views:
                self.collect(view, ids)
            return
        for start in range(0, len(views), step):
            self._collect_some(views[start : start + step])

    def _collect_some(self, views: Sequence[tuple[EventView, list[Hashable]]]) -> None:
        words, slots = self.bitmaps.words, self.bitmaps.slots
        both = self.bitmaps.common_to_each([self._bitmaps_for(view) for view, _ in views])
        possible = both[:, :words]
        sure = possible & both[:, words : 2 * words]
        # All bitmaps as one long one: the bits above those of a slot are the number of the event.
        found = positions(sure.reshape(-1))
        undecided = positions((possible ^ sure).reshape(-1))
        if self.bounds is not None and len(undecided) > ARRAY_FROM:
            places = undecided & (slots - 1)
            decided = self.bounds.decides[places]
            values = np.array([self.bounds.values(view.get) for view, _ in views])
            holds = self.bounds.within(places, values[undecided // slots].T)
            found = np.concatenate([found, undecided[holds & decided]])
            found.sort(kind="stable")
            undecided = undecided[~decided]
        ends = found.searchsorted(np.arange(1, len(views) + 1) * slots).tolist()
        found &= slots - 1
        for (_, ids), start, end in zip(views, [0, *ends], ends, strict=False):
            ids += self.ids[found[start:end]].tolist()
        for event, slot in map(divmod, undecided.tolist(), repeat(slots)):
            self._try([slot], *views[event])

    def has_any(self, view: EventView) -> bool:
        """Return whether some row holds for the event, or could hold if it is a `PartialView`."""
        both = self.bitmaps.common(self._bitmaps_for(view))
        words = self.bitmaps.words
        possible = both[:words]
        if view.__class__ is EventView and (possible & both[words : 2 * words]).any():
            return True
        return any(self.rows[slot].fits(view) for slot in positions(possible).tolist())

    def _bitmaps_for(self, view: EventView) -> list[int]:
        """Return the numbers of the bitmaps that apply to an event."""
        chosen = [LIVE]
        get = view.get
        # The inner loop of all matching, so it is written out: most values lie between two cuts.
        for key, by_class, column in self.lines:
            value = get(key)
            scale = by_class.get(value.__class__)
            if scale is None:
                chosen.append(column.bitmap(value))
            else:
                place = bisect_right(scale.cuts, value)
                if 0 < place < len(scale.cuts):
                    chosen.append(scale.first + place)
                else:
                    chosen.append(scale.bitmap(value, column.others))
        return chosen

    def _new_slot(self) -> int:
        if self.free:
            return self.free.pop()
        self.rows.append(None)
        if len(self.rows) > self.bitmaps.slots:
            self.bitmaps.widen()
            if self.bounds is not None:
                self.bounds.widen(self.bitmaps.slots)
        if len(self.ids) < self.bitmaps.slots:
            more = np.empty(self.bitmaps.slots - len(self.ids), object)
            self.ids = np.concatenate([self.ids, more])
        return len(self.rows) - 1

    def _note_columns(self) -> None:
        self.lines = [(key, column.by_class, column) for key, column in self.columns.items()]

    def _placed(self, key: Key, kind: str) -> Iterator[Placed]:
        for slot, row in enumerate(self.rows):
            if row is not None and key not in self.unplaced.get(slot, ()):
                for other, part in _parts(row):
                    if other == key and kind_of(part) == kind:
                        yield slot, part


def _parts(row: MatcherRow) -> Iterable[tuple[Key, Part]]:
    for limit in row.parts.limits:
        yield limit[0], limit
    for span in row.spans:
        yield span.key, span
