"""The machine: run evaluations on a separate stack, and charge for what they use.

A step is either direct (a function that returns its value) or deep (a generator that yields
the evaluations it needs). Only deep steps can call functions of the program, so the program's
recursion never grows Python's own stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infobus.errors import BusError
from infobus.tdl.conditions import (
    Arithmetic,
    Leave,
    LimitReached,
    Signal,
    Unwinding,
    WrongType,
    failed,
)
from infobus.tdl.limits import CELL_BYTES
from infobus.tdl.reader import SourcePosition
from infobus.tdl.values import Deep, Function, Symbol, make_list

if TYPE_CHECKING:
    from infobus.tdl.interpreter import Interpreter

KEYWORDS_SHOWN_MAX = 20
_OTHERS = Symbol(":allow-other-keys")

Frame = list[Any]
"""The enclosing frame (or None), followed by the values of the variables of one scope."""


@dataclass(slots=True)
class Code:
    """A compiled form: `run` returns its value or, if it is deep, an evaluation to drive."""

    run: Callable[[Evaluation, Frame], Any]
    is_deep: bool = False


class Evaluation:
    """One run of a program: its remaining fuel and memory, and the active calls."""

    __slots__ = ("calls", "fuel", "interpreter", "is_plain", "memory", "printing")

    def __init__(self, interpreter: Interpreter, memory: int) -> None:
        self.interpreter = interpreter
        self.fuel = interpreter.limits.fuel
        self.memory = memory
        self.calls: list[tuple[str, SourcePosition]] = []
        self.printing = 0
        """How many `print-object` methods are active."""
        self.is_plain = False
        """Whether the innermost of them prints for people, without the quotes of strings."""

    def spend(self, steps: int) -> None:
        """Use fuel; raise `LimitReached` if there is not enough."""
        self.fuel -= steps
        if self.fuel < 0:
            limit = self.interpreter.limits.fuel
            raise LimitReached(f"out of fuel: the program took more than {limit} steps")

    def allocate(self, count: int, each_bytes: int = CELL_BYTES) -> None:
        """Use memory, and the fuel for filling it; raise `LimitReached` at the limit."""
        self.memory -= count * each_bytes
        if self.memory < 0:
            limit = self.interpreter.limits.memory_bytes
            raise LimitReached(f"out of memory: the program allocated more than {limit} bytes")
        self.spend(count * each_bytes // 512)

    def drive(self, started: Deep) -> Any:
        """Run an evaluation to its end, and return its value."""
        stack = [started]
        depth = self.interpreter.limits.depth
        value: Any = None
        error: Exception | None = None
        while stack:
            # The innermost evaluation gets the value that it waits for, or the error that ended
            # it, so that `handler-case` and `block` can catch errors with `except`.
            try:
                if error is None:
                    needed = stack[-1].send(value)
                else:
                    unwinding, error = error, None
                    needed = stack[-1].throw(unwinding)
            except StopIteration as stop:
                stack.pop()
                value = stop.value
            except (Unwinding, Leave) as raised:
                stack.pop()
                error = raised
            except (ArithmeticError, BusError) as raised:
                stack.pop()
                error = translated(raised)
            else:
                value = None
                stack.append(needed)
                self.fuel -= 1
                if self.fuel < 0 or len(stack) > depth:
                    # The evaluation that did not start is dropped; its caller gets the error.
                    stack.pop()
                    error = self._exhausted(depth)
        if error is not None:
            raise error
        return value

    def _exhausted(self, depth: int) -> LimitReached:
        try:
            self.spend(0)
        except LimitReached as reached:
            return reached
        return LimitReached(f"evaluations are nested deeper than {depth} levels")

    def value_of(self, code: Code, frame: Frame) -> Deep:
        """Evaluate a form, deep or not."""
        value = code.run(self, frame)
        if code.is_deep:
            value = yield value
        return value


class Builtin(Function):
    """A built-in function. One that calls other functions is deep.

    `longer` is the variant that takes more arguments, such as `:test`, and is slower.
    """

    __slots__ = ("function", "is_deep", "least", "longer", "most", "name")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        least: int,
        most: int | None,
        is_deep: bool = False,
    ) -> None:
        self.name = name
        self.function = function
        self.least = least
        self.most = most
        self.is_deep = is_deep
        self.longer: Builtin | None = None

    def taking(self, count: int) -> Builtin:
        """Return the variant for this number of arguments."""
        return self.longer if self.longer is not None and count > (self.most or 0) else self

    def invoke(self, run: Evaluation, arguments: list[Any], at: SourcePosition) -> Deep:
        chosen = self.taking(len(arguments))
        complaint = chosen.complaint(len(arguments))
        if complaint is not None:
            raise failed(complaint)
        if chosen.is_deep:
            return (yield chosen.function(run, at, *arguments))
        return chosen.function(run, *arguments)

    def complaint(self, count: int) -> str | None:
        """Return the error message for a wrong number of arguments, or None."""
        if self.least <= count and (self.most is None or count <= self.most):
            return None
        if self.most is None:
            expected = f"at least {self.least}"
        else:
            expected = (
                str(self.least) if self.most == self.least else f"{self.least} to {self.most}"
            )
        return _wrong_count(self.name, expected, count)


@dataclass(slots=True)
class Option:
    """An optional parameter. `tells` adds a variable that says whether it was given."""

    name: str
    default: Code
    tells: bool


@dataclass(slots=True)
class Lambda:
    """A compiled function; together with a frame it becomes a closure."""

    name: str
    required: int
    options: list[Option]
    has_rest: bool
    keys: list[Option] | None
    others_allowed: bool
    body: Code
    steps: int = 0
    """The fuel that a call costs because of the function's length."""

    @property
    def is_plain(self) -> bool:
        """True if all parameters are required."""
        return not (self.options or self.has_rest or self.keys is not None)

    def bind(self, run: Evaluation, frame: Frame, arguments: list[Any], are_checked: bool) -> Deep:
        """Add the values of optional, rest and keyword parameters to `frame`.

        A generic function has checked the keywords against those of all applicable methods.
        """
        given = arguments[self.required :]
        for index, option in enumerate(self.options):
            yield from _add(run, frame, option, given[index : index + 1])
        rest = given[len(self.options) :]
        if rest and not self.has_rest and self.keys is None:
            raise failed(f"{self.name} takes at most {len(arguments) - len(rest)} arguments, "
                         f"got {len(arguments)}")  # fmt: skip
        if self.has_rest:
            run.allocate(len(rest))
            frame.append(make_list(rest))
        if self.keys is not None:
            by_name = self._keywords(rest, are_checked)
            for key in self.keys:
                yield from _add(run, frame, key, by_name.get(f":{key.name}", []))

    def _keywords(self, rest: list[Any], are_checked: bool) -> dict[str, list[Any]]:
        names = rest[::2]
        check_pairs(self.name, rest)
        if names and not (are_checked or self.others_allowed):
            check_known(self.name, rest, {f":{key.name}" for key in self.keys or ()})
        # If a keyword occurs twice, the first value counts: reversed, it overwrites the others.
        pairs = zip(reversed(names), reversed(rest[1::2]), strict=True)
        return {name.name: [value] for name, value in pairs}


