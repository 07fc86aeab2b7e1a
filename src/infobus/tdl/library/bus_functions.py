"""The functions that use the bus, as far as the host permits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infobus.errors import BadValue, BusError
from infobus.objects.data import DataObject
from infobus.tdl.boundary import inward, outward, weigh
from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import BusRefused, failed, wrong_type
from infobus.tdl.library.instances import keywords
from infobus.tdl.library.sequences import function
from infobus.tdl.library.strings import text
from infobus.tdl.machine import Evaluation
from infobus.tdl.text import short
from infobus.tdl.values import Symbol, attribute_name

STEPS = 100
"""The fuel that one use of the bus costs."""


def _capability(run: Evaluation, name: str) -> Callable[..., Any]:
    run.spend(STEPS)
    run.interpreter.send_methods_along()
    given = getattr(run.interpreter.capabilities, name)
    if given is None:
        raise failed(f"the host does not let this program {name}", BusRefused)

    def use(*arguments: Any) -> Any:
        try:
            return given(*arguments)
        except Exception as error:  # a service may raise any exception
            kind = "" if isinstance(error, BusError) else f"{type(error).__name__}: "
            raise failed(f"{name}: {kind}{error}", BusRefused) from None

    return use


def _sendable(run: Evaluation, value: Any) -> Any:
    sent = outward(run, value)
    weigh(run, sent)
    return sent


@builtin("publish", 2)
def _publish(run: Evaluation, subject: Any, value: Any) -> Any:
    """Publish an object, or a hash table as an untyped object."""
    use = _capability(run, "publish")
    sent = _sendable(run, value)
    if not isinstance(sent, (DataObject, dict)):
        raise wrong_type("publish", "an object or a hash table", short(value))
    use(text(subject, "publish"), sent)
    return value


@builtin("subscribe", 2)
def _subscribe(run: Evaluation, pattern: Any, called: Any) -> Any:
    """Call a function with the subject and object of each event that matches a pattern."""
    use = _capability(run, "subscribe")
    interpreter, called = run.interpreter, function(called, run)

    def handle(subject: str, data: Any) -> Any:
        return interpreter.apply(called, [subject, data])

    use(text(pattern, "subscribe"), handle)
    interpreter.keep(called)
    return True


@builtin("serve", 2)
def _serve(run: Evaluation, subject: Any, obj: Any) -> Any:
    """Serve the operations of an object to others."""
    use = _capability(run, "serve")
    if not isinstance(obj, DataObject) or not obj.__bus_type__.operations:
        raise wrong_type("serve", "an object whose class has (:operations ...)", short(obj))
    use(text(subject, "serve"), obj)
    run.interpreter.keep(obj)
    return True


@builtin("call", 2, None)
def _call(run: Evaluation, subject: Any, operation: Any, *arguments: Any) -> Any:
    """Call an operation of a service; named arguments follow as keywords."""
    use = _capability(run, "call")
    name = attribute_name(text(operation, "call"))
    return inward(run, use(text(subject, "call"), name, *_arguments(run, arguments)))


@builtin("operate", 2, None)
def _operate(run: Evaluation, obj: Any, operation: Any, *arguments: Any) -> Any:
    """Call an operation of an object that Python implements."""
    use = _capability(run, "operate")
    if not isinstance(obj, DataObject):
        raise wrong_type("operate", "an object", short(obj))
    name = attribute_name(text(operation, "operate"))
    return inward(run, use(outward(run, obj), name, *_arguments(run, arguments)))


def operate(obj: DataObject, operation: str, given: list[Any], named: dict[str, Any]) -> Any:
    """The capability that lets programs call Python methods which a type declares as operations.

    Other methods and attributes stay out of reach.
    """
    if operation not in obj.__bus_type__.operations.names:
        raise BadValue(f"{obj.__bus_type__.name} has no operation {operation}")
    return getattr(obj, operation)(*given, **named)


def _arguments(run: Evaluation, arguments: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    count = next(
        (i for i, a in enumerate(arguments) if a.__class__ is Symbol and a.is_keyword),
        len(arguments),
    )
    by_place = [_sendable(run, value) for value in arguments[:count]]
    by_name = {
        attribute_name(name[1:]): _sendable(run, value)
        for name, value in keywords(arguments[count:])
    }
    return by_place, by_name
