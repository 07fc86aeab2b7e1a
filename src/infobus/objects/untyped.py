"""Decode values of unknown shape from bytes that you cannot trust.

msgspec could decode them in one call, but then a map may have keys of any kind, which an
attacker can make collide in Python's hash table. So large values are first split, level by
level, into pieces whose worst case is harmless. The keys of a piece are checked before the next
piece is decoded. Values take up to 150 times the size of their bytes: the worst case is a list full
of empty lists. So the values of large objects are counted before they are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from infobus.errors import BadFrame
from infobus.objects.kinds import DEPTH_MAX, INT_MAX, OBJECT_EXT, VALUES_COUNT_MAX

try:
    from infobus.objects._flat import count_values as _count_in_c
except ImportError:  # not built, or the package is read from an archive
    _count_in_c = None  # type: ignore[assignment]

PIECE_BYTES_MAX = 4096
"""Up to this size, msgspec decodes a value in one call: few colliding keys fit into it."""

COUNTED_BYTES = 1024 * 1024
"""Smaller objects are not counted: they cannot hold many more values than they have bytes."""

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


def check_count(payload: bytes) -> None:
    """Raise `BadFrame` if the object in `payload` holds too many values; nothing is decoded."""
    if len(payload) > COUNTED_BYTES and count_values(payload) > VALUES_COUNT_MAX:
        raise BadFrame(f"an object of more than {VALUES_COUNT_MAX:,} values; so many are allowed")


def count_values(payload: bytes) -> int:
    """Return how many elements the lists and maps in `payload` claim to have, nested ones too.

    The count ends when it is too large, and at bytes that are not MessagePack.
    """
    if _count_in_c is not None:
        return _count_in_c(payload, VALUES_COUNT_MAX)
    return count_in_python(payload, 0, len(payload), 0, DEPTH_MAX)


# By first byte from 0xc0 on, as in `_flat.c`: how many bytes its length has, and how many follow in
# any case.
_LENGTHS = bytes.fromhex("0000000001020401020400000000000000000000000000000001020402040204")
_FIXED = bytes.fromhex("0000000000000001010104080102040801020408020305091100000000000000")
_EXTS = frozenset((*range(0xC7, 0xCA), *range(0xD4, 0xD9)))


def count_in_python(data: bytes, at: int, end: int, count: int, depth: int) -> int:
    """Do what `_flat.c` does: add to `count` the elements from `at` on."""
    pending = 1
    while pending and at < end and count <= VALUES_COUNT_MAX:
        first = data[at]
        at += 1
        pending -= 1
        items = 0
        if 0x80 <= first <= 0x9F:
            items = first & 0x0F
        elif 0xA0 <= first <= 0xBF:
            at += first & 0x1F
        elif 0xC0 <= first <= 0xDF:
            start = at + _LENGTHS[first - 0xC0]
            length = int.from_bytes(data[at:start], "big")
            if start > end:
                return count
            at = start
            if first >= 0xDC:
                items = length
            else:
                at += _FIXED[first - 0xC0] + length
            if first in _EXTS and start < end and data[start] == OBJECT_EXT:
                if depth == 0:
                    return VALUES_COUNT_MAX + 1
                count = count_in_python(data, start + 1, min(at, end), count, depth - 1)
        count += items
        pending += 2 * items if first <= 0x8F or first >= 0xDE else items
    return count
