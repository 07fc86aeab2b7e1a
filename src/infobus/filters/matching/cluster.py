"""Rows that are filed under the same key: a few are tried one by one, more stand in blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from infobus.filters.matching.block import Block
from infobus.filters.matching.row import EventView, MatcherRow
from infobus.filters.matching.row_compiler import Compiled, compiled

FEW = 48
"""Up to so many rows, trying all of them is as quick as bitmaps."""

BLOCK_ROWS_MAX = 131_072
"""Bounds the time to change a row; more than that stand in several blocks."""

COMPILE_FROM = 3
COMPILE_AFTER = 64
"""Events after which a few rows become one function: making it takes as long as some hundred."""


class RowHome:
    """A place where an row stands."""

    __slots__ = ("block", "cluster", "row", "slot")

    def __init__(self, row: MatcherRow, cluster: Cluster) -> None:
        self.row = row
        self.cluster = cluster
        self.block: Block | None = None
        self.slot = 0

    def move_into(self, block: Block) -> None:
        """Stand in a block from now on."""
        self.block = block
        self.slot = block.add(self.row)

    def tell_owners(self) -> None:
        """Pass on that other subscriptions have the row now."""
        if self.block is not None:
            self.block.tell_owners(self.slot)


class Place(Protocol):
    """The index that a cluster stands in."""

    def __delitem__(self, key: Any) -> None: ...


class Cluster:
    """All rows under one key: a few in a list, or more in blocks."""

    __slots__ = ("_asked", "blocks", "compiled", "few", "key", "place")

    def __init__(self, place: Place, key: Any) -> None:
        self.place = place
        self.key = key
        """Where the cluster stands in its index, to leave it when its last row goes."""
        self.few: list[RowHome] = []
        self.blocks: list[Block] = []
        self._asked = 0
        self.compiled: Compiled | None = None

    def __len__(self) -> int:
        return len(self.few) + sum(map(len, self.blocks))

    def add(self, row: MatcherRow) -> RowHome:
        """Take in a row."""
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
        """Take out a row; with its last row the cluster leaves its index."""
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
        """Append the subscriptions whose rows hold for an event."""
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
        """The same for many events, each with the list to append to, if there are blocks."""
        for block in self.blocks:
            block.collect_many(views)

    def has_any(self, view: EventView) -> bool:
        """Whether some row holds for the event, or can hold if only a part of it is known."""
        if self.compiled is not None and view.__class__ is EventView:
            return self.compiled.has_any(view)
        self._count()
        for home in self.few:
            if home.row.fits(view):
                return True
        return any(block.has_any(view) for block in self.blocks)

    def _count(self) -> None:
        """Make one function of a few rows that are asked about often, and do not change."""
        self._asked += 1
        if self._asked > COMPILE_AFTER and len(self.few) >= COMPILE_FROM:
            self.compiled = compiled(home.row for home in self.few)
