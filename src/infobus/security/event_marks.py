"""What a signed or sealed event carries, as everybody on the way may read it; no key is needed.

A signed event has the header `~signed`, a sealed one the header `~sealed` and, in its object, the
attribute `~sealed` with the envelope. All of them are data like any other to those who pass the
event on or keep it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

SIGNED = "~signed"
"""The header that holds a `EventSignature`."""
SEALED = "~sealed"
"""The header that says for which keys an event is sealed."""

_ID_BYTES = 8
_NOBODY: frozenset[bytes] = frozenset()


class EventSignature(Struct, array_like=True, frozen=True):
    """Who says to have published an event, under which subject of which bus, and when."""

    version: int
    key: bytes
    """The id of the key."""
    bus: str
    subject: str
    time: float
    signature: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EventSignature).decode


def encoded_signature(signature: EventSignature) -> bytes:
    """Return the value of the header `~signed`."""
    return _encode(signature)


def signature_in(headers: Mapping[str, object]) -> EventSignature | None:
    """Return the signature that an event comes with, unchecked; None if it has none."""
    told = headers.get(SIGNED)
    if not isinstance(told, bytes):
        return None
    try:
        return _decode(told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def encoded_ids(keys: list[bytes]) -> bytes:
    """Return the value of the header `~sealed`."""
    return b"".join(keys)


def sealed_for(headers: Mapping[str, object]) -> frozenset[bytes] | None:
    """Return the ids of the keys for which an event is sealed; None if it is not."""
    told = headers.get(SEALED)
    if told is None:
        return None
    if not isinstance(told, bytes):
        return _NOBODY
    return frozenset(told[at : at + _ID_BYTES] for at in range(0, len(told), _ID_BYTES))
