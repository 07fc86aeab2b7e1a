"""Writes boxes as conditions on chosen attributes, in operators that a producer understands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from infobus.filters.algebra.box import Box
from infobus.filters.algebra.reduce import compacted, projected
from infobus.filters.domain import ANY, Domain, as_tests, domain, listed
from infobus.filters.language.lexer import name_text
from infobus.filters.language.literals import FAMILY, Test, constant
from infobus.filters.language.partial import is_true
from infobus.filters.language.tree import Name

Range = tuple[Any, Any] | Collection[Any] | Callable[[Any], bool] | None
"""The values that an attribute can have: (low, high), a collection or a function; None: all."""

Condition = tuple[Any, ...]
"""`(operator, value)`, or `(attribute, operator, value)` if you ask for several attributes."""

_SPLIT_COUNT_MAX = 10_000  # A box with more alternatives drops conditions instead.


def choices(
    found: list[Box],
    attributes: Collection[str],
    operators: Collection[str] | None,
    ranges: Mapping[str, Range],
) -> list[list[Condition]]:
    """Return the answer of `Wants.values` for these boxes."""
    kept = []
    for one in projected(found, attributes):
        within = {name: _within(name, d, ranges) for name, d in one.domains.items()}
        if all(d is not None for d in within.values()):
            said = {name: _said(name, d, operators) for name, d in within.items() if d is not None}
            kept.append(Box({name: d for name, d in said.items() if d != ANY}))
    return [
        list(conditions)
        for one in compacted(kept)
        for conditions in _alternatives(one, operators, len(attributes) > 1)
    ]


def _within(name: Name, allowed: Domain, ranges: Mapping[str, Range]) -> Domain | None:
    """Narrow a domain to the values that the producer can have; None if nothing is left."""
    limits = ranges.get(name_text(name.path))
    if limits is None or allowed.family == "absent":
        return allowed
    tests = as_tests(name, allowed)
    if isinstance(limits, tuple):
        bounds = [
            Test(name, op, (limit,), FAMILY[constant(limit).kind])
            for op, limit in zip((">=", "<="), limits, strict=True)
            if limit is not None
        ]
        inside = domain([*tests, *bounds])
        # An interval stays whole: the producer knows its own bounds.
        return inside if inside is None or inside.points else allowed
    points = allowed.points
    if callable(limits):
        possible = list(filter(limits, points))
    else:
        possible = [value for value in limits if all(is_true(test, value) for test in tests)]
        if not possible:
            return None
    if not points:
        return allowed
    values = frozenset(points).intersection(possible)
    return listed(allowed.family, values, allowed.others) if values else None


def _said(name: Name, allowed: Domain, operators: Collection[str] | None) -> Domain:
    """Widen a domain to one that the operators can express."""
    tests = [test for test in as_tests(name, allowed) if _operator(test, operators) is not None]
    found = domain(tests) if tests else ANY
    assert found is not None, "fewer tests contradict each other less"
    return found


def _operator(test: Test, operators: Collection[str] | None) -> str | None:
    """Return the accepted operator for a test; None if there is none."""
    names = [test.op]
    if test.op == "regex":
        names = ["matches", "regex"]
    if test.op == "==":
        names = ["!="] if test.negated else ["in", "=="] if len(test.values) > 1 else ["==", "in"]
    elif test.negated:
        names = [f"!{name}" for name in names]
    return next((name for name in names if operators is None or name in operators), None)


def _alternatives(
    one: Box, operators: Collection[str] | None, named: bool
) -> Iterator[tuple[Condition, ...]]:
    """Return the conditions of a box: several lists if an operator takes one value at a time."""
    needed: list[Condition] = []
    splits: list[list[Condition]] = []
    for name in sorted(one.domains, key=lambda name: name.path):
        prefix = (name_text(name.path),) if named else ()
        for test in as_tests(name, one.domains[name]):
            operator = _operator(test, operators)
            if operator is None:
                continue
            if operator == "in":
                needed.append((*prefix, operator, test.values))
            elif test.negated or len(test.values) < 2:
                needed.extend((*prefix, operator, value) for value in test.values or (None,))
            else:
                splits.append([(*prefix, operator, value) for value in test.values])
    splits.sort(key=len)
    while prod(map(len, splits)) > _SPLIT_COUNT_MAX:
        splits.pop()
    for choice in product(*splits):
        yield (*needed, *choice)
