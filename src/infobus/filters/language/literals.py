"""Literals: the smallest conditions of a filter in normal form.

Three-valued logic ends here. A literal is true only if its attribute exists, has a suitable type
and fits; a negated one only if the attribute exists, has a suitable type and does *not* fit. In
all other cases both are false, so code that reads literals needs only two truth values.

A `Test` has one of a few operators, which the matcher can index and the algebra can compare. Any
other condition (arithmetic, one attribute against another, `fold-case`) is a `Rest`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from msgspec import Struct

from infobus.filters.language.functions import TYPE_TESTS, string_test
from infobus.filters.language.tree import (
    Binary,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Scalar,
    Tree,
    TypeName,
    Unary,
    Xor,
)

FAMILY = {
    "int32": "number",
    "int64": "number",
    "real64": "number",
    "string": "string",
    "bool": "bool",
    "datetime": "datetime",
}
"""The family of each kind. Comparing values of two families is undefined."""

TEXTUAL = frozenset({"begins-with", "ends-with", "contains", "regex", "wildcard"})
"""The tests of strings."""

ANY_OF = TEXTUAL | {"==", "has", "datatype", "isa"}
"""The tests that take several values and fit if one of them does."""

OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The order that is true where another one is false, NaN left aside."""


class Test(Struct, frozen=True, gc=False):
    """Compares one attribute with constants; it fits if it fits any of `values`.

    =============================  ==================  ======================================
    op                             defined if it is    fits if it
    =============================  ==================  ======================================
    `==`                           of `family`         is equal to one of `values`
    `<` `<=` `>` `>=`              of `family`         compares so with the one value (NaN never)
    `begins-with` `ends-with`      a string            begins with (...) one of `values`
    `contains`
    `regex` `wildcard`             a string            holds, or as a whole is, one of the patterns
    `has`                          a list              has an item that is equal to one of `values`
    `datatype`                     there, a scalar     is of one of the kinds (`int32`, ...)
    `exists` (no values)           always              is there and not None
    `isa`                          always              the event is of one of the named types
    =============================  ==================  ======================================

    `family` is `number`, `string`, `bool` or `datetime` for `==`, the orders and `has`, and empty
    otherwise; it distinguishes `1` from `true`, which are equal in Python. Values are sorted and
    distinct. `a` and `!a` become `==` true and `==` false, so a test for a bool is never negated.
    Only orders of numbers are negated: `!(a < 5)` means "at least 5, or NaN". `isa` tests the
    event itself, so its name has an empty path.
    """

    name: Name
    op: str
    values: tuple[Scalar, ...] = ()
    family: str = ""
    negated: bool = False

    __test__: ClassVar[bool] = False  # Its name would make pytest collect it.


class Rest(Struct, frozen=True, gc=False):
    """Any other condition: true if `tree` is True or, negated, if `tree` is False."""

    tree: Tree
    negated: bool = False


Literal = Test | Rest

_EVENT = Name(())
# Undefined if the first argument is missing; the other arguments are alternatives.
_STRICT = (
    TEXTUAL | TYPE_TESTS | {"nan", "datatype", "size", "fold-case", "decompose", "decompose-compat"}
)


def literals(tree: Tree, negated: bool) -> tuple[Literal, ...]:
    """Return the literals of a tree without `! && || ^^` at its top, as alternatives.

    There are several if values of several families are accepted, and none if the condition can
    never be true.
    """
    # By far the most frequent case, and five times as fast as matching patterns.
    if isinstance(tree, Compare):
        name, limit = tree.left, tree.right
        if isinstance(name, Name) and isinstance(limit, Constant):
            return _comparison(name, tree.op, limit, negated)
    match tree:
        case Name():
            return (Test(tree, "==", (not negated,), "bool"),)
        case Compare(op, FunctionCall("datatype", (Name() as name,)), TypeName(kind)):
            return (Test(name, "datatype", (kind,), negated=negated != (op == "!=")),)
        case FunctionCall("exists", (Name() as name,)):
            return (Test(name, "exists", negated=negated),)
        case FunctionCall("require", (Name() as name,)):
            # True or undefined, never False.
            return () if negated else (Test(name, "exists"),)
        case FunctionCall(function, (Name() as name,)) if function in TYPE_TESTS and not negated:
            # Negated it differs from `datatype`, which is undefined for lists and objects.
            return (Test(name, "datatype", (function,)),)
        case FunctionCall("isa", arguments):
            return (Test(_EVENT, "isa", _values(arguments), negated=negated),)
        case FunctionCall(function, (Name() as name, *items)) if function in TEXTUAL:
            return (Test(name, function, _values(items), negated=negated),)
        case Member(Name() as name, Constants(items)):
            return _equality(name, "==", items, negated)
        case Member(Constant() as item, Name() as name):
            return _equality(name, "has", (item,), negated)
        case _:
            return (Rest(tree, negated),)


