"""Writes a tree as its canonical text, which parses to an equal tree."""

from __future__ import annotations

from datetime import datetime

from infobus.filters.language.lexer import name_text, string_text
from infobus.filters.language.parser import POWERS
from infobus.filters.language.tree import (
    And,
    Binary,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
    TypeName,
    Unary,
    Xor,
)

_ATOM = 1000  # stronger than every operator
_JOINTS = {And: "&&", Or: "||", Xor: "^^"}


def text_of(tree: Tree) -> str:
    """Return the canonical text of a tree.

    >>> text_of(Not(Compare("==", Name(("story", "source")), Constant("GM", "string"))))
    '!(story.source == "GM")'
    """
    return _printed(tree)[0]


def _printed(tree: Tree) -> tuple[str, int]:
    """Return the text, and the precedence of its outermost operator."""
    match tree:
        case Name(path):
            return name_text(path), _ATOM
        case Constant(value, kind):
            return _constant_text(value, kind), _ATOM
        case TypeName(name):
            return name, _ATOM
        case Constants(items):
            return f"[{', '.join(map(text_of, items))}]", _ATOM
        case FunctionCall(function, arguments):
            return f"{function}({', '.join(map(text_of, arguments))})", _ATOM
        case Not(operand) | Unary(_, operand):
            op = "!" if isinstance(tree, Not) else tree.op
            # `-5` would parse as a constant, so the operand needs parentheses.
            return f"{op}{_wrapped(operand, _ATOM)}", _ATOM
        case And(operands) | Or(operands) | Xor(operands):
            op = _JOINTS[type(tree)]
            power = POWERS[op]
            return f" {op} ".join(_wrapped(operand, power + 1) for operand in operands), power
        case Member(item, container):
            power = POWERS["in"]
            return f"{_wrapped(item, power + 1)} in {text_of(container)}", power
        case Compare(op, left, right) | Binary(op, left, right):
            power = POWERS[op]
            return f"{_wrapped(left, power)} {op} {_wrapped(right, power + 1)}", power
    raise AssertionError(tree)


def _wrapped(tree: Tree, power: int) -> str:
    text, own = _printed(tree)
    return text if own >= power else f"({text})"


def _constant_text(value: object, kind: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return string_text(value)
        case datetime():
            return f'datetime("{value.isoformat().replace("+00:00", "Z")}")'
        case int() if kind == "int64" and -(2**31) <= value < 2**31:
            return f"{value}L"
    return repr(value)
