"""Fewer boxes that allow more: what is sent around must stay small, whatever was asked for.

Boxes that ask about the same attributes are put together, neighbours first, and what they say
about one attribute becomes what includes them all. Equalities are kept apart longest, because
they are what tells events from each other best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from infobus.filters.boxes import EVERYTHING, Box, box
from infobus.filters.domains import ANY, Domain
from infobus.filters.joining import coarse, hull, place
from infobus.filters.normal import access, normal
from infobus.filters.tree import Name


def widened(found: Iterable[Box], count_max: int) -> list[Box]:
    """Return at most `count_max` boxes that cover all of `found`."""
    plain = [part for one in found for part in anchored(one)]
    groups = _alike(plain)
    for names_count in (8, 4, 2, 1):
        if len(groups) > count_max:
            groups = _alike(_simpler(plain, names_count))
    if len(groups) > count_max or not all(group[0].domains for group in groups):
        return [EVERYTHING]
    spare = count_max - len(groups)
    return [
        one for group in groups for one in _narrowed(group, 1 + spare * len(group) // len(plain))
    ]


def _alike(found: Iterable[Box]) -> list[list[Box]]:
    return _grouped(found, lambda one: (frozenset(one.domains), one.loose))


def _simpler(found: list[Box], names_count: int) -> list[Box]:
    """Keep only what boxes say about the attributes that most of them say something about.

    A box that knows none of these keeps the one of its own that most others have.
    """
    frequency = Counter(name for one in found for name in one.domains)
    ranked = sorted(frequency, key=lambda name: (-frequency[name], name.path))
    rank = {name: number for number, name in enumerate(ranked)}
    simpler = []
    for one in found:
        first = min(map(rank.__getitem__, one.domains), default=0)
        kept = {n: d for n, d in one.domains.items() if rank[n] < max(names_count, first + 1)}
        simpler.append(Box(kept))
    return simpler


def anchored(one: Box) -> list[Box]:
    """Say plainly which attributes a box is about that has only conditions of other shapes."""
    if one.domains:
        return [one]
    for rest in one.loose:
        keys = access(normal(rest.tree, rest.negated))
        if keys is not None:
            found = [box((key, *one.loose)) for key in keys]
            return [part for part in found if part is not None]
    return [one]


def _narrowed(group: list[Box], count_max: int) -> list[Box]:
    """Put boxes with the same attributes together until there are few enough."""
    names = _most_telling_last(group)
    while len(group) > count_max:
        name = names.pop(0)
        classes = _grouped(group, lambda one: tuple(one.domains.get(n, ANY) for n in names))
        size = len(group)
        if len(classes) < count_max:
            # Then not all of a class need become one: runs of neighbours are enough.
            size = -(-len(group) // (count_max - len(classes)))
        group = [run for one in classes for run in _runs(one, name, size)]
    return group


def _runs(group: list[Box], name: Name, size: int) -> list[Box]:
    ordered = sorted(group, key=lambda one: place(one.domains.get(name, ANY)))
    return [_together(ordered[first : first + size]) for first in range(0, len(ordered), size)]


def _most_telling_last(group: list[Box]) -> list[Name]:
    """The attributes: those with few equalities first, of the others those with many values."""
    plain: Counter[Name] = Counter()
    different: dict[Name, set[Domain]] = {}
    for one in group:
        for name, allowed in one.domains.items():
            plain[name] += allowed.values is not None
            different.setdefault(name, set()).add(allowed)
    return sorted(different, key=lambda name: (plain[name], -len(different[name]), name.path))


def _together(found: list[Box]) -> Box:
    """The smallest box around all the others that is easily found."""
    if len(found) == 1:
        return found[0]
    first, *rest = found
    names = set(first.domains).intersection(*(one.domains for one in rest))
    around = {name: hull([one.domains[name] for one in found]) for name in names}
    return Box(
        {name: allowed for name, allowed in around.items() if allowed != ANY},
        first.loose.intersection(*(one.loose for one in rest)),
    )


def shortened(one: Box) -> Box:
    """Return a box that includes this one, and whose tests are all short enough to be sent."""
    short = {name: coarse(name, allowed) for name, allowed in one.domains.items()}
    return Box({name: allowed for name, allowed in short.items() if allowed != ANY}, one.loose)


def _grouped(found: Iterable[Box], key: Callable[[Box], Hashable]) -> list[list[Box]]:
    groups: dict[Hashable, list[Box]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())
