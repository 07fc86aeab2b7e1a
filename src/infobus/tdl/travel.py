"""Run methods that were received with a type, if the program permits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from infobus.errors import UsageError
from infobus.objects import registry
from infobus.objects.data import DataObject, Foreign
from infobus.objects.types import Type
from infobus.subjects import check_pattern, matches
from infobus.tdl.interpreter import METHODS, Interpreter
from infobus.tdl.limits import Capabilities, ProgramLimits
from infobus.tdl.signatures import check_key, is_signed

INTERPRETER_COUNT_MAX = 64
LIMITS = ProgramLimits(fuel=100_000, memory_bytes=8 * 1024 * 1024)


@dataclass(frozen=True)
class _Permission:
    patterns: Sequence[str]
    key: bytes | None
    limits: ProgramLimits
    capabilities: Capabilities

    def covers(self, known: Type) -> bool:
        if known.code is None or not any(matches(p, known.name) for p in self.patterns):
            return False
        fields = (known.name, known.fingerprint, known.code.source)
        return self.key is None or is_signed(self.key, known.code.signature, METHODS, *fields)


_permissions: list[_Permission] = []
_interpreters: dict[int, Interpreter] = {}


def permit(
    *types: str,
    key: bytes | None = None,
    limits: ProgramLimits = LIMITS,
    capabilities: Capabilities | None = None,
) -> None:
    """Let methods that are received with types run in this process. By default, none may run.

    If no class in this process implements an operation, such as `order.total(3)`, the methods
    received with the type carry it out. Each type has its own interpreter.

    Args:
        types: Patterns for the names of the types: `plant.Recipe`, `plant.>`, or `>` for all.
        key: If given, only methods signed with this key may run.
        limits: How much one call may use. Classes that the methods define must have names
            that `types` covers, whatever the limits say.
        capabilities: What the methods may do beyond computing; by default, nothing.
    """
    if not types:
        raise UsageError("say which types' methods may run: their names, or '>' for all")
    for pattern in types:
        check_pattern(pattern)
    checked = None if key is None else check_key(key)
    limits = replace(limits, classes=types)
    _permissions.append(_Permission(types, checked, limits, capabilities or Capabilities()))
    registry.implement = _implementation


def forbid() -> None:
    """Revoke all permissions, and drop the state of the methods' interpreters."""
    registry.implement = None
    _permissions.clear()
    _interpreters.clear()


def _implementation(obj: DataObject, name: str) -> Callable[..., Any] | None:
    tag = obj.__bus_tag__
    fingerprint = tag.fingerprint if tag.__class__ is Foreign else obj.__bus_type__.fingerprint
    known = registry.types.get(fingerprint)
    if known is None or name not in known.operations.names:
        return None
    author = next((one for one in _lineage(known) if one.code), None)
    permission = next((p for p in _permissions if author and p.covers(author)), None)
    if author is None or permission is None:
        return None
    return partial(_perform, obj, known.operations[name], author, permission)


def _lineage(known: Type) -> list[Type]:
    """Return the type and its supertypes, subtypes before supertypes."""
    return sorted(known.ancestors.values(), key=lambda one: -one.depth)


def _perform(
    obj: DataObject,
    operation: Any,
    author: Type,
    permission: _Permission,
    /,
    *given: Any,
    **named: Any,
) -> Any:
    with registry.lock:
        interpreter = _interpreters.get(author.fingerprint)
        if interpreter is None:
            assert author.code is not None
            interpreter = Interpreter(
                limits=permission.limits, capabilities=permission.capabilities
            )
            interpreter.run(author.code.source, f"methods of {author.name}")
            if len(_interpreters) >= INTERPRETER_COUNT_MAX:  # drop the oldest
                del _interpreters[next(iter(_interpreters))]
            _interpreters[author.fingerprint] = interpreter
    return interpreter.perform(obj, operation, *given, **named)
