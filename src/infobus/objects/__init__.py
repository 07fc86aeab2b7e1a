"""Objects that describe themselves: types, introspection, codec, printing.

You declare a class; the bus derives its type. A type travels as a descriptor, so a program that
does not have the class can still read, print, change and forward its objects.
"""

from typing import TYPE_CHECKING, Any

from infobus.objects.classes import define_type
from infobus.objects.data import DataObject, Property, id_of, identify, spelled, type_of
from infobus.objects.members import Attribute, Operation
from infobus.objects.outbound import sent_values
from infobus.objects.registry import all_types, find_type
from infobus.objects.types import Type

if TYPE_CHECKING:
    from infobus.objects.printer import describe

__all__ = [
    "Attribute",
    "DataObject",
    "Operation",
    "Property",
    "Type",
    "all_types",
    "define_type",
    "describe",
    "find_type",
    "id_of",
    "identify",
    "sent_values",
    "spelled",
    "type_of",
]


def __getattr__(name: str) -> Any:
    if name == "describe":
        from infobus.objects.printer import describe  # late: most programs print nothing

        return describe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
