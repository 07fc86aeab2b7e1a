"""`Matcher` finds the filters that match an event without evaluating each of them.

The matcher splits a filter into rows (see `normal`) and files every row in an `Index`, under
the condition that rules out most events. An event looks up its own values there and finds
clusters of rows; each cluster then decides which of its rows hold. A filter that would have too
many rows is filed under necessary conditions instead, and evaluated as a whole.
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
    """Stores filters under ids of your choice, and tells you which of them match an event.

    Each answer is the same as if every filter were evaluated. A matcher has no lock of its own:
    if several threads share it, guard all calls by one lock. Changes are then atomic: an event
    meets either the old filter or the new one, also during `replace`.

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
        self._rows: dict[Parts, MatcherRow] = {}
        self._checks: dict[Literal, Check] = {}
        self._index = Index()
        self._repeating = 0
        """How many subscriptions an event may find more than once."""

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, id: Hashable) -> bool:
        return id in self._subscriptions

    def add(self, id: Hashable, filter: Filter) -> None:
        """Store `filter` under `id`.

        Raises:
            UsageError: The id is already in use.
        """
        if id in self._subscriptions:
            raise UsageError(f"there is a filter under the id {id!r} already; replace it")
        self._own(id, _parts_of(filter))

    def remove(self, id: Hashable) -> None:
        """Remove the filter under `id`.

        Raises:
            UsageError: There is no filter under this id.
        """
        rows = self._subscriptions.pop(id, None)
        if rows is None:
            raise UsageError(f"there is no filter under the id {id!r}")
        self._repeating -= _may_repeat(rows)
        for row in rows:
            row.remove_owner(id)
            if not row.owners:
                self._drop(row)

    def replace(self, id: Hashable, filter: Filter) -> None:
        """Store another filter under `id`.

        Raises:
            UsageError: There is no filter under this id.
        """
        parts = _parts_of(filter)  # first, so that a bad argument leaves the old filter in place
        self.remove(id)
        self._own(id, parts)

    def match(self, x: object) -> list[Hashable]:
        """Return the ids of all filters that match `x`, a mapping or a data object.

        Every id appears once, in no particular order.
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
        """Return whether any filter matches `x`; stops at the first one."""
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
        """Return the matching ids for each event of a batch of columns (see `columns_of`).

        A column is a sequence, a numpy array or a pyarrow column, and all are equally long. None
        and masked values count as missing.

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
                # Only blocks are faster with many events at once; a few rows are not.
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
        """Return whether any filter could match an event of which you know only a part.

        `known` is a mapping or a data object; None marks an attribute that you know is missing.
        With `closed`, the event has no other attributes. False is certain. True may be wrong,
        because two conditions on the same unknown attribute are not compared with each other.

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

    def _own(self, id: Hashable, parts: Iterable[Parts]) -> None:
        """Register the rows of a subscription."""
        rows = tuple(map(self._row, parts))
        for row in rows:
            row.add_owner(id)
        self._subscriptions[id] = rows
        self._repeating += _may_repeat(rows)

    def _row(self, parts: Parts) -> MatcherRow:
        """Return the row with these parts, which subscriptions share; make it if there is none."""
        row = self._rows.get(parts)
        if row is None:
            checks = tuple(map(self._check, parts.literals))
            row = self._rows[parts] = MatcherRow(parts, checks)
            self._index.add(row)
        return row

    def _check(self, literal: Literal) -> Check:
        check = self._checks.get(literal)
        if check is None:
            check = self._checks[literal] = Check(literal)
        check.users += 1
        return check

    def _drop(self, row: MatcherRow) -> None:
        self._index.remove(row)
        del self._rows[row.parts]
        for check in row.checks:
            check.users -= 1
            if not check.users:
                del self._checks[check.literal]


def _parts_of(filter: Filter) -> Iterable[Parts]:
    """Return the parts of each row of a filter; it matches if one row holds."""
    if not isinstance(filter, Filter):
        raise UsageError(f"expected a filter, got {filter!r:.60}; compile its text first")
    form = normal(filter.tree)
    rows = rows_of(form)
    if rows is None:
        whole = Rest(filter.tree)
        keys = access(form)
        rows = ((whole,),) if keys is None else tuple((key, whole) for key in keys)
    return dict.fromkeys([parts for parts in map(split, rows) if parts is not None])


def _may_repeat(rows: tuple[MatcherRow, ...]) -> bool:
    return len(rows) > 1 or (len(rows) == 1 and rows[0].repeats)
