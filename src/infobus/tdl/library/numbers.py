"""Numbers: integers of up to 1024 bits, and floats."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    return number(total, "+")


@builtin("*", 0, None)
def _multiply(run: Evaluation, *values: Any) -> Any:
    product = 1
    for value in values:
        product = number(product * number(value, "*"), "*")
    return product


@builtin("-", 1, None)
def _subtract(run: Evaluation, first: Any, *values: Any) -> Any:
    total = number(first, "-")
    if not values:
        return number(-total, "-")
    for value in values:
        total -= number(value, "-")
    return number(total, "-")


@builtin("/", 1, None)
def _divide(run: Evaluation, first: Any, *values: Any) -> Any:
    """Divide; the result is an integer if there is no remainder, else a float."""
    if not values:
        first, values = 1, (first,)
    result = number(first, "/")
    for value in values:
        divisor = number(value, "/")
        if divisor == 0:
            raise failed("division by zero", Arithmetic)
        if result.__class__ is int and divisor.__class__ is int and result % divisor == 0:
            result //= divisor
        else:
            result /= divisor
    return result


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
    found = [number(value, "/=") for value in values]
    return True if len(set(found)) == len(found) else None


@builtin("max", 1, None)
def _max(run: Evaluation, *values: Any) -> Any:
    return max(number(value, "max") for value in values)


@builtin("min", 1, None)
def _min(run: Evaluation, *values: Any) -> Any:
    return min(number(value, "min") for value in values)


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    @builtin(name, 1)
    def apply(run: Evaluation, value: Any) -> Any:
        result = function(number(value, name))
        return number(result, name) if result.__class__ is not bool else result or None


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


def _rounding(name: str, function: Callable[[Any], Any]) -> None:
    @builtin(name, 1, 2)
    def apply(run: Evaluation, value: Any, divisor: Any = 1) -> Any:
        value, divisor = number(value, name), number(divisor, name)
        if divisor == 0:
            raise failed("division by zero", Arithmetic)
        if value.__class__ is int and divisor.__class__ is int and function is math.floor:
            return value // divisor
        quotient = value if divisor == 1 else value / divisor
        if quotient.__class__ is float and not math.isfinite(quotient):
            raise failed(f"{name}: {quotient} is not finite", Arithmetic)
        return number(function(quotient), name)


_rounding("floor", math.floor)
_rounding("ceiling", math.ceil)
_rounding("truncate", math.trunc)
_rounding("round", round)


@builtin("mod", 2)
def _mod(run: Evaluation, value: Any, divisor: Any) -> Any:
    if number(divisor, "mod") == 0:
        raise failed("division by zero", Arithmetic)
    return number(value, "mod") % divisor


@builtin("rem", 2)
def _rem(run: Evaluation, value: Any, divisor: Any) -> Any:
    if number(divisor, "rem") == 0:
        raise failed("division by zero", Arithmetic)
    result = abs(number(value, "rem")) % abs(divisor)
    return result if value >= 0 else -result


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
