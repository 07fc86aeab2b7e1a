"""The functions on strings and symbols, and those that print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import BusRefused, failed, wrong_type
from infobus.tdl.library.sequences import elements, new_list
from infobus.tdl.limits import CELL_BYTES, CHARACTER_BYTES
from infobus.tdl.machine import Evaluation
from infobus.tdl.text import formatted, short, written
from infobus.tdl.values import Cell, Symbol, Table, TextStream

DIGIT_COUNT_MAX = 308  # so many digits always fit into 1024 bits


def text(value: Any, who: str) -> str:
    """Return `value` if it is a string; a symbol counts as its name."""
    if value.__class__ is Symbol:
        return str(value.name)
    if not isinstance(value, str):
        raise wrong_type(who, "a string", short(value))
    return value


@builtin("string", 1)
def _string(run: Evaluation, value: Any) -> Any:
    return text(value, "string")


@builtin("concatenate", 1, None)
def _concatenate(run: Evaluation, kind: Any, *parts: Any) -> Any:
    if kind == Symbol("list"):
        return new_list(run, [item for part in parts for item in elements(run, part)])
    if kind != Symbol("string"):
        raise wrong_type("concatenate", "'string or 'list", short(kind))
    texts = [text(part, "concatenate") for part in parts]
    run.allocate(sum(map(len, texts)), CHARACTER_BYTES)  # charged before the string is made
    return "".join(texts)


def _changed(name: str, change: Callable[[str], str]) -> None:
    @builtin(name, 1)
    def apply(run: Evaluation, value: Any) -> Any:
        value = text(value, name)
        run.allocate(len(value), CHARACTER_BYTES)
        return change(value)


_changed("string-upcase", str.upper)
_changed("string-downcase", str.lower)
_changed("string-trim", str.strip)


def _compared(name: str, holds: Callable[[str, str], bool]) -> None:
    @builtin(name, 2)
    def compare(run: Evaluation, one: Any, other: Any) -> Any:
        one, other = text(one, name), text(other, name)
        run.spend(min(len(one), len(other)) // 64)
        return holds(one, other) or None


_compared("string=", lambda one, other: one == other)
_compared("string<", lambda one, other: one < other)
_compared("string>", lambda one, other: one > other)


@builtin("search", 2)
def _search(run: Evaluation, part: Any, whole: Any) -> Any:
    part, whole = text(part, "search"), text(whole, "search")
    run.spend((len(part) + len(whole)) // 16)
    place = whole.find(part)
    return None if place < 0 else place


@builtin("string-split", 1, 2)
def _split(run: Evaluation, value: Any, separator: Any = None) -> Any:
    """Return the parts between separators; without a separator, the words."""
    value = text(value, "string-split")
    run.allocate(len(value), CHARACTER_BYTES)
    if separator is not None:
        separator = text(separator, "string-split")
        if not separator:
            raise failed("string-split: the separator is empty")
    return new_list(run, value.split(separator))


@builtin("string-join", 2)
def _join(run: Evaluation, parts: Any, separator: Any) -> Any:
    texts = [text(part, "string-join") for part in elements(run, parts)]
    separator = text(separator, "string-join")
    run.allocate(sum(map(len, texts)) + len(separator) * len(texts), CHARACTER_BYTES)
    return separator.join(texts)


@builtin("parse-integer", 1)
def _parse_integer(run: Evaluation, value: Any) -> Any:
    written_so = text(value, "parse-integer").strip()
    digits = written_so[1:] if written_so[:1] in ("+", "-") else written_so
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGIT_COUNT_MAX):
        raise failed(f"parse-integer: {short(value)} is not an integer")
    return int(written_so)


@builtin("parse-float", 1)
def _parse_float(run: Evaluation, value: Any) -> Any:
    run.spend(len(text(value, "parse-float")))
    try:
        return float(text(value, "parse-float"))
    except ValueError:
        raise failed(f"parse-float: {short(value)} is not a number") from None


@builtin("symbol-name", 1)
def _symbol_name(run: Evaluation, value: Any) -> Any:
    if value.__class__ is not Symbol:
        raise wrong_type("symbol-name", "a symbol", short(value))
    return value.name.removeprefix(":")


@builtin("princ-to-string", 1)
def _princ_to_string(run: Evaluation, value: Any) -> Any:
    return written(run, value, is_plain=True)


@builtin("prin1-to-string", 1)
def _prin1_to_string(run: Evaluation, value: Any) -> Any:
    return written(run, value)


@builtin("format", 2, None)
def _format(run: Evaluation, target: Any, control: Any, *values: Any) -> Any:
    made = formatted(run, text(control, "format"), values)
    if target is None:
        return made
    if target is not True and target.__class__ is not TextStream:
        raise failed("format: the first argument is nil, for a string, t, to print, or a stream")
    _write(run, made, target)
    return None


def _write(run: Evaluation, made: str, target: Any) -> None:
    """Write to the stream of a `print-object` method, or else where the host says."""
    run.spend(len(made) // 16)
    if target.__class__ is TextStream:
        run.allocate(1 + len(made) * CHARACTER_BYTES // CELL_BYTES)
        target.parts.append(made)
        return
    if target is not None and target is not True:
        raise wrong_type("printing", "a stream, or t", short(target))
    write = run.interpreter.capabilities.write
    if write is None:
        raise failed("the host does not let this program print", BusRefused)
    write(made)


@builtin("print", 1, 2)
def _print(run: Evaluation, value: Any, target: Any = None) -> Any:
    _write(run, f"{written(run, value)}\n", target)
    return value


@builtin("prin1", 1, 2)
def _prin1(run: Evaluation, value: Any, target: Any = None) -> Any:
    _write(run, written(run, value), target)
    return value


@builtin("princ", 1, 2)
def _princ(run: Evaluation, value: Any, target: Any = None) -> Any:
    _write(run, written(run, value, is_plain=True), target)
    return value


@builtin("write-string", 1, 2)
def _write_string(run: Evaluation, value: Any, target: Any = None) -> Any:
    _write(run, text(value, "write-string"), target)
    return value


@builtin("terpri", 0, 1)
def _terpri(run: Evaluation, target: Any = None) -> Any:
    _write(run, "\n", target)


# Predicates.


def _predicate(name: str, *classes: type) -> None:
    @builtin(name, 1)
    def test(run: Evaluation, value: Any) -> Any:
        return True if value.__class__ in classes else None


_predicate("numberp", int, float)
_predicate("integerp", int)
_predicate("floatp", float)
_predicate("stringp", str)
_predicate("symbolp", Symbol, bool, type(None))
_predicate("consp", Cell)
_predicate("listp", Cell, type(None))
_predicate("hash-table-p", Table)
