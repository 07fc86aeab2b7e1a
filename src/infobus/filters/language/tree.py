"""The syntax tree of a filter, which the parser builds and all other modules here read.

Trees are values: frozen, comparable and hashable. Different spellings of a condition parse to the
same tree: `a matches("x")` is `regex(a, "x")`,
`5 < a` is `a > 5`, `equals(a, 1, 2)` is `a in [1, 2]`, and `60 * 60` is `3600`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

Scalar = bool | int | float | str | bytes | datetime
"""The values of constants, which attributes can be compared with."""


HEADERS = "\0headers"
"""The first element of the path of a header, which no attribute's name is to be mistaken for."""


class Constant(Struct, frozen=True):
    """A constant in the filter.

    `kind` is one of `int32`, `int64`, `real64`, `string`, `bool` and `datetime`; it distinguishes
    `1`, `1L`, `1.0` and `true`, which are equal in Python. Reals are finite, datetimes are in UTC.
    """

    value: Scalar
    kind: str


class Name(Struct, frozen=True):
    """An attribute; a longer path reaches into objects: `story.source.name`.

    `header("trace")` is the name with the path `(HEADERS, "trace")`: what is true of attributes is
    true of headers.
    """

    path: tuple[str, ...]


class TypeName(Struct, frozen=True):
    """The name of a data type, to compare with `datatype(a)`: one of `functions.TYPE_NAMES`.

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

    A constant or type name is always on the right: `5 < a` parses to `a > 5`. Both sides are
    values, or both are data types; never conditions.
    """

    op: str
    left: Tree
    right: Tree


class Binary(Struct, frozen=True):
    """Arithmetic on two operands: one of `+ - * / % & | ^ << >> >>>`.

    The parser evaluates constant operands, unless the result is not finite: `1.0 / 0.0` stays.
    """

    op: str
    left: Tree
    right: Tree


class Unary(Struct, frozen=True):
    """Arithmetic on one operand: one of `- + ~`."""

    op: str
    operand: Tree


class FunctionCall(Struct, frozen=True):
    """A call of a function of the language: `begins-with(a, "x", "y")`.

    `functions.SIGNATURES` lists the functions. `equals` and `datetime` parse to other nodes.
    """

    function: str
    arguments: tuple[Tree, ...]


class Member(Struct, frozen=True):
    """`item in container`: a list attribute, or two or more constants in brackets.

    With constants it means `item == first || item == second || ...`, also if some of these are
    undefined. In a list, elements of other kinds are merely unequal.
    """

    item: Tree
    container: Name | Constants


class Constants(Struct, frozen=True):
    """Distinct constants, such as `["GMC", "IBM"]`, in the order of the text."""

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
    """Return the tree and all nodes below it, in the order of the text."""
    yield tree
    for field in tree.__struct_fields__:
        below = getattr(tree, field)
        for part in below if isinstance(below, tuple) else (below,):
            if isinstance(part, Struct):
                yield from nodes(part)  # type: ignore[arg-type]
