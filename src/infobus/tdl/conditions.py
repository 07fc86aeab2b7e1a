"""What goes wrong in TDL programs: conditions, and how they travel up the evaluation.

Conditions are objects of the bus like any other, so a program can define its own, handle
them by type, and publish them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infobus.errors import TdlError, TdlLimit
from infobus.objects.data import DataObject
from infobus.tdl.reader import Position

if TYPE_CHECKING:
    from infobus.tdl.machine import Run

STACK_COUNT_MAX = 30


class Condition(DataObject, name="tdl.Condition"):
    """Something that a program may want to react to."""

    message: str = ""


class Error(Condition, name="tdl.Error"):
    """A condition that ends the program unless it is handled."""


class WrongType(Error, name="tdl.TypeError"):
    """A value is not of the type that was asked for."""


class Arithmetic(Error, name="tdl.ArithmeticError"):
    """A computation has no result."""


class Unbound(Error, name="tdl.UnboundError"):
    """A name stands for nothing."""


class Refused(Error, name="tdl.BusError"):
    """The bus failed, or the host does not allow what was asked of it."""


class Unwinding(Exception):
    """Something on its way up: `at` and `calls` are where it began."""

    def __init__(self) -> None:
        super().__init__()
        self.at: Position | None = None
        self.calls: tuple[tuple[str, Position], ...] = ()

    def locate(self, run: Run, at: Position) -> None:
        """Note where it began; whoever is nearest comes first."""
        if self.at is None:
            self.at = at
            self.calls = tuple(run.calls[: -STACK_COUNT_MAX - 1 : -1])

    def error(self) -> TdlError:
        """What the caller of the program sees."""
        raise NotImplementedError

    def _made(self, error: type[TdlError], message: str, condition: object = None) -> TdlError:
        assert self.at is not None  # whoever started the program has seen to that
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
    """A condition looks for its handler."""

    def __init__(self, condition: DataObject) -> None:
        super().__init__()
        self.condition = condition

    def error(self) -> TdlError:
        message = self.condition.__dict__.get("message") or self.condition.__bus_type__.name
        return self._made(TdlError, str(message), self.condition)


class LimitReached(Unwinding):
    """The program wants more than it was given; no handler of its own stops that."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def error(self) -> TdlError:
        return self._made(TdlLimit, self.message)


class Leave(Exception):
    """A block is left early: the one whose variables are in `frame`."""

    def __init__(self, frame: list[Any], value: Any) -> None:
        super().__init__()
        self.frame = frame
        self.value = value


def failed(message: str, kind: type[Condition] = Error) -> Signal:
    """The signal for something that went wrong."""
    return Signal(kind(message=message))


def wrong_type(who: str, expected: str, shown: str) -> Signal:
    """The signal for a value that is not what `who` expected."""
    return failed(f"{who}: expected {expected}, got {shown}", WrongType)
