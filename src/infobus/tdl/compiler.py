"""The compiler: turn a form into code in which every variable has a fixed place.

The place of a local variable is a number of frames outwards and an index in that frame. A name
that no frame has is a global variable of the program. The modules in `forms` register their
special forms in `SPECIAL`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from infobus.errors import BusError
from infobus.tdl.conditions import Unbound, Unwinding, failed
from infobus.tdl.machine import (
    Builtin,
    Closure,
    Code,
    Evaluation,
    Frame,
    Lambda,
    Option,
    translated,
)
from infobus.tdl.reader import Atom, Form, Parenthesized, SourcePosition, bad_form, datum
from infobus.tdl.values import Deep, Function, Symbol

Compiler: TypeAlias = "Callable[[Parenthesized, Scope], Code]"
Python = TypeVar("Python", bound=Callable[..., Any])

BUILTINS: dict[str, Builtin] = {}
SPECIAL: dict[str, Compiler] = {}
"""The compiler of each special form, by name."""

_CHARACTERS = "a character is a string of one; use elt and string="
_LISTS = "lists never change; make a new one"
_PACKAGES = "there are no packages; names have dots"
_MACROS = "there are no macros; write a function"
_VALUES = "a form has one value; return a list"
_HANDLERS = "use handler-case, which leaves the form that failed"
_JUMPS = "use block and return-from"
REFUSED_FORMS = {
    **dict.fromkeys(("defmacro", "macrolet", "symbol-macrolet", "define-symbol-macro"), _MACROS),
    **dict.fromkeys(("define-setf-expander", "define-compiler-macro"), _MACROS),
    "defsetf": "define the place with (defmethod (setf name) ...)",
    "multiple-value-bind": _VALUES,
    **dict.fromkeys(("multiple-value-list", "multiple-value-setq", "nth-value"), _VALUES),
    **dict.fromkeys(("multiple-value-call", "multiple-value-prog1"), _VALUES),
    **dict.fromkeys(("handler-bind", "restart-case", "restart-bind"), _HANDLERS),
    **dict.fromkeys(("with-simple-restart",), _HANDLERS),
    **dict.fromkeys(("tagbody", "go", "catch", "throw", "prog", "prog*"), _JUMPS),
    "define-method-combination": "methods are combined in the standard way only",
    "defstruct": "use defclass",
    "with-accessors": "use with-slots, or call the accessors",
    "destructuring-bind": "use let with first, second and nth",
    "print-unreadable-object": "write the text with format",
    **dict.fromkeys(("declare", "the", "declaim", "locally"),
                    "the types of slots are declared in defclass, and no others"),
    **dict.fromkeys(("psetq", "psetf", "rotatef", "shiftf"), "use let and setf"),
    "pushnew": "use member and push",
    **dict.fromkeys(("do", "do*"), "use loop, dolist or dotimes"),
    "prog2": "use prog1 or progn",
    **dict.fromkeys(("typecase", "etypecase", "ctypecase"),
                    "use cond with typep, or write methods"),
    **dict.fromkeys(("ecase", "ccase"), "use case, and error in its otherwise clause"),
    "eval-when": "every form is evaluated when the program runs",
    **dict.fromkeys(("defpackage", "in-package"), _PACKAGES),
    "defconstant": "use defvar",
    "deftype": "use the types that there are",
}  # fmt: skip
"""Operators of Common Lisp whose parts a function could not take, and what to use instead."""
REFUSED_FUNCTIONS = {
    "change-class": "an object keeps its class; make a new object",
    **dict.fromkeys(("values", "values-list"), _VALUES),
    **dict.fromkeys(("signal", "warn", "cerror"), "use error; its condition ends in handler-case"),
    **dict.fromkeys(("invoke-restart", "abort", "continue", "muffle-warning"), _HANDLERS),
    **dict.fromkeys(("add-method", "remove-method", "find-method", "compute-applicable-methods"),
                    "methods are not values"),
    "slot-makunbound": "a slot that has a value keeps one; set it to nil",
    "reinitialize-instance": "set the slots",
    "shared-initialize": "write methods for initialize-instance",
    "update-instance-for-redefined-class": "new slots get their initform",
    "allocate-instance": "use make-instance",
    "make-condition": "use make-instance",
    **dict.fromkeys(("eval", "compile", "load", "read", "macroexpand"),
                    "a program cannot read or make code"),
    **dict.fromkeys(("rplaca", "rplacd", "nconc", "nreverse", "delete", "delete-if"), _LISTS),
    **dict.fromkeys(("char", "schar", "char=", "char-code", "code-char", "characterp"),
                    _CHARACTERS),
    **dict.fromkeys(("make-package", "find-package", "use-package", "export", "import"),
                    _PACKAGES),
    **dict.fromkeys(("vector", "make-array", "aref", "svref"), "use a list or a hash table"),
    **dict.fromkeys(("intern", "gensym", "make-symbol"), "a program cannot make symbols"),
}  # fmt: skip
"""Functions of Common Lisp that do not exist here, and what to use instead.

