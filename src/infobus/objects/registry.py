"""The types that this process knows: the tables behind introspection and the codec.

Reading needs no lock, because every change to a table is a single atomic step. Code that writes
more than one entry holds `lock`. A *declared* class was written or defined in this process, and
is always used for its name. A *built* class was made for a received type; it is dropped as soon
as a better one is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infobus.objects.data import DataObject
    from infobus.objects.plans import ClassPlan
    from infobus.objects.types import Type

lock = threading.RLock()

types: dict[int, Type] = {}
"""Every type whose descriptor is known, by fingerprint."""

current: dict[str, Type] = {}
"""The current version of each type, by name: the one declared last, else learned last."""

declared: dict[int, tuple[type[DataObject], ...]] = {}
"""The classes that implement a type, by fingerprint, in order of declaration."""

declared_names: dict[str, type[DataObject]] = {}
"""The class declared last for each name."""

built: dict[int, type[DataObject]] = {}
"""Classes made at run time, by the fingerprint they were received under."""

ready: dict[int, ClassPlan] = {}
"""The plans of classes whose type has exactly that fingerprint and holds no objects. The codec
can decode these objects in one call."""


class Sizes(dict[int, int]):
    """Numbers of bytes by key, with their sum."""

    total = 0

    def __setitem__(self, key: int, size: int) -> None:
        self.total += size - self.get(key, 0)
        super().__setitem__(key, size)

    def __delitem__(self, key: int) -> None:
        self.total -= self[key]
        super().__delitem__(key)

    def clear(self) -> None:
        self.total = 0
        super().clear()

    def update(self, sizes: dict[int, int]) -> None:  # type: ignore[override]
        for key, size in sizes.items():
            self[key] = size


learned = Sizes()
"""The sizes of received descriptors, by fingerprint, the oldest first."""

teachers: dict[str, dict[int, None]] = {}
"""The learned types by the peer that has described them first; "" if that is not known."""

teacher_of: dict[int, str] = {}
"""The peer that has described a learned type first."""

used: set[int] = set()
"""Learned types of which objects have come, and their supertypes: they are forgotten last."""

forgotten = 0
"""How many received types were forgotten, for lack of room."""

implement: Callable[[DataObject, str], Callable[..., Any] | None] | None = None
"""Finds an implementation of an operation that no class in this process implements.

`infobus.tdl.permit` sets it; None means that methods from outside may not run.
"""

twins: dict[object, type[DataObject]] = {}
"""By a class of another library, the data object class under which its instances travel."""

natives: dict[type[DataObject], Callable[[DataObject], Any]] = {}
"""By such a data object class, what makes the instance again. Empty while nobody needs it."""

believes: Callable[[str, bytes], bool] | None = None
"""Whether a descriptor may say something of the type with this name; None: all may.

A secured bus sets it, if its policy says whose types count.
"""

author_names: Callable[[bytes], frozenset[str]] | None = None
"""The principal and the roles of the author with a certificate; a secured bus sets it."""

prefers: Callable[[Type], bool] | None = None
"""Whether the methods that came with a type may run here; `infobus.tdl.permit` sets it."""

OTHER_CODES_COUNT_MAX = 256
other_codes: dict[tuple[int, bytes], Type] = {}
"""Methods for a known type that came with other descriptors of it, by fingerprint and author."""

AWAITED_COUNT_MAX = 100_000
awaited: set[int] = set()
"""Fingerprints of supertypes that were named, but whose descriptors have not arrived."""


def add_declared(cls: type[DataObject]) -> None:
    """Make `cls` the class of its type, and drop the built classes that depend on that type."""
    known = cls.__bus_type__
    with lock:
        types[known.fingerprint] = current[known.name] = known
        declared[known.fingerprint] = (*declared.get(known.fingerprint, ()), cls)
        declared_names[known.name] = cls
        _drop_learned(known.fingerprint)
        forget_built(known.name)
        _make_ready(cls)


def add_built(fingerprint: int, cls: type[DataObject]) -> None:
    """Use `cls` for objects received under `fingerprint` until a better class is known."""
    built[fingerprint] = cls
    if cls.__bus_type__.fingerprint == fingerprint:
        _make_ready(cls)


def _make_ready(cls: type[DataObject]) -> None:
    if not cls.__bus_plan__.is_deep:
        ready[cls.__bus_type__.fingerprint] = cls.__bus_plan__


def forget_built(name: str) -> None:
    """Drop the classes that were built before this version of the type `name` was known."""
    for fingerprint in [fp for fp in built if fp not in types or name in types[fp].lineage]:
        del built[fingerprint]
        ready.pop(fingerprint, None)


def note_learned(fingerprint: int, size: int, teacher: str) -> None:
    """Note who has described a type first, and how large the descriptor is."""
    learned[fingerprint] = size
    if fingerprint not in teacher_of:
        teacher_of[fingerprint] = teacher
        teachers.setdefault(teacher, {})[fingerprint] = None


def forget_learned(fingerprint: int) -> None:
    """Forget a received type; it can be learned again."""
    global forgotten
    forgotten += 1
    _drop_learned(fingerprint)
    built.pop(fingerprint, None)
    ready.pop(fingerprint, None)
    for key in [key for key in other_codes if key[0] == fingerprint]:
        del other_codes[key]
    known = types.pop(fingerprint, None)
    if known is not None and current.get(known.name) is known:
        del current[known.name]


def _drop_learned(fingerprint: int) -> None:
    if fingerprint in learned:
        del learned[fingerprint]
    used.discard(fingerprint)
    if (teacher := teacher_of.pop(fingerprint, None)) is not None:
        del teachers[teacher][fingerprint]
        if not teachers[teacher]:
            del teachers[teacher]


def find_type(key: str | int) -> Type | None:
    """Return the type with this name (its current version) or fingerprint, or None."""
    return current.get(key) if isinstance(key, str) else types.get(key)


def all_types() -> list[Type]:
    """Return the current version of every type that this process knows, sorted by name."""
    return sorted(current.values(), key=lambda known: known.name)
