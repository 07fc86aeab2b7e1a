"""Fewer boxes that say the same: those that differ in one attribute are joined, and those that
lie within another are left out.

Both look up what could belong together instead of comparing all pairs, so that a hundred
thousand boxes take seconds. What is overlooked costs length, never truth.
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

_PASSES_MAX = 4  # Joining in one attribute can enable joining in another; rarely more than once.
_COMPARED_COUNT_MAX = 100_000  # Comparisons in search of boxes within others; a few us each.
_HOMES_MAX = 16

_Key = frozenset[int]


class _Conditions:
    """Numbers for conditions, so that boxes can be compared and looked up as sets of numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Name, Domain] | Rest, int] = {}
        self._conditions: list[tuple[Name, Domain] | Rest] = []

    def number(self, condition: tuple[Name, Domain] | Rest) -> int:
        found = self._numbers.setdefault(condition, len(self._conditions))
        if found == len(self._conditions):
            self._conditions.append(condition)
        return found

    def names(self) -> list[Name]:
        """All names, those with intervals first: these swallow each other, sets only grow."""
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
    """Join boxes that are alike but for one attribute, where the result says exactly the same."""
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
    """Leave out boxes that lie within another one.

    Of very many boxes, each is compared only with the most general ones that could cover it.
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
    """Where a box waits to be found by all that it could cover."""
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
    """Where the boxes that could cover this one are."""
    yield None
    for name, allowed in one.domains.items():
        yield name
        if points := allowed.points:
            yield name, next(iter(points))
    yield from one.loose