A program may define functions of these names.
"""
UNCALLED_GENERICS = {
    **dict.fromkeys(("shared-initialize", "reinitialize-instance", "allocate-instance",
                     "make-load-form"), "write one for initialize-instance"),
    **dict.fromkeys(("update-instance-for-redefined-class", "change-class",
                     "update-instance-for-different-class", "make-instances-obsolete"),
                    "an object keeps its class, and new slots get their initform"),
    **dict.fromkeys(("slot-unbound", "slot-missing", "no-applicable-method", "no-next-method"),
                    "handle the error with handler-case"),
    "describe-object": "write one for print-object",
}  # fmt: skip
"""Generic functions that Common Lisp calls by itself and TDL does not, and what to use instead."""


class Scope:
    """The names of one frame, in order, as the compiler sees them."""

    def __init__(
        self, names: Sequence[str] = (), parent: Scope | None = None, block: str | None = None
    ) -> None:
        self.names = list(names)
        self.parent = parent
        self.block = block
        """The block that ends when this frame is left."""
        self.places: dict[str, Form] = {}
        """Names that stand for a place, such as those of `with-slots`, and the place's form."""

    def find(self, name: str) -> tuple[int, int] | None:
        """Return how many frames outwards a variable is, and its index in that frame."""
        scope: Scope | None = self
        hops = 0
        while scope is not None:
            if name in scope.names:
                # The last of two equal names hides the first. Index 0 is the outer frame.
                return hops, len(scope.names) - scope.names[::-1].index(name)
            scope, hops = scope.parent, hops + 1
        return None

    def find_place(self, name: str) -> Form | None:
        """Return the form that a name stands for, or None if it is a variable."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            if name in scope.places:
                return scope.places[name]
            scope = scope.parent
        return None

    def find_block(self, name: str) -> int | None:
        """Return how many frames outwards a block is, or None."""
        scope: Scope | None = self
        hops = 0
        while scope is not None:
            if scope.block == name:
                return hops
            scope, hops = scope.parent, hops + 1
        return None

    @property
    def size(self) -> int:
        """How many values a closure made in this scope keeps alive."""
        scope, count = self, len(self.names) + 1
        while scope.parent is not None:
            scope = scope.parent
            count += len(scope.names) + 1
        return count


def special(*names: str) -> Callable[[Compiler], Compiler]:
    """Register the decorated function as the compiler of the special forms `names`."""

    def enter(function: Compiler) -> Compiler:
        SPECIAL.update(dict.fromkeys(names, function))
        return function

    return enter


def builtin(
    name: str, least: int, most: int | None = 0, *, is_deep: bool = False
) -> Callable[[Python], Python]:
    """Register the decorated function as a built-in function of the language.

    It takes `least` to `most` arguments; None as `most` means any number. It is called with
    the run and the arguments; a deep one also gets the position of its call.
    """

    def enter(function: Python) -> Python:
        last = None if most is None else max(least, most)
        BUILTINS[name] = Builtin(name, function, least, last, is_deep)
        return function

    return enter


def constant(value: Any) -> Code:
    """Return code that always has the same value."""
    return Code(lambda run, frame: value)


NOTHING = constant(None)


def compiled(form: Form, scope: Scope) -> Code:
    """Compile a form; the names in `scope` are its local variables."""
    if isinstance(form, Atom):
        return _atom(form, scope)
    if not form.items:
        return NOTHING
    head = form.items[0]
    if isinstance(head, Parenthesized):
        return _call_of_lambda(form, head, scope)
    if head.value.__class__ is not Symbol:
        raise bad_form(head.at, f"expected the name of a function, got {head.value!r:.40}")
    name = head.value.name
    if name in SPECIAL:
        return SPECIAL[name](form, scope)
    if (complaint := refusal(name)) is not None:
        raise bad_form(form.at, complaint)
    arguments = [compiled(item, scope) for item in form.items[1:]]
    if name in BUILTINS:
        return _call_of_builtin(BUILTINS[name], arguments, form.at)
    return _call(function_code(name, scope), arguments, form.at)


def function_code(name: str, scope: Scope) -> Callable[[Evaluation, Frame], Any]:
    """Return what finds a function of the program: a local one, or else the global one."""
    place = scope.find(local_function(name))
    if place is not None:
        return _variable(*place).run
    return lambda run, frame: run.interpreter.function(name)


def local_function(name: str) -> str:
    """Return the variable that holds a local function; no program can name it."""
    return f" function {name}"


def refusal(name: str) -> str | None:
    """Return why the operator `name` does not exist, or None if a program may define it."""
    if name in REFUSED_FORMS:
        return f"{name} is not part of TDL: {REFUSED_FORMS[name]}"
    lower = name.lower()
    if lower != name and lower in SPECIAL:
        return f"there is no operator {name}: case counts, so write {lower}"
    return None


def _atom(form: Atom, scope: Scope) -> Code:
    value = datum(form)
    if value.__class__ is not Symbol or value.is_keyword:
        return constant(value)
    stands_for = scope.find_place(value.name)
    if stands_for is not None:
        return compiled(stands_for, scope)
    place = scope.find(value.name)
    if place is not None:
        return _variable(*place)
    name, at = value.name, form.at

    def find(run: Evaluation, frame: Frame) -> Any:
        try:
            return run.interpreter.variables[name]
        except KeyError:
            signal = failed(f"the variable {name} has no value", Unbound)
            signal.locate(run, at)
            raise signal from None

    return Code(find)


def _variable(hops: int, index: int) -> Code:
    if hops == 0:
        return Code(lambda run, frame: frame[index])
    if hops == 1:
        return Code(lambda run, frame: frame[0][index])
    return Code(lambda run, frame: outwards(frame, hops)[index])


def outwards(frame: Frame, hops: int) -> Frame:
    """Return the frame that is `hops` frames further out."""
    for _ in range(hops):
        frame = frame[0]
    return frame


def _call_of_builtin(function: Builtin, arguments: list[Code], at: SourcePosition) -> Code:
    function = function.taking(len(arguments))
    complaint = function.complaint(len(arguments))
    if complaint is not None:
        raise bad_form(at, complaint)
    if function.is_deep or any(argument.is_deep for argument in arguments):
        return _call(lambda run, frame: function, arguments, at)
    python = function.function
    steps = [argument.run for argument in arguments]

    def direct(run: Evaluation, frame: Frame) -> Any:
        try:
            run.fuel -= 1  # Inline for speed; `spend` raises the error.
            if run.fuel < 0:
                run.spend(0)
            return python(run, *[step(run, frame) for step in steps])
        except Unwinding as unwinding:
            unwinding.locate(run, at)
            raise
        except (ArithmeticError, BusError) as error:
            signal = translated(error)
            signal.locate(run, at)
            raise signal from None

    return Code(direct)


def _call(
    find: Callable[[Evaluation, Frame], Function], arguments: list[Code], at: SourcePosition
) -> Code:
    def deep(run: Evaluation, frame: Frame) -> Deep:
        values = []
        try:
            # Found first: if there is no such function, its arguments must not run.
            function = find(run, frame)
            for argument in arguments:
                value = argument.run(run, frame)
                if argument.is_deep:
                    value = yield value
                values.append(value)
            return (yield function.invoke(run, values, at))
        except Unwinding as unwinding:
            unwinding.locate(run, at)
            raise

    return Code(deep, is_deep=True)


def _call_of_lambda(form: Parenthesized, head: Parenthesized, scope: Scope) -> Code:
    if symbol_name(head.items[0] if head.items else head) != "lambda":
        raise bad_form(head.at, "expected the name of a function, or a lambda")
    made = compiled(head, scope)
    # An extra frame holds the function while the arguments are evaluated.
    call = Scope(["function"], scope)
    arguments = [compiled(item, call) for item in form.items[1:]]
    called = _call(lambda run, frame: BUILTINS["funcall"], [_variable(0, 1), *arguments], form.at)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        return (yield called.run(run, [frame, made.run(run, frame)]))

    return Code(deep, is_deep=True)


def sequence(forms: Sequence[Form], scope: Scope) -> Code:
    """Return code that evaluates forms in order and has the value of the last."""
    codes = [compiled(form, scope) for form in forms]
    if len(codes) < 2:
        return codes[0] if codes else NOTHING
    if any(code.is_deep for code in codes):

        def deep(run: Evaluation, frame: Frame) -> Deep:
            value = None
            for code in codes:
                value = code.run(run, frame)
                if code.is_deep:
                    value = yield value
            return value

        return Code(deep, is_deep=True)
    *early, last = [code.run for code in codes]

    def direct(run: Evaluation, frame: Frame) -> Any:
        for step in early:
            step(run, frame)
        return last(run, frame)

    return Code(direct)


def symbol_name(form: Form) -> str | None:
    """Return the name if a form is a symbol, else None."""
    if isinstance(form, Atom) and form.value.__class__ is Symbol:
        name: str = form.value.name
        return name
    return None


def name_in(form: Form, what: str) -> str:
    """Return the name in a form that must be a symbol; `what` says what it names."""
    name = symbol_name(form)
    if name is None or name.startswith(":") or name in ("nil", "t"):
        raise bad_form(form.at, f"expected {what}")
    return name


def group_in(form: Form, what: str) -> Parenthesized:
    """Return the form, which must be a group; nil counts as an empty group."""
    if isinstance(form, Parenthesized):
        return form
    if symbol_name(form) == "nil":
        return Parenthesized((), form.at)
    raise bad_form(form.at, f"expected {what} in parentheses")


def check_names(names: Sequence[str], forms: Sequence[Form]) -> None:
    """Raise an error at the first of `forms` if two of the names that they bind are equal."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise bad_form(forms[0].at, f"{name.split()[-1]} is named twice here")
        seen.add(name)


