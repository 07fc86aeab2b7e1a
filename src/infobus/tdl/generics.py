"""Generic functions: the classes of all required arguments choose the methods.

They follow the standard method combination of CLOS: first the most specific `:around` method,
then all `:before` methods, the most specific primary method, and all `:after` methods in
reverse order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infobus.objects.data import DataObject
from infobus.tdl.conditions import Unbound, failed
from infobus.tdl.library.equality import is_same
from infobus.tdl.machine import Builtin, Closure, Evaluation
from infobus.tdl.reader import SourcePosition
from infobus.tdl.values import Deep, Function, Symbol, precedence, shown_name

QUALIFIERS = ("", ":before", ":after", ":around")
CACHE_COUNT_MAX = 1_000


class Eql(NamedTuple):
    """A specializer that matches one value."""

    value: Any


Specializer = str | Eql
"""The name of a class, or one value."""


@dataclass(frozen=True)
class Method:
    """One implementation of a generic function, for arguments of certain classes."""

    specializers: tuple[Specializer, ...]
    function: Closure | Builtin
    qualifier: str = ""


@dataclass(frozen=True)
class MethodPlan:
    """The methods that apply to certain arguments, in calling order."""

    around: list[Method]
    before: list[Method]
    primary: list[Method]
    after: list[Method]


@dataclass(frozen=True, slots=True)
class NextMethods:
    """The methods left for `call-next-method`; `index` counts around methods first."""

    generic: Generic
    plan: MethodPlan
    index: int
    arguments: list[Any]

    @property
    def exists(self) -> bool:
        """True if there is another method to call."""
        return self.index < len(self.plan.around) + len(self.plan.primary)


@dataclass
class Generic(Function):
    """A function made of methods, which all have the same number of required arguments."""

    name: str
    required: int
    methods: list[Method] = field(default_factory=list)
    cache: dict[tuple[Any, ...], MethodPlan] = field(default_factory=dict)

    def add(self, method: Method) -> bool:
        """Add a method; return False if it replaces one for the same classes."""
        if len(method.specializers) != self.required:
            raise failed(
                f"methods of {self.name} take {self.required} required arguments, "
                f"not {len(method.specializers)}"
            )
        key = (method.qualifier, _key(method))
        others = [m for m in self.methods if (m.qualifier, _key(m)) != key]
        is_new = len(others) == len(self.methods)
        self.methods = [*others, method]
        self.cache = {}
        return is_new

    def invoke(self, run: Evaluation, arguments: list[Any], at: SourcePosition) -> Deep:
        if len(arguments) < self.required:
            raise failed(f"{self.name} takes {self.required} arguments, got {len(arguments)}")
        return self.proceed(run, self._plan(run, arguments), 0, arguments, at)

    def proceed(
        self,
        run: Evaluation,
        plan: MethodPlan,
        index: int,
        arguments: list[Any],
        at: SourcePosition,
    ) -> Deep:
        """Evaluate the method at `index` of the plan, with its before and after methods."""
        following = NextMethods(self, plan, index + 1, arguments)
        first_primary = len(plan.around)
        if index < first_primary:
            return (yield _call(run, plan.around[index], arguments, at, following))
        if index == first_primary:
            for method in plan.before:
                yield _call(run, method, arguments, at, None)
        primary = plan.primary[index - first_primary]
        value = yield _call(run, primary, arguments, at, following)
        if index == first_primary:
            for method in plan.after:
                yield _call(run, method, arguments, at, None)
        return value

    def _plan(self, run: Evaluation, arguments: list[Any]) -> MethodPlan:
        key = tuple(map(_dispatch_key, arguments[: self.required]))
        plan = self.cache.get(key)
        if plan is None:
            plan = self._work_out(run, arguments)
            # With an `eql` method the choice depends on values, not only on classes.
            is_settled = not any(
                isinstance(s, Eql) for method in self.methods for s in method.specializers
            )
            if is_settled and len(self.cache) < CACHE_COUNT_MAX:
                self.cache[key] = plan
        return plan

    def _work_out(self, run: Evaluation, arguments: list[Any]) -> MethodPlan:
        orders = [precedence(argument) for argument in arguments[: self.required]]
        run.spend(1 + len(self.methods) * (1 + self.required))
        ranked = []
        for method in self.methods:
            rank = _rank(method, arguments, orders)
            if rank is not None:
                ranked.append((rank, method))
        ranked.sort(key=lambda pair: pair[0])
        by = {q: [m for _, m in ranked if m.qualifier == q] for q in QUALIFIERS}
        if not by[""]:
            classes = ", ".join(shown_name(order[0]) for order in orders)
            raise failed(f"no method of {self.name} applies to ({classes})", Unbound)
        return MethodPlan(by[":around"], by[":before"], by[""], by[":after"][::-1])


def _rank(
    method: Method, arguments: list[Any], orders: list[tuple[str, ...]]
) -> tuple[int, ...] | None:
    rank = []
    for specializer, argument, order in zip(method.specializers, arguments, orders, strict=False):
        if isinstance(specializer, Eql):
            if not is_same(specializer.value, argument):
                return None
            rank.append(-1)  # more specific than any class
        elif specializer not in order:
            return None
        else:
            rank.append(order.index(specializer))
    return tuple(rank)


def _key(method: Method) -> tuple[Any, ...]:
    return tuple(
        ("eql", s.value.__class__, s.value) if isinstance(s, Eql) else s
        for s in method.specializers
    )


def _dispatch_key(value: Any) -> Any:
    """Return a key that is equal for values of the same classes."""
    cls = value.__class__
    if cls is DataObject:
        return getattr(value.__bus_tag__, "fingerprint", cls)
    if cls is Symbol:
        return Symbol, value.is_keyword
    return Function if isinstance(value, Function) else cls


def _call(
    run: Evaluation,
    method: Method,
    arguments: list[Any],
    at: SourcePosition,
    following: NextMethods | None,
) -> Deep:
    if isinstance(method.function, Closure):
        return method.function.invoke(run, arguments, at, (following,))
    return method.function.invoke(run, arguments, at)


def call_next(
    run: Evaluation, following: Any, arguments: list[Any] | None, at: SourcePosition
) -> Deep:
    """Evaluate `call-next-method`; None as `arguments` means the current method's own."""
    if following is None or not following.exists:
        raise failed("there is no next method")
    given = following.arguments if arguments is None else arguments
    generic: Generic = following.generic
    return generic.proceed(run, following.plan, following.index, given, at)
