"""The special forms that name things locally: functions, and the slots of an object."""

from __future__ import annotations

from infobus.tdl.compiler import (
    BUILTINS,
    SPECIAL,
    Scope,
    check_names,
    closure_code,
    compiled,
    expect,
    group_in,
    lambda_list,
    local_function,
    name_in,
    refusal,
    sequence,
    special,
    symbol_name,
)
from infobus.tdl.forms.control import bound
from infobus.tdl.forms.definitions import block_of, function_name, without_doc
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Atom, Form, Parenthesized, bad_form
from infobus.tdl.values import Deep, Symbol


@special("flet", "labels")
def _flet(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    usage = f"({head} ((name (parameter ...) form ...) ...) form ...)"
    definitions, *body = expect(form, 1, None, usage)
    listed = [_definition(item, usage) for item in group_in(definitions, usage).items]
    inner = Scope([local_function(name) for name, _ in listed], scope)
    check_names(inner.names, form.items)
    # The functions of `labels` see each other, those of `flet` do not.
    around = inner if head == "labels" else scope
    makes = [_function(name, parts, around) for name, parts in listed]
    code = sequence(body, inner)
    if head == "flet":
        return bound(makes, code)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        own: Frame = [frame]
        own.extend([make.run(run, own) for make in makes])
        return (yield from run.value_of(code, own))

    return Code(deep, is_deep=True)


def _definition(form: Form, usage: str) -> tuple[str, tuple[Form, ...]]:
    parts = group_in(form, usage).items
    if len(parts) < 2:
        raise bad_form(form.at, f"expected {usage}")
    name = function_name(parts[0])
    if name in BUILTINS or name in SPECIAL or refusal(name) is not None:
        raise bad_form(form.at, f"{name} is part of the language and cannot be defined anew")
    return name, parts


def _function(name: str, parts: tuple[Form, ...], scope: Scope) -> Code:
    parameters = group_in(parts[1], "parameters").items
    body = without_doc(parts[2:])
    return closure_code(lambda_list(name, parameters, body, scope, block=block_of(name)), scope)


@special("with-slots")
def _with_slots(form: Parenthesized, scope: Scope) -> Code:
    usage = "(with-slots (slot (name slot) ...) object form ...)"
    listed, obj, *body = expect(form, 2, None, usage)
    hidden = f" object {scope.size}"  # its scope is smaller than any inside it
    inner = Scope([hidden], scope)
    for item in group_in(listed, usage).items:
        parts = item.items if isinstance(item, Parenthesized) else (item, item)
        if len(parts) != 2:
            raise bad_form(item.at, f"expected {usage}")
        name, slot = name_in(parts[0], "a name"), name_in(parts[1], "the name of a slot")
        quoted = _form("quote", Atom(Symbol(slot), item.at))
        inner.places[name] = _form("slot-value", Atom(Symbol(hidden), item.at), quoted)
    return bound([compiled(obj, scope)], sequence(body, inner))


def _form(name: str, *parts: Form) -> Parenthesized:
    at = parts[0].at
    return Parenthesized((Atom(Symbol(name), at), *parts), at)
