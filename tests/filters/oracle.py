"""The meaning of filters, written down as plainly as possible, to check the evaluators against.

Nothing here is shared with the package but the shape of trees. Integers are calculated without
bounds and cut to their width bit by bit; undefined is None.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import datetime
from typing import Any

from infobus.filters.language import tree as t


def truth(tree: t.Tree, event: dict[str, Any], types: frozenset[str] = frozenset()) -> bool | None:
    """The three-valued truth of a condition about an event whose types are named so."""
    match tree:
        case t.Not(operand):
            return {True: False, False: True, None: None}[truth(operand, event, types)]
        case t.And(operands):
            results = [truth(operand, event, types) for operand in operands]
            return False if False in results else None if None in results else True
        case t.Or(operands):
            results = [truth(operand, event, types) for operand in operands]
            return True if True in results else None if None in results else False
        case t.Xor(operands):
            results = [truth(operand, event, types) for operand in operands]
            return None if None in results else results.count(True) % 2 == 1
        case t.Name():
            found = value(tree, event)
            return found if isinstance(found, bool) else None
        case t.Compare(op, left, right):
            return compared(op, value(left, event), value(right, event))
        case t.Member(item, t.Constants(items)):
            return truth(t.Or(tuple(t.Compare("==", item, c) for c in items)), event, types)
        case t.Member(item, container):
            wanted, found = value(item, event), value(container, event)
            if kind(wanted) is None or not isinstance(found, list):
                return None
            return any(compared("==", wanted, element) is True for element in found)
        case t.FunctionCall("isa", (t.Constant(name),)):
            return name in types
        case t.FunctionCall(function, (subject, *patterns)):
            return called(function, value(subject, event), [p.value for p in patterns])
    raise AssertionError(tree)


def called(function: str, found: Any, patterns: list[str]) -> bool | None:
    if function == "exists":
        return found is not None
    if found is None:
        return None
    if function == "require":
        return True
    if function == "nan":
        return math.isnan(found) if isinstance(found, float) else None
    if function in ("string", "int32", "int64", "real64", "opaque"):
        return kind(found) == function
    if not isinstance(found, str):
        return None
    match function:
        case "begins-with":
            return any(found[: len(p)] == p for p in patterns)
        case "ends-with":
            return any(found[len(found) - len(p) :] == p for p in patterns if len(p) <= len(found))
        case "contains":
            return any(found.find(p) >= 0 for p in patterns)
        case "regex":  # For the patterns in use, Python and RE2 agree but for this.
            return any(re.search(p.replace("$", r"\Z"), found) is not None for p in patterns)
        case "wildcard":
            return any(globbed(p, found) for p in patterns)
    raise AssertionError(function)


def globbed(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[:2] in (r"\*", r"\?", r"\\"):
        return text[:1] == pattern[1] and globbed(pattern[2:], text[1:])
    if pattern[0] == "*":
        return any(globbed(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and globbed(pattern[1:], text[1:])


def kind(found: Any) -> str | None:
    match found:
        case bool():
            return "bool"
        case int():
            if -(2**31) <= found < 2**31:
                return "int32"
            return "int64" if -(2**63) <= found < 2**63 else None
        case float():
            return "real64"
        case str():
            return "string"
        case bytes():
            return "opaque"
        case datetime():
            return "datetime" if found.tzinfo else None
    return None


def compared(op: str, left: Any, right: Any) -> bool | None:
    kinds = [kind(left), kind(right)]
    if None in kinds:
        return None
    numeric = [k in ("int32", "int64", "real64") for k in kinds]
    if not all(numeric) and (any(numeric) or kinds[0] != kinds[1]):
        return None
    if op == "==":
        return left == right
    if op == "!=":
        return left != right
    if kinds[0] in ("bool", "opaque"):
        return None
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]


def value(tree: t.Tree, event: dict[str, Any]) -> Any:
    """What an operand is worth, or None."""
    match tree:
        case t.Name(path):
            found: Any = event
            for element in path:
                found = found.get(element) if isinstance(found, dict) else None
            return found
        case t.Constant(constant):
            return constant
        case t.TypeName(name):
            return name
        case t.FunctionCall("datatype", (name,)):
            return kind(value(name, event))
        case t.FunctionCall("fold-case", (inner,)):
            text = value(inner, event)
            return text.casefold() if isinstance(text, str) else None
        case t.FunctionCall("decompose" | "decompose-compat", (inner,)):
            text = value(inner, event)
            form = "NFD" if tree.function == "decompose" else "NFKD"
            return unicodedata.normalize(form, text) if isinstance(text, str) else None
    found = number(tree, event)
    return None if found is None else found[1]


def number(tree: t.Tree, event: dict[str, Any]) -> tuple[str, Any] | None:
    """What an operand of arithmetic is worth, with its kind."""
    match tree:
        case t.Constant(constant, written):
            return written, constant
        case t.Name():
            found = value(tree, event)
            known = kind(found)
            return (known, found) if known in ("int32", "int64", "real64") else None
        case t.FunctionCall("size", (name,)):
            found = value(name, event)
            return ("int32", len(found)) if isinstance(found, str | bytes | list) else None
        case t.Unary(op, operand):
            found = number(operand, event)
            if found is None:
                return None
            if op == "~":
                return None if found[0] == "real64" else cut(found[0], -found[1] - 1)
            return cut(found[0], -found[1] if op == "-" else found[1])
        case t.Binary(op, left, right):
            one, other = number(left, event), number(right, event)
            return None if one is None or other is None else calculated(op, one, other)
    raise AssertionError(tree)


def calculated(op: str, one: tuple[str, Any], other: tuple[str, Any]) -> tuple[str, Any] | None:
    kinds = {one[0], other[0]}
    a, b = one[1], other[1]
    if "real64" in kinds:
        return real(op, float(a), float(b))
    wide = "int64" if "int64" in kinds else "int32"
    bits = 64 if wide == "int64" else 32
    match op:
        case "+" | "-" | "*":
            return cut(wide, {"+": a + b, "-": a - b, "*": a * b}[op])
        case "/" | "%":
            if b == 0:
                return None
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return cut(wide, quotient if op == "/" else a - quotient * b)
        case "&" | "|" | "^":
            return cut(wide, {"&": a & b, "|": a | b, "^": a ^ b}[op])
    count = b % bits
    if op == "<<":
        return cut(wide, a * 2**count)
    if op == ">>":
        return cut(wide, math.floor(a / 2**count) if abs(a) < 2**40 else a // 2**count)
    return cut(wide, (a % 2**bits) // 2**count)


def real(op: str, a: float, b: float) -> tuple[str, float] | None:
    match op:
        case "+" | "-" | "*":
            return "real64", {"+": a + b, "-": a - b, "*": a * b}[op]
        case "/":
            if b == 0:
                sign = math.copysign(1, a) * math.copysign(1, b)
                return "real64", math.nan if a == 0 or a != a else sign * math.inf
            return "real64", a / b
        case "%":
            return "real64", math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)
    return None


def cut(width: str, found: Any) -> tuple[str, Any]:
    if width == "real64":
        return width, found
    bits = 32 if width == "int32" else 64
    digits = [found >> place & 1 for place in range(bits)]
    unsigned = sum(2**place for place, digit in enumerate(digits) if digit)
    return width, unsigned - 2**bits if digits[-1] else unsigned
