"""Reduces boxes to fewer ones with the same meaning.

`merged` joins boxes that differ in one attribute; `absorbed` drops boxes that lie within another.
Both look up candidates instead of comparing all pairs, so that a hundred thousand boxes take
seconds. A candidate that they miss makes the result longer, but never wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from infobus.filters.algebra.box import EVERYTHING, Box, covers
from infobus.filters.algebra.union import united
from infobus.filters.domain import ANY, Domain
from infobus.filters.language.literals import Rest
from infobus.filters.language.tree import Name

_PASSES_MAX = 4  # A join in one attribute can allow one in another, but rarely a third.
_COMPARED_COUNT_MAX = 100_000  # How often `absorbed` compares two boxes; a few us each.
_HOMES_MAX = 16

_Key = frozenset[int]


class _Conditions:
    """Gives numbers to conditions, so that boxes can be compared as sets of numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Name, Domain] | Rest, int] = {}
        self._conditions: list[tuple[Name, Domain] | Rest] = []

    def number(self, condition: tuple[Name, Domain] | Rest) -> int:
        found = self._numbers.setdefault(condition, len(self._conditions))
        if found == len(self._conditions):
            self._conditions.append(condition)
        return found

    def names(self) -> list[Name]:
        """Return all names, first those with intervals: intervals merge, while sets only grow."""
        intervals: dict[Name, int] = {}
        for condition in self._conditions:
            if not isinstance(condition, Rest):
                name, allowed = condition
                intervals[name] = intervals.get(name, 0) + allowed.is_interval
        return sorted(intervals, key=lambda name: (-intervals[name], name.path))

    def key(self, one: Box) -> _Key:
        numbers = {self.number(item) for item in one.domains.items()}
        return frozenset(numbers.union(map(self.number, one.loose)))

    def box(self, key: _Key) -> Box:
        conditions = [self._conditions[number] for number in key]
        return Box(
            dict(one for one in conditions if not isinstance(one, Rest)),
            frozenset(one for one in conditions if isinstance(one, Rest)),
        )

    def domains(self, key: _Key) -> Iterator[tuple[int, Name]]:
        for number in key:
            condition = self._conditions[number]
            if not isinstance(condition, Rest):
                yield number, condition[0]

    def domain(self, number: int) -> Domain:
        condition = self._conditions[number]
        assert not isinstance(condition, Rest)
        return condition[1]


def merged(found: Iterable[Box]) -> list[Box]:
    """Join boxes that differ in one attribute, if the result means exactly the same."""
    conditions = _Conditions()
    alive: dict[_Key, None] = {}
    by_name: dict[Name, list[tuple[_Key, int]]] = {}

    def add(key: _Key) -> None:
        if key not in alive:
            alive[key] = None
            for number, name in conditions.domains(key):
                by_name.setdefault(name, []).append((key, number))

    for one in found:
        add(conditions.key(one))
    for _ in range(_PASSES_MAX):
        before = len(alive)
        for name in conditions.names():
            groups: dict[_Key, dict[_Key, int]] = {}
            for key, number in by_name[name]:
                if key in alive:
                    groups.setdefault(key - {number}, {})[key] = number
            for rest, members in groups.items():
                if rest in alive:
                    joined = [ANY]
                elif len(members) > 1:
                    joined = united(map(conditions.domain, members.values()))
                else:
                    continue
                if len(joined) < len(members) or joined == [ANY]:
                    for key in members:
                        del alive[key]
                    for allowed in joined:
                        more = () if allowed == ANY else (conditions.number((name, allowed)),)
                        add(rest.union(more))
        if frozenset() in alive:
            return [EVERYTHING]
        if len(alive) == before:
            break
    return [conditions.box(key) for key in alive]


def absorbed(found: list[Box]) -> list[Box]:
    """Drop boxes that lie within another one.

    If there are very many, each is compared only with the most general ones that could cover it.
    """
    general = sorted(range(len(found)), key=lambda index: _condition_count(found[index]))
    frequency = Counter(name for one in found for name in one.domains)
    at_home: dict[object, list[int]] = {}
    for index in general:
        for home in _homes(found[index], frequency):
            at_home.setdefault(home, []).append(index)
    compared_max = max(4, _COMPARED_COUNT_MAX // max(1, len(found)))
    gone: set[int] = set()
    for index, one in enumerate(found):
        for place in _places(one):
            for other in islice(at_home.get(place, ()), compared_max):
                if other != index and other not in gone and covers(found[other], one):
                    gone.add(index)
                    break
            if index in gone:
                break
    return [one for index, one in enumerate(found) if index not in gone]


def _condition_count(one: Box) -> int:
    return len(one.domains) + len(one.loose)


def _homes(one: Box, frequency: Counter[Name]) -> Iterable[object]:
    """Return the keys under which a box is filed; see `_places`."""
    chosen = min(
        (
            (len(points), name.path, name, points)
            for name, allowed in one.domains.items()
            if (points := allowed.points) and len(points) <= _HOMES_MAX
        ),
        default=None,
    )
    if chosen is not None:
        return [(chosen[2], value) for value in chosen[3]]
    if one.domains:
        return [min(one.domains, key=lambda name: frequency[name])]
    return islice(one.loose, 1) if one.loose else [None]


def _places(one: Box) -> Iterator[object]:
    """Return all keys under which a box that covers this one may be filed."""
    yield None
    for name, allowed in one.domains.items():
        yield name
        if points := allowed.points:
            yield name, next(iter(points))
    yield from one.loose
