"""The functions on lists, and those that work on both lists and strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from infobus.tdl.compiler import BUILTINS, Python, builtin
from infobus.tdl.conditions import WrongType, failed, wrong_type
from infobus.tdl.library.equality import is_eql
from infobus.tdl.limits import CHARACTER_BYTES
from infobus.tdl.machine import Builtin, Evaluation
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


def options_in(who: str, options: Sequence[Any], *known: str) -> dict[str, Any]:
    """Return the keywords that follow the arguments of a function, and their values."""
    names = options[::2]
    if len(options) % 2 or not all(n.__class__ is Symbol and n.is_keyword for n in names):
        raise failed(f"{who} expects keywords, each with a value, after its arguments")
    found: dict[str, Any] = {}
    for name, value in zip(names, options[1::2], strict=True):
        if name.name not in known:
            raise failed(f"{who} does not know the keyword {name.name}; it has {' '.join(known)}")
        found.setdefault(name.name, value)
    return found


def longer(name: str, least: int) -> Callable[[Python], Python]:
    """Register the variant of a built-in function that takes keywords as well; it is deep."""

    def enter(function: Python) -> Python:
        BUILTINS[name].longer = Builtin(name, function, least, None, is_deep=True)
        return function

    return enter


class _Test:
    """How a function compares elements: by `:test` and `:key`, or else by `eql`."""

    def __init__(self, run: Evaluation, who: str, options: Sequence[Any], *known: str) -> None:
        found = options_in(who, options, *known)
        test, key = found.get(":test"), found.get(":key")
        self._test = None if test is None else function(test, run)
        self._key = None if key is None else function(key, run)

    def key_of(self, run: Evaluation, at: SourcePosition, item: Any) -> Deep:
        """Evaluate what stands for `item`."""
        return item if self._key is None else (yield self._key.invoke(run, [item], at))

    def holds(self, run: Evaluation, at: SourcePosition, item: Any, other: Any) -> Deep:
        """Evaluate whether `other`, an element, matches `item`."""
        other = yield from self.key_of(run, at, other)
        if self._test is None:
            return is_eql(run, item, other)
        return (yield self._test.invoke(run, [item, other], at)) is not None


Verdict = Callable[[Evaluation, Any, list[Any], list[bool]], Any]
"""Computes a result from a sequence, its elements, and whether each element matched."""


def _looking(name: str, verdict: Verdict) -> None:
    """Define a function that searches a sequence for an item, and one that uses a test."""

    @builtin(name, 2)
    def by_item(run: Evaluation, item: Any, value: Any) -> Any:
        items = elements(run, value)
        return verdict(run, value, items, [is_eql(run, item, other) for other in items])

    @longer(name, 2)
    def by_item_and_test(
        run: Evaluation, at: SourcePosition, item: Any, value: Any, *options: Any
    ) -> Deep:
        test, items, found = _Test(run, name, options, ":test", ":key"), elements(run, value), []
        for other in items:
            found.append((yield from test.holds(run, at, item, other)))
        return verdict(run, value, items, found)

    @builtin(f"{name}-if", 2, None, is_deep=True)
    def by_test(
        run: Evaluation, at: SourcePosition, called: Any, value: Any, *options: Any
    ) -> Deep:
        items, found = yield from _matches(run, at, f"{name}-if", called, value, options)
        return verdict(run, value, items, found)


def _matches(
    run: Evaluation, at: SourcePosition, who: str, called: Any, value: Any, options: Sequence[Any]
) -> Deep:
    """Evaluate the elements of a sequence, and whether each of them passes a test."""
    key, called = _Test(run, who, options, ":key"), function(called, run)
    items, found = elements(run, value), []
    for item in items:
        shown = yield from key.key_of(run, at, item)
        found.append((yield called.invoke(run, [shown], at)) is not None)
    return items, found


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


@builtin("remove-if-not", 2, None, is_deep=True)
def _remove_if_not(
    run: Evaluation, at: SourcePosition, test: Any, value: Any, *options: Any
) -> Deep:
    items, found = yield from _matches(run, at, "remove-if-not", test, value, options)
    return _kept(run, value, items, [not hit for hit in found])


@builtin("member", 2)
def _member(run: Evaluation, item: Any, value: Any) -> Any:
    rest = _cell("member", value)
    while rest.__class__ is Cell:
        run.spend(1)
        if is_eql(run, item, rest.first):
            return rest
        rest = rest.rest
    return None


@longer("member", 2)
def _member_by(run: Evaluation, at: SourcePosition, item: Any, value: Any, *options: Any) -> Deep:
    test, rest = _Test(run, "member", options, ":test", ":key"), _cell("member", value)
    while rest.__class__ is Cell:
        run.spend(1)
        if (yield from test.holds(run, at, item, rest.first)):
            return rest
        rest = rest.rest
    return None


@builtin("assoc", 2)
def _assoc(run: Evaluation, key: Any, pairs: Any) -> Any:
    for pair in walk(_cell("assoc", pairs)):
        run.spend(1)
        if pair.__class__ is Cell and is_eql(run, key, pair.first):
            return pair
    return None


@longer("assoc", 2)
def _assoc_by(run: Evaluation, at: SourcePosition, key: Any, pairs: Any, *options: Any) -> Deep:
    test = _Test(run, "assoc", options, ":test", ":key")
    for pair in walk(_cell("assoc", pairs)):
        run.spend(1)
        if pair.__class__ is Cell and (yield from test.holds(run, at, key, pair.first)):
            return pair
    return None


@builtin("getf", 2, 3)
def _getf(run: Evaluation, properties: Any, key: Any, default: Any = None) -> Any:
    items = elements(run, properties)
    for name, value in zip(items[::2], items[1::2], strict=False):
        if is_eql(run, key, name):
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


@longer("reduce", 2)
def _reduce_by(run: Evaluation, at: SourcePosition, called: Any, items: Any, *options: Any) -> Deep:
    found = options_in("reduce", options, ":initial-value", ":key")
    key, values = found.get(":key"), elements(run, items)
    if key is not None:
        key = function(key, run)
        for index, value in enumerate(values):
            values[index] = yield key.invoke(run, [value], at)
    initial = [found[":initial-value"]] if ":initial-value" in found else []
    run.allocate(len(values))
    return (yield _reduce(run, at, called, make_list(values), *initial))


@builtin("sort", 2, None, is_deep=True)
def _sort(run: Evaluation, at: SourcePosition, value: Any, before: Any, *options: Any) -> Deep:
    """Sort stably: elements that the predicate does not order keep their order."""
    before, key = function(before, run), _Test(run, "sort", options, ":key")
    runs = []
    for item in elements(run, value):
        runs.append([((yield from key.key_of(run, at, item)), item)])
    while len(runs) > 1:
        merged = []
        for one, other in zip(runs[::2], [*runs[1::2], []], strict=False):
            merged.append((yield _merge(run, at, one, other, before)))
        runs = merged
    return _like(run, value, [item for _, item in runs[0]] if runs else [])


_Keyed = list[tuple[Any, Any]]
"""Elements, each after what stands for it in comparisons."""


def _merge(
    run: Evaluation, at: SourcePosition, one: _Keyed, other: _Keyed, before: Function
) -> Deep:
    run.spend(len(one) + len(other))
    merged = []
    i = j = 0
    while i < len(one) and j < len(other):
        if (yield before.invoke(run, [other[j][0], one[i][0]], at)) is not None:
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


@builtin("fmakunbound", 1)
def _fmakunbound(run: Evaluation, named: Any) -> Any:
    """Remove a function of the program, so that another kind of function can have its name."""
    if named.__class__ is not Symbol:
        raise wrong_type("fmakunbound", "the name of a function", short(named))
    run.interpreter.forget_function(named.name)
    return named
