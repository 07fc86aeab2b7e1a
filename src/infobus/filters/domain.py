"""The values that one attribute may have where several tests of it hold together.

Every test but `exists` is defined for one family of values only. So tests that hold together
leave a few values, or one interval with some points left out, or other tests that stay as they
are. Both the matcher and the algebra build on this: the matcher indexes events by domains, and
the algebra compares and joins them.

All answers are sound, not complete: `includes` and `implies` say True only if it is certain.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from infobus.filters.language.literals import FAMILY, OPPOSITE, TEXTUAL, Test, fits
from infobus.filters.language.partial import UNKNOWN
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.language.values import family as family_of

ORDERS = frozenset({"<", "<=", ">", ">="})

# Classes whose values belong to one family without a closer look; `family_of` decides on others.
_PLAIN: dict[type, str] = {float: "number", str: "string", bool: "bool"}


class Domain(Struct, frozen=True, gc=False):
    """The states that one attribute may be in.

    `family` is `any` (no condition), `absent`, `present` (with any value), `list`, a family of
    values, or `isa` for the type of the event itself. The values of a family lie between `low`
    and `high` (None: no bound), and are none of `excluded`. If `values` is not None, they are
    one of these two or more; `low` and `high` are then the least and the greatest of them. A
    single value is its own `low` and `high`, so that it takes little memory. `nan` says whether
    a number may be NaN, which lies in no interval. `others` are further tests that must hold.
    """

    family: str
    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    values: frozenset[Scalar] | None = None
    excluded: frozenset[Scalar] = frozenset()
    nan: bool = False
    others: frozenset[Test] = frozenset()

    @property
    def points(self) -> Collection[Scalar]:
        """The allowed values if they can be listed; otherwise empty."""
        low = self.low
        if low is None:
            return ()
        if self.values is not None:
            return self.values
        if low != self.high or self.nan or self.low_open or self.high_open:
            return ()
        return (low,)

    @property
    def is_interval(self) -> bool:
        """Whether this is an interval of values, perhaps without bounds."""
        return self.values is None and self.family in _KINDS and not self.points

    def fits(self, value: Any) -> bool:
        """Whether the attribute may have `value`, `others` left aside.

        None stands for a missing attribute. `UNKNOWN` always fits.
        """
        wanted = self.family
        if _PLAIN.get(value.__class__) != wanted:
            if value is UNKNOWN:
                return True
            if value is None or wanted == "absent":
                return value is None and wanted == "absent"
            if wanted == "present":
                return True
            if family_of(value) != wanted:
                return False
        if value != value:
            return self.nan
        low, high = self.low, self.high
        if low is not None and not (low < value if self.low_open else low <= value):
            return False
        if high is not None and not (value < high if self.high_open else value <= high):
            return False
        if self.values is not None and value not in self.values:
            return False
        return not self.excluded or value not in self.excluded


ANY = Domain("any")
ABSENT = Domain("absent")
PRESENT = Domain("present")

_BY_FAMILY = {"==", *ORDERS}
_FAMILIES = {"has": "list", "isa": "isa"} | dict.fromkeys(TEXTUAL, "string")
_KINDS = {
    "number": ("int32", "int64", "real64"),
    "string": ("string",),
    "bool": ("bool",),
    "datetime": ("datetime",),
}


def compared(op: str, family: str, value: Any) -> Domain:
    """Return the domain of one comparison with a constant, by `==` or an order."""
    match op:
        case "==":
            return Domain(family, value, value)
        case "<" | "<=":
            return Domain(family, high=value, high_open=op == "<")
        case _:
            return Domain(family, low=value, low_open=op == ">")


def listed(
    family: str, values: Collection[Scalar], others: frozenset[Test] = frozenset()
) -> Domain:
    """Return the domain of one or more values, and of other tests that must hold."""
    several = frozenset(values) if len(values) > 1 else None
    low: Any = min(values)
    high: Any = max(values)
    return Domain(family, low, high, values=several, others=others)


def domain(tests: Sequence[Test]) -> Domain | None:
    """Return the domain in which all tests of one attribute hold; None if they contradict."""
    if len(tests) == 1 and not (test := tests[0]).negated and test.op in _BY_FAMILY:
        # Most attributes have a single test, and this is several times as fast as the long way.
        some = test.values  # in order
        if len(some) > 1:
            return Domain(test.family, some[0], some[-1], values=frozenset(some))
        return compared(test.op, test.family, some[0])
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
        found = test.family if op in _BY_FAMILY else _family_of_test(test)
        family = found if family is None or family == found else _narrower(family, found)
        if family is None:
            return None
        if op == "==":
            if test.negated:
                excluded = excluded.union(test.values)
            else:
                values = frozenset(test.values) if values is None else values & set(test.values)
        elif op in ORDERS:
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
    nan = nan and family == "number" and values is None
    within = Domain(family, low, high, low_open, high_open, None, excluded, nan, others)
    return _settled(within, values)


def _says_only(test: Test, family: str) -> bool:
    """Return whether the test is true of every value of the family."""
    kinds = _KINDS.get(family)
    return (
        test.op == "datatype"
        and not test.negated
        and kinds is not None
        and set(kinds) <= set(test.values)
    )


def _family_of_test(test: Test) -> str:
    """Return the family in which the test is defined (or, for `exists`, true)."""
    if test.op == "datatype" and not test.negated:
        families = {FAMILY.get(str(kind), "present") for kind in test.values}
        return families.pop() if len(families) == 1 else "present"
    if test.op == "exists" and test.negated:
        return "absent"
    return _FAMILIES.get(test.op, "present")


def _narrower(one: str, other: str) -> str | None:
    """Return what two different families have in common; None if that is nothing."""
    if "absent" in (one, other) or "present" not in (one, other):
        return None
    return other if one == "present" else one


def _settled(within: Domain, values: Collection[Scalar] | None) -> Domain | None:
    """Write the same states in one way only; None if there are none.

    If `values` is not None, only those of them that lie `within` are allowed.
    """
    if len(within.others) > 1 and _contradict(within.others):
        return None
    if within.family not in _KINDS:
        return Domain(within.family, others=within.others)
    if values is not None:
        return _settled_values(within, values)
    low, high, excluded = within.low, within.high, within.excluded
    if low is not None and high is not None and low >= high and not within.nan:
        return _settled_values(within, within.points)
    if excluded and not (low is None and high is None):
        low_open = within.low_open or low in excluded
        high_open = within.high_open or high in excluded
        within = replace(within, low_open=low_open, high_open=high_open, excluded=frozenset())
        within = replace(within, excluded=frozenset(filter(within.fits, excluded)))
    return within


def _settled_values(within: Domain, values: Collection[Scalar]) -> Domain | None:
    texts = [other for other in within.others if other.op in TEXTUAL]
    left = [
        value
        for value in values
        if within.fits(value) and all(fits(text, value) != text.negated for text in texts)
    ]
    return listed(within.family, left, within.others.difference(texts)) if left else None


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
    """Return whether `other` certainly holds if `one` does; both test the same attribute."""
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
    """Return whether `outer` certainly allows every state that `inner` allows."""
    if outer.family != inner.family:
        if outer.family == "any":
            return True
        if outer.family != "present" or inner.family in ("any", "absent"):
            return False
    if outer.others and not all(_is_sure(inner, test) for test in outer.others):
        return False
    if outer.family not in _KINDS:
        return True
    if points := inner.points:
        return all(map(outer.fits, points))
    if outer.values is not None or (inner.nan and not outer.nan):
        return False
    return _lies_within(inner, outer) and not any(map(inner.fits, outer.excluded))


def _is_sure(inner: Domain, test: Test) -> bool:
    if test.op in TEXTUAL and (points := inner.points):
        return all(fits(test, value) != test.negated for value in points)
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
    """Return tests of `name` that together hold in exactly the states of `allowed`."""
    family, nan = allowed.family, allowed.nan
    found: list[Test] = []
    if points := allowed.points:
        found.append(Test(name, "==", tuple(sorted(points)), family))
    else:
        bounds = (
            (allowed.low, ">" if allowed.low_open else ">="),
            (allowed.high, "<" if allowed.high_open else "<="),
        )
        for bound, op in bounds:
            if bound is not None:
                # Only a negated test lets NaN pass: `!(a < 5)` is "at least 5, or NaN".
                found.append(Test(name, OPPOSITE[op] if nan else op, (bound,), family, nan))
    if allowed.excluded:
        found.append(Test(name, "==", tuple(sorted(allowed.excluded)), family, True))
    others = sorted(allowed.others, key=repr)
    if not found and family in _KINDS and family not in map(_family_of_test, others):
        found.append(Test(name, "datatype", _KINDS[family]))
    found.extend(others)
    if not found and family != "any":
        found.append(Test(name, "exists", negated=family == "absent"))
    return found
