"""Functions that handle events: what they take is what their annotation says."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from infobus.bus.deliver.event import Event
from infobus.errors import UsageError

Handler = TypeVar("Handler", bound=Callable[[Any], Any])


def on(self: Any, pattern: str, **options: Any) -> Callable[[Handler], Handler]:
    """Have a function called with what is published under `pattern`: `@bus.on("orders.>")`.

    It gets the object if its parameter is annotated with a class, which is then the `type`, and
    else the event. The options are those of `Bus.subscribe`, of which this is a part.
    """

    def register(function: Handler) -> Handler:
        callback, type_ = handler_of(function)
        self.subscribe(pattern, callback, **{"type": type_, **options})
        return function

    return register


def handler_of(function: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], Any]:
    """Return a callback that calls `function`, and the type of the objects that it takes.

    A function whose parameter is an `Event`, or has no annotation, gets the event; the type is
    None then. Any other gets the object.
    """
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:  # Annotations are code: evaluating them can raise anything.
        raise UsageError(f"{function!r}: cannot make sense of its annotations: {error}") from error
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        raise UsageError(f"{function!r} takes nothing; a handler takes an event or an object")
    hint = hints.get(parameters[0])
    if hint is None or hint is Any or (isinstance(hint, type) and issubclass(hint, Event)):
        return function, None

    def handle(event: Event) -> Any:
        return function(event.data)

    return handle, hint
