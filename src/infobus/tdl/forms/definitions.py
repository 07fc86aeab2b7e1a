"""The special forms that define functions, variables, generic functions and methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infobus.tdl.compiler import (
    NOTHING,
    UNCALLED_GENERICS,
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
from infobus.tdl.generics import QUALIFIERS, Eql, Method, Parameters, Specializer, call_next
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Atom, Form, Parenthesized, SourcePosition, bad_form
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


def generic_name(form: Form) -> str:
    """Return the name of the generic function that a form defines, or gives a method."""
    name = function_name(form)
    if name in UNCALLED_GENERICS:
        raise bad_form(form.at, f"TDL would never call a method of {name} by itself; "
                                f"{UNCALLED_GENERICS[name]}")  # fmt: skip
    return name


def block_of(name: str) -> str:
    """Return the block that `return-from` leaves in a function: for `(setf name)`, it is `name`."""
    return name.removeprefix("(setf ").removesuffix(")") if name.startswith("(setf ") else name


def without_doc(body: Sequence[Form]) -> Sequence[Form]:
    """Return a function's body without its documentation, a string before other forms."""
    has_doc = len(body) > 1 and isinstance(body[0], Atom) and isinstance(body[0].value, str)
    return body[1:] if has_doc else body


@special("defun")
def _defun(form: Parenthesized, scope: Scope) -> Code:
    head, parameters, *body = expect(form, 2, None, "(defun name (parameter ...) form ...)")
    name = function_name(head)
    listed = group_in(parameters, "parameters").items
    written = lambda_list(name, listed, without_doc(body), scope, block=block_of(name))
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
    head, parameters, *options = expect(form, 2, None, "(defgeneric name (parameter ...))")
    name = generic_name(head)
    listed = group_in(parameters, "parameters").items
    for item in listed:
        if isinstance(item, Parenthesized) and len(item.items) > 1:
            raise bad_form(item.at, "defgeneric names its parameters; classes and defaults belong "
                                    "to its methods")  # fmt: skip
    declared = Parameters.of(lambda_list(name, listed, (), scope))
    found = [_generic_option(option, name, scope) for option in options]
    methods = [method for method in found if method is not None]

    def deep(run: Evaluation, frame: Frame) -> Deep:
        try:
            run.interpreter.generic(name, declared).declare(declared)
            for method in methods:
                yield from method.define(run, frame)
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        return Symbol(name)

    return Code(deep, is_deep=True)


def _generic_option(form: Form, name: str, scope: Scope) -> _WrittenMethod | None:
    """Return the method that an option of `defgeneric` describes, if it does."""
    parts = group_in(form, "an option of defgeneric").items
    match [symbol_name(part) for part in parts]:
        case [":method", *_]:
            return _method(name, parts[1:], form.at, scope, is_inline=True)
        case [":documentation", _] | [":method-combination", "standard"]:
            return None
        case [":method-combination", *_]:
            raise bad_form(form.at, "methods are combined in the standard way only: :around, "
                                    ":before, primary, :after")  # fmt: skip
        case [":argument-precedence-order", *_]:
            raise bad_form(form.at, "methods are chosen by their arguments from left to right; "
                                    "no other order is possible")  # fmt: skip
    raise bad_form(form.at, 'expected (:documentation "...") or (:method (parameter ...) form ...)')


@special("defmethod")
def _defmethod(form: Parenthesized, scope: Scope) -> Code:
    head, *rest = expect(form, 2, None, METHOD_USAGE)
    method = _method(generic_name(head), rest, form.at, scope)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        try:
            yield from method.define(run, frame)
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        return Symbol(method.name)

    return Code(deep, is_deep=True)


METHOD_USAGE = "(defmethod name :before ((parameter class) ...) form ...)"


@dataclass
class _WrittenMethod:
    """A compiled method; `define` adds it to its generic function."""

    name: str
    qualifier: str
    specializers: list[str | Code]
    parameters: Parameters
    make: Code
    is_inline: bool

    def define(self, run: Evaluation, frame: Frame) -> Deep:
        found: list[Specializer] = []
        for specializer in self.specializers:
            if isinstance(specializer, Code):
                found.append(Eql((yield from run.value_of(specializer, frame))))
            else:
                found.append(run.interpreter.known_class_name(full_name(specializer)))
        generic = run.interpreter.generic(self.name, self.parameters)
        run.spend(len(generic.methods))
        function = self.make.run(run, frame)
        if generic.add(Method(tuple(found), function, self.qualifier, self.is_inline)):
            run.interpreter.note_definition()


def _method(
    name: str, rest: Sequence[Form], at: SourcePosition, scope: Scope, *, is_inline: bool = False
) -> _WrittenMethod:
    """Compile a method, from its qualifier on."""
    qualifier = (symbol_name(rest[0]) or "") if rest else ""
    if qualifier.startswith(":"):
        if qualifier not in QUALIFIERS:
            raise bad_form(rest[0].at, f"expected :before, :after or :around, got {qualifier}")
        rest = rest[1:]
    else:
        qualifier = ""
    if not rest:
        raise bad_form(at, f"expected {METHOD_USAGE}")
    listed, specializers = _specialized(group_in(rest[0], "parameters").items, scope)
    # `call-next-method` finds the next methods in the frame, before the arguments.
    body = without_doc(rest[1:])
    written = lambda_list(name, listed, body, scope, hidden=[NEXT], block=block_of(name))
    make = closure_code(written, scope)
    return _WrittenMethod(name, qualifier, specializers, Parameters.of(written), make, is_inline)


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
