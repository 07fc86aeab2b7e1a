"""The special forms for control flow, local variables, and handling conditions."""

from __future__ import annotations

from collections.abc import Sequence

from infobus.tdl.compiler import (
    BUILTINS,
    NOTHING,
    Scope,
    check_names,
    closure_code,
    compiled,
    constant,
    expect,
    function_code,
    group_in,
    lambda_list,
    name_in,
    outwards,
    sequence,
    special,
    symbol_name,
)
from infobus.tdl.conditions import Leave, Signal
from infobus.tdl.forms.definitions import function_name
from infobus.tdl.limits import CHARACTER_BYTES
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Atom, Form, Parenthesized, bad_form, datum
from infobus.tdl.values import Deep, Symbol, full_name, precedence

HANDLING_STEPS = 10
"""The fuel that handling a condition costs: it takes about as long as this many other steps."""
CONDITION_CELLS = 8


@special("quote")
def _quote(form: Parenthesized, scope: Scope) -> Code:
    (quoted,) = expect(form, 1, 1, "(quote value)")
    return constant(datum(quoted))


@special("if")
def _if(form: Parenthesized, scope: Scope) -> Code:
    parts = expect(form, 2, 3, "(if test then else)")
    test, then, *other = [compiled(part, scope) for part in parts]
    return choice([(test, then)], other[0] if other else NOTHING)


def choice(clauses: Sequence[tuple[Code, Code | None]], other: Code) -> Code:
    """Return code for the first clause whose test is true, or else for `other`.

    The value of a clause without code is that of its test.
    """
    parts = [code for clause in clauses for code in clause if code is not None] + [other]
    if any(part.is_deep for part in parts):

        def deep(run: Evaluation, frame: Frame) -> Deep:
            chosen: Code | None = other
            for test, then in clauses:
                value = test.run(run, frame)
                if test.is_deep:
                    value = yield value
                if value is not None:
                    chosen = then
                    break
            if chosen is not None:
                value = chosen.run(run, frame)
                if chosen.is_deep:
                    value = yield value
            return value

        return Code(deep, is_deep=True)

    def direct(run: Evaluation, frame: Frame) -> object:
        for test, then in clauses:
            value = test.run(run, frame)
            if value is not None:
                return value if then is None else then.run(run, frame)
        return other.run(run, frame)

    return Code(direct)


@special("cond")
def _cond(form: Parenthesized, scope: Scope) -> Code:
    clauses: list[tuple[Code, Code | None]] = []
    for clause in form.items[1:]:
        test, *body = _clause(clause, "(test form ...)")
        clauses.append((compiled(test, scope), sequence(body, scope) if body else None))
    return choice(clauses, NOTHING)


def _clause(form: Form, usage: str) -> tuple[Form, ...]:
    items = group_in(form, usage).items
    if not items:
        raise bad_form(form.at, f"expected {usage}")
    return items


@special("when", "unless")
def _when(form: Parenthesized, scope: Scope) -> Code:
    name = symbol_name(form.items[0])
    test, *body = expect(form, 1, None, f"({name} test form ...)")
    codes = compiled(test, scope), sequence(body, scope)
    return choice([codes], NOTHING) if name == "when" else choice([(codes[0], NOTHING)], codes[1])


@special("case")
def _case(form: Parenthesized, scope: Scope) -> Code:
    key, *clauses = expect(form, 1, None, "(case key (value form ...) ...)")
    inner = Scope([" key"], scope)
    compared, tests = Atom(Symbol(" key"), form.at), []
    other = NOTHING
    for clause in clauses:
        found, *body = _clause(clause, "(value form ...)")
        code = sequence(body, inner)
        if symbol_name(found) in ("otherwise", "t"):
            if clause is not clauses[-1]:
                raise bad_form(found.at, f"the clause of {symbol_name(found)} must be the last; "
                                         f"to compare, write ({symbol_name(found)})")  # fmt: skip
            other = code
            break
        if symbol_name(found) == "nil":
            raise bad_form(found.at, "nil is an empty list of values here; write (nil)")
        values = found if isinstance(found, Parenthesized) else Parenthesized((found,), found.at)
        quoted = Parenthesized((Atom(Symbol("quote"), found.at), values), found.at)
        test = Parenthesized((Atom(Symbol("member"), found.at), compared, quoted), found.at)
        tests.append((compiled(test, inner), code))
    return bound([compiled(key, scope)], choice(tests, other))


