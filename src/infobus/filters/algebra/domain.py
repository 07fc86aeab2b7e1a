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

from infobus.filters.language.literals import FAMILY, TEXTUAL, Test, fits
from infobus.filters.language.tree import Name, Scalar


class Domain(Struct, frozen=True, gc=False):
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
        return self.is_between(value) and value not in self.excluded

    @property
    def is_interval(self) -> bool:
        """Whether this is an interval of values, perhaps without bounds."""
        return self.values is None and self.family in _KINDS

    def is_between(self, value: Any) -> bool:
        """Whether a value lies within the bounds."""
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.high_open)


ANY = Domain("any")
ABSENT = Domain("absent")
PRESENT = Domain("present")

_ORDERS = {"<", "<=", ">", ">="}
_BY_FAMILY = {"==", *_ORDERS}
_FAMILIES = {"has": "list", "isa": "isa"} | dict.fromkeys(TEXTUAL, "string")
_KINDS = {
    "number": ("int32", "int64", "real64"),
    "string": ("string",),
    "bool": ("bool",),
    "datetime": ("datetime",),
}


def domain(tests: Iterable[Test]) -> Domain | None:
    """Return what tests of one attribute leave together; None if they contradict each other."""
    family: str | None = None
    values: frozenset[Scalar] | None = None
    excluded: frozenset[Scalar] = frozenset()
    others: frozenset[Test] = frozenset()
    low: Any = None
    high: Any = None
    low_open = high_open = False
    nan = True
    for test in tests:
        op = test.op
        found = test.family if op in _BY_FAMILY else _family_of(test)
        family = found if family is None or family == found else _narrower(family, found)
        if family is None:
            return None
        if op == "==":
            if test.negated:
                excluded = excluded.union(test.values)
            else:
                values = frozenset(test.values) if values is None else values & set(test.values)
        elif op in _ORDERS:
            (limit,) = test.values
            nan = nan and test.negated
            is_open = (len(op) == 1) != test.negated
            # Negated, `a < 5` is a bound from below and `a > 5` one from above.
            if (op[0] == "<") != test.negated:
                if high is None or limit <= high:
                    high, high_open = limit, is_open or (limit == high and high_open)
            elif low is None or limit >= low:
                low, low_open = limit, is_open or (limit == low and low_open)
        elif op != "exists" and not _says_only(test, family):
            others |= {test}
    assert family is not None
    nan = nan and family == "number"
    return _settled(Domain(family, values, low, low_open, high, high_open, nan, excluded, others))


def _says_only(test: Test, family: str) -> bool:
    """Whether the test is true of whatever is of the family."""
    kinds = _KINDS.get(family)
    return (
        test.op == "datatype"
        and not test.negated
        and kinds is not None
        and set(kinds) <= set(test.values)
    )


def _family_of(test: Test) -> str:
    """What an attribute must be for the test to be defined (or, for `exists`, true)."""
    if test.op == "datatype" and not test.negated:
        families = {FAMILY.get(str(kind), "present") for kind in test.values}
        return families.pop() if len(families) == 1 else "present"
    if test.op == "exists" and test.negated:
        return "absent"
    return _FAMILIES.get(test.op, "present")


def _narrower(one: str, other: str) -> str | None:
    """Of two different families the one that is both; None if nothing is."""
    if "absent" in (one, other) or "present" not in (one, other):
        return None
    return other if one == "present" else one


def _settled(found: Domain) -> Domain | None:
    """Write the same states in one way only; None if there are none."""
    if len(found.others) > 1 and _contradict(found.others):
        return None
    if found.family not in _KINDS:
        return Domain(found.family, others=found.others)
    if found.values is not None:
        return _settled_values(found, found.values)
    low, high, excluded = found.low, found.high, found.excluded
    if excluded:
        low_open = found.low_open or low in excluded
        high_open = found.high_open or high in excluded
        found = replace(found, low_open=low_open, high_open=high_open, excluded=frozenset())
        found = replace(found, excluded=frozenset(filter(found.holds, excluded)))
    if low is not None and high is not None and low >= high and not found.nan:
        if low > high or found.low_open or found.high_open:
            return None
        return _settled_values(found, frozenset([low]))
    return found


def _settled_values(found: Domain, values: frozenset[Scalar]) -> Domain | None:
    if found == Domain(found.family, found.values):
        return found if values else None
    texts = [other for other in found.others if other.op in TEXTUAL]
    left = frozenset(
        value
        for value in values
        if found.is_between(value)
        and value not in found.excluded
        and all(fits(text, value) != text.negated for text in texts)
    )
    return Domain(found.family, left, others=found.others.difference(texts)) if left else None


def _contradict(others: frozenset[Test]) -> bool:
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
    if outer.family != inner.family:
        if outer.family == "any":
            return True
        if outer.family != "present" or inner.family in ("any", "absent"):
            return False
    if outer.others and not all(_is_sure(inner, test) for test in outer.others):
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
    low, high = outer.low, outer.high
    if low is not None:
        other = inner.low
        if other is None or other < low or (other == low and outer.low_open > inner.low_open):
            return False
    if high is not None:
        other = inner.high
        if other is None or other > high or (other == high and outer.high_open > inner.high_open):
            return False
    return True


def as_tests(name: Name, allowed: Domain) -> list[Test]:
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
    others = sorted(allowed.others, key=repr)
    if not found and family in _KINDS and family not in map(_family_of, others):
        found.append(Test(name, "datatype", _KINDS[family]))
    found.extend(others)
    if not found and family != "any":
        found.append(Test(name, "exists", negated=family == "absent"))
    return found
