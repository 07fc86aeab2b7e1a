"""Partial evaluation: evaluates a filter with only some attributes of an event."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from infobus.filters.language.compiler import Evaluator, evaluator
from infobus.filters.language.literals import TEXTUAL, Literal, Rest, Test, fits, needs
from infobus.filters.language.normal import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    Normal,
    all_of,
    any_of,
    normal,
    tree_of,
)
from infobus.filters.language.tree import HEADERS, FunctionCall, Name, Tree, nodes
from infobus.filters.language.values import attributes_of, family, kind_of, lineage_of
from infobus.objects.data import DataObject

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Unknown:
    """The class of `UNKNOWN`, the value of an attribute that is not known yet."""


UNKNOWN = _Unknown()


class PartlyKnown(dict[str, Any]):
    """Attributes of `data` that are known, and its type, which is known, too."""

    def __init__(self, known: Mapping[str, Any], data: object) -> None:
        super().__init__(known)
        self.data = data


def residual(tree: Tree, known: object, closed: bool = False) -> bool | Tree:
    """Return True or False if that is certain, otherwise a tree of the undecided conditions.

    `known` contains the attributes that you know; None marks one that is missing. It is a mapping,
    whose inner maps may be incomplete too, or a data object, which is complete. With `closed`,
    the event has no other attributes. False means that the filter cannot match; it may also be
    undefined.

    >>> from infobus.filters import compile, Filter
    >>> tree = compile('symbol == "GMC" && (price > 40 || exists(alert))').tree
    >>> residual(tree, {"symbol": "IBM"})
    False
    >>> Filter(residual(tree, {"symbol": "GMC"}))
    <Filter price > 40 || exists(alert)>
    >>> residual(tree, {"symbol": "GMC", "price": 40}, closed=True)
    False
    """
    left = _left(normal(tree), known, closed)
    return left == ALWAYS if left in (ALWAYS, NEVER) else tree_of(left)


def _left(form: Normal, known: object, closed: bool) -> Normal:
    match form:
        case AllOf(parts):
            return all_of(_left(part, known, closed) for part in parts)
        case AnyOf(parts):
            return any_of(_left(part, known, closed) for part in parts)
        case _:
            truth = decided(form, known, closed)
            return form if truth is None else ALWAYS if truth else NEVER


def decided(literal: Literal, known: object, closed: bool) -> bool | None:
    """Return whether the literal is true; None if the known attributes do not decide it."""
    if isinstance(literal, Rest):
        return _rest(literal, known, closed)
    if literal.op == "isa":
        if not (closed or isinstance(known, DataObject | PartlyKnown)):
            return None
        return lineage_of(_typed(known)).isdisjoint(literal.values) == literal.negated
    value = look(known, literal.name.path, closed)
    return None if value is UNKNOWN else is_true(literal, value)


def look(known: object, path: tuple[str, ...], closed: bool) -> Any:
    """Return the value of an attribute, None if it is missing, or `UNKNOWN`.

    Headers are known all together, if they are in `known` under `HEADERS`.
    """
    if path[:1] == (HEADERS,):
        headers = attributes_of(known).get(HEADERS)
        return UNKNOWN if headers is None else headers.get(path[1])
    for element in path:
        attributes = attributes_of(known)
        if element not in attributes:
            return UNKNOWN if isinstance(known, Mapping) and not closed else None
        known = attributes[element]
        if known is None:
            return None
    return known


def is_true(test: Test, value: Any) -> bool:
    """Return whether a test is true of the value of its attribute; None if it is missing."""
    op, negated = test.op, test.negated
    if op == "exists":
        return (value is None) == negated
    if op in TEXTUAL:
        return isinstance(value, str) and fits(test, value) != negated
    if op == "datatype":
        kind = kind_of(value)
        return kind is not None and (kind in test.values) != negated
    if op == "has":
        return isinstance(value, list | tuple) and negated != any(
            family(item) == test.family and item in test.values for item in value
        )
    if family(value) != test.family:
        return False
    if op == "==":
        return (value in test.values) != negated
    return bool(_ORDERS[op](value, test.values[0])) != negated


def _rest(rest: Rest, known: object, closed: bool) -> bool | None:
    names, asks_type, evaluate = _facts(rest.tree)
    values = {name: look(known, name.path, closed) for name in names}
    if any(values[name] is None for name in needs(rest)):
        return False
    if any(value is UNKNOWN for value in values.values()):
        return None
    if asks_type and not (closed or isinstance(known, DataObject | PartlyKnown)):
        return None
    return evaluate(attributes_of(known), _typed(known)) is (not rest.negated)


def _typed(known: object) -> object:
    return known.data if isinstance(known, PartlyKnown) else known


@lru_cache(maxsize=4096)
def _facts(tree: Tree) -> tuple[tuple[Name, ...], bool, Evaluator]:
    """Return the names in a tree, whether it asks for the type of the event, and its function."""
    names = tuple(dict.fromkeys(node for node in nodes(tree) if isinstance(node, Name)))
    asks_type = any(
        isinstance(node, FunctionCall) and node.function == "isa" for node in nodes(tree)
    )
    return names, asks_type, evaluator(tree)