@special("and")
def _and(form: Parenthesized, scope: Scope) -> Code:
    codes = [compiled(item, scope) for item in form.items[1:]]

    def deep(run: Evaluation, frame: Frame) -> Deep:
        value: object = True
        for code in codes:
            value = code.run(run, frame)
            if code.is_deep:
                value = yield value
            if value is None:
                break
        return value

    def direct(run: Evaluation, frame: Frame) -> object:
        value: object = True
        for code in codes:
            value = code.run(run, frame)
            if value is None:
                break
        return value

    is_deep = any(code.is_deep for code in codes)
    return Code(deep if is_deep else direct, is_deep)


@special("or")
def _or(form: Parenthesized, scope: Scope) -> Code:
    return choice([(compiled(item, scope), None) for item in form.items[1:]], NOTHING)


@special("progn")
def _progn(form: Parenthesized, scope: Scope) -> Code:
    return sequence(form.items[1:], scope)


@special("prog1")
def _prog1(form: Parenthesized, scope: Scope) -> Code:
    first, *rest = expect(form, 1, None, "(prog1 form ...)")
    inner = Scope([" first"], scope)
    body = sequence([*rest, Atom(Symbol(" first"), form.at)], inner)
    return bound([compiled(first, scope)], body)


@special("let")
def _let(form: Parenthesized, scope: Scope) -> Code:
    head, *body = expect(form, 1, None, "(let ((name value) ...) form ...)")
    bindings = [_binding(item) for item in group_in(head, "((name value) ...)").items]
    values = [compiled(value, scope) for _, value in bindings]
    inner = Scope([name for name, _ in bindings], scope)
    check_names(inner.names, form.items)
    return bound(values, sequence(body, inner))


@special("let*")
def _let_in_order(form: Parenthesized, scope: Scope) -> Code:
    head, *body = expect(form, 1, None, "(let* ((name value) ...) form ...)")
    inner = Scope((), scope)
    values = []
    for item in group_in(head, "((name value) ...)").items:
        name, value = _binding(item)
        values.append(compiled(value, inner))
        inner.names.append(name)
    code = sequence(body, inner)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        frame = [frame]
        for step in values:
            value = step.run(run, frame)
            if step.is_deep:
                value = yield value
            frame.append(value)
        value = code.run(run, frame)
        if code.is_deep:
            value = yield value
        return value

    return Code(deep, is_deep=True)


def _binding(form: Form) -> tuple[str, Form]:
    if not isinstance(form, Parenthesized):
        return name_in(form, "(name value)"), Parenthesized((), form.at)
    if not 1 <= len(form.items) <= 2:
        raise bad_form(form.at, "expected (name value)")
    name = name_in(form.items[0], "the name of a variable")
    return name, form.items[1] if len(form.items) == 2 else Parenthesized((), form.at)


def bound(values: Sequence[Code], body: Code) -> Code:
    """Return code that evaluates `body` in a new frame with these values."""
    if body.is_deep or any(value.is_deep for value in values):

        def deep(run: Evaluation, frame: Frame) -> Deep:
            inner: Frame = [frame]
            for step in values:
                value = step.run(run, frame)
                if step.is_deep:
                    value = yield value
                inner.append(value)
            value = body.run(run, inner)
            if body.is_deep:
                value = yield value
            return value

        return Code(deep, is_deep=True)
    steps, last = [value.run for value in values], body.run
    return Code(lambda run, frame: last(run, [frame, *[step(run, frame) for step in steps]]))


@special("lambda")
def _lambda(form: Parenthesized, scope: Scope) -> Code:
    head, *body = expect(form, 1, None, "(lambda (parameter ...) form ...)")
    parameters = group_in(head, "parameters").items
    return closure_code(lambda_list("lambda", parameters, body, scope), scope)


@special("function")
def _function(form: Parenthesized, scope: Scope) -> Code:
    (named,) = expect(form, 1, 1, "(function name)")
    if isinstance(named, Parenthesized):
        if not named.items or symbol_name(named.items[0]) not in ("lambda", "setf"):
            raise bad_form(named.at, "expected the name of a function, or a lambda")
        if symbol_name(named.items[0]) == "lambda":
            return compiled(named, scope)
    name = function_name(named)
    if name in BUILTINS:
        return constant(BUILTINS[name])
    look = function_code(name, scope)

    def find(run: Evaluation, frame: Frame) -> object:
        try:
            return look(run, frame)
        except Signal as signal:
            signal.locate(run, named.at)
            raise

    return Code(find)