def tree_of_literal(literal: Literal) -> Tree:
    """Return a tree that is True exactly when the literal is true."""
    if isinstance(literal, Rest):
        return Not(literal.tree) if literal.negated else literal.tree
    name, op = literal.name, literal.op
    items = tuple(map(constant, literal.values))
    tree: Tree
    match op:
        case "==" if len(items) == 1:
            return Compare("!=" if literal.negated else "==", name, items[0])
        case "==":
            tree = Member(name, Constants(items))
        case "<" | "<=" | ">" | ">=":
            tree = Compare(op, name, items[0])
        case "has":
            tree = _one_or(Member(item, name) for item in items)
        case "datatype":
            kind = FunctionCall("datatype", (name,))
            tree = _one_or(Compare("==", kind, TypeName(str(one))) for one in literal.values)
        case "isa":
            tree = _one_or(FunctionCall("isa", (item,)) for item in items)
        case _:
            tree = FunctionCall(op, (name, *items))
    return Not(tree) if literal.negated else tree


def constant(value: Scalar) -> Constant:
    """Return `value` as a constant."""
    match value:
        case bool():
            return Constant(value, "bool")
        case int():
            return Constant(value, "int32" if -(2**31) <= value < 2**31 else "int64")
        case float():
            return Constant(value, "real64")
        case str():
            return Constant(value, "string")
        case _:
            return Constant(value, "datetime")


def fits(test: Test, value: Scalar) -> bool:
    """Return whether a string fits a test of strings, regardless of its negation."""
    return isinstance(value, str) and _string_test(test.op, test.values)(value)


@functools.lru_cache(maxsize=1024)
def _string_test(op: str, patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return string_test(op, patterns)


def needs(literal: Literal) -> tuple[Name, ...]:
    """Return the attributes that certainly exist if the literal is true."""
    match literal:
        case Test(op="isa") | Test(op="exists", negated=True):
            return ()
        case Test(name):
            return (name,)
        case Rest(tree):
            return tuple(dict.fromkeys(_strict_names(tree)))


def _comparison(name: Name, op: str, limit: Constant, negated: bool) -> tuple[Literal, ...]:
    if op in ("==", "!="):
        return _equality(name, "==", (limit,), negated != (op == "!="))
    family = FAMILY[limit.kind]
    if negated and family != "number":
        return (Test(name, OPPOSITE[op], (limit.value,), family),)
    return (Test(name, op, (limit.value,), family, negated),)


def _equality(
    name: Name, op: str, items: tuple[Constant, ...], negated: bool
) -> tuple[Literal, ...]:
    if len(items) == 1 and (family := FAMILY[items[0].kind]) != "bool":
        return (Test(name, op, (items[0].value,), family, negated),)
    families = dict.fromkeys(FAMILY[item.kind] for item in items)
    if negated and len(families) > 1:
        return ()  # For every value, one of the comparisons is undefined.
    if negated and op == "==" and "bool" in families:
        wrong = _values(items)
        right = tuple(value for value in (False, True) if value not in wrong)
        return (Test(name, "==", right, "bool"),) if right else ()
    return tuple(
        Test(name, op, _values(i for i in items if FAMILY[i.kind] == family), family, negated)
        for family in families
    )


def _values(items: Iterable[Tree]) -> tuple[Scalar, ...]:
    return tuple(sorted({item.value for item in items if isinstance(item, Constant)}))


def _one_or(alternatives: Iterable[Tree]) -> Tree:
    trees = tuple(alternatives)
    return trees[0] if len(trees) == 1 else Or(trees)


def _strict_names(tree: Tree) -> Iterator[Name]:
    """Return the names without which `tree` is undefined."""
    inner: tuple[Tree, ...] = ()
    match tree:
        case Name():
            yield tree
        case Compare(_, left, right) | Binary(_, left, right) | Member(left, right):
            inner = (left, right)
        case Unary(_, operand) | Not(operand):
            inner = (operand,)
        case Xor(operands):
            inner = operands
        case FunctionCall(function, (first, *_)) if function in _STRICT:
            inner = (first,)
    for one in inner:
        yield from _strict_names(one)
