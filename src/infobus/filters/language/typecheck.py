"""Builds trees and checks their types, so that senseless filters are refused at once.

Every function here takes operands with their types and positions, and returns a node in its
canonical form or raises a `Complaint`. The types are `condition`, `integer`, `real`, `number`
(one of the two), `string`, `bool`, `datetime`, `datatype`, and `any` for an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from infobus.filters.language import functions, values
from infobus.filters.language.errors import Complaint
from infobus.filters.language.tree import (
    HEADERS,
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

DEPTH_MAX = 64
"""How deep a tree may be. Functions here recurse, and no person writes deeper filters."""

LOGICAL: dict[str, type[And] | type[Or] | type[Xor]] = {"&&": And, "||": Or, "^^": Xor}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
INTEGER_ONLY = frozenset({"&", "|", "^", "<<", ">>", ">>>", "~"})

_NUMBERS = frozenset({"integer", "real", "number"})
_ARTICLES = {
    "condition": "a condition",
    "integer": "an integer",
    "real": "a real number",
    "number": "a number",
    "string": "a string",
    "bool": "true or false",
    "datetime": "a datetime",
    "datatype": "a data type",
    "any": "an attribute",
}
_TYPES_OF_KINDS = {"int32": "integer", "int64": "integer", "real64": "real"}


class Typed(NamedTuple):
    """A node with its type and position; `is_fixed` if it contains no attribute."""

    tree: Tree
    type: str
    position: int | None = None
    depth: int = 1
    is_fixed: bool = False


def name(path: tuple[str, ...], position: int | None = None) -> Typed:
    """Return the node of an attribute."""
    if not path or not all(path):
        raise Complaint(position, "a name, or one of its elements, is empty")
    if path[0] == HEADERS and len(path) != 2:
        raise Complaint(position, 'a header has one name: header("trace")')
    return Typed(Name(path), "any", position)


def header(arguments: Sequence[Typed], position: int | None = None) -> Typed:
    """Return the node of `header("...")`."""
    _check_count("header", arguments, 1, False, position)
    return name((HEADERS, _string("header", arguments[0])), position)


def constant(value: object, kind: str, position: int | None = None) -> Typed:
    """Return the node of a constant of this kind."""
    if kind in ("int32", "int64") and type(value) is int:
        fits = -(2**31) <= value < 2**31 if kind == "int32" else -(2**63) <= value < 2**63
        if not fits:
            raise Complaint(position, f"the integer {value} does not fit {kind}")
    elif kind == "datetime" and type(value) is datetime and value.tzinfo is not None:
        value = value.astimezone(UTC)
    elif values.kind_of(value) != kind or kind == "opaque":
        raise Complaint(position, f"{value!r:.60} is not a constant of the kind {kind}")
    elif type(value) is float and not math.isfinite(value):
        raise Complaint(position, "the real number is too large, or not a number")
    tree = Constant(value, kind)  # type: ignore[arg-type]
    return Typed(tree, _TYPES_OF_KINDS.get(kind, kind), position, is_fixed=True)


def integer(value: int, is_long: bool, position: int | None) -> Typed:
    """Return an integer constant: int64 if `is_long`, or if it does not fit 32 bits."""
    if not -(2**63) <= value < 2**63:
        raise Complaint(position, "the integer does not fit 64 bits", "write a real: 1.0e20")
    return constant(
        value, "int64" if is_long or not -(2**31) <= value < 2**31 else "int32", position
    )


def condition(operand: Typed) -> Typed:
    """Return `operand` if it is a condition."""
    if operand.type == "condition" or operand.type == "any":
        return operand
    if operand.is_fixed:
        raise Complaint(
            operand.position,
            f"expected a condition, got the constant {_shown(operand)}, "
            "which says the same about every event",
            "leave it out, or compare it with an attribute",
        )
    raise Complaint(
        operand.position,
        f"expected a condition, got {_ARTICLES[operand.type]}",
        "compare it: ... == ...",
    )


def negation(operand: Typed, position: int | None = None) -> Typed:
    """Return `!operand`."""
    return _node(Not(condition(operand).tree), "condition", position, (operand,))


def logical(op: str, operands: Sequence[Typed]) -> Typed:
    """Join two or more conditions by `&&`, `||` or `^^`; nested ones are flattened."""
    cls = LOGICAL[op]
    flat: list[Tree] = []
    for operand in operands:
        tree = condition(operand).tree
        flat += tree.operands if isinstance(tree, cls) else [tree]
    if len(flat) < 2:
        raise Complaint(None, f"{op} needs two operands or more, got {len(flat)}")
    return _node(cls(tuple(flat)), "condition", operands[0].position, operands)


def comparison(op: str, left: Typed, right: Typed, position: int | None = None) -> Typed:
    """Return the comparison `left op right`."""
    if "datatype" in (left.type, right.type):
        left, right = data_type(left), data_type(right)
    for operand in (left, right):
        if operand.type == "condition":
            raise Complaint(
                operand.position,
                f"{op} compares values, not conditions",
                "join conditions by &&, || or ^^",
            )
    if "any" not in (left.type, right.type) and _family(left) != _family(right):
        raise Complaint(
            position,
            f"{_described(left)} cannot be compared with {_described(right)}: "
            "the result is never defined",
            "numbers compare with numbers, strings with strings",
        )
    for operand in (left, right):
        if operand.type in ("bool", "datatype") and op not in ("==", "!="):
            raise Complaint(position, f"{op} has no meaning for {_described(operand)}", "use ==")
    if left.is_fixed and right.is_fixed:
        raise Complaint(
            left.position,
            "a comparison of constants says the same about every event",
            "compare with an attribute; a name stands without quotes",
        )
    if left.is_fixed:
        left, right, op = right, left, MIRRORED[op]
    return _node(Compare(op, left.tree, right.tree), "condition", left.position, (left, right))


def data_type(operand: Typed) -> Typed:
    """Return `operand` as a data type: next to `datatype(a)`, `string` is not an attribute."""
    if operand.type == "datatype":
        return operand
    if isinstance(operand.tree, Name):
        word = operand.tree.path[0]
        known = "real64" if word == "float" else word
        if known in functions.TYPE_NAMES and len(operand.tree.path) == 1:
            return Typed(TypeName(known), "datatype", operand.position, is_fixed=True)
        hint = close_to(word, (*functions.TYPE_NAMES, "float"))
        raise Complaint(operand.position, f"there is no data type {word!r}", hint or _ALL_TYPES)
    raise Complaint(
        operand.position, f"expected a data type, got {_described(operand)}", _ALL_TYPES
    )


_ALL_TYPES = f"data types are {', '.join(functions.TYPE_NAMES)} and datatype(name)"


def close_to(word: str, known: Sequence[str]) -> str:
    """Return a hint at the known word that is most similar, or an empty text."""
    import difflib  # late: it would slow down the start of every program

    close = difflib.get_close_matches(word.replace("_", "-").lower(), known, 1)
    return f"did you mean {close[0]!r}?" if close else ""


def binary(op: str, left: Typed, right: Typed, position: int | None = None) -> Typed:
    """Return arithmetic on two operands; constants are evaluated."""
    for operand in (left, right):
        _check_number(op, operand)
    types = {left.type, right.type}
    if op in INTEGER_ONLY or types == {"integer"}:
        result = "integer"
    else:
        result = "real" if "real" in types else "number"
    made = _node(Binary(op, left.tree, right.tree), result, left.position, (left, right))
    if isinstance(left.tree, Constant) and isinstance(right.tree, Constant):
        return _folded(values.arithmetic(op, _pair(left.tree), _pair(right.tree)), made)
    return made


def unary(op: str, operand: Typed, position: int | None = None) -> Typed:
    """Return arithmetic on one operand; a constant is evaluated."""
    _check_number(op, operand)
    type_ = "integer" if op == "~" else "number" if operand.type == "any" else operand.type
    made = _node(Unary(op, operand.tree), type_, position, (operand,))
    if isinstance(operand.tree, Constant):
        return _folded(values.unary(op, _pair(operand.tree)), made)
    return made


def _check_number(op: str, operand: Typed) -> None:
    if operand.type not in _NUMBERS and operand.type != "any":
        raise Complaint(
            operand.position, f"{op} calculates with numbers, got {_described(operand)}"
        )
    if op in INTEGER_ONLY and operand.type == "real":
        raise Complaint(operand.position, f"{op} works on integers, got {_described(operand)}")


def _pair(tree: Constant) -> values.Number:
    bits = {"int32": 32, "int64": 64, "real64": values.REAL}[tree.kind]
    return tree.value, bits  # type: ignore[return-value]


def _folded(result: values.Number | None, unfolded: Typed) -> Typed:
    if result is None:
        raise Complaint(unfolded.position, "a division by zero is never defined")
    value, bits = result
    if not math.isfinite(value):
        return unfolded  # The language has no constant for it.
    return constant(value, f"int{bits}" if bits else "real64", unfolded.position)


def call(function: str, arguments: Sequence[Typed], position: int | None = None) -> Typed:
    """Return a call of a function of the language."""
    if function == "header":
        return header(arguments, position)
    if function in ("equals", "datetime"):
        return _spelling(function, arguments, position)
    signature = functions.SIGNATURES.get(function)
    if signature is None:
        hint = 'write: name matches("...")' if function == "matches" else ""
        hint = hint or close_to(function, functions.FUNCTION_NAMES)
        raise Complaint(position, f"there is no function {function!r}", hint)
    _check_count(function, arguments, 1, signature.takes_more, position)
    first, *more = arguments
    _check_first(function, first, signature.takes)
    for argument in more:
        pattern = _string(function, argument)
        functions.regex_size(function, pattern, argument.position)
    if isinstance(first.tree, Constant) and signature.takes == "text":
        return _fixed_call(function, first, position)
    tree = FunctionCall(function, tuple(argument.tree for argument in arguments))
    return _node(tree, signature.gives, position, arguments)._replace(is_fixed=False)


def _check_count(
    function: str, arguments: Sequence[Typed], least: int, or_more: bool, position: int | None
) -> None:
    least += or_more
    if len(arguments) < least or (len(arguments) > least and not or_more):
        wanted = f"{least} argument{'s' * (least > 1)}{' or more' * or_more}"
        raise Complaint(position, f"{function} takes {wanted}, got {len(arguments)}")


def _check_first(function: str, first: Typed, takes: str) -> None:
    if takes == "name":
        if not isinstance(first.tree, Name):
            raise Complaint(
                first.position,
                f"{function} takes the name of an attribute, got {_described(first)}",
                "names stand without quotes" if first.type == "string" else "",
            )
    elif takes == "string":
        _string(function, first)
    elif first.type not in ("any", "string"):
        raise Complaint(
            first.position, f"{function} takes an attribute or a string, got {_described(first)}"
        )


def _string(function: str, argument: Typed) -> str:
    """Return the value of an argument that must be a string constant."""
    if isinstance(argument.tree, Constant) and isinstance(argument.tree.value, str):
        return argument.tree.value
    raise Complaint(
        argument.position, f"{function} takes a string in quotes here, got {_described(argument)}"
    )


def _fixed_call(function: str, first: Typed, position: int | None) -> Typed:
    if function in functions.CONVERSIONS:
        converted = functions.CONVERSIONS[function](_string(function, first))
        return constant(converted, "string", position)
    raise Complaint(
        first.position,
        f"{function} of a constant says the same about every event",
        "the first argument is the name of an attribute, without quotes",
    )


def _spelling(function: str, arguments: Sequence[Typed], position: int | None) -> Typed:
    """Return the nodes that `equals` and `datetime` are short for."""
    if function == "datetime":
        _check_count(function, arguments, 1, False, position)
        return _moment(_string(function, arguments[0]), arguments[0].position)
    _check_count(function, arguments, 1, True, position)
    first, *more = arguments
    if len(more) > 1 and all(isinstance(argument.tree, Constant) for argument in more):
        return member(first, more, position)
    equal = [comparison("==", first, other, other.position) for other in more]
    return equal[0] if len(equal) == 1 else logical("||", equal)


def _moment(text: str, position: int | None) -> Typed:
    hint = "write datetime('2026-11-15T10:00:00Z')"
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise Complaint(position, "the datetime does not say its zone", hint)
        return constant(moment, "datetime", position)
    except (ValueError, OverflowError):
        raise Complaint(position, f"{text!r:.60} is not a datetime", hint) from None


def is_constant(one: Typed) -> bool:
    """Return whether an expression is a constant."""
    return isinstance(one.tree, Constant)


def member(item: Typed, container: Typed | Sequence[Typed], position: int | None = None) -> Typed:
    """Return `item in container`: a list attribute, or constants."""
    if item.type in ("condition", "datatype"):
        raise Complaint(item.position, f"'in' takes a value, got {_ARTICLES[item.type]}")
    if isinstance(container, Typed):
        if not isinstance(container.tree, Name):
            raise Complaint(
                container.position,
                f"expected a list attribute or [...] after 'in', got {_described(container)}",
            )
        if container.tree.path[0] == HEADERS:
            raise Complaint(container.position, "a header is no list", "write: header(...) == ...")
        return _node(Member(item.tree, container.tree), "condition", position, (item, container))
    for constant_ in container:
        if not isinstance(constant_.tree, Constant):
            raise Complaint(constant_.position, "the list after 'in' holds constants only")
        comparison("==", item, constant_, constant_.position)
    items = tuple(dict.fromkeys(c.tree for c in container if isinstance(c.tree, Constant)))
    if not items:
        raise Complaint(position, "nothing is in an empty list")
    if len(items) == 1:
        return comparison("==", item, container[0], position)
    return _node(Member(item.tree, Constants(items)), "condition", position, (item,))


def _node(tree: Tree, type_: str, position: int | None, operands: Sequence[Typed]) -> Typed:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > DEPTH_MAX:
        raise too_deep(position)
    is_fixed = all(operand.is_fixed for operand in operands)
    return Typed(tree, type_, position, depth, is_fixed)


def too_deep(position: int | None) -> Complaint:
    """Return the complaint about a filter with too many levels."""
    return Complaint(position, f"the filter is nested deeper than {DEPTH_MAX} levels")


def _family(operand: Typed) -> str:
    return "number" if operand.type in _NUMBERS else operand.type


def _shown(operand: Typed) -> str:
    value = operand.tree.value if isinstance(operand.tree, Constant) else "expression"
    return str(value).lower() if isinstance(value, bool) else f"{value!r:.40}"


def _described(operand: Typed) -> str:
    what = _ARTICLES[operand.type]
    if isinstance(operand.tree, Constant) and operand.type not in ("bool", "datetime"):
        return f"{what} ({_shown(operand)})"
    return what
