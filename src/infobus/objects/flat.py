"""The fast path in C for flat objects, which hold only scalars.

The module `_flat` is optional. It is built where a C compiler is available; without it, the
codec does the same in Python. It handles only objects that match their type exactly, and leaves
all others to the codec.
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
    """Return the C codec for objects of exactly this class, or None if only Python can do it.

    `header` is the first bytes of the map of their attributes.
    """
    attributes = cls.__bus_type__.attributes
    # An object without attributes is made and dropped below. A finaliser would not expect that.
    if Flat is None or len(attributes) > _COUNT_MAX or hasattr(cls, "__del__"):
        return None
    fields = []
    for attribute in attributes:
        kind = str(attribute.checker)
        scalar = kind.removesuffix(" | None")
        if scalar not in _CODES or _is_computed(cls, attribute.name):
            return None
        code = _CODES[scalar] + ("" if scalar == kind else "?")
        fields.append((attribute.name, msgspec.msgpack.encode(attribute.name), code))
    # CPython learns the attribute names of a class from its first object. From then on, objects
    # made in C store their attributes inline, without a dict.
    first = object.__new__(cls)
    for name, _, _ in fields:
        object.__setattr__(first, name, None)
    return Flat(cls, _tag, header, tuple(fields), PAYLOAD_BYTES_MAX, not _keeps_more(cls))


def _keeps_more(cls: type) -> bool:
    """Return whether objects may hold more than their attributes, such as a cached property.

    The garbage collector need not track any other object: scalars and an id cannot form a
    cycle. So a program can hold millions of received objects without slow collections.
    """
    return any(
        hasattr(type(value), "__set_name__") or name == "__slots__"
        for base in cls.__mro__
        if base is not object and base is not ObjectRoot and ObjectRoot not in base.__bases__
        for name, value in base.__dict__.items()
    )


def _is_computed(cls: type, name: str) -> bool:
    """Return whether a property or other data descriptor has the attribute's name."""
    found = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
    return hasattr(type(found), "__set__")
