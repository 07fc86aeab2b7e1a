"""Numbers: integers of up to 1024 bits, and floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Any

from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import Arithmetic, failed, wrong_type
from infobus.tdl.machine import Evaluation
from infobus.tdl.reader import INTEGER_BITS_MAX
from infobus.tdl.text import short


def number(value: Any, who: str) -> Any:
    """Return `value` if it is a number; an integer may have 1024 bits."""
    if value.__class__ is int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise failed(f"{who}: the integer needs more than {INTEGER_BITS_MAX} bits", Arithmetic)
        return value
    if value.__class__ is float:
        return value
    raise wrong_type(who, "a number", short(value))


def result(value: Any, who: str, *operands: Any) -> Any:
    """Return what was computed from `operands`; signal a condition if it is too large."""
    if value.__class__ is float and isfinite(value):
        return value
    if value.__class__ is float:
        # Infinity can come from outside. It is an error only if the computation has made it.
        if all(one.__class__ is not float or isfinite(one) for one in operands):
            raise failed(f"{who}: the result is too large for a float", Arithmetic)
        return value
    return number(value, who)


def integer(value: Any, who: str) -> int:
    """Return `value` if it is an integer."""
    if value.__class__ is not int:
        raise wrong_type(who, "an integer", short(value))
    found: int = number(value, who)
    return found


@builtin("+", 0, None)
def _add(run: Evaluation, *values: Any) -> Any:
    total = 0
    for value in values:
        total += number(value, "+")
    return result(total, "+", *values)


@builtin("*", 0, None)
def _multiply(run: Evaluation, *values: Any) -> Any:
    product = 1
    for value in values:
        product = number(product * number(value, "*"), "*")
    return result(product, "*", *values)


@builtin("-", 1, None)
def _subtract(run: Evaluation, first: Any, *values: Any) -> Any:
    total = number(first, "-")
    if not values:
        return number(-total, "-")
    for value in values:
        total -= number(value, "-")
    return result(total, "-", first, *values)


@builtin("/", 1, None)
def _divide(run: Evaluation, first: Any, *values: Any) -> Any:
    """Divide; the result is an integer if there is no remainder, else a float."""
    if not values:
        first, values = 1, (first,)
    quotient = number(first, "/")
    for value in values:
        divisor = number(value, "/")
        if divisor == 0:
            raise failed("division by zero", Arithmetic)
        if quotient.__class__ is int and divisor.__class__ is int and quotient % divisor == 0:
            quotient //= divisor
        else:
            quotient /= divisor
    return result(quotient, "/", first, *values)


def _compare(name: str, holds: Callable[[Any, Any], bool]) -> None:
    @builtin(name, 1, None)
    def compare(run: Evaluation, first: Any, *values: Any) -> Any:
        before = number(first, name)
        for value in values:
            if not holds(before, number(value, name)):
                return None
            before = value
        return True


_compare("=", lambda a, b: bool(a == b))
_compare("<", lambda a, b: bool(a < b))
_compare(">", lambda a, b: bool(a > b))
_compare("<=", lambda a, b: bool(a <= b))
_compare(">=", lambda a, b: bool(a >= b))


@builtin("/=", 1, None)
def _differ(run: Evaluation, *values: Any) -> Any:
    # Sorted, not put into a set: a program can choose integers whose hashes are all the same.
    # What is not a number (nan) has no place in an order, and differs from everything.
    run.spend(len(values))
    found = sorted(v for v in (number(value, "/=") for value in values) if v == v)
    return None if any(a == b for a, b in pairwise(found)) else True


@builtin("max", 1, None)
def _max(run: Evaluation, *values: Any) -> Any:
    return max(number(value, "max") for value in values)


@builtin("min", 1, None)
def _min(run: Evaluation, *values: Any) -> Any:
    return min(number(value, "min") for value in values)


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    @builtin(name, 1)
    def apply(run: Evaluation, value: Any) -> Any:
        found = function(number(value, name))
        return result(found, name, value) if found.__class__ is not bool else found or None


_unary("1+", lambda value: value + 1)
_unary("1-", lambda value: value - 1)
_unary("abs", abs)
_unary("float", float)
_unary("zerop", lambda value: value == 0)
_unary("plusp", lambda value: value > 0)
_unary("minusp", lambda value: value < 0)


@builtin("evenp", 1)
def _evenp(run: Evaluation, value: Any) -> Any:
    return True if integer(value, "evenp") % 2 == 0 else None


@builtin("oddp", 1)
def _oddp(run: Evaluation, value: Any) -> Any:
    return True if integer(value, "oddp") % 2 else None


def _rounding(
    name: str, function: Callable[[Any], Any], divided: Callable[[int, int], int]
) -> None:
    """Define a rounding function: `function` rounds a float, `divided` divides integers."""

    @builtin(name, 1, 2)
    def apply(run: Evaluation, value: Any, divisor: Any = 1) -> Any:
        value, divisor = number(value, name), number(divisor, name)
        if divisor == 0:
            raise failed("division by zero", Arithmetic)
        if value.__class__ is int and divisor.__class__ is int:
            return divided(value, divisor)  # a quotient in floats would lose digits
        quotient = value if divisor == 1 else value / divisor
        if quotient.__class__ is float and not isfinite(quotient):
            raise failed(f"{name}: {quotient} is not finite", Arithmetic)
        return number(function(quotient), name)


def _truncated(value: int, divisor: int) -> int:
    quotient = abs(value) // abs(divisor)
    return quotient if (value < 0) == (divisor < 0) else -quotient


def _rounded(value: int, divisor: int) -> int:
    """Divide; a quotient in the middle of two integers becomes the even one."""
    quotient, rest = divmod(value, divisor)
    above = 2 * abs(rest) - abs(divisor)
    return quotient + (above > 0 or (above == 0 and quotient % 2 == 1))


_rounding("floor", math.floor, lambda value, divisor: value // divisor)
_rounding("ceiling", math.ceil, lambda value, divisor: -(-value // divisor))
_rounding("truncate", math.trunc, _truncated)
_rounding("round", round, _rounded)


@builtin("mod", 2)
def _mod(run: Evaluation, value: Any, divisor: Any) -> Any:
    if number(divisor, "mod") == 0:
        raise failed("division by zero", Arithmetic)
    return number(value, "mod") % divisor


@builtin("rem", 2)
def _rem(run: Evaluation, value: Any, divisor: Any) -> Any:
    if number(divisor, "rem") == 0:
        raise failed("division by zero", Arithmetic)
    rest = abs(number(value, "rem")) % abs(divisor)
    return rest if value >= 0 else -rest


@builtin("expt", 2)
def _expt(run: Evaluation, base: Any, power: Any) -> Any:
    base, power = number(base, "expt"), number(power, "expt")
    if base == 0 and power < 0:
        raise failed("division by zero", Arithmetic)
    if base.__class__ is int and power.__class__ is int and power >= 0:
        # Checked before computing: the result could fill all memory.
        if base.bit_length() > 1 and (base.bit_length() - 1) * power > INTEGER_BITS_MAX:
            text = f"expt: the integer needs more than {INTEGER_BITS_MAX} bits"
            raise failed(text, Arithmetic)
        return number(base ** (power if abs(base) > 1 else power % 2 + 2 * (power > 1)), "expt")
    if base < 0 and not float(power).is_integer():
        raise failed("expt: a negative number has no such power", Arithmetic)
    return float(base) ** power


@builtin("sqrt", 1)
def _sqrt(run: Evaluation, value: Any) -> Any:
    if number(value, "sqrt") < 0:
        raise failed("sqrt: a negative number has no root", Arithmetic)
    return math.sqrt(value)
