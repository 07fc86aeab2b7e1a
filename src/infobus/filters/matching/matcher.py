"""`Matcher`: which of many filters match an event, without evaluating each of them.

A filter becomes rows (see `normal`), any of which may hold. Every row is filed under the one of
its conditions that rules out most events: a value that an attribute must be equal to, an item
that a list must have, a pattern, or at least an attribute that must be there. An event looks up
what it has, and decides the rows it finds (see `clusters`). Filters with too many rows are filed
under necessary conditions of theirs, and evaluated as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from infobus.errors import UsageError
from infobus.filters.language.filter import Filter
from infobus.filters.language.literals import Literal, Rest
from infobus.filters.language.normal import access, normal, rows_of
from infobus.filters.language.values import attributes_of, lineage_of
from infobus.filters.matching.cluster import Cluster
from infobus.filters.matching.columns import rows_of_columns
from infobus.filters.matching.index import Index
from infobus.filters.matching.interval import Parts, split
from infobus.filters.matching.row import Check, EventView, MatcherRow, PartialView
from infobus.objects.data import DataObject


class Matcher:
    """Filters under ids of your choice, and the question which of them match an event.

    Each answer is as if every filter were evaluated: ids whose filter is True of the event. A
    matcher is not locked: whoever shares it between threads calls it under one lock. Then every
    change is whole for the next event: with `replace` it meets either the old filter or the new.

    >>> from infobus.filters import compile
    >>> matcher = Matcher()
    >>> matcher.add("a", compile('symbol == "GMC" && price > 40'))
    >>> matcher.add("b", compile('symbol == "GMC" || exists(alert)'))
    >>> matcher.match({"symbol": "GMC", "price": 41.5})
    ['a', 'b']
    >>> matcher.replace("a", compile("price < 40"))
    >>> matcher.match({"alert": "fire"})
    ['b']
    """

    def __init__(self) -> None:
        self._subscriptions: dict[Hashable, tuple[MatcherRow, ...]] = {}
        self._entries: dict[Parts, MatcherRow] = {}
        self._checks: dict[Literal, Check] = {}
        self._index = Index()
        self._repeating = 0
        """Subscriptions that an event may find more than once."""

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, id: Hashable) -> bool:
        return id in self._subscriptions

    def add(self, id: Hashable, filter: Filter) -> None:
        """Let `match` answer with `id` from now on whenever `filter` matches.

        Raises:
            UsageError: There is a filter under this id.
        """
        if id in self._subscriptions:
            raise UsageError(f"there is a filter under the id {id!r} already; replace it")
        self._own(id, _rows(filter))

    def remove(self, id: Hashable) -> None:
        """Forget a filter.

        Raises:
            UsageError: There is no filter under this id.
        """
        entries = self._subscriptions.pop(id, None)
        if entries is None:
            raise UsageError(f"there is no filter under the id {id!r}")
        self._repeating -= _may_repeat(entries)
        for entry in entries:
            entry.remove_owner(id)
            if not entry.owners:
                self._drop(entry)

    def replace(self, id: Hashable, filter: Filter) -> None:
        """Let another filter stand for `id`.

        Raises:
            UsageError: There is no filter under this id.
        """
        rows = _rows(filter)  # What is no filter is refused while the old one still stands.
        self.remove(id)
        self._own(id, rows)

    def match(self, x: object) -> list[Hashable]:
        """The ids of all filters that match `x`, a mapping or a data object.

        Each id once, in no particular order.
        """
        attributes = x if x.__class__ is dict else attributes_of(x)
        clusters = self._index.found(attributes, x)
        ids: list[Hashable] = []
        if not clusters:
            return ids
        if len(clusters) == 1 and (few := clusters[0].compiled) is not None and few.is_plain:
            few.collect(attributes, ids)
        else:
            view = EventView(attributes, x, self._index.has_deep)
            for cluster in clusters:
                cluster.collect(view, ids)
        return list(dict.fromkeys(ids)) if self._repeating else ids

    def match_any(self, x: object) -> bool:
        """Whether any filter matches `x`; stops at the first that does."""
        attributes = x if x.__class__ is dict else attributes_of(x)
        clusters = self._index.found(attributes, x)
        if not clusters:
            return False
        view = EventView(attributes, x, self._index.has_deep)
        for cluster in clusters:  # noqa: SIM110 (a generator would take as long as a small match)
            if cluster.has_any(view):
                return True
        return False

    def match_batch(self, columns: Mapping[str, Any]) -> list[list[Hashable]]:
        """The ids that match each event of a batch, given by columns (see `columns_of`).

        A column is a sequence, an array of numpy or a column of pyarrow, all of one length; None
        or what is masked counts as missing.

        >>> from infobus.filters import compile
        >>> matcher = Matcher()
        >>> matcher.add("a", compile("price > 40"))
        >>> matcher.match_batch({"price": [41.5, 40.0, None]})
        [['a'], [], []]

        Raises:
            UsageError: The columns are not equally long.
        """
        answers: list[list[Hashable]] = []
        later: dict[Cluster, list[tuple[EventView, list[Hashable]]]] = {}
        for row in rows_of_columns(columns):
            ids: list[Hashable] = []
            answers.append(ids)
            view = None
            for cluster in self._index.found(row, row):
                # Only blocks gain by many events at once; a few rows are quicker by themselves.
                if (few := cluster.compiled) is not None and few.is_plain:
                    few.collect(row, ids)
                    continue
                if view is None:
                    view = EventView(row, row, self._index.has_deep)
                if cluster.blocks:
                    later.setdefault(cluster, []).append((view, ids))
                else:
                    cluster.collect(view, ids)
        for cluster, views in later.items():
            cluster.collect_many(views)
        return [list(dict.fromkeys(ids)) for ids in answers] if self._repeating else answers

    def possible(self, known: object, closed: bool = False) -> bool:
        """Whether any filter could match an event of which only some attributes are known.

        `known` is a mapping or a data object; None stands for an attribute known to be missing,
        and `closed` says that there will be no others. False is certain. True may be too
        hopeful, as two conditions on the same unknown attribute are not weighed together.

        >>> from infobus.filters import compile
        >>> matcher = Matcher()
        >>> matcher.add("a", compile('symbol == "GMC" && price > 40'))
        >>> matcher.possible({"symbol": "GMC"}), matcher.possible({"price": 39})
        (True, False)
        >>> matcher.possible({"symbol": "GMC"}, closed=True)
        False
        """
        view = PartialView(known, closed)
        lineage = lineage_of(known) if closed or isinstance(known, DataObject) else None
        return any(cluster.has_any(view) for cluster in self._index.conceivable(view, lineage))

    def _own(self, id: Hashable, rows: Iterable[Parts]) -> None:
        """Let a subscription have these rows."""
        entries = tuple(map(self._entry, rows))
        for entry in entries:
            entry.add_owner(id)
        self._subscriptions[id] = entries
        self._repeating += _may_repeat(entries)

    def _entry(self, parts: Parts) -> MatcherRow:
        """The row that asks for this; made if no other subscription has it."""
        entry = self._entries.get(parts)
        if entry is None:
            checks = tuple(map(self._check, parts.literals))
            entry = self._entries[parts] = MatcherRow(parts, checks)
            self._index.add(entry)
        return entry

    def _check(self, literal: Literal) -> Check:
        check = self._checks.get(literal)
        if check is None:
            check = self._checks[literal] = Check(literal)
        check.users += 1
        return check

    def _drop(self, entry: MatcherRow) -> None:
        self._index.remove(entry)
        del self._entries[entry.parts]
        for check in entry.checks:
            check.users -= 1
            if not check.users:
                del self._checks[check.literal]


def _rows(filter: Filter) -> Iterable[Parts]:
    """The rows of which one must hold, each of them once."""
    if not isinstance(filter, Filter):
        raise UsageError(f"expected a filter, got {filter!r:.60}; compile its text first")
    form = normal(filter.tree)
    rows = rows_of(form)
    if rows is None:
        whole = Rest(filter.tree)
        keys = access(form)
        rows = ((whole,),) if keys is None else tuple((key, whole) for key in keys)
    return dict.fromkeys([parts for parts in map(split, rows) if parts is not None])


def _may_repeat(entries: tuple[MatcherRow, ...]) -> bool:
    return len(entries) > 1 or (len(entries) == 1 and entries[0].repeats)
