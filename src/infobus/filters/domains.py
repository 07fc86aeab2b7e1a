"""What one attribute may be where several tests on it hold: one family of values, and which.

Every test but `exists` is defined for one family of values only, so tests that hold together
leave a set of values, or one interval with some points left out, or other tests kept as they
are. That is enough to see contradictions, to compare what two rows allow, and to join rows.
All answers are sound: what cannot be decided from these facts is answered "not known to".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from infobus.filters.literals import FAMILY, TEXTUAL, Test, fits
from infobus.filters.tree import Name, Scalar


class Domain(Struct, frozen=True):
    """The states of one attribute that are allowed.

    `family` is `any` (no condition), `absent`, `present` (whatever it is), `list`, a family of
    values, or `isa` for what the event itself is. Of a family of values, `values` lists those
    allowed; where it is None, they lie between `low` and `high` (None: no bound) and are not
    `excluded`. `nan` tells whether a number may be NaN, which lies in no interval. `others` are
    tests that must hold besides.
    """

    family: str
    values: frozenset[Scalar] | None = None
    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    nan: bool = False
    excluded: frozenset[Scalar] = frozenset()
    others: frozenset[Test] = frozenset()

    def holds(self, value: Scalar) -> bool:
        """Whether a value of the same family, not NaN, is allowed, `others` left aside."""
        if self.values is not None:
            return value in self.values
        return self._is_between(value) and value not in self.excluded

    @property
    def is_interval(self) -> bool:
        """Whether this is an interval of values, perhaps without bounds."""
        return self.values is None and self.family in _KINDS

    def _is_between(self, value: Any) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.high_open)


ANY = Domain("any")
ABSENT = Domain("absent")
PRESENT = Domain("present")

_ON_OTHERS = {"has": "list", "isa": "isa"}
_KINDS = {
    "number": ("int32", "int64", "real64"),
    "string": ("string",),
    "bool": ("bool",),
    "datetime": ("datetime",),
}


def domain(tests: Iterable[Test]) -> Domain | None:
    """Return what tests of one attribute leave together; None if they contradict each other."""
    families: set[str] = set()
    values: frozenset[Scalar] | None = None
    excluded: set[Scalar] = set()
    others: set[Test] = set()
    nan, low, high = True, _Bound(), _Bound()
    for test in tests:
        family, op = test.family, test.op
        if op == "exists":
            family = "absent" if test.negated else ""
        elif op == "==":
            some = frozenset(test.values)
            if test.negated:
                excluded |= some
            else:
                values = some if values is None else values & some
        elif op in TEXTUAL:
            family = "string"
            others.add(test)
        elif op in _ON_OTHERS:
            family = _ON_OTHERS[op]
            others.add(test)
        elif op == "datatype":
            family = _family_of_kinds(test)
            if not family or set(_KINDS[family]) - set(test.values):
                others.add(test)
        else:
            nan = nan and test.negated
            # Negated, `a < 5` bounds from below and `a > 5` from above.
            bound = high if (op[0] == "<") != test.negated else low
            bound.tighten(test.values[0], open_=(len(op) == 1) != test.negated, below=bound is high)
        families.add(family or "present")
    families = families - {"present"} or families
    if len(families) > 1 or ("absent" in families and others):
        return None
    found = Domain(
        families.pop(),
        values,
        low.value,
        low.open,
        high.value,
        high.open,
        nan,
        frozenset(excluded),
        frozenset(others),
    )
    return _settled(found)


class _Bound:
    """The tightest bound so far, from above or from below."""

    __slots__ = ("open", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.open = False

    def tighten(self, value: Any, *, open_: bool, below: bool) -> None:
        if self.value is None or (value < self.value if below else value > self.value):
            self.value, self.open = value, open_
        elif value == self.value:
            self.open = self.open or open_


def _family_of_kinds(test: Test) -> str:
    families = {FAMILY.get(str(kind), "") for kind in test.values}
    return "" if test.negated or len(families) > 1 else families.pop()


def _settled(found: Domain) -> Domain | None:
    """Write the same states in one way only; None if there are none."""
    if _contradict(found.others):
        return None
    if found.family not in _KINDS:
        return Domain(found.family, others=found.others)
    if found.values is not None:
        texts = [other for other in found.others if other.op in TEXTUAL]
        interval = replace(found, values=None)
        values = frozenset(
            value
            for value in found.values
            if interval.holds(value) and all(fits(text, value) != text.negated for text in texts)
        )
        others = found.others.difference(texts)
        return Domain(found.family, values, others=others) if values else None
    nan = found.nan and found.family == "number"
    low, high = found.low, found.high
    low_open = found.low_open or (low is not None and low in found.excluded)
    high_open = found.high_open or (high is not None and high in found.excluded)
    if low is not None and high is not None and not nan:
        if low > high or (low == high and (low_open or high_open)):
            return None
        if low == high:
            return _settled(Domain(found.family, frozenset([low]), others=found.others))
    bounds = Domain(found.family, None, low, low_open, high, high_open, nan)
    excluded = frozenset(value for value in found.excluded if bounds.holds(value))
    return replace(bounds, excluded=excluded, others=found.others)


def _contradict(others: frozenset[Test]) -> bool:
    if len(others) < 2:
        return False
    plain = [test for test in others if not test.negated]
    return any(
        implies(test, replace(other, negated=False))
        for other in others
        if other.negated
        for test in plain
    ) or any(
        one.op == other.op and one.op in _STARTS and not _some_fit_together(one, other)
        for index, one in enumerate(plain)
        for other in plain[:index]
    )


_STARTS = {"begins-with": str.startswith, "ends-with": str.endswith}


def _some_fit_together(one: Test, other: Test) -> bool:
    starts = _STARTS[one.op]
    return any(starts(a, b) or starts(b, a) for a in _texts(one) for b in _texts(other))


def implies(one: Test, other: Test) -> bool:
    """Whether `other` certainly holds where `one` does; both are about one attribute."""
    if one == other:
        return True
    if one.negated or other.negated:
        return (
            one.negated
            and other.negated
            and implies(replace(other, negated=False), replace(one, negated=False))
        )
    if one.op == other.op and one.family == other.family:
        if one.op in _STARTS:
            return all(_STARTS[one.op](text, _texts(other)) for text in _texts(one))
        if one.op != "contains":
            return set(one.values) <= set(other.values)
    return (
        other.op == "contains"
        and one.op in ("contains", "begins-with", "ends-with")
        and all(any(part in text for part in _texts(other)) for text in _texts(one))
    )


def _texts(test: Test) -> tuple[str, ...]:
    return tuple(map(str, test.values))


def includes(outer: Domain, inner: Domain) -> bool:
    """Whether every state that `inner` allows is certainly allowed by `outer`."""
    if outer == ANY or outer == inner:
        return True
    if inner.family in ("any", "absent") or outer.family == "absent":
        return False
    if outer.family not in ("present", inner.family):
        return False
    if not all(_is_sure(inner, test) for test in outer.others):
        return False
    if outer.family not in _KINDS:
        return True
    if inner.values is not None:
        return all(map(outer.holds, inner.values))
    if outer.values is not None or (inner.nan and not outer.nan):
        return False
    return _lies_within(inner, outer) and not any(map(inner.holds, outer.excluded))


def _is_sure(inner: Domain, test: Test) -> bool:
    if test.op in TEXTUAL and inner.values is not None:
        return all(fits(test, value) != test.negated for value in inner.values)
    if test.op == "datatype" and inner.family in _KINDS:
        kinds, wanted = set(_KINDS[inner.family]), set(test.values)
        if kinds.isdisjoint(wanted) if test.negated else kinds <= wanted:
            return True
    return any(implies(other, test) for other in inner.others)


def _lies_within(inner: Domain, outer: Domain) -> bool:
    if outer.low is not None:
        if inner.low is None or inner.low < outer.low:
            return False
        if inner.low == outer.low and outer.low_open and not inner.low_open:
            return False
    if outer.high is not None:
        if inner.high is None or inner.high > outer.high:
            return False
        if inner.high == outer.high and outer.high_open and not inner.high_open:
            return False
    return True


def tests(name: Name, allowed: Domain) -> list[Test]:
    """Return tests of `name` that hold together exactly where `allowed` does."""
    family, nan = allowed.family, allowed.nan
    found: list[Test] = []
    if allowed.values is not None:
        found.append(Test(name, "==", tuple(sorted(allowed.values)), family))
    if allowed.low is not None:
        op = ("<=" if allowed.low_open else "<") if nan else (">" if allowed.low_open else ">=")
        found.append(Test(name, op, (allowed.low,), family, nan))
    if allowed.high is not None:
        op = (">=" if allowed.high_open else ">") if nan else ("<" if allowed.high_open else "<=")
        found.append(Test(name, op, (allowed.high,), family, nan))
    if allowed.excluded:
        found.append(Test(name, "==", tuple(sorted(allowed.excluded)), family, True))
    found.extend(sorted(allowed.others, key=repr))
    if not found and family != "any":
        if family in _KINDS:
            found.append(Test(name, "datatype", _KINDS[family]))
        else:
            found.append(Test(name, "exists", negated=family == "absent"))
    return found
