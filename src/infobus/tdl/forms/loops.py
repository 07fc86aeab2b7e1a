"""Loops: `dolist`, `dotimes`, and `loop` with its clauses.

loop     form ... | clause ...
clause   for NAME in LIST | on LIST | across STRING | = FORM [then FORM]
             | [from N] [to N | below N | downto N | above N] [by N]
         with NAME [= FORM] | repeat N | while FORM | until FORM
         do FORM ... | collect FORM | append FORM | sum FORM | count FORM
         maximize FORM | minimize FORM | return FORM | finally FORM ...
         when FORM clause [and clause ...] [else clause ...] | unless FORM clause ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from infobus.tdl.compiler import (
    NOTHING,
    Scope,
    compiled,
    expect,
    group_in,
    name_in,
    sequence,
    special,
    steps_in,
    symbol_name,
)
from infobus.tdl.conditions import Leave, wrong_type
from infobus.tdl.library.numbers import number, result
from infobus.tdl.library.sequences import elements
from infobus.tdl.machine import Code, Evaluation, Frame
from infobus.tdl.reader import Form, Parenthesized, bad_form
from infobus.tdl.text import short
from infobus.tdl.values import Cell, Deep, make_list


@special("dolist", "dotimes")
def _dolist(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    usage = f"({head} (name {'list' if head == 'dolist' else 'count'} result) form ...)"
    control, *body = expect(form, 1, None, usage)
    parts = group_in(control, usage).items
    if not 2 <= len(parts) <= 3:
        raise bad_form(control.at, f"expected {usage}")
    over = compiled(parts[1], scope)
    inner = Scope([name_in(parts[0], "the name of a variable")], Scope((), scope, "nil"))
    code = sequence(body, inner)
    result = compiled(parts[2], inner) if len(parts) > 2 else NOTHING
    steps = 1 + steps_in(*body)

    def deep(run: Evaluation, frame: Frame) -> Deep:
        limit = yield from run.value_of(over, frame)
        block: Frame = [frame]
        depth = len(run.calls)
        turns = iter(elements(run, limit)) if head == "dolist" else iter(range(_count(limit)))
        value = None
        try:
            for value in turns:
                run.spend(steps)
                yield from run.value_of(code, [block, value])
            last = None if head == "dolist" else max(0, limit)
            return (yield from run.value_of(result, [block, last]))
        except Leave as leave:
            if leave.frame is not block:
                raise
            del run.calls[depth:]
            return leave.value

    return Code(deep, is_deep=True)


def _count(value: Any) -> int:
    if value.__class__ is not int:
        raise wrong_type("dotimes", "an integer", short(value))
    count: int = value
    return count


@special("loop")
def _loop(form: Parenthesized, scope: Scope) -> Code:
    if len(form.items) > 1 and symbol_name(form.items[1]) is not None:
        return _Parser(form, scope).code()
    block = Scope((), scope, "nil")
    body = sequence(form.items[1:], block)
    steps = 1 + steps_in(*form.items[1:])

    def deep(run: Evaluation, frame: Frame) -> Deep:
        inner: Frame = [frame]
        depth = len(run.calls)
        try:
            while True:
                run.spend(steps)
                yield from run.value_of(body, inner)
        except Leave as leave:
            if leave.frame is not inner:
                raise
            del run.calls[depth:]
            return leave.value

    return Code(deep, is_deep=True)


class _Harvest:
    """The values that the clauses of one loop collect; `value` is what it is worth with none."""

    def __init__(self, value: Any) -> None:
        self.items: list[Any] = []
        self.is_list = False
        self.value = value

    def harvested(self, run: Evaluation) -> Any:
        if not self.is_list:
            return self.value
        run.allocate(len(self.items))
        return make_list(self.items)

    def take(self, run: Evaluation, how: str, value: Any) -> None:
        if how in ("collect", "append"):
            self.is_list = True
            added = [value] if how == "collect" else elements(run, value)
            run.allocate(len(added))
            self.items.extend(added)
        elif how in ("sum", "count"):
            step = number(value, "loop") if how == "sum" else int(value is not None)
            self.value = result(self.value + step, "loop", self.value, step)
        else:
            chosen = max if how == "maximize" else min
            value = number(value, "loop")
            self.value = value if self.value is None else chosen(self.value, value)


class _End(Exception):
    """Ends the loop: a `while` or `until` decided so, or a variable has no more values."""


Action = Callable[[Evaluation, Frame, _Harvest], Deep]


@dataclass
class _Variable:
    """A variable that gets a new value in each iteration, from `values` or from `then`."""

    index: int
    start: list[Code]
    values: Callable[[Evaluation, list[Any]], Iterator[Any]] | None = None
    then: Code | None = None


@dataclass
class _Plan:
    initial: list[tuple[int, Code]] = field(default_factory=list)
    variables: list[_Variable] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    final: list[Form] = field(default_factory=list)
    gathering: str | None = None
    """What the clauses that gather make together, if there are any: see `GATHERING`."""
    steps: int = 1
    """The fuel that each turn costs."""


GATHERING = {
    "collect": "a list", "append": "a list", "sum": "a sum", "count": "a sum",
    "maximize": "an extreme", "minimize": "an extreme",
}  # fmt: skip
"""What each clause gathers. A loop has one value, so all of its clauses gather the same."""
_SPELLINGS = {f"{word}ing": word for word in GATHERING} | {
    "summing": "sum", "maximizing": "maximize", "minimizing": "minimize", "if": "when",
    "doing": "do",
}  # fmt: skip
_STARTS = {*GATHERING, *_SPELLINGS, *"for with repeat while until do when unless return and else "
           "finally end".split()}  # fmt: skip


class _Parser:
    """Parses the clauses of a `loop`. All its variables share one frame, which is its block."""

    def __init__(self, form: Parenthesized, scope: Scope) -> None:
        self._form = form
        self._left = list(form.items[1:])
        self._scope = Scope((), scope, "nil")
        self._plan = _Plan(steps=1 + steps_in(*form.items[1:]))

    def code(self) -> Code:
        while self._left:
            self._clause()
        plan, final = self._plan, sequence(self._plan.final, self._scope)
        width = len(self._scope.names)

        def deep(run: Evaluation, frame: Frame) -> Deep:
            inner: Frame = [frame, *[None] * width]
            depth = len(run.calls)
            try:
                return (yield from _turns(run, inner, plan, final))
            except Leave as leave:
                if leave.frame is not inner:
                    raise
                del run.calls[depth:]
                return leave.value

        return Code(deep, is_deep=True)

    def _word(self) -> str | None:
        name = symbol_name(self._left[0]) if self._left else None
        name = name and name.removeprefix(":")
        return _SPELLINGS.get(name or "", name)

    def _take(self, what: str) -> Form:
        if not self._left:
            raise bad_form(self._form.at, f"the loop ends where {what} is expected")
        return self._left.pop(0)

    def _has(self, *words: str) -> bool:
        if self._word() not in words:
            return False
        self._left.pop(0)
        return True

    def _expression(self) -> Code:
        return compiled(self._take("a form"), self._scope)

    def _new_name(self) -> int:
        self._scope.names.append(name_in(self._take("a name"), "the name of a variable"))
        return len(self._scope.names)

    def _clause(self) -> None:
        if self._plan.actions and self._word() in ("for", "with"):
            raise bad_form(self._left[0].at, f"{self._word()} must stand before the clauses that "
                                             "do, test or gather something")  # fmt: skip
        if self._has("for"):
            self._variable()
        elif self._has("with"):
            index = self._new_name()
            self._plan.initial.append((index, self._expression() if self._has("=") else NOTHING))
        elif self._has("repeat"):
            self._scope.names.append(" repeat")
            limits = [self._expression()]
            values = lambda run, ends: iter(range(_count(ends[0])))  # noqa: E731
            self._plan.variables.append(_Variable(len(self._scope.names), limits, values))
        elif self._has("finally"):
            self._plan.final.extend(self._forms())
        else:
            self._plan.actions.append(self._action())

    def _forms(self) -> list[Form]:
        forms = []
        while self._left and self._word() not in _STARTS:
            forms.append(self._left.pop(0))
        return forms

    def _variable(self) -> None:
        index = self._new_name()
        if self._has("=", "=="):
            start = [self._expression()]
            then = self._expression() if self._has("then") else start[0]
            self._plan.variables.append(_Variable(index, start, None, then))
        elif self._has("in", "across"):
            start = [self._expression()]
            values = lambda run, ends: iter(elements(run, ends[0]))  # noqa: E731
            self._plan.variables.append(_Variable(index, start, values))
        elif self._has("on"):
            start = [self._expression()]
            self._plan.variables.append(_Variable(index, start, lambda run, ends: _tails(ends[0])))
        else:
            self._counting(index)

    def _counting(self, index: int) -> None:
        parts: dict[str, Code] = {}
        words = ("from", "downfrom", "to", "upto", "below", "downto", "above", "by")
        while self._word() in words:
            word = self._word() or ""
            self._left.pop(0)
            parts[word] = self._expression()
        if not parts:
            raise bad_form(self._form.at, "expected in, on, across, =, from, to or below after for")
        names = list(parts)

        def values(run: Evaluation, ends: list[Any]) -> Iterator[Any]:
            return _numbers(
                {name: number(end, "loop") for name, end in zip(names, ends, strict=True)}
            )

        self._plan.variables.append(_Variable(index, list(parts.values()), values))

    def _action(self) -> Action:
        word = self._word()
        if not self._left:
            raise bad_form(self._form.at, "the loop ends where a clause is expected, such as do")
        at = self._left[0].at
        if self._has("do"):
            return _doing(sequence(self._forms(), self._scope))
        if self._has("while", "until"):
            return _ending(self._expression(), word == "while")
        if self._has("return"):
            return _returning(self._expression())
        if self._has(*GATHERING):
            word, before = word or "", self._plan.gathering
            if before not in (None, GATHERING[word]):
                raise bad_form(at, f"{word} makes {GATHERING[word]}, and a clause before makes "
                                   f"{before}; a loop has one value")  # fmt: skip
            self._plan.gathering = GATHERING[word]
            return _gathering(word, self._expression())
        if self._has("when", "unless"):
            test = self._expression()
            then = [self._action(), *self._more()]
            other = [self._action(), *self._more()] if self._has("else") else []
            self._has("end")
            return _choosing(test, *((then, other) if word == "when" else (other, then)))
        raise bad_form(at, "expected a clause of the loop, such as for, while, do or collect")

    def _more(self) -> list[Action]:
        actions = []
        while self._has("and"):
            actions.append(self._action())
        return actions


def _turns(run: Evaluation, frame: Frame, plan: _Plan, final: Code) -> Deep:
    harvest = _Harvest(0 if plan.gathering == "a sum" else None)
    for index, code in plan.initial:
        frame[index] = yield from run.value_of(code, frame)
    sources: list[Iterator[Any] | None] = []
    try:
        for variable in plan.variables:
            starts = []
            for code in variable.start:
                starts.append((yield from run.value_of(code, frame)))
            source = None if variable.values is None else variable.values(run, starts)
            sources.append(source)
            frame[variable.index] = starts[0] if source is None else _next(source)
        while True:
            run.spend(plan.steps)
            for action in plan.actions:
                yield from action(run, frame, harvest)
            for variable, source in zip(plan.variables, sources, strict=True):
                if source is not None:
                    frame[variable.index] = _next(source)
                elif variable.then is not None:
                    frame[variable.index] = yield from run.value_of(variable.then, frame)
    except _End:
        pass
    yield from run.value_of(final, frame)
    return harvest.harvested(run)


def _next(source: Iterator[Any]) -> Any:
    for value in source:
        return value
    raise _End


def _tails(cells: Any) -> Iterator[Any]:
    while cells.__class__ is Cell:
        yield cells
        cells = cells.rest


def _numbers(parts: dict[str, Any]) -> Iterator[Any]:
    is_down = bool({"downfrom", "downto", "above"} & set(parts))
    value = parts.get("from", parts.get("downfrom", 0))
    step = parts.get("by", 1)
    end = next((parts[w] for w in ("to", "upto", "below", "downto", "above") if w in parts), None)
    is_open = "below" in parts or "above" in parts
    while end is None or (value > end if is_down else value < end) or (
        value == end and not is_open
    ):  # fmt: skip
        yield value
        value = result(value - step if is_down else value + step, "loop", value, step)


def _doing(code: Code) -> Action:
    def act(run: Evaluation, frame: Frame, harvest: _Harvest) -> Deep:
        yield from run.value_of(code, frame)

    return act


def _ending(test: Code, goes_on: bool) -> Action:
    def act(run: Evaluation, frame: Frame, harvest: _Harvest) -> Deep:
        if ((yield from run.value_of(test, frame)) is not None) != goes_on:
            raise _End

    return act


def _returning(code: Code) -> Action:
    def act(run: Evaluation, frame: Frame, harvest: _Harvest) -> Deep:
        raise Leave(frame, (yield from run.value_of(code, frame)))

    return act


def _gathering(how: str, code: Code) -> Action:
    def act(run: Evaluation, frame: Frame, harvest: _Harvest) -> Deep:
        harvest.take(run, how, (yield from run.value_of(code, frame)))

    return act


def _choosing(test: Code, then: list[Action], other: list[Action]) -> Action:
    def act(run: Evaluation, frame: Frame, harvest: _Harvest) -> Deep:
        chosen = then if (yield from run.value_of(test, frame)) is not None else other
        for action in chosen:
            yield from action(run, frame, harvest)

    return act
