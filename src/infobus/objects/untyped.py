"""Decode values of unknown shape from bytes that you cannot trust.

msgspec could decode them in one call, but then a map may have keys of any kind, which an
attacker can make collide in Python's hash table. So large values are first split, level by
level, into pieces whose worst case is harmless. The keys of a piece are checked before the next
piece is decoded. Memory stays within about 80 times the size of the bytes: the worst case is a
value full of empty lists.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from infobus.errors import BadFrame
from infobus.objects.kinds import DEPTH_MAX, INT_MAX

PIECE_BYTES_MAX = 4096
"""Up to this size, msgspec decodes a value in one call: few colliding keys fit into it."""

ReadExt = Callable[[Ext, int], Any]

_decode_any = msgspec.msgpack.Decoder().decode
_decode_list = msgspec.msgpack.Decoder(list[Raw]).decode
_decode_map = msgspec.msgpack.Decoder(dict[str, Raw]).decode
_SCALARS = frozenset({str, bool, float, bytes, type(None), datetime})


def refuse_ext(ext: Ext, depth: int) -> Any:
    """Raise `BadFrame`: the default for values that must not hold extensions."""
    raise BadFrame(f"extension {ext.code} of MessagePack has no meaning here")


def read_untyped(data: bytes, depth: int = 1, read_ext: ReadExt = refuse_ext) -> Any:
    """Decode the value in `data`; `read_ext(ext, depth)` turns extensions into values.

    Raises `BadFrame`, or msgspec's own exception for bytes that are not MessagePack.
    """
    if len(data) <= PIECE_BYTES_MAX:
        return revive(_decode_any(data), depth, read_ext)
    if depth > DEPTH_MAX:
        raise BadFrame(f"a value is nested deeper than {DEPTH_MAX} levels")
    first = data[0]
    if first in (0xDE, 0xDF) or 0x80 <= first <= 0x8F:
        pieces = _decode_map(data)
        return {k: read_untyped(bytes(v), depth + 1, read_ext) for k, v in pieces.items()}
    if first in (0xDC, 0xDD) or 0x90 <= first <= 0x9F:
        return [read_untyped(bytes(v), depth + 1, read_ext) for v in _decode_list(data)]
    return revive(_decode_any(data), depth, read_ext)


def revive(value: Any, depth: int, read_ext: ReadExt) -> Any:
    """Check a value that msgspec decoded, and turn its extensions and raw parts into values."""
    cls = value.__class__
    if cls in _SCALARS:
        return value
    if cls is int:
        if value > INT_MAX:
            raise BadFrame(f"the integer {value} needs more than 64 bits with its sign")
        return value
    if depth > DEPTH_MAX:
        raise BadFrame(f"a value is nested deeper than {DEPTH_MAX} levels")
    if cls is list:
        return [v if v.__class__ in _SCALARS else revive(v, depth + 1, read_ext) for v in value]
    if cls is dict:
        if not set(map(type, value)) <= {str}:
            raise BadFrame("a map has a key that is not a string")
        return {
            k: v if v.__class__ in _SCALARS else revive(v, depth + 1, read_ext)
            for k, v in value.items()
        }
    if cls is Raw:
        return read_untyped(bytes(value), depth, read_ext)
    return read_ext(value, depth)
