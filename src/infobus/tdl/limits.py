"""Limits and capabilities: how much a TDL program may use, and what else it may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infobus.objects.data import DataObject

CELL_BYTES = 64
"""The memory charged for a cell, a number, a table entry or a variable."""
CHARACTER_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ProgramLimits:
    """How much a program may use. Fuel and memory are counted per run or call.

    Attributes:
        fuel: Steps: calls, loop iterations, elements visited or copied, and one for every 16
            forms that a loop or call repeats. One use of the bus costs 100.
        memory_bytes: What a run allocates, plus what the program retains from earlier runs,
            plus its classes. The count is an upper estimate, and a run gets nothing back for
            garbage.
        depth: How deep evaluations may nest; one call takes two to five levels.
        definitions_count: The number of functions, methods, variables, subscriptions, served
            objects and classes, counting every version of a class.
        source_length: The number of characters in one program.
        classes: Patterns for the names that the program's classes may have.
    """

    fuel: int = 1_000_000
    memory_bytes: int = 64 * 1024 * 1024
    depth: int = 10_000
    definitions_count: int = 2_000
    source_length: int = 64 * 1024
    classes: tuple[str, ...] = (">",)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What you let a program do beyond computing; None forbids it.

    Arguments and results are Python values: lists, dicts, data objects. If a capability raises
    an exception, the program gets a `bus-error`.

    Attributes:
        write: Takes the text that the program prints.
        publish: Takes a subject and an object.
        subscribe: Takes a pattern and a function that takes a subject and an object.
        serve: Takes a subject and the object whose operations to serve.
        call: Takes a subject, an operation, a list of positional arguments and a dict of named
            ones; returns the result.
        operate: Takes an object, and then the same as `call`, to run an operation that Python
            implements. See `tdl.operate`.
    """

    write: Callable[[str], object] | None = None
    publish: Callable[[str, Any], object] | None = None
    subscribe: Callable[[str, Callable[[str, Any], Any]], object] | None = None
    serve: Callable[[str, Any], object] | None = None
    call: Callable[[str, str, list[Any], dict[str, Any]], Any] | None = None
    operate: Callable[[DataObject, str, list[Any], dict[str, Any]], Any] | None = None
