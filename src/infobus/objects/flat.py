"""Flat objects, which hold nothing but scalars, have a quicker way to bytes and back, in C.

The module `_flat` is optional: it is built where there is a C compiler, and without it the codec
does the same in Python. It deals with objects that are just as their type says, and leaves all
others to the codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from infobus.objects.kinds import PAYLOAD_BYTES_MAX, ObjectRoot

try:
    from infobus.objects._flat import Flat
except ImportError:  # not built, or the package is read from an archive
    Flat = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from infobus.objects.data import DataObject

_CODES = {"bool": "b", "int": "i", "float": "f", "str": "s", "bytes": "y"}
_COUNT_MAX = 32  # attributes, as in `_flat.c`
_tag = ObjectRoot.__dict__["__bus_tag__"]


def flat_for(cls: type[DataObject], header: bytes) -> Flat | None:
    """What writes and reads objects of exactly this class; None if only Python can.

    `header` is how the map of their attributes begins.
    """
    attributes = cls.__bus_type__.attributes
    # One is made below, and let go: a finaliser would not expect that.
    if Flat is None or len(attributes) > _COUNT_MAX or hasattr(cls, "__del__"):
        return None
    fields = []
    for attribute in attributes:
        kind = str(attribute.kind)
        scalar = kind.removesuffix(" | None")
        if scalar not in _CODES or _is_computed(cls, attribute.name):
            return None
        code = _CODES[scalar] + ("" if scalar == kind else "?")
        fields.append((attribute.name, msgspec.msgpack.encode(attribute.name), code))
    # The first object of a class tells Python which attributes they have: from then on, those
    # made in C hold them in place, without a dict.
    first = object.__new__(cls)
    for name, _, _ in fields:
        object.__setattr__(first, name, None)
    return Flat(cls, _tag, header, tuple(fields), PAYLOAD_BYTES_MAX, not _keeps_more(cls))


def _keeps_more(cls: type) -> bool:
    """Whether objects may hold more than their attributes, such as what a property has cached.

    Of all others the collector of garbage need not know: scalars and an id refer to nothing. So a
    program that keeps millions of received objects is not held up by walks over them.
    """
    return any(
        hasattr(type(value), "__set_name__") or name == "__slots__"
        for base in cls.__mro__
        if base is not object and base is not ObjectRoot and ObjectRoot not in base.__bases__
        for name, value in base.__dict__.items()
    )


def _is_computed(cls: type, name: str) -> bool:
    """Whether the class has a property, or the like, where the attribute would be."""
    found = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    return hasattr(type(found), "__set__")
