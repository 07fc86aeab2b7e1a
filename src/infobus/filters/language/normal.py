"""The normal form of a filter: literals joined by "all of" and "any of", without negation.

Negation moves down to the literals, which are either true or false (see `literals`). So the
form is true exactly when the filter is True, and two truth values are enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import TypeGuard

from msgspec import Struct

from infobus.filters.language.literals import (
    ANY_OF,
    TEXTUAL,
    Literal,
    Rest,
    Test,
    literals,
    needs,
    tree_of_literal,
)
from infobus.filters.language.tree import (
    And,
    Compare,
    Constant,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
    Xor,
)

ROWS_MAX = 16
"""The usual limit of rows. People write filters with a few rows; three in four random deep
trees also stay below this."""


class AllOf(Struct, frozen=True):
    """True if every part is true; always true without parts. No part is an `AllOf`."""

    parts: tuple[Normal, ...]


class AnyOf(Struct, frozen=True):
    """True if some part is true; never true without parts. No part is an `AnyOf`."""

    parts: tuple[Normal, ...]


Normal = Test | Rest | AllOf | AnyOf

Row = tuple[Literal, ...]
"""Literals that must all be true; an empty row is always true."""

ALWAYS = AllOf(())
NEVER = AnyOf(())


def normal(tree: Tree, negated: bool = False) -> Normal:
    """Return the form that holds if `tree` is True (with `negated`, if it is False).

    >>> from infobus.filters import compile
    >>> tree_text = lambda text: str(compile(text).from_tree(tree_of(normal(compile(text).tree))))
    >>> tree_text('!(symbol == "GMC" || symbol == "IBM" || price < 5)')
    '!(symbol in ["GMC", "IBM"]) && !(price < 5)'
    """
    match tree:
        case Compare() | Name() | FunctionCall() | Member():
            found = literals(tree, negated)
            return found[0] if len(found) == 1 else any_of(found)
        case And(operands) | Or(operands):
            parts = [normal(operand, negated) for operand in operands]
            return all_of(parts) if isinstance(tree, And) != negated else any_of(parts)
        case Not(operand):
            return normal(operand, not negated)
        case Xor((left, right)) if not (_has_xor(left) or _has_xor(right)):
            # A longer or nested one stays whole, because each step would double the form.
            return any_of(
                (
                    all_of((normal(left), normal(right, not negated))),
                    all_of((normal(left, True), normal(right, negated))),
                )
            )
        case _:
            return Rest(tree, negated)


def rows(tree: Tree, limit: int = ROWS_MAX) -> tuple[Row, ...] | None:
    """Return the rows of a filter, which is true if one of them holds; None if over `limit`.

    Without rows, the filter is never true; with an empty row, it is always true. Rows are counted
    before they are built, so a filter with millions of rows costs no time.
    """
    return rows_of(normal(tree), limit)


def rows_of(form: Normal, limit: int = ROWS_MAX) -> tuple[Row, ...] | None:
    """Like `rows`, for a filter in normal form."""
    if isinstance(form, AllOf) and _are_literals(form.parts):
        return (form.parts,)
    return None if row_count(form) > limit else tuple(dict.fromkeys(_expanded(form)))


def row_count(form: Normal) -> int:
    """Return how many rows the form has, including repeated ones."""
    match form:
        case AllOf(parts):
            return prod(map(row_count, parts))
        case AnyOf(parts):
            return sum(map(row_count, parts))
        case _:
            return 1


def access(form: Normal) -> tuple[Test, ...] | None:
    """Return tests such that one of them is true whenever the form is; None if there are none.

    An index can file a filter under these tests: the cheapest part of a conjunction, and all
    alternatives. There are never more tests than literals, however many rows the form has. A test
    is negated only if there is nothing better.
    """
    match form:
        case AllOf(parts):
            keys = [key for key in map(access, parts) if key is not None]
            return min(keys, key=_cost, default=None)
        case AnyOf(parts):
            union: dict[Test, None] = {}
            for part in parts:
                key = access(part)
                if key is None:
                    return None
                union.update(dict.fromkeys(key))
            return tuple(union)
        case Test():
            return (form,) if needs(form) or (form.op == "isa" and not form.negated) else None
        case Rest():
            names = needs(form)
            return (Test(names[0], "exists"),) if names else None


def all_of(parts: Iterable[Normal]) -> Normal:
    """Join forms that must all hold; `a != 1 && a != 2` becomes one test."""
    flat: list[Normal] = []
    for part in parts:
        if isinstance(part, AllOf):
            flat += part.parts
        else:
            flat.append(part)
    if NEVER in flat:
        return NEVER
    flat = _folded(flat, negated=True)
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: Iterable[Normal]) -> Normal:
    """Join forms of which one must hold; `a == 1 || a == 2` becomes one test."""
    flat: list[Normal] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, AnyOf) else (part,))
    if ALWAYS in flat:
        return ALWAYS
    flat = _folded(flat, negated=False)
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def tree_of(form: Normal) -> Tree:
    """Return a tree that is True exactly when the form is true.

    "Always" and "never" cannot be written in the language; they become a `Constant`.
    """
    match form:
        case AllOf(()) | AnyOf(()):
            return Constant(form == ALWAYS, "bool")
        case AllOf(parts):
            return And(_joined(And, parts))
        case AnyOf(parts):
            return Or(_joined(Or, parts))
        case _:
            return tree_of_literal(form)


def _joined(kind: type[And] | type[Or], parts: Iterable[Normal]) -> tuple[Tree, ...]:
    """Return the operands; a literal may become several of them."""
    operands: list[Tree] = []
    for tree in map(tree_of, parts):
        operands.extend(tree.operands if isinstance(tree, kind) else (tree,))
    return tuple(operands)


def _folded(parts: list[Normal], negated: bool) -> list[Normal]:
    """Join tests of one attribute that differ only in their values.

    Alternatives join their plain tests ("one of"), conjunctions their negated ones ("none of").
    """
    if len([1 for part in parts if isinstance(part, Test) and part.negated == negated]) < 2:
        return parts
    kept: dict[object, Normal] = {}
    for part in parts:
        if isinstance(part, Test) and part.op in ANY_OF and part.negated == negated:
            key = (part.name, part.op, part.family)
            other = kept.get(key)
            if isinstance(other, Test):
                values = tuple(sorted({*other.values, *part.values}))
                part = Test(part.name, part.op, values, part.family, negated)
            kept[key] = part
        else:
            kept[part] = part
    return list(kept.values())


def _expanded(form: Normal) -> list[Row]:
    match form:
        case AllOf(parts) if _are_literals(parts):
            return [parts]
        case AllOf(parts):
            choices = product(*map(_expanded, parts))
            return [
                tuple(dict.fromkeys(one for row in choice for one in row)) for choice in choices
            ]
        case AnyOf(parts):
            return [row for part in parts for row in _expanded(part)]
        case _:
            return [(form,)]


def _are_literals(parts: tuple[Normal, ...]) -> TypeGuard[Row]:
    return AnyOf not in map(type, parts)


_RANK = {"==": 1, "has": 1.5, "isa": 10, "exists": 50, "datatype": 50} | dict.fromkeys(TEXTUAL, 3)


def _cost(keys: tuple[Test, ...]) -> float:
    """Estimate how many filters and events these keys bring together in vain."""
    return sum(_RANK.get(key.op, 30) * max(1, len(key.values)) + 100 * key.negated for key in keys)


def _has_xor(tree: Tree) -> bool:
    match tree:
        case Xor():
            return True
        case And(operands) | Or(operands):
            return any(map(_has_xor, operands))
        case Not(operand):
            return _has_xor(operand)
        case _:
            return False
