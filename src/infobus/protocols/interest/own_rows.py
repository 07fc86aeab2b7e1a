"""This node's interest, as its peers get it: few rows, each written by its owner only.

A row is a subject pattern and the text of a filter (empty: no filter). `OwnRows` collects the
interest of the subscriptions, and announces rows that let through at least that. Every change gets
a version, and one delta brings any peer up to date from the version that it has. The delta is
computed from the present state, so it may be repeated or overtaken without harm.

However many subscriptions there are, few rows are announced, so that many nodes can hold them:

* Up to `filters_count_max`, a pattern's filters are announced as they are. A pattern that is
  wanted without a filter absorbs all its filters, also those of the patterns that it covers.
  In the same way a filter absorbs filters with the same text.
* Beyond that a new filter is announced at once, as one more row, and at most once a second the
  whole is reduced to few rows. Many new ones in between make the pattern unfiltered until then.
* Beyond `rows_count_max` rows, patterns with a common beginning become one, `beginning.>`.

Rows that name keys (see `keyed_filter`) stand beside the others of their pattern. They are neither
reduced nor absorbed, except by a row with the same keys; if there are many, they lose their
filters, and then all together become one row that may want anything.

Each of these may cause an unneeded send, never a miss. A filter that is withdrawn disappears at
once if its pattern's filters are announced as they are; otherwise the rows stay as wide as they
were until an eighth of the filters is gone and the rest has been reduced again.

Reducing very many filters takes seconds. So `next_reduction` only says what is to be reduced, and
the driver of the node does it (`reduced_filters`) when and where it likes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

from infobus.protocols.frames.lanes import channel_in
from infobus.protocols.frames.wire import FILTER_CHARS_MAX
from infobus.protocols.interest.channels import Channels
from infobus.protocols.interest.cover import Nest
from infobus.subjects import OWN, matches

Row = tuple[str, str]
"""A subject pattern, and the text of a filter; empty if there is none."""
ANY_KEYS = "@"
"""The text of a row that may want anything, whatever the keys; those with keys begin so."""

_FILTERS_CHARS_MAX = 8 * 1024 * 1024  # of all rows: they must fit one frame
_REDUCE_EVERY_S = 1.0


def channel_pattern(pattern: str, depth: int) -> str:
    """Return the channels that `pattern` can touch, as a pattern over channel names.

    >>> channel_pattern("news.equity.gmc", 1), channel_pattern("*.equity", 1)
    ('news', '*')
    >>> channel_pattern("news.>", 2), channel_pattern("news.equity.gmc", 2)
    ('news.>', 'news.equity')
    """
    return ".".join(pattern.split(".")[:depth])


def touches(channel_patterns: Iterable[str], channel: str) -> bool:
    """Return whether any of `channel_patterns` includes `channel`.

    >>> touches(["plant.>"], "plant.oven"), touches(["plant.>"], "plant")
    (True, False)
    """
    return any(matches(pattern, channel) for pattern in channel_patterns)


def is_keyed(where: str) -> bool:
    """Return whether the text of a row's filter names keys."""
    return where[:1] == ANY_KEYS


class Reduction(Struct, frozen=True):
    """The filters of `pattern` are to be reduced to a few."""

    pattern: str
    filters: list[str]
    count_max: int
    number: int  # tells it from others


class _Group(Struct):
    """The filters that are wanted and announced under one pattern."""

    wanted: Counter[str] = field(default_factory=Counter)  # filter -> rows that want it
    keyed: Counter[str] = field(default_factory=Counter)  # the same, of rows with keys
    told: dict[str, None] = field(default_factory=dict)  # filters
    # For a crowded group, which has too many filters:
    is_crowded: bool = False
    reduced: list[str] | None = None  # the last reduction; None: none yet, or it is out of date
    extra: list[str] = field(default_factory=list)  # filters that are new since it began
    taken_back: int = 0  # filters that were withdrawn
    asked: int = 0  # number of the reduction that is under way
    asked_at_s: float = float("-inf")

    def want(self, where: str, uses: int = 1) -> None:
        """Some more rows want `where`."""
        if is_keyed(where):
            self.keyed[where] += uses
            return
        if self.is_crowded and where not in self.wanted:
            self.extra.append(where)
        self.wanted[where] += uses

    def want_no_more(self, where: str) -> None:
        """One row less wants `where`."""
        if is_keyed(where):
            self.keyed[where] -= 1
            if not self.keyed[where]:
                del self.keyed[where]
            return
        self.wanted[where] -= 1
        if not self.wanted[where]:
            del self.wanted[where]
            self.taken_back += 1

    def be_crowded(self) -> None:
        """There are too many filters, some of which may not be announced yet."""
        if not self.is_crowded:
            self.is_crowded = True
            self.extra = [where for where in self.wanted if where not in self.told]
        if self.taken_back > len(self.wanted) // 8:
            self.reduced = None

    def be_plain(self) -> None:
        """There are few filters, or none."""
        self.is_crowded, self.reduced, self.extra = False, None, []
        self.taken_back = self.asked = 0

    def is_due(self) -> bool:
        """Return whether a reduction would change anything."""
        return self.reduced is None or (bool(self.extra) and "" not in self.reduced)

    def to_reduce(self) -> list[str]:
        """Return the filters that a reduction must include; later ones are extra."""
        if self.reduced is not None:
            filters = [*self.reduced, *self.extra]
        else:
            filters, self.taken_back = list(self.wanted), 0
        self.extra = []
        return filters


