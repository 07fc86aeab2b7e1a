"""Pushes a filter down to a target, such as a database, as far as both give it one meaning.

Literals of the normal form are true or false, so a `NULL` in the target counts as false. A literal
is pushed *exactly* (the target finds it true for the same rows), *weakly* (for these rows and
others) or not at all. The residual contains every part that was not pushed exactly. A conjunction
may be pushed without some of its parts; alternatives must be pushed all, or not at all.

Columns are trusted to hold values of their type. Conditions on an attribute without a column go to
the residual, because a row may have more attributes than the target knows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from infobus.filters.language.functions import wildcard_parts
from infobus.filters.language.literals import FAMILY, OPPOSITE, TEXTUAL, Rest, Test, needs
from infobus.filters.language.normal import AllOf, AnyOf, Normal, normal
from infobus.filters.language.tree import And, Compare, Constant, FunctionCall, Name, Scalar, Tree

if TYPE_CHECKING:
    from infobus.filters.language.filter import Filter

Condition = TypeVar("Condition")

LEAVES_MAX = 200
"""How many literals are pushed. SQLite refuses expressions a thousand levels deep, and every
`AND` in a chain is a level."""


@dataclass(frozen=True, eq=False)  # `==` between conditions builds another condition
class Pushed(Generic[Condition]):
    """A filter in two halves; a row matches it if it satisfies both.

    The target evaluates `condition`; it is None if nothing could be pushed. You evaluate
    `residual` on the rows that the target returns; it is None if nothing is left to check.
    """

    condition: Condition | None
    residual: Filter | None


class TargetAttribute(NamedTuple):
    """An attribute in the target.

    `kind` is `integer` (any width), `real64`, `string`, `bool`, `datetime`, `opaque`, `list`
    (of `item_kind`) or `object`. It is empty for types that filters do not have; then only
    `NULL` has a known meaning, a missing attribute.
    """

    # Expressions of SQLAlchemy and of Spark share their operators, not a type.
    expression: Any
    kind: str
    item_kind: str = ""


Push = tuple[Any, bool]
"""A condition (None if nothing is pushed), and whether it is exact."""


class Target(Protocol):
    """The differences between targets. None means that the target has no equal condition."""

    never: Any
    """A condition that no row satisfies."""

    equated: frozenset[str]
    """The kinds for which the target and a filter agree on equality."""

    ordered: frozenset[str]
    """The kinds for which they also agree on order; the target takes NaN for the largest."""

    def attribute(self, name: Name) -> TargetAttribute | None: ...
    def is_present(self, attribute: TargetAttribute) -> Any: ...
    def literal(self, value: Scalar) -> Any | None: ...
    def one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any: ...
    def textual(self, op: str, attribute: TargetAttribute, value: str) -> Push:
        """Push `begins-with`, `ends-with` or `contains`."""

    def has_one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any: ...
    def size(self, attribute: TargetAttribute) -> Any | None: ...


_NOT_PUSHED: Push = (None, False)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Keys: whether a pattern has a `*` at its beginning and at its end, and none between.
_WILDCARDS = {
    (False, False): "==",
    (False, True): "begins-with",
    (True, False): "ends-with",
    (True, True): "contains",
}
_KINDS_OF: dict[str, frozenset[str]] = {
    "integer": frozenset({"int32", "int64"}),
    "list": frozenset(),
    "object": frozenset(),
}


def push_down(filter: Filter, target: Target) -> Pushed[Any]:
    """Split `filter` into a condition for `target` and a residual."""
    tree = filter.tree
    operands = tree.operands if isinstance(tree, And) else (tree,)
    translate = _Translation(target).push
    conditions: list[Any] = []
    left: list[Tree] = []
    leaves_left = LEAVES_MAX
    for operand in operands:
        form = normal(operand)
        leaves_left -= _leaf_count(form)
        condition, is_exact = translate(form) if leaves_left >= 0 else _NOT_PUSHED
        if condition is not None:
            conditions.append(condition)
        if not is_exact:
            left.append(operand)
    residual = And(tuple(left)) if len(left) > 1 else left[0] if left else None
    return Pushed(
        condition=_all(conditions) if conditions else None,
        residual=None if residual is None else type(filter)(residual),
    )


class _Translation:
    """Translates the normal form into conditions of one target."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def push(self, form: Normal) -> Push:
        match form:
            case AllOf(parts):
                pushed = [self.push(part) for part in parts]
                conditions = [condition for condition, _ in pushed if condition is not None]
                return _all(conditions) if conditions else None, all(exact for _, exact in pushed)
            case AnyOf(()):
                return self.target.never, True
            case AnyOf(parts):
                pushed = [self.push(part) for part in parts]
                if any(condition is None for condition, _ in pushed):
                    return _NOT_PUSHED
                return _any(condition for condition, _ in pushed), all(exact for _, exact in pushed)
            case Test():
                return self._test(form)
            case Rest(Compare(op, Name() as left, Name() as right), negated):
                exact = self._names(op, left, right, negated)
            case Rest(
                Compare(op, FunctionCall("size", (Name() as name,)), Constant() as limit), negated
            ):
                exact = self._size(name, op, limit.value, negated)
            case Rest(FunctionCall("nan", (Name() as name,)), negated):
                exact = self._nan(name, negated)
            case _:
                exact = None
        return (self._presence(needs(form)), False) if exact is None else (exact, True)

    def _test(self, test: Test) -> Push:
        attribute = None if test.op == "isa" else self.target.attribute(test.name)
        if attribute is None or (not attribute.kind and test.negated and test.op == "exists"):
            return _NOT_PUSHED
        if attribute.kind and test.op in TEXTUAL:
            return self._textual(test, attribute)
        if not attribute.kind:
            exact = None
        elif test.op == "exists":
            exact = self.target.is_present(attribute)
            exact = ~exact if test.negated else exact
        elif test.op == "has":
            exact = self._has(test, attribute)
        elif test.op == "datatype":
            exact = self._datatype(test, attribute)
        else:
            exact = self._comparison(test, attribute)
        return (self.target.is_present(attribute), False) if exact is None else (exact, True)

    def _comparison(self, test: Test, attribute: TargetAttribute) -> Any | None:
        """Push `==`, which may have several values, or an order."""
        if _family(attribute.kind) != test.family:
            return self.target.never
        if test.op == "==":
            return self._equality(test, attribute, attribute.kind, self.target.one_of)
        if attribute.kind not in self.target.ordered:
            return None
        op, value = _nearest(attribute.kind, test.op, test.values[0])
        limit = self.target.literal(value)
        if limit is None:
            return None
        expression = attribute.expression
        condition = _COMPARE[OPPOSITE[op] if test.negated else op](expression, limit)
        if attribute.kind != "real64":
            return condition
        # For targets NaN is the largest number; for a filter it compares with no number.
        if not test.negated:
            return condition & self._is_number(attribute) if op in (">", ">=") else condition
        return condition if op in ("<", "<=") else condition | ~self._is_number(attribute)

    def _equality(
        self,
        test: Test,
        attribute: TargetAttribute,
        kind: str,
        ask: Callable[[TargetAttribute, Sequence[Any]], Any],
    ) -> Any | None:
        if kind not in self.target.equated:
            return None
        values = test.values if _family(kind) == test.family else ()
        held = ((value, _nearest(kind, "==", value)[1]) for value in values)
        # A value that the column cannot hold equals nothing in it.
        literals = [self.target.literal(near) for value, near in held if near == value]
        if any(literal is None for literal in literals):
            return None
        if not literals:
            return self.target.is_present(attribute) if test.negated else self.target.never
        condition = ask(attribute, literals)
        return ~condition if test.negated else condition

    def _textual(self, test: Test, attribute: TargetAttribute) -> Push:
        if attribute.kind != "string":
            return self.target.never, True
        pushed = []
        for value in map(str, test.values):
            push = self._one_text(test.op, attribute, value)
            if push is None:
                return self.target.is_present(attribute), False
            pushed.append(push)
        is_exact = all(exact for _, exact in pushed)
        condition = _any(condition for condition, _ in pushed)
        if not test.negated:
            return condition, is_exact
        return (~condition, True) if is_exact else (self.target.is_present(attribute), False)

    def _one_text(self, op: str, attribute: TargetAttribute, value: str) -> Push | None:
        if op == "wildcard":
            parts = wildcard_parts(value)
            texts = [text for text in parts[::2] if text]
            if "?" in parts[1::2] or len(texts) > 1:
                return None
            has_stars = len(parts) > 1
            op = _WILDCARDS[has_stars and not parts[0], has_stars and not parts[-1]]
            value = "".join(texts)
        literal = self.target.literal(value)
        if literal is None or op == "regex":
            return None
        if op == "==":
            return attribute.expression == literal, True
        return self.target.textual(op, attribute, value)

    def _has(self, test: Test, attribute: TargetAttribute) -> Any | None:
        if attribute.kind != "list":
            return self.target.never
        condition = self._equality(test, attribute, attribute.item_kind, self.target.has_one_of)
        if condition is None or not test.negated:
            return condition
        return condition & self.target.is_present(attribute)  # a missing list lacks nothing

    def _datatype(self, test: Test, attribute: TargetAttribute) -> Any:
        possible = _KINDS_OF.get(attribute.kind, frozenset({attribute.kind}))
        fitting = possible.difference(test.values) if test.negated else possible & {*test.values}
        if not fitting:
            return self.target.never
        if fitting == possible:
            return self.target.is_present(attribute)
        low, high = self.target.literal(-(2**31)), self.target.literal(2**31 - 1)
        if fitting == {"int32"}:
            return (attribute.expression >= low) & (attribute.expression <= high)
        return (attribute.expression < low) | (attribute.expression > high)

    def _names(self, op: str, left: Name, right: Name, negated: bool) -> Any | None:
        one, other = self.target.attribute(left), self.target.attribute(right)
        if one is None or other is None or one.kind != other.kind:
            return None
        is_equality = op in ("==", "!=")
        if one.kind not in (self.target.equated if is_equality else self.target.ordered):
            return None
        condition = _COMPARE["==" if is_equality else op](one.expression, other.expression)
        if one.kind == "real64":
            condition = condition & self._is_number(one) & self._is_number(other)
        if negated == (op == "!="):
            return condition
        if one.kind != "real64":
            return ~condition
        # For NaN against `NULL` the condition is false, but the filter is undefined.
        return ~condition & self.target.is_present(one) & self.target.is_present(other)

    def _size(self, name: Name, op: str, limit: Scalar, negated: bool) -> Any | None:
        attribute = self.target.attribute(name)
        size = None if attribute is None else self.target.size(attribute)
        if size is None:
            return None
        if op in ("==", "!="):
            op, negated = "==", negated != (op == "!=")
        test = Test(name, op, (limit,), "number", negated)
        return self._comparison(test, TargetAttribute(size, "integer"))

    def _nan(self, name: Name, negated: bool) -> Any | None:
        attribute = self.target.attribute(name)
        if attribute is None or not attribute.kind:
            return None
        if attribute.kind != "real64":
            return self.target.never
        is_number = self._is_number(attribute)
        return is_number if negated else ~is_number

    def _presence(self, names: Iterable[Name]) -> Any | None:
        attributes = [self.target.attribute(name) for name in names]
        known = [attribute for attribute in attributes if attribute is not None]
        return _all(map(self.target.is_present, known)) if known else None

    def _is_number(self, attribute: TargetAttribute) -> Any:
        return attribute.expression <= self.target.literal(math.inf)


