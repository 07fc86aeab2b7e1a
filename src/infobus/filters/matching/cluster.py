"""Rows that share a key of the index: a few are tried one by one, many go into blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from infobus.filters.matching.block import Block
from infobus.filters.matching.row import EventView, MatcherRow
from infobus.filters.matching.row_compiler import Compiled, compiled

FEW = 48
"""Up to this many rows, trying each of them is as fast as bitmaps."""

BLOCK_ROWS_MAX = 131_072
"""More rows than this go into several blocks, which bounds the time of one change."""

COMPILE_FROM = 3
COMPILE_AFTER = 64
"""From `COMPILE_FROM` rows on, and after this many events, rows become one function.

Compiling it takes as long as some hundred events."""


class RowHome:
    """One row in one cluster; a row that accepts several values has several homes."""

    __slots__ = ("block", "cluster", "row", "slot")

    def __init__(self, row: MatcherRow, cluster: Cluster) -> None:
        self.row = row
        self.cluster = cluster
        self.block: Block | None = None
        self.slot = 0

    def move_into(self, block: Block) -> None:
        """Move the row into a block."""
        self.block = block
        self.slot = block.add(self.row)

    def tell_owners(self) -> None:
        """Tell the block that the owners of the row have changed."""
        if self.block is not None:
            self.block.tell_owners(self.slot)


class Place(Protocol):
    """A part of the index that holds clusters."""

    def __delitem__(self, key: Any) -> None: ...


class Cluster:
    """All rows under one key: a few in a list, or many in blocks."""

    __slots__ = ("_asked", "blocks", "compiled", "few", "key", "place")

    def __init__(self, place: Place, key: Any) -> None:
        self.place = place
        self.key = key
        """The key of this cluster in `place`, to remove itself when its last row goes."""
        self.few: list[RowHome] = []
        self.blocks: list[Block] = []
        self._asked = 0
        self.compiled: Compiled | None = None

    def __len__(self) -> int:
        return len(self.few) + sum(map(len, self.blocks))

    def add(self, row: MatcherRow) -> RowHome:
        """Add a row."""
        home = RowHome(row, self)
        self._asked, self.compiled = 0, None
        if self.blocks:
            home.move_into(self._roomy_block())
        else:
            self.few.append(home)
            if len(self.few) > FEW:
                block = self._roomy_block()
                for one in self.few:
                    one.move_into(block)
                self.few = []
        return home

    def remove(self, home: RowHome) -> None:
        """Remove a row; with its last row, the cluster removes itself from the index."""
        self._asked, self.compiled = 0, None
        if home.block is None:
            self.few.remove(home)
        else:
            home.block.remove(home.slot)
            if not len(home.block):
                self.blocks.remove(home.block)
        if not self.few and not self.blocks:
            del self.place[self.key]

    def _roomy_block(self) -> Block:
        for block in reversed(self.blocks):
            if len(block) < BLOCK_ROWS_MAX:
                return block
        self.blocks.append(Block())
        return self.blocks[-1]

    def collect(self, view: EventView, ids: list[Hashable]) -> None:
        """Append the ids of subscriptions whose rows hold for an event."""
        if self.compiled is not None:
            self.compiled.collect(view, ids)
            return
        self._count()
        for home in self.few:
            if home.row.fits(view):
                ids += home.row.owners
        for block in self.blocks:
            block.collect(view, ids)

    def collect_many(self, views: Sequence[tuple[EventView, list[Hashable]]]) -> None:
        """Like `collect`, for many events, each with its own list; covers the blocks only."""
        for block in self.blocks:
            block.collect_many(views)

    def has_any(self, view: EventView) -> bool:
        """Return whether some row holds for the event, or could hold if it is a `PartialView`."""
        if self.compiled is not None and view.__class__ is EventView:
            return self.compiled.has_any(view)
        self._count()
        for home in self.few:
            if home.row.fits(view):
                return True
        return any(block.has_any(view) for block in self.blocks)

    def _count(self) -> None:
        """Count an event; compile a few rows that see many events and no changes."""
        self._asked += 1
        if self._asked > COMPILE_AFTER and len(self.few) >= COMPILE_FROM:
            self.compiled = compiled(home.row for home in self.few)
