"""Equality of values: `eq`, `eql`, `equal`, and `not`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from infobus.tdl.compiler import builtin
from infobus.tdl.machine import Evaluation
from infobus.tdl.values import Cell, ClassObject, Symbol, Table


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are identical, or atoms of the same type and value."""
    if one is other:
        return True
    cls = one.__class__
    if cls is not other.__class__:
        return False
    if cls is Table:  # two views of one map in an object
        return one.entries is other.entries
    return cls in _ATOMS and bool(one == other)


_ATOMS = frozenset({int, float, str, Symbol, bytes, datetime, ClassObject})


def is_eql(run: Evaluation, one: Any, other: Any) -> bool:
    """Return whether two values are the same, and charge for the comparison of long strings."""
    if one.__class__ is str and other.__class__ is str:
        run.spend(min(len(one), len(other)) // 64)
    return is_same(one, other)


def is_equal(run: Evaluation, one: Any, other: Any) -> bool:
    """Return whether two values are the same, or lists of equal elements.

    An object equals only itself.
    """
    waiting = [(one, other)]
    while waiting:
        one, other = waiting.pop()
        while one.__class__ is Cell and other.__class__ is Cell and one is not other:
            # A list with shared parts can take much longer to walk than to make.
            run.spend(1)
            waiting.append((one.first, other.first))
            one, other = one.rest, other.rest
        if isinstance(one, str) and isinstance(other, str):
            run.spend(min(len(one), len(other)) // 64)
        if not is_same(one, other):
            return False
    return True


@builtin("eq", 2)
def _eq(run: Evaluation, one: Any, other: Any) -> Any:
    return is_eql(run, one, other) or None


@builtin("eql", 2)
def _eql(run: Evaluation, one: Any, other: Any) -> Any:
    return is_eql(run, one, other) or None


@builtin("equal", 2)
def _equal(run: Evaluation, one: Any, other: Any) -> Any:
    return is_equal(run, one, other) or None


@builtin("not", 1)
def _not(run: Evaluation, value: Any) -> Any:
    return True if value is None else None


@builtin("null", 1)
def _null(run: Evaluation, value: Any) -> Any:
    return True if value is None else None


@builtin("identity", 1)
def _identity(run: Evaluation, value: Any) -> Any:
    return value
