"""The record of an event in a ledger, and its bytes, with a checksum.

The checksum also covers the number and the time of a record. A record that has strayed to another
place is therefore not mistaken for the one that belongs there.
"""

from __future__ import annotations

import struct
import zlib

import msgspec


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One guaranteed event. Fields may be added at the end; readers skip unknown ones."""

    subject: str
    time: float
    """The publisher's clock in seconds since 1970."""
    type: int
    """The fingerprint of the type of `body`."""
    body: bytes
    object_id: str | None = None
    """None if it is the event's own id."""
    expires: float | None = None
    """When the event is of no use any more, in seconds since 1970."""
    test: bool = False
    priority: str = "regular"
    headers: bytes | None = None
    """As in `infobus.headers`; older ledgers hold nil here."""
    origin: tuple[str, int, str] | None = None
    """Of an event from another site: the ledger that kept it first, its number there, and the name
    of its site."""


class SourcePlace(msgspec.Struct, frozen=True):
    """Where a record comes from that is kept on behalf of another ledger.

    Along a stream, numbers grow. A ledger keeps no record whose number it has reached already, so
    it does no harm if a record comes again.
    """

    stream: str
    number: int


class Position(msgspec.Struct, frozen=True):
    """The position of a durable consumer in a ledger, and when it was last heard of."""

    position: int
    """Everything up to this number is settled."""
    seen_at: float


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)
_place = struct.Struct("<qd")


def encode(record: Record) -> bytes:
    """Return the bytes that `decode` reads.

    >>> decode(encode(Record("orders.new", 1.5, 7, b"..."))).subject
    'orders.new'
    """
    return _encoder.encode(record)


def decode(encoded: bytes) -> Record:
    """Return the record; raises `msgspec.DecodeError` for bytes that are not one."""
    return _decoder.decode(encoded)


def checksum(number: int, kept_at: float, encoded: bytes) -> int:
    """Return the CRC-32 over all stored parts of a record."""
    return zlib.crc32(encoded, zlib.crc32(_place.pack(number, kept_at)))
