"""Sealed frames: what two nodes have in common after a handshake, and what they do with it.

A frame for one receiver is under the key of the pair. A frame for several is under a key of its
own, which each of them gets under the key of its pair, bound to the hash of the body: so no
receiver can make another body for the others. The engine's key on which a frame is put is bound as
well, so a frame cannot be moved to where it was not sent.

The number of a frame is its nonce, and no stream of a node ever uses one twice. Receivers remember
the last `WINDOW_COUNT` of each stream, because frames of several threads overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from infobus.errors import BadFrame
from infobus.protocols.frames.security import (
    BODY_KEY_BYTES,
    ENTRY_BYTES,
    SEAL_ID_BYTES,
    Sealed,
    encode,
)
from infobus.protocols.security.introduction import Bearer
from infobus.security.noise import Handshake, nonce_of

WINDOW_COUNT = 1_024
STREAMS_COUNT_MAX = 1_024
STREAM_BITS = 48
_ZERO = bytes(12)
_ONE, _MANY = b"1", b"n"  # what is said to one can never pass for a part of what is said to many
_NOT_OPENED = "a sealed frame that cannot be opened"


class ReplayWindow:
    """Which of the latest numbers of a stream have come. One thread at a time."""

    __slots__ = ("missing", "top")

    def __init__(self, top: int) -> None:
        self.top = top
        self.missing: set[int] = set()

    def is_new(self, number: int) -> bool:
        """Whether a number has not come yet, as far as is known."""
        if number > self.top:
            return True
        return number in self.missing and number > self.top - WINDOW_COUNT

    def note(self, number: int) -> None:
        """It has come."""
        top = self.top
        if number == top + 1:
            self.top = number
            if not self.missing:
                return
        elif number > top:
            self.missing.update(range(max(top + 1, number - WINDOW_COUNT + 1), number))
            self.top = number
        else:
            self.missing.discard(number)
            return
        if len(self.missing) > 2 * WINDOW_COUNT:
            oldest = self.top - WINDOW_COUNT
            self.missing = {one for one in self.missing if one > oldest}


@dataclass(eq=False)
class Seal:
    """What this node and a peer have in common: a key for each direction, and who the peer is."""

    peer: str
    bearer: Bearer
    policy: int
    wire: tuple[int, int]
    attempt: bytes
    is_lessers: bool  # whether the node with the lesser name began
    began_s: float
    own_id: bytes  # of frames for this node
    peer_id: bytes
    encrypt: Callable[[bytes, bytes, bytes], bytes]
    decrypt: Callable[[bytes, bytes | memoryview, bytes], bytes]
    done: bytes = b""  # the third message, should it come again
    used_since: int = 0  # how many frames this node had sealed when it began
    windows: dict[tuple[int, int], ReplayWindow] = field(default_factory=dict)

    def proof(self) -> bytes:
        """Shows the peer that this node has the keys."""
        return self.encrypt(_ZERO, b"", self.attempt)

    def is_proof(self, proof: bytes) -> bool:
        """Whether the peer has them."""
        try:
            return self.decrypt(_ZERO, proof, self.attempt) == b""
        except InvalidTag:
            return False

    def window(self, place: int, stream: int) -> ReplayWindow:
        """The window of a stream, as it arrives at the declaration `place` of this node."""
        return self.windows.setdefault((place, stream), ReplayWindow(stream << STREAM_BITS))

    def begin(self, place: int) -> None:
        """A declaration begins, which must not take what has come to others before."""
        tops: dict[int, int] = {}
        for (_, stream), window in list(self.windows.items()):
            tops[stream] = max(window.top, tops.get(stream, 0))
        for stream, top in tops.items():
            self.windows[place, stream] = ReplayWindow(top)

    def forget(self, place: int) -> None:
        """A declaration has ended; what came to it stays known."""
        for there, stream in [key for key in list(self.windows) if key[0] == place]:
            ended = self.windows.pop((there, stream))
            kept = self.windows.setdefault((0, stream), ended)
            if kept.top < ended.top:
                self.windows[0, stream] = ended


def seal_of(
    handshake: Handshake,
    peer: str,
    bearer: Bearer,
    *,
    policy: int,
    wire: tuple[int, int],
    attempt: bytes,
    is_initiator: bool,
    is_lessers: bool,
    now_s: float,
) -> Seal:
    """What a finished handshake gives."""
    keys = handshake.split()
    ids = [sha256(handshake.hash + which).digest()[:SEAL_ID_BYTES] for which in (b"i", b"r")]
    own_id, peer_id = ids if is_initiator else reversed(ids)
    return Seal(
        peer,
        bearer,
        policy,
        wire,
        attempt,
        is_lessers,
        now_s,
        own_id,
        peer_id,
        AESGCM(keys.send).encrypt,
        AESGCM(keys.receive).decrypt,
    )


def sealed_for_one(sender: str, seal: Seal, number: int, key: str, plain: bytes) -> bytes:
    """The frame that holds `plain` for one receiver."""
    body = seal.encrypt(nonce_of(number), plain, _ONE + key.encode())
    return encode(Sealed(sender, number, key, seal.peer_id, memoryview(body)))


def sealed_for_many(
    sender: str, seals: Sequence[Seal], number: int, key: str, plain: bytes, body_key: bytes
) -> bytes:
    """The frame that holds `plain` for several receivers; `body_key` is used this once."""
    nonce = nonce_of(number)
    body = AESGCM(body_key).encrypt(_ZERO, plain, None)
    bound = _MANY + sha256(body).digest() + key.encode()
    entries = b"".join([seal.peer_id + seal.encrypt(nonce, body_key, bound) for seal in seals])
    return encode(Sealed(sender, number, key, entries, memoryview(body)))


def opened(frame: Sealed, seals: Sequence[Seal], place: int) -> tuple[Seal, bytes] | None:
    """What a frame holds, and the seal that it came under; None if it has come before.

    `seals` are those with its sender, `place` is where it has arrived.

    Raises:
        BadFrame: It is not for this node, or not from its sender, or not what was sent.
    """
    entries, number = frame.entries, frame.number
    for seal in seals:
        start = _entry_of(seal.own_id, entries)
        if start < 0:
            continue
        stream = number >> STREAM_BITS
        if stream >= STREAMS_COUNT_MAX:
            raise BadFrame("a sealed frame of a stream that cannot be")
        window = seal.windows.get((place, stream)) or seal.window(place, stream)
        if not window.is_new(number):
            return None
        try:
            plain = _plain(frame, seal, start)
        except InvalidTag as error:
            raise BadFrame(_NOT_OPENED) from error
        window.note(number)
        return seal, plain
    raise BadFrame("a sealed frame that is not for this node")


def _plain(frame: Sealed, seal: Seal, start: int) -> bytes:
    nonce, key = nonce_of(frame.number), frame.key.encode()
    if len(frame.entries) == SEAL_ID_BYTES:
        return seal.decrypt(nonce, frame.body, _ONE + key)
    bound = _MANY + sha256(frame.body).digest() + key
    wrapped = frame.entries[start + SEAL_ID_BYTES : start + ENTRY_BYTES]
    body_key = seal.decrypt(nonce, wrapped, bound)
    if len(body_key) != BODY_KEY_BYTES:
        raise BadFrame(_NOT_OPENED)
    return AESGCM(body_key).decrypt(_ZERO, frame.body, None)


def _entry_of(seal_id: bytes, entries: bytes) -> int:
    """Where the entry of a seal begins; -1 if there is none."""
    if len(entries) == SEAL_ID_BYTES:
        return 0 if entries == seal_id else -1
    if len(entries) % ENTRY_BYTES:
        return -1
    start = entries.find(seal_id)
    while start >= 0 and start % ENTRY_BYTES:  # these bytes are part of a key
        start = entries.find(seal_id, start + 1)
    return start
