"""What stands in an object for attributes that its publisher has sealed, and nobody here can open.

A sealed object has the attribute `~sealed`, an envelope. It is passed on and stored with the
object, as all attributes are that a class does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from infobus.objects.data import DataObject, unknown_attributes

SEALED_PART = "~sealed"
"""The attribute that holds the envelope."""


class SealedValue:
    """The class of `SEALED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "sealed"

    def __bool__(self) -> bool:
        raise TypeError("this attribute is sealed: subscribe with `holds` and a key that opens it")

    def __reduce__(self) -> str:
        return "SEALED"


SEALED = SealedValue()
"""The value of an attribute that is sealed. It equals nothing but itself, and has no truth."""


def is_sealed(data: object) -> bool:
    """Return whether a part of an object (or of a plain mapping) is sealed."""
    found = unknown_attributes(data) if isinstance(data, DataObject) else data
    return isinstance(found, Mapping) and SEALED_PART in found
