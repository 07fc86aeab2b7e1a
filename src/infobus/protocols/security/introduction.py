"""How a node says who it is within a handshake, and why nobody else can say it.

A node draws a static key for itself when it begins. Its name ends in a hash of that key, so the
handshake proves that a name is its own: nobody else can take it, not even first. Whom it acts for,
the node says by a certificate and a signature with the key of that certificate. The signature is
over the hash of the handshake, which covers both names, the bus and all keys of both sides, and
over the static key. So it is of no use in any other handshake, nor to anyone else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import Count
from infobus.security.noise import Handshake
from infobus.security.signatures import is_signed

_LABEL = b"infobus handshake 1\0"
_NAME_HASH_BYTES = 8
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Bearer(Struct, frozen=True):
    """Who is behind a node, as its certificate says; times are seconds since 1970."""

    principal: str
    roles: tuple[str, ...]
    public_key: bytes
    until_s: float
    certificate: bytes


class Identity(Protocol):
    """What a node needs of its credential."""

    certificate: bytes
    """What others are shown."""

    def sign(self, message: bytes) -> bytes:
        """Sign with the principal's key."""

    def check(self, certificate: bytes, wall_s: float) -> Bearer:
        """Whose certificate this is.

        Raises:
            BusError: It does not count here and now; the message says why.
        """


class Introduction(Struct, array_like=True):
    """What the second and third message of a handshake carry."""

    certificate: Annotated[bytes, Meta(max_length=8192)]
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    wire: tuple[Count, Count]
    policy: Count = 0


_decoder = msgspec.msgpack.Decoder(Introduction)


def bound_name(stem: str, static: bytes) -> str:
    """The name of the node that has this static key.

    >>> bound_name("floor7-4242", bytes(32))
    'floor7-4242-a0544ed67957cd2c'
    """
    said = stem.encode() + b"\0" + static
    return f"{stem}-{blake2b(said, digest_size=_NAME_HASH_BYTES).hexdigest()}"


def is_bound(name: str, static: bytes) -> bool:
    """Whether a name is that of the node with this static key."""
    return bound_name(name.rpartition("-")[0], static) == name


def prologue(bus: str, initiator: str, responder: str, wire_major: int) -> bytes:
    """What both sides must agree on before they say anything."""
    return _LABEL + msgspec.msgpack.encode([bus, initiator, responder, wire_major])


def introduce(
    handshake: Handshake, identity: Identity, wire: tuple[int, int], policy: int
) -> bytes:
    """The next message of `handshake`, with an introduction."""
    start = handshake.write_start()
    signature = identity.sign(_signed(handshake.hash, handshake.static))
    said = Introduction(identity.certificate, signature, wire, policy)
    return start + handshake.write_end(msgspec.msgpack.encode(said))


def be_introduced(
    handshake: Handshake, message: bytes, identity: Identity, wall_s: float
) -> tuple[Bearer, Introduction]:
    """Take in the next message; return who says that it is, and has proven it.

    Raises:
        BusError: It is not what it says, or may not come in.
    """
    payload = handshake.read_start(message)
    signed = _signed(handshake.hash, handshake.remote_static)
    try:
        said = _decoder.decode(handshake.read_end(payload))
    except _UNREADABLE as error:
        raise BadFrame(f"not an introduction: {error}") from error
    bearer = identity.check(said.certificate, wall_s)
    if not is_signed(bearer.public_key, signed, said.signature):
        raise BadFrame(f"shows the certificate of {bearer.principal}, which is not its own")
    return bearer, said


def _signed(transcript: bytes, static: bytes) -> bytes:
    return _LABEL + transcript + static
