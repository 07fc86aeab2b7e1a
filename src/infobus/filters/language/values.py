"""The values of the language: reads attributes, finds kinds, compares and calculates.

`None` is the undefined value everywhere: a missing attribute, a mismatch of kinds, a division of
integers by zero.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from infobus.filters.language.tree import HEADERS
from infobus.headers import WithHeaders
from infobus.objects.data import DataObject, Foreign, type_of

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

REAL = 0
"""The width of a real64; integers have a width of 32 or 64 bits."""

Number = tuple[int | float, int]
"""A number and its width: 32, 64 or `REAL`."""

_NOTHING: Mapping[str, Any] = {}


def attributes_of(x: object) -> Mapping[str, Any]:
    """Return the attributes of an event's data by name; do not change the result.

    A mapping is its own result. A received object has the attributes that were sent, so that
    publisher and subscriber see the same: also those that its class does not know, but not the
    defaults that its class fills in. Headers are below `HEADERS`. Other data has no attributes.
    """
    if x.__class__ is dict:
        return x
    if isinstance(x, DataObject):
        if x.__bus_plan__.decimals:
            return _comparable(x)
        tag = x.__bus_tag__
        if tag.__class__ is not Foreign or not (tag.extra or tag.filled):
            return x.__dict__
        sent = {name: value for name, value in x.__dict__.items() if name not in tag.filled}
        return sent | tag.extra
    if isinstance(x, WithHeaders):
        if x.attributes is None:
            x.attributes = {**attributes_of(x.data), HEADERS: x.headers}
        return x.attributes
    if isinstance(x, Mapping):
        return x
    from infobus.objects.payloads import twin_of  # late: most events hold data objects

    return _NOTHING if x is None or (twin := twin_of(x)) is None else attributes_of(twin)


def stored_attributes_of(x: object) -> Mapping[str, Any]:
    """Return what `attributes_of` does, but decimal numbers as text, as they are sent."""
    if not (isinstance(x, DataObject) and x.__bus_plan__.decimals):
        return attributes_of(x)
    tag = x.__bus_tag__
    filled, extra = (tag.filled, tag.extra) if tag.__class__ is Foreign else ({}, {})
    return {name: one for name, one in x.__dict__.items() if name not in filled} | extra


def _comparable(x: DataObject) -> Mapping[str, Any]:
    values = dict(stored_attributes_of(x))
    for name, compared in x.__bus_plan__.decimals.items():
        if name in values:
            values[name] = compared(values[name])
    return values


def read(x: object, path: tuple[str, ...]) -> Any:
    """Return the value at `path`, or None if there is none.

    >>> read({"story": {"source": {"name": "Reuters"}}}, ("story", "source", "name"))
    'Reuters'
    """
    for element in path:
        x = attributes_of(x).get(element)
        if x is None:
            return None
    return x


def lineage_of(x: object) -> frozenset[str]:
    """Return the names of the type of `x` and all its supertypes; none for a plain mapping."""
    x = x.data if isinstance(x, WithHeaders) else x
    return type_of(x).lineage if isinstance(x, DataObject) else frozenset()


# Classes whose values can all be compared; for integers and datetimes it depends on the value.
_FAMILIES: dict[type, str] = {bool: "bool", float: "number", str: "string", bytes: "opaque"}
_UNORDERED = {"bool", "opaque"}


def family(value: Any) -> str | None:
    """Return the family of values that `value` compares with, such as `number` or `string`.

    The others are `bool`, `opaque` and `datetime`. None for lists, objects, integers beyond
    64 bits and datetimes without a time zone.
    """
    if (found := _FAMILIES.get(value.__class__)) is not None:
        return found
    if value is None:
        return None
    if isinstance(value, int):
        return "number" if _fits(value, INT64_MAX) else None
    if isinstance(value, datetime):
        return "datetime" if value.utcoffset() is not None else None
    return next((name for cls, name in _FAMILIES.items() if isinstance(value, cls)), None)


def kind_of(value: Any) -> str | None:
    """Return the data type of `value`, or None if the language has none for it.

    >>> kind_of(5), kind_of(2**31), kind_of(2**63), kind_of(True), kind_of([])
    ('int32', 'int64', None, 'bool', None)
    """
    found = family(value)
    if found != "number":
        return found
    if isinstance(value, float):
        return "real64"
    return "int32" if _fits(value, INT32_MAX) else "int64"


def _fits(value: int, limit: int) -> bool:
    return -limit - 1 <= value <= limit


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(op: str, left: object, right: object) -> bool | None:
    """Return `left op right`; undefined between families, and for orders of bools or bytes.

    >>> compare("<", 2**53, 2.0**53 + 2), compare("==", True, 1), compare("==", "a", "b")
    (True, None, False)
    """
    found = family(left)
    if found is None or found != family(right):
        return None
    if found in _UNORDERED and op not in ("==", "!="):
        return None
    return bool(_COMPARISONS[op](left, right))


def number(value: Any) -> Number | None:
    """Return a number with its width, or None for other values."""
    if family(value) != "number":
        return None
    if isinstance(value, float):
        return value, REAL
    return value, 32 if _fits(value, INT32_MAX) else 64


def wrap(value: int, bits: int) -> int:
    """Return `value` in two's complement of this many bits.

    >>> wrap(2**31, 32)
    -2147483648
    """
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


# Shift counts are modulo the width, as on processors and in Java.
_ON_INTEGERS: dict[str, Callable[[int, int, int], int]] = {
    "+": lambda a, b, bits: a + b,
    "-": lambda a, b, bits: a - b,
    "*": lambda a, b, bits: a * b,
    "/": lambda a, b, bits: _truncated(a, b),
    "%": lambda a, b, bits: a - b * _truncated(a, b),
    "&": lambda a, b, bits: a & b,
    "|": lambda a, b, bits: a | b,
    "^": lambda a, b, bits: a ^ b,
    "<<": lambda a, b, bits: a << (b & (bits - 1)),
    ">>": lambda a, b, bits: a >> (b & (bits - 1)),
    ">>>": lambda a, b, bits: (a & ((1 << bits) - 1)) >> (b & (bits - 1)),
}

BINARY = frozenset(_ON_INTEGERS)
"""The arithmetic operators with two operands."""


def _real_division(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _real_remainder(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


_ON_REALS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _real_division,
    "%": _real_remainder,
}


def arithmetic(op: str, left: Number, right: Number) -> Number | None:
    """Return `left op right` at the wider of both widths; integers wrap around.

    >>> arithmetic("/", (-7, 32), (2, 32)), arithmetic("+", (2**31 - 1, 32), (1, 64))
    ((-3, 32), (2147483648, 64))
    """
    (a, a_bits), (b, b_bits) = left, right
    if a_bits == REAL or b_bits == REAL:
        on_reals = _ON_REALS.get(op)
        return (on_reals(float(a), float(b)), REAL) if on_reals else None
    if b == 0 and op in ("/", "%"):
        return None
    bits = max(a_bits, b_bits)
    return wrap(_ON_INTEGERS[op](a, b, bits), bits), bits  # type: ignore[arg-type]


def unary(op: str, operand: Number) -> Number | None:
    """Return `op operand`, with one of `- + ~`, at the width of the operand."""
    value, bits = operand
    if bits == REAL:
        return {"-": (-value, REAL), "+": operand}.get(op)
    assert isinstance(value, int)
    return wrap({"-": -value, "+": value, "~": ~value}[op], bits), bits
