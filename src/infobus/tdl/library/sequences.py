"""The functions on lists, and those that work on both lists and strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import WrongType, failed, wrong_type
from infobus.tdl.library.equality import is_equal
from infobus.tdl.limits import CHARACTER_BYTES
from infobus.tdl.machine import Evaluation
from infobus.tdl.reader import SourcePosition
from infobus.tdl.text import short
from infobus.tdl.values import Cell, Deep, Function, Symbol, make_list, walk


def elements(run: Evaluation, value: Any) -> list[Any]:
    """Return the elements of a list, or the characters of a string."""
    if isinstance(value, str):
        run.spend(len(value))
        return list(value)
    found = []
    rest = value
    while rest.__class__ is Cell:
        found.append(rest.first)
        rest = rest.rest
    run.spend(len(found))
    if rest is not None:
        raise failed(f"expected a list or a string, got {short(value)}", WrongType)
    return found


def new_list(run: Evaluation, items: list[Any], rest: Any = None) -> Any:
    """Make the list of `items`, and charge the run for it."""
    run.allocate(len(items))
    return make_list(items, rest)


def _like(run: Evaluation, original: Any, items: list[Any]) -> Any:
    """Return `items` as a sequence of the same kind as `original`."""
    if isinstance(original, str):
        run.allocate(len(items), CHARACTER_BYTES)
        return "".join(items)
    return new_list(run, items)


def function(value: Any, run: Evaluation) -> Function:
    """Return a value that is a function, or the function that a symbol names."""
    if value.__class__ is Symbol:
        return run.interpreter.function(value.name)
    if isinstance(value, Function):
        return value
    raise failed(f"expected a function, got {short(value)}", WrongType)


def _cell(name: str, value: Any) -> Any:
    if value is not None and value.__class__ is not Cell:
        raise wrong_type(name, "a list", short(value))
    return value


@builtin("cons", 2)
def _cons(run: Evaluation, first: Any, rest: Any) -> Any:
    run.allocate(1)
    return Cell(first, rest)


@builtin("list", 0, None)
def _list(run: Evaluation, *items: Any) -> Any:
    return new_list(run, list(items))


@builtin("list*", 1, None)
def _list_onto(run: Evaluation, *items: Any) -> Any:
    return new_list(run, list(items[:-1]), items[-1])


def _ends(first_name: str, rest_name: str) -> None:
    builtin(first_name, 1)(lambda run, value: _cell(first_name, value) and value.first)
    builtin(rest_name, 1)(lambda run, value: _cell(rest_name, value) and value.rest)


_ends("car", "cdr")
_ends("first", "rest")


@builtin("nthcdr", 2)
def _nthcdr(run: Evaluation, count: Any, value: Any) -> Any:
    if count.__class__ is not int or count < 0:
        raise wrong_type("nthcdr", "an integer from 0", short(count))
    while count > 0 and value.__class__ is Cell:
        run.spend(1)
        value, count = value.rest, count - 1
    return _cell("nthcdr", value)


@builtin("nth", 2)
def _nth(run: Evaluation, count: Any, value: Any) -> Any:
    rest = _nthcdr(run, count, value)
    return rest and rest.first


for _place, _name in enumerate(("second", "third", "fourth"), 1):
    builtin(_name, 1)(lambda run, value, place=_place: _nth(run, place, value))


@builtin("last", 1)
def _last(run: Evaluation, value: Any) -> Any:
    while value.__class__ is Cell and value.rest.__class__ is Cell:
        run.spend(1)
        value = value.rest
    return _cell("last", value)


@builtin("elt", 2)
def _elt(run: Evaluation, value: Any, index: Any) -> Any:
    items = elements(run, value)
    if index.__class__ is not int or not 0 <= index < len(items):
        raise failed(f"elt: {short(index)} is no index of a sequence of {len(items)} elements")
    return items[index]


@builtin("length", 1)
def _length(run: Evaluation, value: Any) -> Any:
    return len(value) if isinstance(value, str) else len(elements(run, value))


@builtin("append", 0, None)
def _append(run: Evaluation, *lists: Any) -> Any:
    result = lists[-1] if lists else None
    for one in reversed(lists[:-1]):
        result = new_list(run, elements(run, _cell("append", one)), result)
    return result


@builtin("reverse", 1)
def _reverse(run: Evaluation, value: Any) -> Any:
    return _like(run, value, elements(run, value)[::-1])


@builtin("subseq", 2, 3)
def _subseq(run: Evaluation, value: Any, start: Any, end: Any = None) -> Any:
    count = _length(run, value)
    end = count if end is None else end
    if start.__class__ is not int or end.__class__ is not int or not 0 <= start <= end <= count:
        raise failed(f"subseq: {short(start)} to {short(end)} is not within 0 to {count}")
    if isinstance(value, str):
        run.allocate(end - start, CHARACTER_BYTES)
        return value[start:end]
    return new_list(run, elements(run, value)[start:end])


Verdict = Callable[[Evaluation, Any, list[Any], list[bool]], Any]
"""Computes a result from a sequence, its elements, and whether each element matched."""


def _looking(name: str, result: Verdict) -> None:
    """Define a function that searches a sequence for an item, and one that uses a test."""

    def by_item(run: Evaluation, item: Any, value: Any) -> Any:
        items = elements(run, value)
        return result(run, value, items, [is_equal(run, item, other) for other in items])

    def by_test(run: Evaluation, at: SourcePosition, test: Any, value: Any) -> Deep:
        test, items, found = function(test, run), elements(run, value), []
        for item in items:
            found.append((yield test.invoke(run, [item], at)) is not None)
        return result(run, value, items, found)

    builtin(name, 2)(by_item)
    builtin(f"{name}-if", 2, is_deep=True)(by_test)


def _kept(run: Evaluation, value: Any, items: list[Any], found: list[bool]) -> Any:
    return _like(run, value, [item for item, hit in zip(items, found, strict=True) if not hit])


def _found(run: Evaluation, value: Any, items: list[Any], found: list[bool]) -> Any:
    return items[found.index(True)] if True in found else None


def _position(run: Evaluation, value: Any, items: list[Any], found: list[bool]) -> Any:
    return found.index(True) if True in found else None


def _count(run: Evaluation, value: Any, items: list[Any], found: list[bool]) -> Any:
    return found.count(True)


_looking("remove", _kept)
_looking("find", _found)
_looking("position", _position)
_looking("count", _count)


@builtin("remove-if-not", 2, is_deep=True)
def _remove_if_not(run: Evaluation, at: SourcePosition, test: Any, value: Any) -> Deep:
    test, kept = function(test, run), []
    for item in elements(run, value):
        if (yield test.invoke(run, [item], at)) is not None:
            kept.append(item)
    return _like(run, value, kept)


@builtin("member", 2)
def _member(run: Evaluation, item: Any, value: Any) -> Any:
    rest = value
    while rest.__class__ is Cell:
        run.spend(1)
        if is_equal(run, item, rest.first):
            return rest
        rest = rest.rest
    return None


@builtin("assoc", 2)
def _assoc(run: Evaluation, key: Any, pairs: Any) -> Any:
    for pair in walk(_cell("assoc", pairs)):
        run.spend(1)
        if pair.__class__ is Cell and is_equal(run, key, pair.first):
            return pair
    return None


@builtin("getf", 2, 3)
def _getf(run: Evaluation, properties: Any, key: Any, default: Any = None) -> Any:
    items = elements(run, properties)
    for name, value in zip(items[::2], items[1::2], strict=False):
        if is_equal(run, key, name):
            return value
    return default


@builtin("mapcar", 2, None, is_deep=True)
def _mapcar(run: Evaluation, at: SourcePosition, called: Any, *lists: Any) -> Deep:
    called, results = function(called, run), []
    for items in zip(*[elements(run, one) for one in lists], strict=False):
        run.allocate(1)
        results.append((yield called.invoke(run, list(items), at)))
    return make_list(results)


@builtin("mapc", 2, is_deep=True)
def _mapc(run: Evaluation, at: SourcePosition, called: Any, items: Any) -> Deep:
    called = function(called, run)
    for item in elements(run, items):
        yield called.invoke(run, [item], at)
    return items


@builtin("every", 2, is_deep=True)
def _every(run: Evaluation, at: SourcePosition, test: Any, items: Any) -> Deep:
    test = function(test, run)
    for item in elements(run, items):
        if (yield test.invoke(run, [item], at)) is None:
            return None
    return True


@builtin("some", 2, is_deep=True)
def _some(run: Evaluation, at: SourcePosition, test: Any, items: Any) -> Deep:
    test = function(test, run)
    for item in elements(run, items):
        value = yield test.invoke(run, [item], at)
        if value is not None:
            return value
    return None


@builtin("reduce", 2, 3, is_deep=True)
def _reduce(run: Evaluation, at: SourcePosition, called: Any, items: Any, *initial: Any) -> Deep:
    called = function(called, run)
    values = [*initial, *elements(run, items)]
    if not values:
        return (yield called.invoke(run, [], at))
    result = values[0]
    for value in values[1:]:
        result = yield called.invoke(run, [result, value], at)
    return result


@builtin("sort", 2, is_deep=True)
def _sort(run: Evaluation, at: SourcePosition, value: Any, before: Any) -> Deep:
    """Sort stably: elements that the predicate does not order keep their order."""
    before = function(before, run)
    runs = [[item] for item in elements(run, value)]
    while len(runs) > 1:
        merged = []
        for one, other in zip(runs[::2], [*runs[1::2], []], strict=False):
            merged.append((yield _merge(run, at, one, other, before)))
        runs = merged
    return _like(run, value, runs[0] if runs else [])


def _merge(
    run: Evaluation, at: SourcePosition, one: list[Any], other: list[Any], before: Function
) -> Deep:  # fmt: skip
    run.spend(len(one) + len(other))
    merged = []
    i = j = 0
    while i < len(one) and j < len(other):
        if (yield before.invoke(run, [other[j], one[i]], at)) is not None:
            merged.append(other[j])
            j += 1
        else:
            merged.append(one[i])
            i += 1
    return merged + one[i:] + other[j:]


@builtin("funcall", 1, None, is_deep=True)
def _funcall(run: Evaluation, at: SourcePosition, called: Any, *arguments: Any) -> Deep:
    return (yield function(called, run).invoke(run, list(arguments), at))


@builtin("apply", 2, None, is_deep=True)
def _apply(run: Evaluation, at: SourcePosition, called: Any, *arguments: Any) -> Deep:
    spread = [*arguments[:-1], *elements(run, arguments[-1])]
    return (yield function(called, run).invoke(run, spread, at))
