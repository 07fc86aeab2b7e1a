"""How much a TDL program may use, and what it may do beyond computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infobus.objects.data import DataObject

CELL_BYTES = 64
"""What a cell, a number, an entry of a table or a variable counts for."""
CHARACTER_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a program may use. Fuel and memory are counted anew for each run or call.

    Attributes:
        fuel: Steps: evaluations, calls, turns of a loop, elements looked at. Using the bus
            counts for 100.
        memory_bytes: What may be allocated, and what the program keeps from earlier runs. The
            count is on the high side, and does not go down when something is let go.
        depth: How deep evaluations may be nested; a call takes two to five.
        definitions_count: How many functions, methods, variables, subscriptions, served
            objects, and classes (all versions of them) there may be.
        source_length: Characters of program text taken at once.
        classes: The names that classes of the program may have, as patterns.
    """

    fuel: int = 1_000_000
    memory_bytes: int = 64 * 1024 * 1024
    depth: int = 10_000
    definitions_count: int = 2_000
    source_length: int = 64 * 1024
    classes: tuple[str, ...] = (">",)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What the host lets a program do; None means that it may not.

    Values come and go in Python's form: lists, dicts, data objects. Whatever a capability
    raises reaches the program as a `bus-error`.

    Attributes:
        write: Takes what the program prints.
        publish: Takes a subject and an object.
        subscribe: Takes a pattern and a function of a subject and an object.
        serve: Takes a subject and the object whose operations are to be served.
        call: Takes a subject, an operation, its arguments in a list, and those by name in a
            dict; returns the result.
        operate: Takes an object, and the rest as `call`: for operations that Python
            implements, see `tdl.operate`.
    """

    write: Callable[[str], object] | None = None
    publish: Callable[[str, Any], object] | None = None
    subscribe: Callable[[str, Callable[[str, Any], Any]], object] | None = None
    serve: Callable[[str, Any], object] | None = None
    call: Callable[[str, str, list[Any], dict[str, Any]], Any] | None = None
    operate: Callable[[DataObject, str, list[Any], dict[str, Any]], Any] | None = None
