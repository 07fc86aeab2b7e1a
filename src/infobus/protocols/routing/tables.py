"""The tables of all routers, as known here: neighbours, keys that they want, tokens.

Each router tells its own table with a growing version, and the others pass on what is new to them.
The table of a router that cannot be reached is kept for a while, because its path may only be
broken for a moment; meanwhile it is neither used nor passed on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

from infobus.keys import keys_intersect
from infobus.protocols.frames.routing import (
    ENTRIES_COUNT_MAX,
    ROUTERS_COUNT_MAX,
    RouterTable,
    id_of,
)

_VERSION_MAX = 2**62  # nobody changes so often; its owner must be able to tell a greater one


class Told(Struct):
    """One router's table."""

    version: int = 0
    name: str = ""
    domain: str = ""
    neighbours: tuple[str, ...] = ()
    entries: set[str] = field(default_factory=set)
    lost_at_s: float | None = None  # since then it cannot be reached
    hash: int = 0

    def as_frame(self, sender: str, origin: str) -> RouterTable:
        """The whole of it."""
        return RouterTable(
            sender,
            origin,
            self.version,
            0,
            self.name,
            self.domain,
            list(self.neighbours),
            sorted(self.entries),
        )

    def count(self, origin: str) -> None:
        """Let the hash follow the version."""
        self.hash = id_of(f"{origin} {self.version}")


class Tables:
    """All tables that are known at `own`, its own included; `reached` are the routers in use."""

    def __init__(self, own: str, name: str, domain: str) -> None:
        self.own = own
        self.mine = Told(name=name, domain=domain)
        self.tables: dict[str, Told] = {own: self.mine}
        self.reached: set[str] = {own}
        self._by_entry: dict[str, tuple[str, ...]] = {}  # most have one holder
        self._hash: int | None = None
        self._wild: dict[str, set[str]] = {}  # entries with wildcards, by their kind
        self._found: dict[tuple[str, str], tuple[str, ...]] = {}

    def has_gap(self, table: RouterTable) -> bool:
        """Whether these are changes to something that is not here."""
        held = self.tables.get(table.origin)
        return table.since != (held.version if held is not None else 0) and table.since != 0

    def is_news(self, table: RouterTable) -> bool:
        """Whether it is newer than what is here."""
        held = self.tables.get(table.origin)
        return held is None or table.version > held.version

    def refusal(self, table: RouterTable) -> str:
        """Why a table cannot be taken; empty if it can."""
        held = self.tables.get(table.origin)
        if table.version > _VERSION_MAX:
            return f"tells of version {table.version} of {table.origin}"
        if held is None and len(self.tables) >= ROUTERS_COUNT_MAX:
            return f"tells of more than {ROUTERS_COUNT_MAX} routers"
        count = len(table.added) + (len(held.entries) if held is not None and table.since else 0)
        if count - len(table.removed) > ENTRIES_COUNT_MAX:
            return f"tells of more than {ENTRIES_COUNT_MAX} keys of {table.origin}"
        return ""

    def take(self, table: RouterTable, now_s: float) -> tuple[set[str], set[str]]:
        """Take in what is new; return the entries that were added and removed."""
        origin = table.origin
        held = self.tables.get(origin)
        if held is None:
            held = self.tables[origin] = Told(lost_at_s=now_s)
        if table.since:
            added, removed = set(table.added) - held.entries, held.entries & set(table.removed)
        else:
            added, removed = set(table.added) - held.entries, held.entries - set(table.added)
        held.version, held.name, held.domain = table.version, table.name, table.domain
        held.neighbours = tuple(table.neighbours)
        self._change(origin, held, added, removed)
        return added, removed

    def change(self, added: Collection[str], removed: Collection[str]) -> None:
        """Change the entries of this router, in a new version of its table."""
        self.mine.version += 1
        self._change(self.own, self.mine, added, removed)

    def forget(self, origin: str) -> None:
        """Let go of a router's table."""
        held = self.tables.pop(origin)
        self._change(origin, held, (), tuple(held.entries))

    def note_reached(self, reached: Collection[str], now_s: float) -> tuple[set[str], set[str]]:
        """Note who can be reached now; return who came, and who went."""
        now = {router for router in reached if router in self.tables} | {self.own}
        came, went = now - self.reached, self.reached - now
        self.reached = now
        for router in came:
            self.tables[router].lost_at_s = None
        for router in went & self.tables.keys():
            self.tables[router].lost_at_s = now_s
        if came or went:
            self._found, self._hash = {}, None
        return came, went

    def lost_before(self, time_s: float) -> list[str]:
        """Those that cannot be reached, and could not at that time."""
        held = self.tables.items()
        return [r for r, told in held if told.lost_at_s is not None and told.lost_at_s < time_s]

    @property
    def hash(self) -> int:
        """Combines the versions of all tables in use: equal if these are the same."""
        if self._hash is None:
            self._hash = 0
            for router in self.reached:
                self._hash ^= self.tables[router].hash
        return self._hash

    def newer_than(self, held: dict[str, int], *, whole: bool) -> list[str]:
        """The routers in use of which there is a newer table here than somebody holds."""
        among: Iterable[str] = self.reached if whole else held.keys() & self.reached
        return sorted(r for r in among if self.tables[r].version > held.get(r, 0))

    def with_key(self, kind: str, key: str) -> tuple[str, ...]:
        """The routers in use, except this one, that have an entry of that kind for `key`."""
        found = self._found.get((kind, key))
        if found is None:
            if len(self._found) > ENTRIES_COUNT_MAX:
                self._found = {}
            routers = {r for entry in self._entries_for(kind, key) for r in self._by_entry[entry]}
            found = tuple(sorted((routers & self.reached) - {self.own}))
            self._found[kind, key] = found
        return found

    def entries(self, kind: str, routers: Iterable[str]) -> Iterator[tuple[str, str]]:
        """The keys of all entries of one kind, with the routers that have them."""
        for router in routers:
            for entry in sorted(self.tables[router].entries):
                if entry[0] == kind:
                    yield router, entry[1:]

    def _entries_for(self, kind: str, key: str) -> Iterator[str]:
        if "*" in key:
            for entry in self._by_entry:
                if entry[0] == kind and keys_intersect(entry[1:], key):
                    yield entry
            return
        if kind + key in self._by_entry:
            yield kind + key
        for entry in self._wild.get(kind, ()):
            if keys_intersect(entry[1:], key):
                yield entry

    def _change(
        self, origin: str, held: Told, added: Collection[str], removed: Collection[str]
    ) -> None:
        held.entries.difference_update(removed)
        held.entries.update(added)
        held.count(origin)
        self._hash = None
        for entry in added:
            self._by_entry[entry] = (*self._by_entry.get(entry, ()), origin)
            if "*" in entry:
                self._wild.setdefault(entry[0], set()).add(entry)
        for entry in removed:
            holders = tuple(one for one in self._by_entry[entry] if one != origin)
            self._by_entry[entry] = holders
            if not holders:
                del self._by_entry[entry]
                if "*" in entry:
                    self._wild[entry[0]].discard(entry)
        if added or removed:
            self._found = {}
