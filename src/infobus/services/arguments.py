"""What is sent with a call: maps, most of them of plain values, which have a short way here."""

from __future__ import annotations

from typing import Any

import msgspec

from infobus.objects import codec
from infobus.objects.kinds import INT_MAX, INT_MIN, PAYLOAD_BYTES_MAX
from infobus.objects.untyped import PIECE_BYTES_MAX

PLAIN = frozenset({str, bool, float, bytes, type(None)})
"""Classes whose values are sent as they are, whatever they hold."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def write(values: dict[str, Any]) -> tuple[bytes, tuple[int, ...]]:
    """The values as bytes, and the fingerprints of all types that a reader needs.

    Raises:
        BadValue: One of them cannot be sent.
    """
    for value in values.values():
        if value.__class__ not in PLAIN and (
            value.__class__ is not int or not INT_MIN <= value <= INT_MAX
        ):
            break
    else:
        try:
            payload = _encode(values)
            if len(payload) <= PAYLOAD_BYTES_MAX:
                return payload, ()
        except ValueError:
            pass  # The long way says what is wrong.
    _, payload, types = codec.encode(values)
    return payload, types


def read(payload: bytes) -> dict[str, Any]:
    """The values in some bytes.

    Raises:
        BadFrame: Whatever is wrong with them.
    """
    if len(payload) <= PIECE_BYTES_MAX:
        try:
            values: dict[str, Any] = _decode(payload)
        except _UNREADABLE:
            pass  # The long way says what is wrong.
        else:
            for value in values.values():
                if value.__class__ not in PLAIN and (value.__class__ is not int or value > INT_MAX):
                    break
            else:
                return values
    found: dict[str, Any] = codec.decode(0, payload)
    return found