@special("block")
def _block(form: Parenthesized, scope: Scope) -> Code:
    named, *body = expect(form, 1, None, "(block name form ...)")
    name = symbol_name(named)
    if name is None:
        raise bad_form(named.at, "expected the name of a block")
    code = sequence(body, Scope((), scope, name))

    def deep(run: Evaluation, frame: Frame) -> Deep:
        return (yield from leaving(run, code, [frame]))

    return Code(deep, is_deep=True)


def leaving(run: Evaluation, code: Code, frame: Frame) -> Deep:
    """Evaluate the code; if its frame is left early, return the value of that `Leave`."""
    depth = len(run.calls)
    try:
        return (yield from run.value_of(code, frame))
    except Leave as leave:
        if leave.frame is not frame:
            raise
        del run.calls[depth:]
        return leave.value


@special("return", "return-from")
def _return(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    parts = list(form.items[1:])
    name: str | None = "nil"
    if head == "return-from":
        expect(form, 1, 2, "(return-from name value)")
        name = symbol_name(parts.pop(0))
    else:
        expect(form, 0, 1, "(return value)")
    hops = None if name is None else scope.find_block(name)
    if hops is None:
        raise bad_form(form.at, f"there is no block {name} around this")
    value = compiled(parts[0], scope) if parts else NOTHING

    def deep(run: Evaluation, frame: Frame) -> Deep:
        result = yield from run.value_of(value, frame)
        raise Leave(outwards(frame, hops), result)

    def direct(run: Evaluation, frame: Frame) -> object:
        raise Leave(outwards(frame, hops), value.run(run, frame))

    return Code(deep if value.is_deep else direct, value.is_deep)


@special("unwind-protect")
def _unwind_protect(form: Parenthesized, scope: Scope) -> Code:
    protected, *rest = expect(form, 1, None, "(unwind-protect form cleanup ...)")
    body, cleanup = compiled(protected, scope), sequence(rest, scope)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        depth = len(run.calls)
        try:
            value = yield from run.value_of(body, frame)
        except (Signal, Leave):
            # Not for a limit that was reached: then nothing of the program runs any more.
            del run.calls[depth:]
            yield from run.value_of(cleanup, frame)
            raise
        yield from run.value_of(cleanup, frame)
        return value

    return Code(deep, is_deep=True)


@special("handler-case", "ignore-errors")
def _handler_case(form: Parenthesized, scope: Scope) -> Code:
    if symbol_name(form.items[0]) == "ignore-errors":
        body, clauses = sequence(form.items[1:], scope), [("tdl.Error", NOTHING, False)]
    else:
        protected, *handlers = expect(form, 1, None, "(handler-case form (type (name) ...) ...)")
        body = compiled(protected, scope)
        clauses = [_handler(handler, scope) for handler in handlers]

    def deep(run: Evaluation, frame: Frame) -> Deep:
        depth = len(run.calls)
        try:
            value = body.run(run, frame)
            if body.is_deep:
                value = yield value
            return value
        except Signal as signal:
            names = precedence(signal.condition)
            chosen = next((clause for clause in clauses if clause[0] in names), None)
            if chosen is None:
                raise
            condition = signal.condition
        _, handler, takes_condition = chosen
        run.spend(HANDLING_STEPS)
        if takes_condition:  # The program can keep it, but nobody has paid for it yet.
            run.allocate(CONDITION_CELLS)
            run.allocate(len(str(condition.__dict__.get("message", ""))), CHARACTER_BYTES)
        del run.calls[depth:]
        return (yield from run.value_of(handler, [frame, condition]))

    return Code(deep, is_deep=True)


def _handler(form: Form, scope: Scope) -> tuple[str, Code, bool]:
    """Return the condition that a handler is for, its code, and whether it has a variable."""
    usage = "(type (name) form ...)"
    parts = group_in(form, usage).items
    if len(parts) < 2:
        raise bad_form(form.at, f"expected {usage}")
    names = [name_in(item, "the name of a variable") for item in group_in(parts[1], usage).items]
    if len(names) > 1:
        raise bad_form(parts[1].at, "a handler takes one variable, or none")
    inner = Scope(names or [" condition"], scope)
    named = parts[0]
    name = "t" if symbol_name(named) == "t" else name_in(named, "the type of a condition")
    return full_name(name), sequence(parts[2:], inner), bool(names)