def expect(form: Parenthesized, least: int, most: int | None, usage: str) -> tuple[Form, ...]:
    """Return the forms after the head of a special form; raise if their number is wrong."""
    count = len(form.items) - 1
    if count < least or (most is not None and count > most):
        raise bad_form(form.at, f"expected {usage}")
    return form.items[1:]


def lambda_list(
    name: str,
    parameters: Sequence[Form],
    body: Sequence[Form],
    scope: Scope,
    *,
    hidden: Sequence[str] = (),
    block: str | None = None,
) -> Lambda:
    """Compile a function with these parameters; a default may use the parameters before it.

    `hidden` names the values that the frame holds before the arguments. `block` is the name
    that `return-from` can use to leave the function.
    """
    inner = Scope(hidden, scope, block)
    written = Lambda(name, 0, [], False, None, False, NOTHING, steps_in(*parameters, *body))
    section = ""
    for form in parameters:
        marker = symbol_name(form) or ""
        if marker == "&allow-other-keys" and section == "&key":
            written.others_allowed = True
        elif marker.startswith("&"):
            if marker not in _SECTIONS or marker in _SECTIONS[: _SECTIONS.index(section) + 1]:
                raise bad_form(form.at, f"{marker} cannot stand here; the order is "
                                        f"{' '.join(_SECTIONS[1:])}")  # fmt: skip
            section = marker
            if section == "&key":
                written.keys = []
        else:
            _add_parameter(written, section, form, inner)
    check_names(inner.names, parameters)
    written.body = sequence(body, inner)
    return written


