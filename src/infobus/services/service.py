"""`Service`: an object whose methods can be called from anywhere on the bus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from threading import Event
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from infobus.errors import UsageError
from infobus.headers import NO_HEADERS, Headers
from infobus.objects.data import DataObject, type_of
from infobus.services.interface import Interface

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Service:
    """What is served under a subject. Subclasses keep whatever state they like.

    A public method is an operation if its parameters and its result are annotated with kinds
    that can be sent, as in `DataObject`. It may be `async`. One that is annotated to return an
    `Iterator[T]` or `AsyncIterator[T]` is a stream: the caller gets item after item, and the
    method is held while the caller is behind.

    Operations of one service may run at the same time; see `Bus.serve` for how many.

    >>> import infobus
    >>> class Adder(infobus.Service):
    ...     def add(self, a: int, b: int = 1) -> int:
    ...         "The sum."
    ...         return a + b
    >>> with infobus.connect("doctest", engine="memory") as bus:
    ...     served = bus.serve("svc.adder", Adder())
    ...     adder = bus.service("svc.adder")
    ...     print(adder.add(2), adder.add(a=2, b=3), adder.operations["add"].signature)
    3 5 add(a: int, b: int = 1) -> int
    """

    _interface: ClassVar[Interface]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._interface = Interface.of_class(cls, sys._getframe(1).f_locals)


class DynamicService(Service):
    """A service that is made at run time: `perform(operation, arguments)` does what is asked.

    It is called with checked arguments by name, and may return an awaitable, or an iterator
    where the operation is a stream.
    """

    def __init__(self, interface: Interface, perform: Callable[[str, dict[str, Any]], Any]) -> None:
        self._own_interface = interface
        self._perform = perform


def check_options(function: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise `UsageError` for an option that a method of the bus does not have."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{function}() has no option {name!r}, only {', '.join(known)}{hint}")


def interface_of(service: object) -> Interface:
    """What an object can be asked to do; any object may be served, not just a `Service`.

    Raises:
        UsageError: It has no operations.
    """
    if isinstance(service, type):
        raise UsageError(f"expected an object to serve, got the class {service.__name__} itself")
    if isinstance(service, DynamicService):
        found = service._own_interface
    elif isinstance(service, Service):
        found = service._interface
    else:
        found = Interface.of_class(type(service))
        if not found.operations and isinstance(service, DataObject):
            # Its class was made at run time, so its operations are declared in the type alone.
            found = Interface.of_type(type_of(service))
    if not found.operations:
        raise UsageError(
            f"{type(service).__name__} has no operation: annotate the parameters and the result "
            "of a public method with kinds that can be sent"
        )
    return found


def method_of(service: object, operation: str) -> Callable[..., Any]:
    """What carries out an operation, called with arguments by name."""
    if isinstance(service, DynamicService):
        perform = service._perform
        return lambda **arguments: perform(operation, arguments)
    method: Callable[..., Any] = getattr(service, operation)
    return method


def idempotent(method: _Method) -> _Method:
    """Declare that an operation may run twice with the effect of once.

    A call of it whose server dies goes to another server instead of being given up.
    """
    method.is_idempotent = True  # type: ignore[attr-defined]
    return method


class CurrentCall(Struct, eq=False):
    """The call that is being served: who makes it, and whether anyone still waits.

    Attributes:
        id: The same if the call comes again because its server died (`exactly_once`,
            `idempotent`).
        caller: The node of the caller.
        principal: Who is behind that node, on a secured bus; empty on an open one.
        operation: What was called.
        headers: What its caller says beside the arguments.
        is_cancelled: Whether the caller has given up; a long operation may look now and then,
            and stop.
    """

    id: str
    caller: str
    operation: str
    is_cancelled: bool = False
    headers: Headers = NO_HEADERS
    principal: str = ""
    _stopped: Event | None = None  # made on demand: few operations wait for it

    @property
    def stopped(self) -> Event:
        """Set when the caller gives up, for operations that have to wait for something."""
        if self._stopped is None:
            self._stopped = Event()
            if self.is_cancelled:
                self._stopped.set()
        return self._stopped

    def stop(self) -> None:
        """The caller has given up."""
        self.is_cancelled = True
        if self._stopped is not None:
            self._stopped.set()


CURRENT: ContextVar[CurrentCall] = ContextVar("infobus_current_call")


def current_call() -> CurrentCall:
    """The call that is being served here.

    Raises:
        UsageError: No operation of a service is running here.
    """
    try:
        return CURRENT.get()
    except LookupError:
        raise UsageError("current_call() is for operations of a service while they run") from None
