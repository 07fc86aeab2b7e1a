"""The frames of a secured bus (`docs/wire.md` is the specification).

Nodes of a secured bus put these and no others: what two nodes say to shake hands, and sealed
frames, in which all other frames travel. They have the same form as those in `wire`, with tags from
90 on.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import Count
from infobus.protocols.frames.node_names import NodeName, bad_name, is_sender
from infobus.protocols.frames.wire import FRAME_BYTES_MAX

SEALED_TAG = b"\x5a"
"""The second byte of a sealed frame."""
ATTEMPT_BYTES = 16
SEAL_ID_BYTES = 8
BODY_KEY_BYTES = 16
TAG_BYTES = 16
ENTRY_BYTES = SEAL_ID_BYTES + BODY_KEY_BYTES + TAG_BYTES
"""What one of several receivers needs: the id of its seal, and the key of the body under it."""
RECEIVERS_COUNT_MAX = 100_000

Attempt = Annotated[bytes, Meta(min_length=ATTEMPT_BYTES, max_length=ATTEMPT_BYTES)]
NoiseMessage = Annotated[bytes, Meta(max_length=16_384)]
Key = Annotated[str, Meta(max_length=8192)]
Entries = Annotated[
    bytes, Meta(min_length=SEAL_ID_BYTES, max_length=ENTRY_BYTES * RECEIVERS_COUNT_MAX)
]


RefusalWhy = Literal["authority", "bus", "use", "early", "expired", "revoked"]


class Sealed(Struct, array_like=True, tag=90, gc=False):
    """A frame that only its receivers can read, put on the engine's key `key`.

    `number` counts the frames of a stream of the sender: it is stream * 2^48 + count, from 1 on.
    If `entries` is the id of one seal, the body is under the key of that seal. Otherwise it is
    under a key of its own, and `entries` has that for each receiver.
    """

    sender: NodeName
    number: Count
    key: Key
    entries: Entries
    body: memoryview


class Greeting(Struct, array_like=True, tag=91):
    """The first message of a handshake: I want to meet you."""

    sender: NodeName
    message: NoiseMessage


class GreetingBack(Struct, array_like=True, tag=92):
    """The second message of a handshake; `attempt` names the first one."""

    sender: NodeName
    attempt: Attempt
    message: NoiseMessage


class GreetingDone(Struct, array_like=True, tag=93):
    """The third message of a handshake."""

    sender: NodeName
    attempt: Attempt
    message: NoiseMessage


class GreetingHeard(Struct, array_like=True, tag=94):
    """The third message has come: from now on the seal may be used. `proof` is made with it."""

    sender: NodeName
    attempt: Attempt
    proof: Annotated[bytes, Meta(min_length=TAG_BYTES, max_length=TAG_BYTES)]


class Posture(Struct, array_like=True, tag=95):
    """This bus is secured, and you are a node without a credential: I do not hear you."""

    sender: NodeName


class GreetingRefused(Struct, array_like=True, tag=96):
    """The certificate that you have shown does not count here. Anybody may claim that.

    `attempt` names the handshake in which it was shown.
    """

    sender: NodeName
    attempt: Attempt
    why: RefusalWhy


HandshakeMessage = Greeting | GreetingBack | GreetingDone | GreetingHeard | GreetingRefused

_handshake_decoder: msgspec.msgpack.Decoder[HandshakeMessage] = msgspec.msgpack.Decoder(
    HandshakeMessage
)
_sealed_decoder = msgspec.msgpack.Decoder(Sealed)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

encode = msgspec.msgpack.Encoder().encode


def decode_handshake(payload: bytes) -> HandshakeMessage:
    """Read one frame of a handshake.

    Raises:
        BadFrame: These bytes are no such frame. No other exception leaves here.
    """
    try:
        message = _handshake_decoder.decode(payload)
    except _UNREADABLE as error:
        raise BadFrame(f"not a frame of a handshake: {error}") from error
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    return message


def decode_sealed(payload: bytes) -> Sealed:
    """Read one sealed frame, which is not opened yet.

    Raises:
        BadFrame: These bytes are no such frame. No other exception leaves here.
    """
    if len(payload) > FRAME_BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {FRAME_BYTES_MAX} are accepted")
    try:
        return _sealed_decoder.decode(payload)
    except _UNREADABLE as error:
        raise BadFrame(f"not a sealed frame: {error}") from error


class _Begun(Struct, array_like=True):
    tag: int
    sender: NodeName


_begun_decoder = msgspec.msgpack.Decoder(_Begun)


def is_frame(payload: bytes) -> bool:
    """Whether `payload` begins as a frame does: as a MessagePack array."""
    return payload[:1] in _ARRAYS


def sender_of(payload: bytes) -> str:
    """Who says that it has sent a frame that is not sealed; empty if nobody does."""
    try:
        sender = _begun_decoder.decode(payload).sender
    except _UNREADABLE:
        return ""
    return sender if is_sender(sender) else ""


_ARRAYS = frozenset([*(bytes([one]) for one in range(0x90, 0xA0)), b"\xdc", b"\xdd"])
