"""Signing an event, and sealing what is in it, end to end.

What is sealed is encrypted once, under a key of its own (AES-256-GCM). That key is wrapped for each
receiver: by X25519 with a key pair that is made for this event, and HKDF. What stays clear, the
type, and the key that signs are bound to what is sealed: they cannot be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Raw, Struct

from infobus.errors import BadValue
from infobus.security.event_keys import SECRET_BYTES, EventKey, PublicEventKey
from infobus.security.event_marks import SEALED, EventSignature

RECEIVERS_COUNT_MAX = 64
"""For so many keys an event can be sealed."""
RANDOM_BYTES = 2 * SECRET_BYTES
"""How many random bytes `seal` needs."""

_VERSION = 1
_NONCE = bytes(12)  # each key encrypts one thing only

_encode = msgspec.msgpack.Encoder().encode
_decode_map = msgspec.msgpack.Decoder(dict[str, Raw]).decode


class _Envelope(Struct, array_like=True, frozen=True):
    version: int
    ephemeral: bytes
    wrapped: list[tuple[bytes, bytes]]  # id of a key -> the content key, wrapped for it
    content: bytes


_decode_envelope = msgspec.msgpack.Decoder(_Envelope).decode


def signed_bytes(bus: str, subject: str, type_: int, body: bytes, time: float) -> bytes:
    """Return what is signed of an event."""
    return _encode(["infobus event 1", bus, subject, type_, body, time])


def sign(
    key: EventKey, bus: str, subject: str, type_: int, body: bytes, time: float
) -> EventSignature:
    """Return the signature of an event: of its bus, subject, type, object and time."""
    message = signed_bytes(bus, subject, type_, body, time)
    return EventSignature(_VERSION, key.id, bus, subject, time, key.sign(message))


def is_genuine(key: PublicEventKey, told: EventSignature, type_: int, body: bytes) -> bool:
    """Return whether `key` has signed this object, under the bus, subject and time told."""
    message = signed_bytes(told.bus, told.subject, type_, body, told.time)
    is_ours = told.version == _VERSION and told.key == key.id
    return is_ours and key.is_signed(told.signature, message)


def seal(
    body: bytes,
    type_: int,
    clear: Collection[str],
    receivers: Sequence[PublicEventKey],
    signer: bytes,
    random: bytes,
) -> bytes:
    """Return the object in `body` with everything sealed but the attributes in `clear`.

    Args:
        body: An encoded object.
        type_: Its fingerprint.
        clear: Attributes that everybody may read.
        receivers: The keys that can open it.
        signer: The id of the key that signs the result; empty if none does.
        random: `RANDOM_BYTES` that nobody else knows, and that are never used again.

    Raises:
        BadValue: An attribute that is to stay clear is missing, or there are too many receivers.
    """
    if not 0 < len(receivers) <= RECEIVERS_COUNT_MAX:
        raise BadValue(
            f"seal_to names {len(receivers)} keys; from 1 to {RECEIVERS_COUNT_MAX} are possible"
        )
    parts = _decode_map(body)
    if SEALED in parts:
        raise BadValue("the object is sealed already: publish it as it is")
    if missing := [name for name in clear if name not in parts]:
        raise BadValue(
            f"clear names {missing[0]!r}, which the object does not have; it has "
            f"{', '.join(list(parts)[:20])}"
        )
    shown = {name: parts[name] for name in parts if name in clear}
    hidden = {name: parts[name] for name in parts if name not in clear}
    content_key, ephemeral = random[:SECRET_BYTES], random[SECRET_BYTES:RANDOM_BYTES]
    one_time = X25519PrivateKey.from_private_bytes(ephemeral)
    told = one_time.public_key().public_bytes_raw()
    wrapped = [
        (
            one.id,
            _wrapping(one_time.exchange(one.sealer), told, one.sealing).encrypt(
                _NONCE, content_key, None
            ),
        )
        for one in receivers
    ]
    content = AESGCM(content_key).encrypt(_NONCE, _encode(hidden), _bound(type_, shown, signer))
    envelope = _encode(_Envelope(_VERSION, told, wrapped, content))
    return _encode({**shown, SEALED: envelope})


def open_sealed(body: bytes, type_: int, keys: Iterable[EventKey], signer: bytes) -> bytes | None:
    """Return the object of a sealed `body`, encoded; None if none of the keys opens it.

    What anybody has changed in it does not open.
    """
    try:
        parts = _decode_map(body)
        told = msgspec.msgpack.decode(parts.pop(SEALED), type=bytes)
        envelope = _decode_envelope(told)
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError):
        return None
    if envelope.version != _VERSION or len(envelope.wrapped) > RECEIVERS_COUNT_MAX:
        return None
    held = {key.id: key for key in keys}
    for id_, wrapped in envelope.wrapped:
        if (key := held.get(id_)) is not None:
            hidden = _content(envelope, key, wrapped, _bound(type_, parts, signer))
            if hidden is not None:
                return _encode({**parts, **hidden})
    return None


def _content(
    envelope: _Envelope, key: EventKey, wrapped: bytes, bound: bytes
) -> dict[str, Raw] | None:
    try:
        theirs = X25519PublicKey.from_public_bytes(envelope.ephemeral)
        shared = key.opener.exchange(theirs)
        wrapping = _wrapping(shared, envelope.ephemeral, key.public.sealing)
        content_key = wrapping.decrypt(_NONCE, wrapped, None)
        return _decode_map(AESGCM(content_key).decrypt(_NONCE, envelope.content, bound))
    except (ValueError, InvalidTag, msgspec.DecodeError):
        return None


def _wrapping(shared: bytes, ephemeral: bytes, receiver: bytes) -> AESGCM:
    """The cipher that wraps the content key for one receiver."""
    told: Callable[[bytes], bytes] = HKDF(
        SHA256(), SECRET_BYTES, ephemeral + receiver, b"infobus event key wrap"
    ).derive
    return AESGCM(told(shared))


def _bound(type_: int, shown: dict[str, Raw], signer: bytes) -> bytes:
    """What cannot be exchanged without what is sealed."""
    values = [(name, bytes(shown[name])) for name in sorted(shown)]
    return _encode([_VERSION, type_, values, signer])
