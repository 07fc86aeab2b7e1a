"""The special forms that assign: to variables, slots, and table entries."""

from __future__ import annotations

from infobus.tdl.compiler import (
    BUILTINS,
    Scope,
    compiled,
    expect,
    name_in,
    outwards,
    sequence,
    special,
    symbol_name,
)
from infobus.tdl.forms.control import bound
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Atom, Form, Parenthesized, SourcePosition, bad_form
from infobus.tdl.values import Deep, Symbol

LIST_PARTS = ("car", "cdr", "first", "rest", "second", "third", "fourth", "nth", "elt", "getf",
              "subseq")  # fmt: skip


@special("setq", "setf")
def _setf(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    parts = form.items[1:]
    if not parts or len(parts) % 2:
        raise bad_form(form.at, f"expected ({head} place value ...)")
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    if len(pairs) > 1:
        each = [Parenthesized((form.items[0], place, value), place.at) for place, value in pairs]
        return sequence(each, scope)
    place, value = pairs[0]
    stands_for = scope.find_place(symbol_name(place) or "")
    if stands_for is not None:
        return compiled(_form(form.at, "setf", stands_for, value), scope)
    if isinstance(place, Atom):
        return _assignment(name_in(place, "the name of a variable"), compiled(value, scope), scope)
    if head == "setq":
        raise bad_form(place.at, "setq changes variables only; use setf")
    return compiled(_setter_call(place, value), scope)


def _assignment(name: str, value: Code, scope: Scope) -> Code:
    place = scope.find(name)

    def put(run: Evaluation, frame: Frame, result: object) -> object:
        if place is None:
            run.interpreter.set_variable(name, result)
        else:
            outwards(frame, place[0])[place[1]] = result
        return result

    def deep(run: Evaluation, frame: Frame) -> Deep:
        return put(run, frame, (yield from run.value_of(value, frame)))

    def direct(run: Evaluation, frame: Frame) -> object:
        return put(run, frame, value.run(run, frame))

    return Code(deep if value.is_deep else direct, value.is_deep)


def _setter_call(place: Parenthesized, value: Form) -> Parenthesized:
    """Return the call of `(setf name)`; as in CLOS, the new value is its first argument."""
    name = name_in(place.items[0], "the name of a function") if place.items else None
    if name is None or (name in BUILTINS and f"(setf {name})" not in BUILTINS):
        hint = "" if name not in LIST_PARTS else ": lists never change; make a new one"
        raise bad_form(place.at, f"{name or 'nil'} is not a place that can be changed{hint}")
    setter = Atom(Symbol(f"(setf {name})"), place.at)
    return Parenthesized((setter, value, *place.items[1:]), place.at)


@special("incf", "decf", "push", "pop")
def _modify(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    at = form.at
    if head == "push":
        item, place = expect(form, 2, 2, "(push item place)")
    else:
        place, *rest = expect(form, 1, 1 if head == "pop" else 2, f"({head} place)")
    place = scope.find_place(symbol_name(place) or "") or place
    # The place is read and written, but its parts must be evaluated once: they get a frame.
    parts = place.items[1:] if isinstance(place, Parenthesized) else ()
    values = [compiled(part, scope) for part in parts]
    names = [f" {number}" for number in range(len(parts))]
    inner = Scope(names, scope)
    if isinstance(place, Parenthesized) and place.items:
        place = Parenthesized((place.items[0], *(_symbol(name, at) for name in names)), place.at)
    if head == "push":
        # The item is evaluated before the place, in the order of the text.
        values.insert(0, compiled(item, scope))
        inner.names.insert(0, " item")
        changed = _form(at, "cons", _symbol(" item", at), place)
        return bound(values, compiled(_form(at, "setf", place, changed), inner))
    if head == "pop":
        put = _form(at, "setf", place, _form(at, "cdr", place))
        return bound(values, compiled(_form(at, "prog1", _form(at, "car", place), put), inner))
    step = rest[0] if rest else Atom(1, at)
    changed = _form(at, "+" if head == "incf" else "-", place, step)
    return bound(values, compiled(_form(at, "setf", place, changed), inner))


def _symbol(name: str, at: SourcePosition) -> Atom:
    return Atom(Symbol(name), at)


def _form(at: SourcePosition, name: str, *parts: Form) -> Parenthesized:
    return Parenthesized((_symbol(name, at), *parts), at)
