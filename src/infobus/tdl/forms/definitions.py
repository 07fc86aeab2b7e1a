"""The special forms that define functions, variables, generic functions and methods."""

from __future__ import annotations

from collections.abc import Sequence

from infobus.tdl.compiler import (
    NOTHING,
    Scope,
    closure_code,
    compiled,
    expect,
    group_in,
    lambda_list,
    name_in,
    special,
    symbol_name,
)
from infobus.tdl.conditions import Unwinding
from infobus.tdl.generics import QUALIFIERS, Eql, Method, Specializer, call_next
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Atom, Form, Parenthesized, bad_form
from infobus.tdl.values import Deep, Symbol, full_name

NEXT = " next"
"""A hidden variable of every method; the space keeps programs from naming it."""


def function_name(form: Form) -> str:
    """Return the name of the function being defined: a symbol, or `(setf name)`."""
    if isinstance(form, Parenthesized):
        parts = [symbol_name(item) for item in form.items]
        if len(parts) == 2 and parts[0] == "setf" and parts[1] is not None:
            return f"(setf {parts[1]})"
    return name_in(form, "the name of a function")


def without_doc(body: Sequence[Form]) -> Sequence[Form]:
    """Return a function's body without its documentation, a string before other forms."""
    has_doc = len(body) > 1 and isinstance(body[0], Atom) and isinstance(body[0].value, str)
    return body[1:] if has_doc else body


@special("defun")
def _defun(form: Parenthesized, scope: Scope) -> Code:
    head, parameters, *body = expect(form, 2, None, "(defun name (parameter ...) form ...)")
    name = function_name(head)
    listed = group_in(parameters, "parameters").items
    written = lambda_list(name, listed, without_doc(body), scope, block=name)
    make = closure_code(written, scope)

    def define(run: Evaluation, frame: Frame) -> object:
        try:
            run.interpreter.define_function(name, make.run(run, frame))
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        return Symbol(name)

    return Code(define)


@special("defvar", "defparameter")
def _defvar(form: Parenthesized, scope: Scope) -> Code:
    head, *rest = expect(form, 1, 3, "(defvar name value)")
    name = name_in(head, "the name of a variable")
    value = compiled(rest[0], scope) if rest else NOTHING
    keeps = symbol_name(form.items[0]) == "defvar"

    def deep(run: Evaluation, frame: Frame) -> Deep:
        if not (keeps and name in run.interpreter.variables):
            found = yield from run.value_of(value, frame)
            run.interpreter.set_variable(name, found)
        return Symbol(name)

    return Code(deep, is_deep=True)


@special("defgeneric")
def _defgeneric(form: Parenthesized, scope: Scope) -> Code:
    head, parameters, *_ = expect(form, 2, None, "(defgeneric name (parameter ...))")
    name = function_name(head)
    listed = group_in(parameters, "parameters").items
    written = lambda_list(name, listed, (), scope)

    def define(run: Evaluation, frame: Frame) -> object:
        try:
            run.interpreter.generic(name, written.required)
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        return Symbol(name)

    return Code(define)


@special("defmethod")
def _defmethod(form: Parenthesized, scope: Scope) -> Code:
    usage = "(defmethod name :before ((parameter class) ...) form ...)"
    head, *rest = expect(form, 2, None, usage)
    name = function_name(head)
    qualifier = symbol_name(rest[0]) or ""
    if qualifier.startswith(":"):
        if qualifier not in QUALIFIERS:
            raise bad_form(rest[0].at, f"expected :before, :after or :around, got {qualifier}")
        rest = rest[1:]
    else:
        qualifier = ""
    if not rest:
        raise bad_form(form.at, f"expected {usage}")
    listed, specializers = _specialized(group_in(rest[0], "parameters").items, scope)
    # `call-next-method` finds the next methods in the frame, before the arguments.
    written = lambda_list(
        name, listed, without_doc(rest[1:]), scope, hidden=[NEXT], block=name.removeprefix("(setf ")
    )
    make = closure_code(written, scope)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        found: list[Specializer] = []
        try:
            for specializer in specializers:
                if isinstance(specializer, Code):
                    found.append(Eql((yield from run.value_of(specializer, frame))))
                else:
                    found.append(run.interpreter.known_class_name(full_name(specializer)))
            generic = run.interpreter.generic(name, len(found))
            run.spend(len(generic.methods))
            if generic.add(Method(tuple(found), make.run(run, frame), qualifier)):
                run.interpreter.note_definition()
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        return Symbol(name)

    return Code(deep, is_deep=True)


def _specialized(parameters: Sequence[Form], scope: Scope) -> tuple[list[Form], list[str | Code]]:
    """Return the parameters without their classes, and the specializers of the required ones."""
    listed: list[Form] = []
    specializers: list[str | Code] = []
    is_required = True
    for form in parameters:
        is_required = is_required and not (symbol_name(form) or "").startswith("&")
        if not is_required:
            listed.append(form)
        elif isinstance(form, Parenthesized):
            if len(form.items) != 2:
                raise bad_form(form.at, "expected (parameter class)")
            listed.append(form.items[0])
            specializers.append(_specializer(form.items[1], scope))
        else:
            listed.append(form)
            specializers.append("t")
    return listed, specializers


def _specializer(form: Form, scope: Scope) -> str | Code:
    if isinstance(form, Parenthesized):
        if len(form.items) == 2 and symbol_name(form.items[0]) == "eql":
            return compiled(form.items[1], scope)
        raise bad_form(form.at, "expected a class, or (eql value)")
    name = symbol_name(form)
    return name if name == "t" else name_in(form, "the name of a class")


@special("call-next-method", "next-method-p")
def _call_next_method(form: Parenthesized, scope: Scope) -> Code:
    place = scope.find(NEXT)
    if place is None:
        raise bad_form(form.at, f"{symbol_name(form.items[0])} is for methods only")
    following = compiled(Atom(Symbol(NEXT), form.at), scope)
    if symbol_name(form.items[0]) == "next-method-p":
        expect(form, 0, 0, "(next-method-p)")

        def test(run: Evaluation, frame: Frame) -> object:
            found = following.run(run, frame)
            return True if found is not None and found.exists else None

        return Code(test)
    codes = [compiled(item, scope) for item in form.items[1:]]

    def deep(run: Evaluation, frame: Frame) -> Deep:
        values = []
        try:
            for code in codes:
                values.append((yield from run.value_of(code, frame)))
            found = following.run(run, frame)
            return (yield call_next(run, found, values or None, form.at))
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise

    return Code(deep, is_deep=True)
