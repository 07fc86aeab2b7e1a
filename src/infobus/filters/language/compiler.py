"""Compiles trees into functions of an event.

An `evaluator` returns True, False or None (undefined). A `predicate` returns only whether that is
True. It runs for every event, so it is generated as one Python function. Its source has two forms
of each condition, "is True" and "is False"; an undefined condition is neither.

Both take the attributes of an event (`values.attributes_of(x)`) and, for `isa`, its data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any, Protocol

from infobus.filters.language import functions, values
from infobus.filters.language.tree import (
    And,
    Binary,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
    TypeName,
    Unary,
    Xor,
    nodes,
)

Attributes = Mapping[str, Any]

GENERATED_NODES_MAX = 300
"""Larger trees are evaluated without generated Python, which would take long to compile."""


class Evaluator(Protocol):
    """Returns the truth of a condition; None if it is undefined."""

    def __call__(self, attributes: Attributes, x: object = None, /) -> bool | None: ...


class Predicate(Protocol):
    """Returns whether a condition is true."""

    def __call__(self, attributes: Attributes, x: object = None, /) -> bool: ...


def evaluator(tree: Tree) -> Evaluator:
    """Compile a condition into a three-valued function.

    >>> from infobus.filters.language.parser import parse
    >>> evaluate = evaluator(parse("price > 40 && !exists(test)"))
    >>> evaluate({"price": 41}), evaluate({"price": 40}), evaluate({"price": "41"})
    (True, False, None)
    """
    match tree:
        case Not(operand):
            return _negated(evaluator(operand))
        case And(operands):
            return _joined([evaluator(operand) for operand in operands], False)
        case Or(operands):
            return _joined([evaluator(operand) for operand in operands], True)
        case Xor(operands):
            return _exclusive([evaluator(operand) for operand in operands])
        case Compare(op, left, right):
            return _comparison(op, _value(left), _value(right))
        case Member(item, container):
            return _membership(_value(item), container)
        case FunctionCall(function, arguments):
            return _call(function, arguments)
        case Name(path):
            read = _reader(path)
            return lambda m, x=None: value if type(value := read(m)) is bool else None
    raise AssertionError(f"not a condition: {tree}")


def _negated(operand: Evaluator) -> Evaluator:
    def negated(m: Attributes, x: object = None) -> bool | None:
        result = operand(m, x)
        return None if result is None else not result

    return negated


def _joined(operands: list[Evaluator], decisive: bool) -> Evaluator:
    """Join operands by `||` (True is decisive) or `&&` (False is decisive)."""

    def joined(m: Attributes, x: object = None) -> bool | None:
        undecided: bool | None = not decisive
        for operand in operands:
            result = operand(m, x)
            if result is decisive:
                return decisive
            if result is None:
                undecided = None
        return undecided

    return joined


def _exclusive(operands: list[Evaluator]) -> Evaluator:
    def exclusive(m: Attributes, x: object = None) -> bool | None:
        parity = False
        for operand in operands:
            result = operand(m, x)
            if result is None:
                return None
            parity ^= result
        return parity

    return exclusive


def _comparison(op: str, left: _Value, right: _Value) -> Evaluator:
    compare = values.compare
    return lambda m, x=None: compare(op, left(m), right(m))


def _membership(item: _Value, container: Name | Constants) -> Evaluator:
    if isinstance(container, Constants):
        return _among(item, container)
    read = _reader(container.path)

    def inside(m: Attributes, x: object = None) -> bool | None:
        value, elements = item(m), read(m)
        if values.family(value) is None or not isinstance(elements, list | tuple):
            return None
        return any(values.compare("==", value, element) for element in elements)

    return inside


def _among(item: _Value, constants: Constants) -> Evaluator:
    known: dict[str | None, set[object]] = {}
    for constant in constants.items:
        known.setdefault(values.family(constant.value), set()).add(constant.value)
    # A value that equals none of its own family is still not comparable with other families.
    if_unequal = None if len(known) > 1 else False

    def among(m: Attributes, x: object = None) -> bool | None:
        value = item(m)
        alike = known.get(values.family(value))
        return None if alike is None else value in alike or if_unequal

    return among


def _call(function: str, arguments: tuple[Tree, ...]) -> Evaluator:
    first, *more = arguments
    if function == "isa":
        assert isinstance(first, Constant)
        wanted = first.value
        return lambda m, x=None: wanted in values.lineage_of(x)
    if more:
        test = functions.string_test(function, tuple(c.value for c in more))  # type: ignore
        text = _value(first)
        return lambda m, x=None: test(t) if isinstance(t := text(m), str) else None
    assert isinstance(first, Name)
    read = _reader(first.path)
    if function == "exists":
        return lambda m, x=None: read(m) is not None
    if function == "require":
        return lambda m, x=None: None if read(m) is None else True
    if function == "nan":
        return lambda m, x=None: v != v if isinstance(v := read(m), float) else None
    kind_of = values.kind_of
    return lambda m, x=None: None if (v := read(m)) is None else kind_of(v) == function


_Value = Callable[[Attributes], Any]
_Number = Callable[[Attributes], values.Number | None]


def _reader(path: tuple[str, ...]) -> _Value:
    if len(path) == 1:
        (name,) = path
        return lambda m: m.get(name)
    return lambda m: values.read(m, path)


def _value(tree: Tree) -> _Value:
    """Compile an operand into a function that returns its value, or None if undefined."""
    match tree:
        case Name(path):
            return _reader(path)
        case Constant(value):
            return lambda m: value
        case TypeName(name):
            return lambda m: name
        case FunctionCall("datatype", (Name(path),)):
            read = _reader(path)
            return lambda m: values.kind_of(read(m))
        case FunctionCall(function, (argument,)) if function in functions.CONVERSIONS:
            convert, inner = functions.CONVERSIONS[function], _value(argument)
            return lambda m: convert(t) if isinstance(t := inner(m), str) else None
    number = _number(tree)
    return lambda m: None if (n := number(m)) is None else n[0]


def _number(tree: Tree) -> _Number:
    """Like `_value`, for an operand of arithmetic: the number comes with its width."""
    match tree:
        case Constant(value, kind):
            fixed = (value, {"int32": 32, "int64": 64, "real64": values.REAL}[kind])
            return lambda m: fixed  # type: ignore[return-value]
        case Name(path):
            read = _reader(path)
            return lambda m: values.number(read(m))
        case FunctionCall("size", (Name(path),)):
            sized = _reader(path)
            return lambda m: (
                (len(v), 32) if isinstance(v := sized(m), str | bytes | list | tuple) else None
            )
        case Unary(op, operand):
            inner = _number(operand)
            return lambda m: None if (n := inner(m)) is None else values.unary(op, n)
        case Binary(op, left, right):
            return _binary(op, _number(left), _number(right))
    raise AssertionError(f"not a number: {tree}")


def _binary(op: str, left: _Number, right: _Number) -> _Number:
    def binary(m: Attributes) -> values.Number | None:
        if (a := left(m)) is None or (b := right(m)) is None:
            return None
        return values.arithmetic(op, a, b)

    return binary


def predicate(tree: Tree) -> Predicate:
    """Compile a condition into a function that returns whether it is true.

    >>> from infobus.filters.language.parser import parse
    >>> matches = predicate(parse("price > 40 && !exists(test)"))
    >>> matches({"price": 41}), matches({"price": 40}), matches({"price": "41"})
    (True, False, False)
    """
    if next(islice(nodes(tree), GENERATED_NODES_MAX, None), None) is not None:
        evaluate = evaluator(tree)
        return lambda m, x=None: evaluate(m, x) is True
    return _Source().function(tree)


# The source contains no constants and no names, so filters of the same shape share code.
@lru_cache(maxsize=1024)
def _code(condition: str) -> CodeType:
    source = f"def matches(m, x=None):\n g = m.get\n return {condition}"
    return compile(source, "<filter>", "exec")


class _Source:
    """Writes a condition as Python source; constants and helpers get names in its globals."""

    def __init__(self) -> None:
        self._bound: dict[str, object] = {"compare": values.compare, "read": values.read}

    def function(self, tree: Tree) -> Predicate:
        exec(_code(self._is(tree, True)), self._bound)
        return self._bound.pop("matches")  # type: ignore[return-value]

    def _bind(self, thing: object) -> str:
        name = f"k{len(self._bound)}"
        self._bound[name] = thing
        return name

    def _is(self, tree: Tree, truth: bool) -> str:
        """Return an expression that is true if `tree` is `truth`, and false otherwise."""
        match tree:
            case Not(operand):
                return self._is(operand, not truth)
            case And(operands) | Or(operands):
                joint = " and " if isinstance(tree, And) is truth else " or "
                return f"({joint.join(self._is(operand, truth) for operand in operands)})"
            case Name():
                return f"({self._read(tree)} is {truth})"
            case Compare(op, Name() as name, Constant(value)):
                return self._compared(op, name, value, truth)
            case Member(Name() as name, Constants(items)) if {c.kind for c in items} == {"string"}:
                known = self._bind(frozenset(c.value for c in items))
                return self._string(name, f"v in {known}", truth)
            case FunctionCall("exists", (Name() as name,)):
                return f"({self._read(name)} is {'not ' * truth}None)"
            case FunctionCall("begins-with" | "ends-with", (Name() as name, *more)):
                method = "startswith" if tree.function == "begins-with" else "endswith"
                patterns = self._bind(tuple(c.value for c in more))  # type: ignore[union-attr]
                return self._string(name, f"v.{method}({patterns})", truth)
        return f"({self._bind(evaluator(tree))}(m, x) is {truth})"

    def _read(self, name: Name) -> str:
        if len(name.path) == 1:
            return f"g({self._bind(name.path[0])})"
        return f"read(m, {self._bind(name.path)})"

    def _string(self, name: Name, test: str, truth: bool) -> str:
        test = test if truth else f"not {test}"
        return f"(isinstance(v := {self._read(name)}, str) and {test})"

    def _compared(self, op: str, name: Name, value: object, truth: bool) -> str:
        constant = self._bind(value)
        match value:
            case bool():
                wanted = value is (truth is (op == "=="))
                return f"({self._read(name)} is {wanted})"
            case str() if op == "==" and truth:  # Only strings equal a string.
                return f"({self._read(name)} == {constant})"
            case str():
                return self._string(name, f"v {op} {constant}", truth)
            case int() | float():
                test = f"v {op} {constant}" if truth else f"not v {op} {constant}"
                # Subclasses of numbers and values of other kinds take the slow path.
                return (
                    f"(({test} and {-values.INT64_MAX - 1} <= v <= {values.INT64_MAX})"
                    f" if (c := (v := {self._read(name)}).__class__) is int"
                    f" else {test} if c is float"
                    f" else v is not None and compare({op!r}, v, {constant}) is {truth})"
                )
        return f"(compare({op!r}, {self._read(name)}, {constant}) is {truth})"
