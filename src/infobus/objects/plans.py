"""Plans: the type of a class, arranged for fast construction, encoding and decoding."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from infobus.objects.flat import flat_for
from infobus.objects.kinds import INT, Kind
from infobus.objects.members import Attribute

if TYPE_CHECKING:
    from infobus.objects.data import DataObject


class ClassPlan:
    """Facts about one class that are computed once instead of for every object."""

    __slots__ = (
        "attributes",
        "closure",
        "cls",
        "containers",
        "count",
        "decimals",
        "decode",
        "decode_run",
        "fields",
        "fingerprint",
        "first_byte",
        "flat",
        "header",
        "integers",
        "is_deep",
        "is_plain",
        "new",
        "reader",
        "rich",
    )

    def __init__(self, cls: type[DataObject]) -> None:
        known = cls.__bus_type__
        self.cls = cls
        self.new: Callable[[], DataObject] = MethodType(object.__new__, cls)
        self.fingerprint = known.fingerprint
        self.closure = known.closure
        self.attributes: dict[str, Attribute] = {a.name: a for a in known.attributes}
        self.count = len(self.attributes)
        self.fields = tuple((a.name, _exact(a), a.checker.check, a) for a in known.attributes)
        # A program can change containers in place, so they are checked again before sending.
        self.containers: tuple[tuple[str, Kind], ...] = tuple(
            (a.name, a.checker) for a in known.attributes if a.plain.is_container
        )
        self.is_plain = not any(a.plain.is_container or a.plain.is_deep for a in known.attributes)
        self.is_deep = any(a.plain.is_deep for a in known.attributes)
        self.rich = tuple((a.name, a.rich) for a in known.attributes if a.rich is not None)
        # Filters see these otherwise than they are sent.
        self.decimals = {name: rich.compared for name, rich in self.rich if rich.has_decimals}
        # msgspec skips keys that a TypedDict does not name, but unknown attributes must be
        # preserved. So this decodes only a map with exactly the right number of entries, which
        # the first bytes show: if msgspec then finds all attributes, nothing was skipped.
        wire = {} if self.is_deep else {a.name: a.plain.wire for a in known.attributes}
        # MessagePack has integers that exceed a signed 64-bit integer. Looking for them
        # afterwards is much faster than giving msgspec the bounds.
        self.integers = tuple(name for name, spec in wire.items() if spec is INT.wire)
        wire.update(dict.fromkeys(self.integers, int))
        shape: Any = TypedDict("shape", wire)  # type: ignore[misc]
        self.decode = msgspec.msgpack.Decoder(shape).decode
        self.decode_run = msgspec.msgpack.Decoder(list[shape]).decode
        self.reader: Callable[[bytes, Any], Any] | None = None  # the codec makes it on first use
        is_small = self.count <= 15
        self.header = (
            bytes([0x80 | self.count]) if is_small else b"\xde" + self.count.to_bytes(2, "big")
        )
        # The header of a small map is one byte, and comparing it is faster than `startswith`.
        self.first_byte = self.header[0] if is_small else -1
        self.flat = flat_for(cls, self.header)


def _exact(attribute: Attribute) -> type | None:
    return attribute.kind.exact if attribute.rich is None else None
