"""The handshake `Noise_XX_25519_AESGCM_SHA256`, exactly as the Noise specification says.

Two parties exchange three messages. Each ends with the same two keys, one for each direction, and
with proof that the other one holds the private half of the static key that it showed. Whose static
key it is, the handshake does not know: its payloads say that.

    -> e
    <- e, ee, s, es
    -> s, se

Nothing here draws keys or knows the time: private keys come in as 32 bytes each. Bytes that do not
belong to the handshake raise `BadFrame`; after that a `Handshake` is of no use any more, so whoever
has to expect forgeries lets a `copy` read them.
"""

from __future__ import annotations

import hashlib
import hmac
from copy import copy
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from infobus.errors import BadFrame

PROTOCOL_NAME = b"Noise_XX_25519_AESGCM_SHA256"
KEY_BYTES = 32
TAG_BYTES = 16
MESSAGE_BYTES_MAX = 65_535

_PATTERN = (("e",), ("e", "ee", "s", "es"), ("s", "se"))


def public_of(private: bytes) -> bytes:
    """The public half of a private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def nonce_of(number: int) -> bytes:
    """A number as AES-GCM takes it: four zero bytes, and the number with its highest byte first."""
    return number.to_bytes(12, "big")


class DirectionKeys(NamedTuple):
    """What a handshake ends with: the key for what this party sends, and for what it receives."""

    send: bytes
    receive: bytes


class Handshake:
    """One party's side of one handshake: `HandshakeState` of the specification.

    Args:
        is_initiator: Whether this party sends the first message.
        prologue: What both parties must agree on; if they do not, the handshake fails.
        static: The private key by which the other party will know this one.
        ephemeral: A private key that nobody has used before, nor will again.
    """

    def __init__(
        self, *, is_initiator: bool, prologue: bytes, static: bytes, ephemeral: bytes
    ) -> None:
        self._is_initiator = is_initiator
        self._static = X25519PrivateKey.from_private_bytes(static)
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral)
        self._remote_static: X25519PublicKey | None = None
        self._remote_ephemeral: X25519PublicKey | None = None
        self._step = 0
        # `SymmetricState`: the name has fewer bytes than a hash, so it is filled up with zeros.
        self._hash = self._chain = PROTOCOL_NAME.ljust(hashlib.sha256().digest_size, b"\0")
        self._key = b""
        self._count = 0  # messages under this key
        self._mix_hash(prologue)

    @property
    def hash(self) -> bytes:
        """The hash of all that was sent and received so far: nobody else's handshake has it."""
        return self._hash

    @property
    def static(self) -> bytes:
        """The public half of this party's static key."""
        return self._static.public_key().public_bytes_raw()

    @property
    def remote_static(self) -> bytes:
        """The static key that the other party has shown."""
        assert self._remote_static is not None, "its message has not come yet"
        return self._remote_static.public_bytes_raw()

    @property
    def is_complete(self) -> bool:
        """Whether all three messages have been written or read."""
        return self._step == len(_PATTERN)

    def copy(self) -> Handshake:
        """Another handshake in the same state, so that this one keeps it."""
        return copy(self)

    def write_start(self) -> bytes:
        """The beginning of the next message, before its payload; then `hash` is what it signs."""
        assert self._is_turn_to_write, "it is the other party's turn"
        message = b""
        for token in _PATTERN[self._step]:
            if token == "e":
                public = self._ephemeral.public_key().public_bytes_raw()
                self._mix_hash(public)
                message += public
            elif token == "s":
                message += self._encrypt(self.static)
            else:
                self._mix_shared(token)
        return message

    def write_end(self, payload: bytes) -> bytes:
        """The end of the message: its payload, which only the first message shows to everyone."""
        self._step += 1
        return self._encrypt(payload)

    def write(self, payload: bytes) -> bytes:
        """The next message with its payload."""
        return self.write_start() + self.write_end(payload)

    def read_start(self, message: bytes) -> bytes:
        """Take in the beginning of the next message; return what is left: its payload."""
        assert not self.is_complete and not self._is_turn_to_write, "it is this party's turn"
        if len(message) > MESSAGE_BYTES_MAX:
            raise BadFrame(f"a message of a handshake has {len(message)} bytes")
        for token in _PATTERN[self._step]:
            if token == "e":
                public, message = _split(message, KEY_BYTES)
                self._remote_ephemeral = X25519PublicKey.from_public_bytes(public)
                self._mix_hash(public)
            elif token == "s":
                sealed, message = _split(message, KEY_BYTES + TAG_BYTES if self._key else KEY_BYTES)
                self._remote_static = X25519PublicKey.from_public_bytes(self._decrypt(sealed))
            else:
                self._mix_shared(token)
        return message

    def read_end(self, sealed: bytes) -> bytes:
        """Take in the rest of the message; return its payload."""
        self._step += 1
        return self._decrypt(sealed)

    def read(self, message: bytes) -> bytes:
        """Take in the next message; return its payload."""
        return self.read_end(self.read_start(message))

    def split(self) -> DirectionKeys:
        """The two keys, once all three messages have been written and read."""
        assert self.is_complete
        first, second = _derived(self._chain, b"")
        return DirectionKeys(first, second) if self._is_initiator else DirectionKeys(second, first)

    @property
    def _is_turn_to_write(self) -> bool:
        return (self._step % 2 == 0) == self._is_initiator

    def _mix_shared(self, token: str) -> None:
        # The first letter is the initiator's key, the second one the responder's.
        own, other = (token[0], token[1]) if self._is_initiator else (token[1], token[0])
        private = self._ephemeral if own == "e" else self._static
        public = self._remote_ephemeral if other == "e" else self._remote_static
        assert public is not None
        try:
            shared = private.exchange(public)
        except ValueError as error:  # a point of small order, which gives everyone the same secret
            raise BadFrame("a handshake shows a key that cannot be one") from error
        self._chain, self._key = _derived(self._chain, shared)
        self._count = 0

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _encrypt(self, plain: bytes) -> bytes:
        sealed = plain
        if self._key:
            sealed = AESGCM(self._key).encrypt(nonce_of(self._count), plain, self._hash)
            self._count += 1
        self._mix_hash(sealed)
        return sealed

    def _decrypt(self, sealed: bytes) -> bytes:
        plain = sealed
        if self._key:
            try:
                plain = AESGCM(self._key).decrypt(nonce_of(self._count), sealed, self._hash)
            except InvalidTag as error:
                raise BadFrame("a message of a handshake is not what was sent") from error
            self._count += 1
        self._mix_hash(sealed)
        return plain


def _split(message: bytes, count: int) -> tuple[bytes, bytes]:
    if len(message) < count:
        raise BadFrame("a message of a handshake is cut short")
    return message[:count], message[count:]


def _derived(chain: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """HKDF with two results, as the specification defines it."""
    extracted = hmac.digest(chain, secret, "sha256")
    first = hmac.digest(extracted, b"\x01", "sha256")
    return first, hmac.digest(extracted, first + b"\x02", "sha256")
