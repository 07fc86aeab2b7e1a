"""Run methods that were received with a type, if the program permits it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from infobus.errors import UsageError
from infobus.objects import registry
from infobus.objects.classes import codes_of
from infobus.objects.data import DataObject, Foreign
from infobus.objects.descriptors import TravellingCode, authorship
from infobus.objects.types import Type
from infobus.subjects import check_pattern, matches
from infobus.tdl.interpreter import METHODS, Interpreter
from infobus.tdl.limits import Capabilities, ProgramLimits
from infobus.tdl.signatures import check_key, is_signed

log = logging.getLogger("infobus")

INTERPRETER_COUNT_MAX = 64
LIMITS = ProgramLimits(fuel=100_000, memory_bytes=8 * 1024 * 1024)


@dataclass(frozen=True)
class _Permission:
    patterns: Sequence[str]
    key: bytes | None
    authors: frozenset[bytes | str] | None
    limits: ProgramLimits
    capabilities: Capabilities

    def covers(self, known: Type) -> bool:
        if known.code is None or not any(matches(p, known.name) for p in self.patterns):
            return False
        if self.authors is not None and not self._is_by_author(known):
            return False
        fields = (known.name, known.fingerprint, known.code.source)
        return self.key is None or is_signed(self.key, known.code.signature, METHODS, *fields)

    def _is_by_author(self, known: Type) -> bool:
        """Whether one of the authors has signed the descriptor, with the methods in it."""
        from infobus.security.type_authors import is_by  # late: it needs the extra `secure`

        assert self.authors is not None
        told = authorship(known.descriptor)
        if told is None:
            return False
        names = registry.author_names
        owner = {told.key, *(names(told.key) if names is not None else ())}
        is_one = not self.authors.isdisjoint(owner)
        return is_one and is_by(told.key, told.message, told.signature)


_permissions: list[_Permission] = []
_interpreters: dict[tuple[int, TravellingCode], Interpreter] = {}


def permit(
    *types: str,
    key: bytes | None = None,
    authors: Iterable[bytes | str] | None = None,
    limits: ProgramLimits = LIMITS,
    capabilities: Capabilities | None = None,
) -> None:
    """Let methods that are received with types run in this process. By default, none may run.

    If no class in this process implements an operation, such as `order.total(3)`, the methods
    received with the type carry it out. Each type has its own interpreter.

    Args:
        types: Patterns for the names of the types: `plant.Recipe`, `plant.>`, or `>` for all.
        key: If given, only methods signed with this key may run.
        authors: If given, only methods of types that one of these has signed: public keys (Ed25519,
            32 bytes), or on a secured bus names of principals and roles.
        limits: How much one call may use. Classes that the methods define must have names
            that `types` covers, whatever the limits say.
        capabilities: What the methods may do beyond computing; by default, nothing.
    """
    if not types:
        raise UsageError("say which types' methods may run: their names, or '>' for all")
    for pattern in types:
        check_pattern(pattern)
    checked = None if key is None else check_key(key)
    if isinstance(authors, str | bytes):
        raise UsageError("authors takes a list of names or public keys")
    if key is None and authors is None:
        log.warning(
            "methods of %s may run here, whoever has sent them: give permit a key, or authors",
            ", ".join(types),
        )
    limits = replace(limits, classes=types)
    by = None if authors is None else frozenset(authors)
    _permissions.append(_Permission(types, checked, by, limits, capabilities or Capabilities()))
    registry.implement, registry.prefers = _implementation, _is_permitted


def forbid() -> None:
    """Revoke all permissions, and drop the state of the methods' interpreters."""
    registry.implement = registry.prefers = None
    _permissions.clear()
    _interpreters.clear()


def _implementation(obj: DataObject, name: str) -> Callable[..., Any] | None:
    tag = obj.__bus_tag__
    fingerprint = tag.fingerprint if tag.__class__ is Foreign else obj.__bus_type__.fingerprint
    known = registry.types.get(fingerprint)
    if known is None or name not in known.operations.names:
        return None
    codes = next(filter(None, map(codes_of, _lineage(known))), [])
    for author in codes:  # of one type; several may have sent methods for it
        for permission in _permissions:
            if permission.covers(author):
                return partial(_perform, obj, known.operations[name], author, permission)
    return None


def _is_permitted(known: Type) -> bool:
    return any(permission.covers(known) for permission in _permissions)


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
        assert author.code is not None
        place = (author.fingerprint, author.code)
        interpreter = _interpreters.get(place)
        if interpreter is None:
            interpreter = Interpreter(
                limits=permission.limits, capabilities=permission.capabilities
            )
            interpreter.run(author.code.source, f"methods of {author.name}")
            if len(_interpreters) >= INTERPRETER_COUNT_MAX:  # drop the oldest
                del _interpreters[next(iter(_interpreters))]
            _interpreters[place] = interpreter
    return interpreter.perform(obj, operation, *given, **named)
