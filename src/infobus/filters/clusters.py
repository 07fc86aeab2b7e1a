"""Rows that are found by the same key, kept so that many are decided at once.

A few rows are tried one after the other. More of them stand in blocks, where bitmaps (see
`scales`) decide most rows without looking at them; only rows in doubt are tried. Changes are
gathered and worked into the bitmaps when the next event comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol

from infobus.filters.evaluating import Predicate, predicate
from infobus.filters.literals import Literal, needs, tree_of_literal
from infobus.filters.scales import Column, Part, Verdict, mask_of, slots_of
from infobus.filters.spans import Key, Parts, key_of
from infobus.filters.values import INT64_MAX, attributes_of, family, read

FEW = 24
"""Up to so many rows, trying each of them is as quick as bitmaps."""

BLOCK_ROWS_MAX = 16_384
"""Bounds the time to change a row; more than that stand in several blocks."""

CHANGES_MAX = 256
"""Changes that are gathered before they are worked in, though no event asks for it."""


class Check:
    """A condition that only evaluation decides; shared by all rows that have it."""

    __slots__ = ("_holds", "literal", "users")

    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        self.users = 0
        self._holds: Predicate | None = None

    def holds(self, attributes: Mapping[str, Any], x: object) -> bool:
        """Whether an event fulfils the condition; compiled when it is first asked."""
        if self._holds is None:
            self._holds = predicate(tree_of_literal(self.literal))
        return self._holds(attributes, x)


class Look:
    """One event while it is being matched; each check is evaluated at most once."""

    __slots__ = ("attributes", "get", "known", "x")

    def __init__(self, x: object, has_deep: bool) -> None:
        self.x = x
        self.attributes = attributes_of(x)
        self.get: Callable[[Any], Any] = self.read if has_deep else self.attributes.get
        """The value of the attribute with some key."""
        self.known: dict[Check, bool] = {}

    def holds(self, check: Check) -> bool:
        """Whether the event fulfils a condition."""
        found = self.known.get(check)
        if found is None:
            found = self.known[check] = check.holds(self.attributes, self.x)
        return found

    def read(self, key: Key) -> Any:
        """The value of an attribute, which may be inside another."""
        return self.attributes.get(key) if isinstance(key, str) else read(self.attributes, key)


class Entry:
    """One row of the matcher, and the subscriptions that have it."""

    __slots__ = ("checks", "homes", "left", "owners", "parts", "repeats", "spans")

    def __init__(self, parts: Parts, checks: tuple[Check, ...]) -> None:
        self.parts = parts
        self.checks = checks
        self.spans = parts.spans
        self.left = checks
        """Spans and checks that are left to test once the row was found where it is filed."""
        self.repeats = False
        """Whether an event may find it in several places."""
        self.homes: tuple[Home, ...] = ()
        self.owners: tuple[Hashable, ...] | dict[Hashable, None] = ()
        """A dict when they are many, so that one more does not copy all the others."""

    @property
    def keys(self) -> set[Key]:
        """The attributes it looks at, as far as it must have them or must not have them."""
        keys = {limit[0] for limit in self.parts.limits} | {span.key for span in self.parts.spans}
        return keys.union(key_of(name) for check in self.checks for name in needs(check.literal))

    def add_owner(self, id: Hashable) -> None:
        """Let the row stand for one more subscription."""
        if isinstance(self.owners, tuple):
            if len(self.owners) < FEW:
                self.owners += (id,)
                return
            self.owners = dict.fromkeys(self.owners)
        self.owners[id] = None

    def remove_owner(self, id: Hashable) -> None:
        """Let the row no longer stand for a subscription."""
        if isinstance(self.owners, tuple):
            self.owners = tuple(owner for owner in self.owners if owner != id)
        else:
            del self.owners[id]

    def fits(self, look: Look) -> bool:
        """Whether the event, which was found where the row is filed, fulfils it."""
        get = look.get
        for key, low, high in self.parts.limits:
            value = get(key)
            if value.__class__ is not float:
                if value.__class__ is not int and family(value) != "number":
                    return False
                if not -INT64_MAX - 1 <= value <= INT64_MAX and not isinstance(value, float):
                    return False
            if not low <= value <= high:
                return False
        for span in self.spans:
            if not span.fits(get(span.key)):
                return False
        return all(map(look.holds, self.left)) if self.left else True


class Home:
    """A place where an entry stands."""

    __slots__ = ("block", "cluster", "entry", "slot")

    def __init__(self, entry: Entry, cluster: Cluster) -> None:
        self.entry = entry
        self.cluster = cluster
        self.block: Block | None = None
        self.slot = 0


class Block:
    """Some thousand rows under bitmaps, one bit for each row in every bitmap."""

    __slots__ = ("added", "columns", "entries", "free", "gone", "live", "loose")

    def __init__(self) -> None:
        self.entries: list[Any] = []
        """By slot; None where a row is gone."""
        self.columns: dict[Key, Column] = {}
        self.free: list[int] = []
        self.live = 0
        self.loose = 0
        """Rows with checks, which the bitmaps alone can never confirm."""
        self.added: list[int] = []
        self.gone: list[int] = []

    def __len__(self) -> int:
        return len(self.entries) - len(self.free) - len(self.gone)

    def add(self, home: Home) -> None:
        """Give a row a slot; it counts from the next `sift` on."""
        home.block = self
        if self.free:
            home.slot = self.free.pop()
            self.entries[home.slot] = home.entry
        else:
            home.slot = len(self.entries)
            self.entries.append(home.entry)
        self.added.append(home.slot)
        if len(self.added) >= CHANGES_MAX:
            self._work_in()

    def remove(self, home: Home) -> None:
        """Take a row out at once; its slot can be used again after the next `sift`."""
        self.entries[home.slot] = None
        self.live &= ~(1 << home.slot)
        self.gone.append(home.slot)
        if len(self.gone) >= CHANGES_MAX:
            self._work_in()

    def sift(self, look: Look) -> Verdict:
        """The rows that hold for certain, and those that must be tried."""
        if self.added or self.gone:
            self._work_in()
        fails = doubts = 0
        get = look.get
        for key, column in self.columns.items():
            wrong, unsure = column.verdict(get(key))
            fails |= wrong
            doubts |= unsure
        may = self.live & ~fails
        doubtful = may & (doubts | self.loose)
        return may ^ doubtful, doubtful

    def _work_in(self) -> None:
        """Bring the bitmaps up to date with what was added and removed."""
        gone = mask_of(self.gone)
        fresh = [(slot, entry) for slot in self.added if (entry := self.entries[slot])]
        self.live |= mask_of(slot for slot, _ in fresh)
        self.loose = self.loose & ~gone | mask_of(slot for slot, one in fresh if one.left)
        self.free += self.gone
        self.added, self.gone = [], []
        by_key: dict[Key, list[tuple[int, Part]]] = {key: [] for key in self.columns if gone}
        for slot, entry in fresh:
            for limit in entry.parts.limits:
                by_key.setdefault(limit[0], []).append((slot, limit))
            for span in entry.spans:
                by_key.setdefault(span.key, []).append((slot, span))
        for key, added in by_key.items():
            column = self.columns.setdefault(key, Column())
            column.update(gone, added)
            if column.is_empty:
                del self.columns[key]
        self._divide_anew()

    def _divide_anew(self) -> None:
        """Choose edges anew where they are outgrown; for one attribute at a time, to be quick."""
        for key, column in self.columns.items():
            for family, scale in column.scales.items():
                if scale.is_outgrown:
                    column.divide_anew(family, list(self._parts(key, family)))
                    return

    def _parts(self, key: Key, family: str) -> Iterator[tuple[int, Part]]:
        for slot, entry in enumerate(self.entries):
            if entry is not None:
                if family == "number":
                    yield from ((slot, one) for one in entry.parts.limits if one[0] == key)
                for span in entry.spans:
                    if span.key == key and span.family == family:
                        yield slot, span


class Place(Protocol):
    """The index that a cluster stands in."""

    def __delitem__(self, key: Any) -> None: ...


class Cluster:
    """All rows under one key: a few in a list, or more in blocks."""

    __slots__ = ("blocks", "few", "key", "place")

    def __init__(self, place: Place, key: Any) -> None:
        self.place = place
        self.key = key
        """Where the cluster stands in its index, to leave it when its last row goes."""
        self.few: list[Home] = []
        self.blocks: list[Block] = []

    def add(self, entry: Entry) -> Home:
        """Take in a row."""
        home = Home(entry, self)
        if self.blocks:
            self._roomy_block().add(home)
        else:
            self.few.append(home)
            if len(self.few) > FEW:
                block = self._roomy_block()
                for one in self.few:
                    block.add(one)
                self.few = []
        return home

    def remove(self, home: Home) -> None:
        """Take out a row; with its last row the cluster leaves its index."""
        if home.block is None:
            self.few.remove(home)
        else:
            home.block.remove(home)
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

    def collect(self, look: Look, found: list[Entry]) -> None:
        """Append the rows that hold for the event."""
        for home in self.few:
            if home.entry.fits(look):
                found.append(home.entry)
        for block in self.blocks:
            sure, doubtful = block.sift(look)
            if sure:
                found += map(block.entries.__getitem__, slots_of(sure))
            if doubtful:
                for slot in slots_of(doubtful):
                    entry = block.entries[slot]
                    if entry.fits(look):
                        found.append(entry)

    def has_any(self, look: Look) -> bool:
        """Whether some row holds for the event."""
        for home in self.few:
            if home.entry.fits(look):
                return True
        for block in self.blocks:
            sure, doubtful = block.sift(look)
            if sure or any(block.entries[slot].fits(look) for slot in slots_of(doubtful)):
                return True
        return False

    def entries(self) -> Iterator[Entry]:
        """All rows."""
        for home in self.few:
            yield home.entry
        for block in self.blocks:
            yield from filter(None, block.entries)
