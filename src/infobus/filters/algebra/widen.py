"""Replaces boxes by fewer, wider ones, because filters that nodes exchange must stay small.

Boxes on the same attributes are joined, neighbours first: their domains of one attribute become
one that includes them all. Attributes with equalities are joined last, because equalities divide
events best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from infobus.filters.algebra.box import EVERYTHING, Box, box
from infobus.filters.algebra.union import coarse, hull, place
from infobus.filters.domain import ANY, Domain
from infobus.filters.language.normal import access, normal
from infobus.filters.language.tree import Name


def widened(found: Iterable[Box], count_max: int) -> list[Box]:
    """Return at most `count_max` boxes that cover all of `found`."""
    plain = [part for one in found for part in anchored(one)]
    groups = _alike(plain)
    if len(groups) > count_max:
        groups = _simpler(groups, count_max)
    if len(groups) > count_max or not all(group[0].domains for group in groups):
        return [EVERYTHING]
    spare = count_max - len(groups)
    return [
        one for group in groups for one in _narrowed(group, 1 + spare * len(group) // len(plain))
    ]


def _alike(found: Iterable[Box]) -> list[list[Box]]:
    """Group the boxes by their attributes."""
    groups: dict[Hashable, list[Box]] = {}
    for one in found:
        groups.setdefault((frozenset(one.domains), one.loose), []).append(one)
    return list(groups.values())


def _simpler(groups: list[list[Box]], count_max: int) -> list[list[Box]]:
    """Keep only the conditions on attributes that most boxes have.

    A box with none of these keeps the one of its attributes that most others have.
    """
    frequency: Counter[Name] = Counter()
    for group in groups:
        frequency.update(dict.fromkeys(group[0].domains, len(group)))
    ranked = sorted(frequency, key=lambda name: (-frequency[name], name.path))
    kept: list[tuple[Name, ...]] = []
    for names_count in (8, 4, 2, 1):
        known = [[name for name in ranked if name in group[0].domains] for group in groups]
        common = set(ranked[:names_count])
        kept = [tuple(n for n in names if n in common) or tuple(names[:1]) for names in known]
        if len(set(kept)) <= count_max:
            break
    simpler: dict[tuple[Name, ...], list[Box]] = {}
    for names, group in zip(kept, groups, strict=True):
        simple = (Box({name: one.domains[name] for name in names}) for one in group)
        simpler.setdefault(names, []).extend(simple)
    return list(simpler.values())


def anchored(one: Box) -> list[Box]:
    """Add a domain to a box that has only loose conditions, so that an index can find it."""
    if one.domains:
        return [one]
    for rest in one.loose:
        keys = access(normal(rest.tree, rest.negated))
        if keys is not None:
            found = [box((key, *one.loose)) for key in keys]
            return [part for part in found if part is not None]
    return [one]


def _narrowed(group: list[Box], count_max: int) -> list[Box]:
    """Join boxes with the same attributes until there are few enough."""
    if len(group) <= count_max:
        return group
    names, coded = _coded(group)
    for name in names:
        classes: dict[_Code, list[Box]] = {}
        for code, one in coded:
            classes.setdefault(code[1:], []).append(one)
        size = len(coded)
        if len(classes) < count_max:
            # A whole class need not become one box: joining runs of neighbours is enough.
            size = -(-len(coded) // (count_max - len(classes)))
        coded = [(code, run) for code, some in classes.items() for run in _runs(some, name, size)]
        if len(coded) <= count_max:
            break
    return [one for _, one in coded]


def _runs(group: list[Box], name: Name, size: int) -> list[Box]:
    if len(group) == 1:
        return group
    ordered = sorted(group, key=lambda one: place(one.domains.get(name, ANY)))
    return [_together(ordered[first : first + size]) for first in range(0, len(ordered), size)]


_Code = tuple[int, ...]
"""The domains of a box as numbers, which are fast to compare."""


def _coded(group: list[Box]) -> tuple[list[Name], list[tuple[_Code, Box]]]:
    """Return the attributes of all boxes, the most selective last, and the boxes with their codes.

    Attributes with few equalities come first, and among equals those with many domains.
    """
    names = list(group[0].domains)
    numbers: list[dict[Domain, int]] = [{} for _ in names]
    plain: list[int] = []  # equalities
    columns = []
    for name, known in zip(names, numbers, strict=True):
        said = [one.domains[name] for one in group]
        columns.append([known.setdefault(allowed, len(known)) for allowed in said])
        plain.append(sum(bool(allowed.points) for allowed in said))
    order = sorted(range(len(names)), key=lambda at: (plain[at], -len(numbers[at]), names[at].path))
    codes = zip(*(columns[at] for at in order), strict=True)
    return [names[at] for at in order], list(zip(codes, group, strict=True))


def _together(found: list[Box]) -> Box:
    """Return a small box around all the others."""
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
    """Return a box that includes this one and whose tests are all short enough to be sent."""
    short = {name: coarse(name, allowed) for name, allowed in one.domains.items()}
    return Box({name: allowed for name, allowed in short.items() if allowed != ANY}, one.loose)
