"""What this process knows about types: the tables behind introspection and the codec.

Reading needs no lock, because every table changes by single steps; whoever writes more
than one entry holds `lock`. A *declared* class was written or defined here, and rules its
name. A *built* class was made for a type that came from outside; it steps aside as soon as
something better is known.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infobus.objects.data import DataObject
    from infobus.objects.plans import Plan
    from infobus.objects.types import Type

lock = threading.RLock()

types: dict[int, Type] = {}
"""Every type whose descriptor is held, by fingerprint."""

current: dict[str, Type] = {}
"""By name, the version that counts here: declared last, else learned last."""

declared: dict[int, tuple[type[DataObject], ...]] = {}
"""The classes that implement a type, by fingerprint, in order of declaration."""

declared_names: dict[str, type[DataObject]] = {}
"""The class declared last for each name."""

built: dict[int, type[DataObject]] = {}
"""Classes made at run time, by the fingerprint they were received under."""

ready: dict[int, Plan] = {}
"""Plans of the classes whose type has exactly that fingerprint and holds no objects: what the
codec can decode in one call."""

learned: Counter[int] = Counter()
"""The sizes of the descriptors that came from outside, by fingerprint."""

implement: Callable[[DataObject, str], Callable[..., Any] | None] | None = None
"""Finds what carries out an operation that no class here implements, if anything may."""

awaited: set[int] = set()
"""Fingerprints of supertypes that were named, but whose descriptors have not come."""


def add_declared(cls: type[DataObject]) -> None:
    """Make `cls` the class of its type, and let built classes that it concerns go."""
    known = cls.__bus_type__
    with lock:
        types[known.fingerprint] = current[known.name] = known
        declared[known.fingerprint] = (*declared.get(known.fingerprint, ()), cls)
        declared_names[known.name] = cls
        forget_built(known.name)
        _make_ready(cls)


def add_built(fingerprint: int, cls: type[DataObject]) -> None:
    """Use `cls` for objects received under `fingerprint`, until something better is known."""
    built[fingerprint] = cls
    if cls.__bus_type__.fingerprint == fingerprint:
        _make_ready(cls)


def _make_ready(cls: type[DataObject]) -> None:
    if not cls.__bus_plan__.is_deep:
        ready[cls.__bus_type__.fingerprint] = cls.__bus_plan__


def forget_built(name: str) -> None:
    """Let classes go that were built without knowing this version of the type `name`."""
    for fingerprint in [fp for fp in built if name in types[fp].lineage]:
        del built[fingerprint]
        ready.pop(fingerprint, None)


def find_type(key: str | int) -> Type | None:
    """The type of that name (the version that counts here) or fingerprint, if it is known."""
    return current.get(key) if isinstance(key, str) else types.get(key)


def all_types() -> list[Type]:
    """Every type known in this process, by name, in the version that counts here."""
    return sorted(current.values(), key=lambda known: known.name)