def check_pairs(name: str, rest: list[Any]) -> None:
    """Signal a condition unless `rest` consists of keywords, each with a value."""
    if len(rest) % 2 or not all(n.__class__ is Symbol and n.is_keyword for n in rest[::2]):
        raise failed(f"{name} expects keywords, each with a value, after its arguments")


def check_known(name: str, rest: list[Any], known: Collection[str]) -> None:
    """Signal a condition if a keyword in `rest` is not known, unless the call allows others."""
    strange = [n for n in rest[::2] if n.__class__ is not Symbol or n.name not in known]
    if not strange:
        return
    check_pairs(name, rest)
    if not allows_others(rest) and strange != [_OTHERS]:
        shown = sorted(known)[:KEYWORDS_SHOWN_MAX]
        allowed = " ".join(shown) + (" ..." if len(known) > len(shown) else "")
        first = next(n.name for n in strange if n != _OTHERS)
        raise failed(f"{name} does not know the keyword {first}; it has {allowed or 'none'}")


def allows_others(rest: Sequence[Any]) -> bool:
    """Return whether a call has `:allow-other-keys t` among its keywords; the first one counts."""
    pairs = zip(rest[::2], rest[1::2], strict=False)
    return next((value for name, value in pairs if name == _OTHERS), None) is not None


def _add(run: Evaluation, frame: Frame, option: Option, given: list[Any]) -> Deep:
    frame.append(given[0] if given else (yield from run.value_of(option.default, frame)))
    if option.tells:
        frame.append(True if given else None)


class Closure(Function):
    """A function of the program: its code, and the frame in which it was made."""

    __slots__ = ("frame", "written")

    def __init__(self, written: Lambda, frame: Frame) -> None:
        self.written = written
        self.frame = frame

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that the call stack shows."""
        return self.written.name

    def invoke(
        self,
        run: Evaluation,
        arguments: list[Any],
        at: SourcePosition,
        hidden: tuple[Any, ...] = (),
    ) -> Deep:
        calls = run.calls
        depth = len(calls)
        calls.append((self.written.name, at))
        written = self.written
        if len(arguments) < written.required or (
            len(arguments) > written.required and written.is_plain
        ):
            expected = str(written.required) if written.is_plain else f"at least {written.required}"
            raise failed(_wrong_count(written.name, expected, len(arguments)))
        frame = [self.frame, *hidden, *arguments[: written.required]]
        if written.steps:
            run.spend(written.steps)
        try:
            if not written.is_plain:
                # Only a generic function passes hidden values.
                yield from written.bind(run, frame, arguments, bool(hidden))
            value = written.body.run(run, frame)
            if written.body.is_deep:
                value = yield value
        except Leave as leave:
            if leave.frame is not frame:
                raise
            value = leave.value
        del calls[depth:]
        return value


def _wrong_count(name: str, expected: str, count: int) -> str:
    plural = "" if expected.endswith("1") else "s"
    return f"{name} takes {expected} argument{plural}, got {count}"


def translated(error: Exception) -> Signal:
    """Return the signal for an arithmetic error of Python, or an error of the bus."""
    if isinstance(error, ArithmeticError):
        return failed(str(error), Arithmetic)
    return failed(str(error).replace("\n", " "), WrongType)