class OwnRows(Struct):
    """The rows that this node announces, with the version that brought each."""

    depth: int = 1
    rows_count_max: int = 10_000
    filters_count_max: int = 64  # of one pattern
    removed_count_max: int = 10_000
    version: int = 1  # 0 on the wire means "nothing is held"
    delta_from: int = 1  # the oldest version from which a delta can be given
    added: dict[Row, int] = field(default_factory=dict)  # row -> version, oldest first
    removed: dict[Row, int] = field(default_factory=dict)  # row -> version, oldest first
    wanted: Counter[Row] = field(default_factory=Counter)
    groups: dict[str, _Group] = field(default_factory=dict)
    nest: Nest = field(default_factory=Nest)  # the patterns of all groups
    crowded: dict[str, None] = field(default_factory=dict)  # patterns to be reduced
    wide: set[str] = field(default_factory=set)  # patterns that stand for many
    channels: Channels = field(default_factory=Channels)
    filters_chars: int = 0  # of the rows added
    removed_chars: int = 0
    reductions_count: int = 0

    def add(self, patterns: Iterable[str], where: str = "") -> bool:
        """Want these, as far as `where` lets through; return whether there is news to send."""
        return self.change([(pattern, where) for pattern in patterns], [])

    def remove(self, patterns: Iterable[str], where: str = "") -> bool:
        """Want these once less; return whether there is news to send."""
        return self.change([], [(pattern, where) for pattern in patterns])

    def change(self, add: Iterable[Row], remove: Iterable[Row]) -> bool:
        """Add and remove rows atomically; return whether there is news to send."""
        touched: dict[str, None] = {}
        # Add before removing: a channel in both is then wanted without a break.
        for row in add:
            self.wanted[row] += 1
            if self.wanted[row] == 1:
                self.channels.use(channel_pattern(row[0], self.depth), self.version + 1)
                touched[self._want(row)] = None
        for row in remove:
            if row in self.wanted:
                self.wanted[row] -= 1
                if not self.wanted[row]:
                    del self.wanted[row]
                    self.channels.drop(channel_pattern(row[0], self.depth))
                    key = self._key_of(row[0])
                    self.groups[key].want_no_more(row[1])
                    touched[key] = None
        if self.wide and len(self.wanted) < self.rows_count_max // 4:
            touched |= self._tell_apart()
        is_news = self._tell(self._to_tell(touched))
        while len(self.added) > self.rows_count_max and len(self.groups) > 1:
            is_news |= self._tell(self._to_tell(self._widen()))
        return is_news

    def next_reduction(self, now_s: float) -> Reduction | None:
        """Return what is to be reduced now, if anything."""
        for pattern in self.crowded:
            group = self.groups[pattern]
            if not group.asked and now_s >= group.asked_at_s + _REDUCE_EVERY_S:
                del self.crowded[pattern]
                self.reductions_count += 1
                group.asked, group.asked_at_s = self.reductions_count, now_s
                return Reduction(pattern, group.to_reduce(), self.filters_count_max, group.asked)
        return None

    def reduced(self, reduction: Reduction, filters: list[str]) -> bool:
        """A reduction is done; return whether there is news to send."""
        pattern = reduction.pattern
        group = self.groups.get(pattern)
        if group is None or group.asked != reduction.number:
            return False  # meanwhile the group is no longer crowded, or was reduced anew
        group.asked, group.reduced = 0, filters
        group.be_crowded()
        if group.is_due():
            self.crowded[pattern] = None
        plain = self._at_least(filters, group.extra)
        return self._tell({pattern: [*plain, *self._keyed_of(pattern)]})

    def since(self, version: int) -> tuple[int, list[Row], list[str], list[Row]]:
        """Return the version a delta starts from, and the changes after it.

        These are the rows added, the patterns of which no row is left, and other rows removed. The
        delta starts from `version` if possible, else from 0: then the rows added are all rows.
        """
        if version < self.delta_from:
            return 0, list(self.added), [], []
        gone: dict[str, None] = {}
        dropped = []
        for row in _after(self.removed, version):
            if row[0] in self.groups:
                dropped.append(row)
            else:
                gone[row[0]] = None
        return version, list(_after(self.added, version)), list(gone), dropped

    def forget_removals(self, up_to_version: int) -> None:
        """Forget removals up to this version: from now on a delta can only start later."""
        for row in [row for row, version in self.removed.items() if version <= up_to_version]:
            del self.removed[row]
            self.delta_from = max(self.delta_from, up_to_version)
        self.removed_chars = sum(len(where) for _, where in self.removed)

    def channel_patterns(self) -> set[str]:
        """Return the channels that are wanted or announced, as patterns."""
        return set(self.channels.uses)

    def version_that_touched(self, lane: str) -> int | None:
        """Return the version since which the lane's channel has been wanted without a break."""
        return self.channels.since(channel_in(lane))

    def _want(self, row: Row) -> str:
        key = self._key_of(row[0])
        self._group(key).want(row[1])
        return key

    def _group(self, key: str) -> _Group:
        """The group of a pattern; made if there is none."""
        if key not in self.groups:
            self.groups[key] = _Group()
            self.nest.add(key)
        return self.groups[key]

    def _key_of(self, pattern: str) -> str:
        """Return the pattern under which rows of `pattern` are announced."""
        if self.wide:
            elements = pattern.split(".")
            for count in range(pattern[0] == OWN, len(elements)):
                wide = ".".join([*elements[:count], ">"])
                if wide in self.wide:
                    return wide
        return pattern

    def _to_tell(self, touched: Iterable[str]) -> dict[str, Iterable[str]]:
        """Return the filters to announce under these patterns and those that they cover."""
        keys = dict.fromkeys(touched)
        for key in [*keys]:
            keys |= dict.fromkeys(self.nest.narrower(key))
        return {key: [*self._filters_of(key), *self._keyed_of(key)] for key in keys}

    def _filters_of(self, key: str) -> Iterable[str]:
        """Return the filters to announce under `key`; schedule a crowded group for reduction."""
        group = self.groups[key]
        # A wider pattern that is wanted without a filter lets through everything of this one, so
        # this one needs no row at all. The same goes, filter by filter, for equal texts.
        above = [self.groups[wider].wanted for wider in self.nest.wider(key)]
        is_absorbed = any("" in wanted for wanted in above)
        if is_absorbed or "" in group.wanted or len(group.wanted) <= self.filters_count_max:
            group.be_plain()
            self.crowded.pop(key, None)
            if is_absorbed or "" in group.wanted:
                return [] if is_absorbed else [""]
            return [where for where in group.wanted if not any(where in one for one in above)]
        # Until the next reduction, a crowded group only adds: rows that a reduction made stand for
        # many filters, so no single one of them can be taken back.
        group.be_crowded()
        if group.is_due():
            self.crowded[key] = None
        told = [where for where in group.told if not is_keyed(where)]
        return self._at_least(told, group.extra)

    def _keyed_of(self, key: str) -> Collection[str]:
        """Return the rows with keys to announce under `key`."""
        keyed = self.groups[key].keyed
        if not keyed:
            return ()
        from infobus.protocols.interest.keyed_filter import without_filter  # late: few have keys

        above = [self.groups[wider].keyed for wider in self.nest.wider(key)]
        wide = {where: without_filter(where) for where in keyed}
        plain = [
            where
            for where, keys in wide.items()
            if not any(where in one or keys in one for one in above)
            and (keys == where or keys not in keyed)
        ]
        for some in (plain, dict.fromkeys(wide.values())):
            if len(some) <= self.filters_count_max and sum(map(len, some)) <= FILTER_CHARS_MAX:
                return some
        return (ANY_KEYS,)

    def _at_least(self, filters: Collection[str], more: Collection[str]) -> Iterable[str]:
        """Return a bounded number of filters that let through at least these."""
        if "" in filters:
            return [""]
        both = dict.fromkeys([*filters, *more])
        return both if len(both) <= 4 * self.filters_count_max else [""]

    def _tell(self, filters: dict[str, Iterable[str]]) -> bool:
        """Announce these filters under their patterns instead of others, as one new version."""
        added: list[Row] = []
        removed: list[Row] = []
        for key, wheres in filters.items():
            group = self.groups[key]
            told = dict.fromkeys(wheres)
            chars = sum(map(len, told))
            if chars > FILTER_CHARS_MAX or chars + self.filters_chars > _FILTERS_CHARS_MAX:
                told = {ANY_KEYS: None} if group.keyed else {"": None}
            added += [(key, where) for where in told if where not in group.told]
            removed += [(key, where) for where in group.told if where not in told]
            group.told = told
            if not (group.wanted or group.keyed):
                del self.groups[key]
                self.nest.remove(key)
        if not (added or removed):
            return False
        self.version += 1
        for row in added:
            self.removed.pop(row, None)
            self.added[row] = self.version
            self.filters_chars += len(row[1])
            self.channels.use(channel_pattern(row[0], self.depth), self.version)
        for row in removed:
            del self.added[row]
            self.removed[row] = self.version
            self.removed_chars += len(row[1])
            self.filters_chars -= len(row[1])
            self.channels.drop(channel_pattern(row[0], self.depth))
        is_much = self.removed_chars > _FILTERS_CHARS_MAX
        if is_much or len(self.removed) > self.removed_count_max:
            self.forget_removals(self.version)
        return True

    def _widen(self) -> dict[str, None]:
        """Merge patterns with a common beginning, the longest first, into half of the rows."""
        touched: dict[str, None] = {}
        surplus = len(self.added) - self.rows_count_max // 2
        for length in range(max(key.count(".") for key in self.groups), -1, -1):
            for beginning, keys in sorted(self._beginnings(length), key=lambda b: -len(b[1])):
                if surplus <= 0:
                    return touched
                wide = ".".join([*beginning, ">"])
                self.wide.add(wide)
                group = self._group(wide)
                surplus -= sum(len(self.groups[key].told) for key in keys) - 1
                for key in keys:
                    if key != wide:
                        self._move(self.groups[key], group)
                        self.wide.discard(key)
                touched |= dict.fromkeys([wide, *keys])
        return touched

    def _beginnings(self, length: int) -> Iterable[tuple[tuple[str, ...], list[str]]]:
        """Group patterns longer than `length` by so many first elements; no groups of one."""
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for key, group in self.groups.items():
            elements = key.split(".")
            # The bus's own names share no wildcard with others.
            is_used = group.wanted or group.keyed
            if len(elements) > length >= (key[0] == OWN) and is_used:
                found[tuple(elements[:length])].append(key)
        return [(beginning, keys) for beginning, keys in found.items() if len(keys) > 1]

    def _move(self, group: _Group, wide: _Group) -> None:
        for where, uses in (*group.wanted.items(), *group.keyed.items()):
            wide.want(where, uses)
        group.wanted.clear()
        group.keyed.clear()

    def _tell_apart(self) -> dict[str, None]:
        """There are few rows again: announce each under its own pattern."""
        self.wide.clear()
        for group in self.groups.values():
            group.wanted.clear()
            group.keyed.clear()
            group.be_plain()
        touched = dict.fromkeys(self.groups)
        return touched | dict.fromkeys([self._want(row) for row in self.wanted])


def _after(versions: dict[Row, int], version: int) -> Iterator[Row]:
    # Newest rows are last: a delta of one row out of ten thousand looks at one row.
    newest = []
    for row in reversed(versions):
        if versions[row] <= version:
            break
        newest.append(row)
    return reversed(newest)


def reduced_filters(reduction: Reduction) -> list[str]:
    """Return few filters that let through whatever any of the reduction's does; at least one."""
    if "" in reduction.filters:
        return [""]
    from infobus.filters import compile  # late: a bus without many filters needs none of it
    from infobus.filters.algebra.reduce import reduce

    combined = reduce(map(compile, reduction.filters), reduction.count_max)
    if combined.everything:
        return [""]
    # Announce even filters that nothing can pass: the row keeps its place in the streams.
    return [where.text for where in combined.filters] or reduction.filters[:1]
