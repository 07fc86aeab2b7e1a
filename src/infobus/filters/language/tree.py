"""The tree of a filter: what the parser makes, and everything else in this room reads.

Trees are values: frozen, equal when they say the same in the same way, and usable as keys.
Spelling variants of one meaning parse to one tree: `a matches("x")` is `regex(a, "x")`,
`5 < a` is `a > 5`, `equals(a, 1, 2)` is `a in [1, 2]`, and `60 * 60` is `3600`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

Scalar = bool | int | float | str | bytes | datetime
"""The values that a constant can have, and that an attribute can be compared with."""


class Constant(Struct, frozen=True):
    """A value written in the filter.

    `kind` is one of `int32`, `int64`, `real64`, `string`, `bool` and `datetime`; it keeps
    `1`, `1L`, `1.0` and `true` apart, which Python would call equal. Reals are finite,
    datetimes are in UTC.
    """

    value: Scalar
    kind: str


class Name(Struct, frozen=True):
    """An attribute; more than one element reach into objects: `story.source.name`."""

    path: tuple[str, ...]


class TypeName(Struct, frozen=True):
    """The name of a data type, as compared with `datatype(a)`: one of `functions.TYPE_NAMES`.

    `float` is another spelling of `real64`, and parses to it.
    """

    name: str


class Not(Struct, frozen=True):
    """`!operand`."""

    operand: Tree


class And(Struct, frozen=True):
    """`a && b && ...`: two or more operands, none of them an `And` itself."""

    operands: tuple[Tree, ...]


class Or(Struct, frozen=True):
    """`a || b || ...`: two or more operands, none of them an `Or` itself."""

    operands: tuple[Tree, ...]


class Xor(Struct, frozen=True):
    """`a ^^ b ^^ ...`: two or more operands, none of them an `Xor` itself."""

    operands: tuple[Tree, ...]


class Compare(Struct, frozen=True):
    """`left op right` with one of `== != < <= > >=`.

    A constant or type name stands on the right: `5 < a` parses to `a > 5`. Both sides are
    values (or both data types), never conditions.
    """

    op: str
    left: Tree
    right: Tree


class Binary(Struct, frozen=True):
    """Arithmetic on two operands: one of `+ - * / % & | ^ << >> >>>`.

    Constant operands are folded, unless the result is not finite: `1.0 / 0.0` stays.
    """

    op: str
    left: Tree
    right: Tree


class Unary(Struct, frozen=True):
    """Arithmetic on one operand: one of `- + ~`."""

    op: str
    operand: Tree


class FunctionCall(Struct, frozen=True):
    """A function of the language: `begins-with(a, "x", "y")`.

    `functions.SIGNATURES` lists them. `equals` and `datetime` are spellings only, so they are
    never here.
    """

    function: str
    arguments: tuple[Tree, ...]


class Member(Struct, frozen=True):
    """`item in container`: a list attribute, or two or more constants in brackets.

    With constants it means `item == first || item == second || ...`, undefined operands
    included. With a list, elements of other kinds are just unequal.
    """

    item: Tree
    container: Name | Constants


class Constants(Struct, frozen=True):
    """Different constants, written `["GMC", "IBM"]`, in the order they were written."""

    items: tuple[Constant, ...]


Tree = (
    Constant
    | Name
    | TypeName
    | Not
    | And
    | Or
    | Xor
    | Compare
    | Binary
    | Unary
    | FunctionCall
    | Member
    | Constants
)


def nodes(tree: Tree) -> Iterator[Tree]:
    """The tree and everything below it, in the order of the text."""
    yield tree
    for field in tree.__struct_fields__:
        below = getattr(tree, field)
        for part in below if isinstance(below, tuple) else (below,):
            if isinstance(part, Struct):
                yield from nodes(part)  # type: ignore[arg-type]
