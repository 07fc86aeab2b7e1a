"""Reading values whose shape nobody announced, from bytes that nobody vouches for.

msgspec decodes them in one call, but a map may then have keys of any kind, made to collide
in Python's hash table. So large values are first split, level by level, into pieces whose
worst case is harmless; the keys of a piece are checked before the next one is touched.
Memory stays within about 80 times the size of the bytes (the price of an empty list each).
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

ReadExt = Callable[[Ext, int], Any]

_decode_any = msgspec.msgpack.Decoder().decode
_decode_list = msgspec.msgpack.Decoder(list[Raw]).decode
_decode_map = msgspec.msgpack.Decoder(dict[str, Raw]).decode
_SCALARS = frozenset({str, bool, float, bytes, type(None), datetime})


def refuse_ext(ext: Ext, depth: int) -> Any:
    """Extensions have no place here."""
    raise BadFrame(f"extension {ext.code} of MessagePack has no meaning here")


def read_untyped(data: bytes, depth: int = 1, read_ext: ReadExt = refuse_ext) -> Any:
    """The value in `data`, whose extensions `read_ext(ext, depth)` turns into values.

    Raises `BadFrame` or, for bytes that are no MessagePack at all, what msgspec raises.
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
    """`value` as msgspec decoded it, checked, with extensions and raw parts turned into values."""
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
