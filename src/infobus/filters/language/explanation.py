"""Explains why a filter does not match an event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from infobus.filters.language.compiler import evaluator
from infobus.filters.language.filter import Filter
from infobus.filters.language.lexer import name_text
from infobus.filters.language.literals import constant
from infobus.filters.language.text import text_of
from infobus.filters.language.tree import HEADERS, And, FunctionCall, Name, Not, Or, Tree, nodes
from infobus.filters.language.values import attributes_of, family, kind_of, read
from infobus.headers import WithHeaders
from infobus.objects.data import DataObject, type_of

VALUE_LENGTH_MAX = 60


class Reason(Struct, frozen=True):
    """A condition that keeps the filter from matching.

    `truth` is False, or None if the condition is undefined. `because` names the values that the
    condition used; it is empty if the condition says it all.
    """

    condition: str
    truth: bool | None
    because: str = ""

    def __str__(self) -> str:
        outcome = "undefined" if self.truth is None else "false"
        return f"{self.condition}: {outcome}{f' ({self.because})' if self.because else ''}"


def why(filter: Filter, x: object) -> tuple[Reason, ...]:
    """Return why `filter` does not match `x`, a mapping or a data object; empty if it matches.

    A conjunction lists the conditions that fail; alternatives, which must all fail, are all listed.

    >>> from infobus.filters import compile
    >>> where = compile('symbol == "GMC" && (price > 40 || exists(alert))')
    >>> for reason in why(where, {"price": 12}):
    ...     print(reason)
    symbol == "GMC": undefined (no attribute symbol)
    price > 40: false (price is 12)
    exists(alert): false
    >>> why(where, {"symbol": "GMC", "price": 41})
    ()
    """
    return tuple(dict.fromkeys(_reasons(filter.tree, x, True)))


def _reasons(tree: Tree, x: object, wanted: bool) -> Iterator[Reason]:
    """Return why `tree` is not `wanted`."""
    truth = evaluator(tree)(attributes_of(x), x)
    if truth is wanted:
        return
    match tree:
        case Not(operand):
            yield from _reasons(operand, x, not wanted)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _reasons(operand, x, wanted)
        case _:
            shown = tree if wanted else Not(tree)
            yield Reason(text_of(shown), None if truth is None else False, _because(tree, x, truth))


def _because(tree: Tree, x: object, truth: bool | None) -> str:
    match tree:
        case FunctionCall("isa"):
            return (
                f"it is of type {type_of(data).name}"
                if isinstance(data := x.data if isinstance(x, WithHeaders) else x, DataObject)
                else "it has no type"
            )
        case FunctionCall("exists", (Name(),)) if not truth:
            return ""
    names = dict.fromkeys(node.path for node in nodes(tree) if isinstance(node, Name))
    return ", ".join(_seen(path, read(x, path), truth is None) for path in names)


def _seen(path: tuple[str, ...], value: Any, is_undefined: bool) -> str:
    if value is None:
        return f"no {'' if path[0] == HEADERS else 'attribute '}{name_text(path)}"
    seen = f"{name_text(path)} is {_text(value)}"
    # A condition is undefined because the value has a type that it cannot use.
    return f"{seen}, {_type_text(value)}" if is_undefined else seen


def _text(value: Any) -> str:
    is_written = family(value) not in (None, "opaque")  # A filter can contain it.
    text = text_of(constant(value)) if is_written else repr(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 3]}..."


def _type_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    kind = kind_of(value)
    if kind is not None:
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return "which has no type that filters know"
