"""Generic functions: the classes of all required arguments choose the methods.

They follow the standard method combination of CLOS: first the most specific `:around` method,
then all `:before` methods, the most specific primary method, and all `:after` methods in
reverse order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infobus.objects.data import DataObject
from infobus.tdl.classes.renewal import renew
from infobus.tdl.conditions import Unbound, failed
from infobus.tdl.library.equality import is_same
from infobus.tdl.machine import Builtin, Closure, Evaluation, Lambda, check_known
from infobus.tdl.reader import SourcePosition
from infobus.tdl.values import Deep, Function, Symbol, precedence, shown_name

QUALIFIERS = ("", ":before", ":after", ":around")
CACHE_COUNT_MAX = 1_000


class Eql(NamedTuple):
    """A specializer that matches one value."""

    value: Any


Specializer = str | Eql
"""The name of a class, or one value."""


@dataclass(frozen=True, eq=False)
class Method:
    """One implementation of a generic function, for arguments of certain classes.

    `is_inline` says that it was written inside `defgeneric`, so another one replaces it.
    """

    specializers: tuple[Specializer, ...]
    function: Closure | Builtin
    qualifier: str = ""
    is_inline: bool = False

    @property
    def is_written(self) -> bool:
        """True if the program has written it; False if it is part of the language."""
        return isinstance(self.function, Closure)

    @property
    def parameters(self) -> Parameters:
        """The parameters that the method was written with."""
        if isinstance(self.function, Closure):
            return Parameters.of(self.function.written)
        has_rest = self.function.most is None
        return Parameters(len(self.specializers), 0, has_rest, others_allowed=has_rest)

    def has_place_of(self, other: Method) -> bool:
        """Return whether this method replaces another one: same classes, same qualifier."""
        pairs = zip(self.specializers, other.specializers, strict=True)
        return self.qualifier == other.qualifier and all(_are_one(a, b) for a, b in pairs)


def _are_one(one: Specializer, other: Specializer) -> bool:
    if isinstance(one, Eql) and isinstance(other, Eql):
        return is_same(one.value, other.value)
    return isinstance(one, str) and one == other


@dataclass(frozen=True)
class Parameters:
    """What the methods of a generic function must agree on, and the keywords of one of them."""

    required: int
    optional: int = 0
    has_rest: bool = False
    """Whether arguments may follow: there is `&rest` or `&key`."""
    keys: frozenset[str] | None = None
    others_allowed: bool = False

    @classmethod
    def of(cls, written: Lambda) -> Parameters:
        """Return the parameters of a function."""
        keys = None if written.keys is None else frozenset(f":{key.name}" for key in written.keys)
        has_rest = written.has_rest or keys is not None
        return cls(written.required, len(written.options), has_rest, keys, written.others_allowed)

    def complaint(self, method: Parameters) -> str | None:
        """Return why a method with these parameters cannot join, or None if it can."""
        if method.required != self.required:
            return f"take {self.required} required arguments, not {method.required}"
        if method.optional != self.optional:
            return f"take {self.optional} optional arguments, not {method.optional}"
        if method.has_rest != self.has_rest:
            return "all have &rest or &key, or none has; add &key, or leave it out"
        takes_all = method.keys is None or method.others_allowed
        missing = sorted((self.keys or frozenset()) - (method.keys or frozenset()))
        if missing and not takes_all:
            return f"must take the keyword {missing[0]}, which its defgeneric names"
        return None


@dataclass(frozen=True)
class MethodPlan:
    """The methods that apply to certain arguments, in calling order."""

    around: list[Method]
    before: list[Method]
    primary: list[Method]
    after: list[Method]
    keys: frozenset[str] | None
    """The keywords that any of the methods takes, or None if all are allowed."""

    @property
    def methods(self) -> list[Method]:
        """All methods, in an order that depends on nothing but the plan."""
        return [*self.around, *self.before, *self.primary, *self.after]


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


@dataclass(eq=False)
class Generic(Function):
    """A function made of methods, which all have parameters of the same shape."""

    name: str
    parameters: Parameters
    methods: list[Method] = field(default_factory=list)
    cache: dict[tuple[Any, ...], MethodPlan] = field(default_factory=dict)

    @property
    def required(self) -> int:
        """The number of arguments that choose the methods."""
        return self.parameters.required

    def check(self, parameters: Parameters) -> None:
        """Signal a condition if a method with these parameters cannot be one of this function."""
        complaint = self.parameters.complaint(parameters)
        if complaint is not None:
            raise failed(f"methods of {self.name} {complaint}")

    def declare(self, parameters: Parameters) -> None:
        """Take the parameters of a `defgeneric`, and drop the methods inside the one before."""
        kept = [method for method in self.methods if not method.is_inline]
        for method in kept:
            complaint = parameters.complaint(method.parameters)
            if complaint is not None:
                raise failed(f"{self.name} has a method already, and methods of it {complaint}")
        self.parameters, self.methods, self.cache = parameters, kept, {}

    def add(self, method: Method) -> bool:
        """Add a method; return False if it replaces one for the same classes."""
        self.check(method.parameters)
        others = [m for m in self.methods if not method.has_place_of(m)]
        is_new = len(others) == len(self.methods)
        self.methods = [*others, method]
        self.cache = {}
        return is_new

    def invoke(self, run: Evaluation, arguments: list[Any], at: SourcePosition) -> Deep:
        given, required = len(arguments), self.required
        if given < required:
            raise failed(f"{self.name} takes {required} arguments, got {given}")
        plan = self.plan(run, arguments)
        if given > required and plan.keys is not None:
            rest = arguments[required + self.parameters.optional :]
            check_known(self.name, rest, plan.keys)
        return self.proceed(run, plan, 0, arguments, at)

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

    def plan(self, run: Evaluation, arguments: list[Any]) -> MethodPlan:
        """Return the methods that apply to these arguments."""
        if run.interpreter.outdated:
            for argument in arguments[: self.required]:
                renew(run, argument)
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
        longest = max(map(len, orders), default=0)
        run.spend(1 + len(self.methods) * (1 + self.required) * (1 + longest // 16))
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
        keys = self._keys(run, [method for _, method in ranked])
        return MethodPlan(by[":around"], by[":before"], by[""], by[":after"][::-1], keys)

    def _keys(self, run: Evaluation, methods: list[Method]) -> frozenset[str] | None:
        """Return the keywords that the generic function or any of its `methods` takes."""
        if not self.parameters.has_rest:
            return None
        found = [self.parameters, *(method.parameters for method in methods)]
        named = [one.keys for one in found if one.keys is not None]
        run.spend(sum(map(len, named)))
        if not named or any(one.others_allowed for one in found):
            return None
        return frozenset().union(*named)


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
    generic: Generic = following.generic
    given = following.arguments
    if arguments is not None:
        given = arguments
        if len(given) < generic.required:
            raise failed(f"{generic.name} takes {generic.required} arguments, got {len(given)}")
        plan = generic.plan(run, given)
        if plan is not following.plan and plan.methods != following.plan.methods:
            raise failed(f"call-next-method: other methods of {generic.name} apply to these "
                         "arguments than to the original ones")  # fmt: skip
    return generic.proceed(run, following.plan, following.index, given, at)
