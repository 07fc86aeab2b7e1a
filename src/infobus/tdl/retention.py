"""Measure the memory that a program retains between runs, by walking all its values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from infobus.objects.data import DataObject, unknown_attributes
from infobus.tdl.generics import Generic, NextMethods
from infobus.tdl.limits import CELL_BYTES, CHARACTER_BYTES
from infobus.tdl.machine import Closure
from infobus.tdl.values import Cell, Table, TextStream


def retained_bytes(roots: Iterable[Any]) -> int:
    """Return the size of all values reachable from `roots`, in the units of `Run.allocate`."""
    total = 0
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if value is None or value.__class__ in (int, float, bool) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (str, bytes)):
            total += CELL_BYTES + len(value) * CHARACTER_BYTES
            continue
        parts = _parts(value)
        total += CELL_BYTES * (1 + len(parts))
        waiting.extend(parts)
    return total


def _parts(value: Any) -> list[Any]:
    if isinstance(value, list):  # a frame, or a list in an object
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    if value.__class__ is Cell:
        return [value.first, value.rest]
    if value.__class__ is Table:
        return [*value.entries.values(), *value.keys()]
    if isinstance(value, DataObject):
        return [*value.__dict__.values(), *unknown_attributes(value).values()]
    if isinstance(value, Closure):
        return [value.frame]
    if isinstance(value, Generic):
        return [method.function for method in value.methods]
    if value.__class__ is TextStream:
        return value.parts
    return [value.arguments] if isinstance(value, NextMethods) else []
