"""Where rows are filed, so that an event finds those that it may fulfil.

Every row is filed under one condition that it cannot do without. In order of preference: a value
that an attribute must be equal to, an item that a list must have, a type, a pattern, and at
least an attribute that must be there. What has none of these is looked at for every event.
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
"""A row that asks for one of more values than this is not filed under each of them."""

_KEYS_MAX = 4096
"""Statistics about more attributes than this are begun anew."""

COMMON_MAX = 12
"""While all rows look at few attributes, they stand together, whatever the event has."""

_DISTINCT_MAX = 1024
"""Beyond so many values, one attribute is as good to file under as another."""

_CLASSES: dict[str, tuple[type, ...]] = {"number": (int, float), "string": (str,), "bool": (bool,)}

FAMILIES = frozenset({"number", "string", "bool", "datetime"})

Text = tuple[Key, tuple[str, ...]]
"""An attribute, and the functions (`fold-case`, ...) that make the text a pattern is for."""


class IndexTable(dict[Any, Any]):
    """A part of the index; leaves the table it stands in when its last cluster leaves."""

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
        """The cluster under a key; made if there is none."""
        if key not in self:
            self[key] = Cluster(self, key)
        found: Cluster = self[key]
        return found

    def for_values(self, key: Key, kind: str) -> IndexTable:
        """In a table by attributes: the clusters by values of one family."""
        values = self[key] if key in self else IndexTable(self, key)
        found: IndexTable = (
            values[kind] if kind in values else IndexTable(values, kind, *_CLASSES.get(kind, ()))
        )
        return found


class Index:
    """Rows by what they cannot do without."""

    def __init__(self) -> None:
        # By attribute, then by the family or class of a value, then by the value.
        self._equal = IndexTable()
        self._items = IndexTable()
        self._types = IndexTable()
        self._texts: dict[Text, Patterns] = {}
        self._present = IndexTable()
        self._always = IndexTable()
        self._has_others = False
        """Whether any row is filed under anything but a value."""
        self._only: tuple[Key, IndexTable] | None = None
        """The one attribute that values are looked up of, if that is all there is to look up."""
        self._all: list[Cluster] = []
        """The clusters that are looked at for every event, if there are no others."""
        self._common: set[Key] = set()
        """The attributes that rows in `_always` look at."""
        self._deep: Counter[Key] = Counter()
        """The keys of attributes inside others, and how many rows look at them."""
        self._distinct: dict[Key, set[int]] = {}

    def add(self, row: MatcherRow) -> None:
        """File a row; sets what is left to test once the row was found."""
        keys = row.keys
        clusters = self._places(row, keys)
        if deep := _deep(keys):
            self._deep.update(deep)
        row.homes = tuple(cluster.add(row) for cluster in clusters)
        self._note_others()

    def remove(self, row: MatcherRow) -> None:
        """Take a row out."""
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
        """Whether any row looks at attributes inside others."""
        return bool(self._deep)

    def found(self, attributes: Mapping[str, Any], x: object) -> list[Cluster]:
        """The clusters in which rows may hold for an event; each of them once."""
        # Written out, since with few subscriptions this is all there is to do.
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
        """The clusters that are not found by a value."""
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
        """The same for an event of which only a part is known; its types, too, may be unknown."""
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
        """The keys of the table, or only those that the event has if they are fewer."""
        if len(table) <= len(attributes):
            return table
        return filter(table.__contains__, (*attributes, *self._deep))

    def _places(self, row: MatcherRow, keys: set[Key]) -> list[Cluster]:
        """Choose what to file a row under; several places where one of several values will do."""
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
        """The span whose attribute is compared with most different values."""
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
    """Return what a literal says about a text, if it is a pattern: the text, how, and patterns."""
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
    """Which check is best to file under: the lower, the better."""
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
    # Larger integers are compared with nothing; let them not find an equal real number either.
    return not isinstance(point, float) or abs(point) < INT64_MAX