def _nearest(kind: str, op: str, value: Any) -> tuple[str, Any]:
    """Return `op value` rewritten for a column that may be unable to hold `value`.

    >>> _nearest("integer", ">=", 1.5), _nearest("real64", "<", 2**53 + 1)
    (('>', 1), ('<=', 9007199254740992.0))
    """
    if kind == "integer":
        near: int | float = math.floor(min(max(value, _INT64_MIN), _INT64_MAX))
    elif kind == "real64":
        near = float(value)
    else:
        return op, value
    if near == value or op == "==":
        return op, near
    is_lower_limit = op in (">", ">=")
    if near < value:
        return (">" if is_lower_limit else "<="), near
    return (">=" if is_lower_limit else "<"), near


def _family(kind: str) -> str:
    return "number" if kind == "integer" else FAMILY.get(kind, "")


def _leaf_count(form: Normal) -> int:
    match form:
        case AllOf(parts) | AnyOf(parts):
            return sum(map(_leaf_count, parts))
        case Test(op=op, values=values) if op in TEXTUAL:
            return len(values)
        case _:
            return 1


def _all(conditions: Iterable[Any]) -> Any:
    return reduce(operator.and_, conditions)


def _any(conditions: Iterable[Any]) -> Any:
    return reduce(operator.or_, conditions)
