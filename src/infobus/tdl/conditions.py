"""Conditions: the errors of TDL programs, and how they propagate.

A condition is an object of the bus like any other. So a program can define its own conditions,
handle them by type, and publish them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infobus.errors import TdlError, TdlLimit
from infobus.objects.data import DataObject
from infobus.tdl.reader import SourcePosition

if TYPE_CHECKING:
    from infobus.tdl.machine import Evaluation

STACK_COUNT_MAX = 30
MESSAGE_LENGTH_MAX = 1_000


class Condition(DataObject, name="tdl.Condition"):
    """The base class of all conditions that a program can handle."""

    message: str = ""


class Error(Condition, name="tdl.Error"):
    """A condition that ends the program unless it is handled."""


class WrongType(Error, name="tdl.TypeError"):
    """A value is not of the expected type."""


class Arithmetic(Error, name="tdl.ArithmeticError"):
    """A computation has no result."""


class Unbound(Error, name="tdl.UnboundError"):
    """A variable, function, class or method does not exist."""


class BusRefused(Error, name="tdl.BusError"):
    """The bus failed, or the host does not allow the program to use it this way."""


class Unwinding(Exception):
    """An exception of a TDL program; `at` and `calls` say where it was raised."""

    def __init__(self) -> None:
        super().__init__()
        self.at: SourcePosition | None = None
        self.calls: tuple[tuple[str, SourcePosition], ...] = ()

    def locate(self, run: Evaluation, at: SourcePosition) -> None:
        """Record where it was raised. Only the first call, from the innermost form, counts."""
        if self.at is None:
            self.at = at
            self.calls = tuple(run.calls[: -STACK_COUNT_MAX - 1 : -1])

    def error(self) -> TdlError:
        """Return the exception that the caller of the program gets."""
        raise NotImplementedError

    def _made(self, error: type[TdlError], message: str, condition: object = None) -> TdlError:
        assert self.at is not None  # the interpreter locates it at the latest
        at = self.at
        stack = tuple(f"{name}, called at {place}" for name, place in self.calls)
        return error(
            f"{at}: {message}",
            line=at.line,
            column=at.column,
            origin=at.origin,
            stack=stack,
            condition=condition,
        )


class Signal(Unwinding):
    """A condition that propagates to its handler."""

    def __init__(self, condition: DataObject) -> None:
        super().__init__()
        self.condition = condition

    def error(self) -> TdlError:
        message = self.condition.__dict__.get("message") or self.condition.__bus_type__.name
        return self._made(TdlError, str(message), self.condition)


class LimitReached(Unwinding):
    """The program reached one of its limits; its own handlers cannot catch this."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def error(self) -> TdlError:
        return self._made(TdlLimit, self.message)


class Leave(Exception):
    """Leave a block early: the block whose variables are in `frame`."""

    def __init__(self, frame: list[Any], value: Any) -> None:
        super().__init__()
        self.frame = frame
        self.value = value


def failed(message: str, kind: type[Condition] = Error) -> Signal:
    """Return the signal for a new condition with this message."""
    if len(message) > MESSAGE_LENGTH_MAX:
        message = f"{message[: MESSAGE_LENGTH_MAX - 3]}..."
    return Signal(kind(message=message))


def wrong_type(who: str, expected: str, shown: str) -> Signal:
    """Return the signal for a value that `who` did not expect."""
    return failed(f"{who}: expected {expected}, got {shown}", WrongType)
