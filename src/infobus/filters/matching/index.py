"""The index of the matcher: files rows so that an event finds those that may hold for it.

Every row is filed under one of its necessary conditions. In order of preference, this is a value
that an attribute must equal, an item that a list must contain, a type, a pattern, or an attribute
that must exist. A row without any of these is tried for every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infobus.filters.language.functions import CONVERSIONS
from infobus.filters.language.literals import TEXTUAL, Literal, Rest, Test
from infobus.filters.language.partial import UNKNOWN
from infobus.filters.language.tree import Constant, FunctionCall, Name
from infobus.filters.language.values import INT64_MAX, family, lineage_of
from infobus.filters.matching.cluster import Cluster
from infobus.filters.matching.interval import Key, Span, key_of, value_at
from infobus.filters.matching.patterns import Patterns, required
from infobus.filters.matching.row import Check, EventView, MatcherRow

POINTS_MAX = 64
"""A row that accepts more values than this is not filed under each of them."""

_KEYS_MAX = 4096
"""The statistics start afresh when they cover this many attributes."""

COMMON_MAX = 12
"""As long as rows use no more attributes than this, they all share one cluster."""

_DISTINCT_MAX = 1024
"""The statistics count no more values of an attribute than this: more make no difference."""

_CLASSES: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "bool": (bool,)}

FAMILIES = frozenset({"number", "string", "bool", "datetime"})

Text = tuple[Key, tuple[str, ...]]
"""An attribute, and the conversions (`fold-case`, ...) applied before a pattern is tried."""


class IndexTable(dict[Any, Any]):
    """A level of the index; removes itself from the level above when it becomes empty."""

    __slots__ = ("_inside", "_keys")

    def __init__(self, inside: dict[Any, Any] | None = None, *keys: object) -> None:
        super().__init__()
        self._inside = inside
        self._keys = keys
        if inside is not None:
            inside.update(dict.fromkeys(keys, self))

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        if not self and self._inside is not None:
            for one in self._keys:
                del self._inside[one]

    def cluster(self, key: Any) -> Cluster:
        """Return the cluster under a key; make it if there is none."""
        if key not in self:
            self[key] = Cluster(self, key)
        found: Cluster = self[key]
        return found

    def for_values(self, key: Key, kind: str) -> IndexTable:
        """Return the table of one family of values, in a table whose keys are attributes."""
        values = self[key] if key in self else IndexTable(self, key)
        found: IndexTable = (
            values[kind] if kind in values else IndexTable(values, kind, *_CLASSES.get(kind, ()))
        )
        return found


class Index:
    """Finds rows by a necessary condition of theirs."""

    def __init__(self) -> None:
        # Keys: the attribute, then the family or class of a value, then the value.
        self._equal = IndexTable()
        self._items = IndexTable()
        self._types = IndexTable()
        self._texts: dict[Text, Patterns] = {}
        self._present = IndexTable()
        self._always = IndexTable()
        self._has_others = False
        """Whether some row is filed under anything but a value."""
        self._only: tuple[Key, IndexTable] | None = None
        """The only attribute that rows are filed under, if all are filed under values of one."""
        self._all: list[Cluster] = []
        """The clusters that are tried for every event, if there are no others."""
        self._common: set[Key] = set()
        """The attributes that rows in `_always` use."""
        self._deep: Counter[Key] = Counter()
        """The keys of nested attributes, with the number of rows that use each."""
        self._distinct: dict[Key, set[int]] = {}
        """For each attribute, the hashes of the values that rows compare it with."""

    def add(self, row: MatcherRow) -> None:
        """File a row, and note in it which conditions the lookup does not settle."""
        keys = row.keys
        clusters = self._places(row, keys)
        if deep := _deep(keys):
            self._deep.update(deep)
        row.homes = tuple(cluster.add(row) for cluster in clusters)
        self._note_others()

    def remove(self, row: MatcherRow) -> None:
        """Remove a row."""
        for home in row.homes:
            home.cluster.remove(home)
        row.homes = ()
        if deep := _deep(row.keys):
            self._deep -= Counter(deep)
        self._note_others()

    def _note_others(self) -> None:
        others = (self._always, self._present, self._items, self._types, self._texts)
        self._has_others = any(others)
        is_one = len(self._equal) == 1 and not self._has_others
        self._only = next(iter(self._equal.items())) if is_one else None
        self._all = [] if self._equal or any(others[1:]) else list(self._always.values())

    @property
    def has_deep(self) -> bool:
        """Whether any row uses nested attributes."""
        return bool(self._deep)

    def found(self, attributes: Mapping[str, Any], x: object) -> list[Cluster]:
        """Return the clusters whose rows may hold for an event; each of them once."""
        # Written out for speed: with few subscriptions, this is most of the work.
        if self._all:
            return self._all
        if self._only is not None:
            key, tables = self._only
            value = attributes.get(key) if key.__class__ is str else value_at(attributes, key)
            table = tables.get(value.__class__)
            if table is not None:
                cluster = table.get(value)
                return [] if cluster is None else [cluster]
        found = []
        equal = self._equal
        for key in equal if len(equal) < 3 else self._of_interest(equal, attributes):
            value = attributes.get(key) if key.__class__ is str else value_at(attributes, key)
            table = equal[key].get(value.__class__)
            if table is None and value is not None:
                table = equal[key].get(family(value))
            if table is not None and value in table:
                found.append(table[value])
        if self._has_others:
            found += self._found_otherwise(attributes, x)
        return found

    def _found_otherwise(self, attributes: Mapping[str, Any], x: object) -> list[Cluster]:
        """Return the clusters that are filed under other conditions than a value."""
        found: list[Cluster] = list(self._always.values())
        if self._present:
            for key in self._of_interest(self._present, attributes):
                if value_at(attributes, key) is not None:
                    found.append(self._present[key])
        if self._items:
            for key in self._of_interest(self._items, attributes):
                value = value_at(attributes, key)
                if isinstance(value, list | tuple):
                    found += _items_found(self._items[key], value)
        if self._types:
            found += [self._types[name] for name in lineage_of(x) if name in self._types]
        for (key, conversions), patterns in self._texts.items():
            text = value_at(attributes, key)
            if isinstance(text, str):
                found += patterns.found(_converted(text, conversions))
        return found

    def conceivable(self, view: EventView, lineage: frozenset[str] | None) -> Iterator[Cluster]:
        """Like `found`, for an event of which only a part is known.

        `lineage` is None if the type of the event is unknown.
        """
        yield from self._always.values()
        for table, is_list in ((self._equal, False), (self._items, True)):
            for key, values in table.items():
                value = view.get(key)
                if value is UNKNOWN:
                    for kind in filter(FAMILIES.__contains__, values):
                        yield from values[kind].values()
                elif not is_list:
                    yield from _items_found(values, (value,))
                elif isinstance(value, list | tuple):
                    yield from _items_found(values, value)
        for key, cluster in self._present.items():
            if view.get(key) is not None:
                yield cluster
        for name, cluster in self._types.items():
            if lineage is None or name in lineage:
                yield cluster
        for (key, conversions), patterns in self._texts.items():
            text = view.get(key)
            if text is UNKNOWN:
                yield from patterns.all()
            elif isinstance(text, str):
                yield from patterns.found(_converted(text, conversions))

    def _of_interest(self, table: dict[Key, Any], attributes: Mapping[str, Any]) -> Iterable[Key]:
        """Return the keys of the table, or only those that the event has if these are fewer."""
        if len(table) <= len(attributes):
            return table
        return filter(table.__contains__, (*attributes, *self._deep))

    def _places(self, row: MatcherRow, keys: set[Key]) -> list[Cluster]:
        """Choose the clusters for a row: several if it accepts several values."""
        if span := self._most_telling(row.spans):
            row.spans = tuple(one for one in row.spans if one is not span)
            values = self._equal.for_values(span.key, span.family)
            return [values.cluster(point) for point in span.points]
        for check in sorted(row.checks, key=_rank):
            clusters = self._places_by_check(check.literal)
            if clusters:
                row.left = tuple(one for one in row.checks if one is not check)
                row.repeats = len(clusters) > 1
                return clusters
        if not self._always:
            self._common = set()
        there = keys.difference(span.key for span in row.spans if span.family == "absent")
        if there and len(self._common | there) > COMMON_MAX:
            key = min(there, key=lambda key: (len(self._present.get(key, ())), str(key)))
            return [self._present.cluster(key)]
        self._common |= there
        return [self._always.cluster(None)]

    def _places_by_check(self, literal: Literal) -> list[Cluster]:
        match literal:
            case Test(name, "has", values, kind, False):
                table = self._items.for_values(key_of(name), kind)
                return [table.cluster(value) for value in values]
            case Test(_, "isa", values, _, False):
                return [self._types.cluster(value) for value in values]
        pattern = pattern_of(literal)
        if pattern is None:
            return []
        text, op, values = pattern
        patterns = self._texts.get(text) or Patterns(self._texts, text)
        return [patterns.cluster(op, value) for value in values]

    def _most_telling(self, spans: Iterable[Span]) -> Span | None:
        """Return the span with points whose attribute has most different values in the rows.

        Such an attribute divides the rows best.
        """
        best, best_count = None, 0
        for span in spans:
            points = span.points
            if not 0 < len(points) <= POINTS_MAX or not all(map(_can_be_filed, points)):
                continue
            if len(self._distinct) >= _KEYS_MAX:
                self._distinct.clear()
            distinct = self._distinct.setdefault(span.key, set())
            if len(distinct) < _DISTINCT_MAX:
                distinct.update(map(hash, points))
            if len(distinct) > best_count:
                best, best_count = span, len(distinct)
        return best


def _deep(keys: set[Key]) -> list[Key]:
    return [key for key in keys if not isinstance(key, str)]


def pattern_of(literal: Literal) -> tuple[Text, str, tuple[str, ...]] | None:
    """Return the text, the operator and the patterns of a literal; None if it has no patterns."""
    conversions: list[str] = []
    match literal:
        case Test(name, op, values, _, False) if op in TEXTUAL:
            return (key_of(name), ()), op, values  # type: ignore[return-value]
        case Rest(FunctionCall(op, (text, *items)), False) if op in TEXTUAL:
            while isinstance(text, FunctionCall):
                conversions.insert(0, text.function)
                (text,) = text.arguments
            if isinstance(text, Name):
                values = tuple(item.value for item in items if isinstance(item, Constant))
                return (key_of(text), tuple(conversions)), op, values  # type: ignore
    return None


def _rank(check: Check) -> float:
    """Return how good a check is to file under: the lower, the better."""
    literal = check.literal
    if isinstance(literal, Test) and literal.op in ("has", "isa"):
        return 0 if literal.op == "has" else 1
    pattern = pattern_of(literal)
    if pattern is None:
        return 2
    _, op, values = pattern
    return 1 / (1 + min(len(piece) for value in values for piece in required(op, value)))


def _converted(text: str, conversions: Iterable[str]) -> str:
    for conversion in conversions:
        text = CONVERSIONS[conversion](text)
    return text


def _items_found(values: IndexTable, items: Iterable[Any]) -> Iterable[Cluster]:
    found: dict[Cluster, None] = {}
    for item in items:
        table = values.get(family(item))
        if table is not None and item in table:
            found[table[item]] = None
    return found


def _can_be_filed(point: Any) -> bool:
    # An integer beyond 64 bits compares with nothing. Filed, such a real would equal one.
    return not isinstance(point, float) or abs(point) < INT64_MAX