_SECTIONS = ("", "&optional", "&rest", "&key")


def _add_parameter(written: Lambda, section: str, form: Form, scope: Scope) -> None:
    if section in ("", "&rest"):
        if section and written.has_rest:
            raise bad_form(form.at, "there is one &rest parameter already")
        written.has_rest = section == "&rest"
        written.required += section == ""
        scope.names.append(name_in(form, "the name of a parameter"))
        return
    parts = form.items if isinstance(form, Parenthesized) else (form,)
    if not 1 <= len(parts) <= 3:
        raise bad_form(form.at, "expected (name default given-p)")
    name = name_in(parts[0], "the name of a parameter")
    default = compiled(parts[1], scope) if len(parts) > 1 else NOTHING
    option = Option(name, default, len(parts) > 2)
    scope.names.append(name)
    if option.tells:
        scope.names.append(name_in(parts[2], "the name of a variable"))
    (written.options if written.keys is None else written.keys).append(option)


FORMS_PER_STEP = 16
"""Most forms cost no fuel of their own; so many take about as long as one step."""


def steps_in(*forms: Form) -> int:
    """Return the fuel that each repetition of `forms` costs because of their number.

    Only loops and calls repeat code, so they charge for all that they repeat. Otherwise a long
    row of constants would cost nothing.
    """
    return _count(forms) // FORMS_PER_STEP


def _count(forms: Sequence[Form]) -> int:
    return len(forms) + sum(_count(f.items) for f in forms if isinstance(f, Parenthesized))


def closure_code(written: Lambda, scope: Scope) -> Code:
    """Return code that makes a closure of a function in the current frame."""
    size = scope.size + 2

    def make(run: Evaluation, frame: Frame) -> Closure:
        run.allocate(size)
        return Closure(written, frame)

    return Code(make)
