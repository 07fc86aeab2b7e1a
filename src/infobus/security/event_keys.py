"""Keys of events: who signs an event, and who can open what is sealed in it.

A pair is made of 32 secret bytes. They give an Ed25519 key, which signs, and an X25519 key, for
which others seal. The public half is what everybody else has of it. A key is known by its id, a
hash of the public half; its name is what this home calls it.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from infobus.errors import UsageError
from infobus.printable import printable

SECRET_BYTES = 32
ID_BYTES = 8

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PAIR, _PUBLIC = "infobus-event-key", "infobus-event-public-key"


class PublicEventKey:
    """The public half of a pair: checks its signatures, and is what others seal for."""

    def __init__(self, name: str, verifying: bytes, sealing: bytes) -> None:
        self.name = check_key_name(name)
        self.verifying = verifying
        self.sealing = sealing
        self.id = hashlib.blake2b(verifying + sealing, digest_size=ID_BYTES).digest()
        try:
            self._verifier = Ed25519PublicKey.from_public_bytes(verifying)
            self.sealer = X25519PublicKey.from_public_bytes(sealing)
        except ValueError:
            raise UsageError(f"the event key {name!r} is damaged: expected 32 bytes each") from None

    def is_signed(self, signature: bytes, message: bytes) -> bool:
        """Return whether the owner of the pair has signed `message`."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._verifier.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_text(self) -> str:
        """Return the one line that `from_text` reads; nothing in it is secret."""
        return f"{_PUBLIC} {self.name} {self.verifying.hex()} {self.sealing.hex()}\n"

    @classmethod
    def from_text(cls, text: str) -> PublicEventKey:
        """Read the public half of a pair; of a whole pair, too.

        Raises:
            UsageError: This is no key of events.
        """
        words = text.split()
        if words[:1] == [_PAIR]:
            return EventKey.from_text(text).public
        name, verifying, sealing = _parts(words, _PUBLIC, 4)
        return cls(name, _bytes_of(verifying), _bytes_of(sealing))

    def __repr__(self) -> str:
        return f"<PublicEventKey {self.name} {self.id.hex()}>"


class EventKey:
    """A whole pair: signs, and opens what is sealed for it. Keep it secret."""

    def __init__(self, name: str, secret: bytes) -> None:
        """Make the pair of `secret`: 32 random bytes that nobody else knows."""
        self.name = check_key_name(name)
        if len(secret) != SECRET_BYTES:
            raise UsageError(f"an event key has {SECRET_BYTES} secret bytes, got {len(secret)}")
        self._secret = secret
        self._signer = Ed25519PrivateKey.from_private_bytes(_derived(secret, b"sign"))
        self.opener = X25519PrivateKey.from_private_bytes(_derived(secret, b"seal"))

    @cached_property
    def public(self) -> PublicEventKey:
        """The half that everybody may have."""
        verifying = self._signer.public_key().public_bytes_raw()
        return PublicEventKey(self.name, verifying, self.opener.public_key().public_bytes_raw())

    @property
    def id(self) -> bytes:
        """What the pair is known by."""
        return self.public.id

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        return self._signer.sign(message)

    def to_text(self) -> str:
        """Return the one line that `from_text` reads; whoever reads it has the key."""
        return f"{_PAIR} {self.name} {self._secret.hex()}\n"

    @classmethod
    def from_text(cls, text: str) -> EventKey:
        """Read a whole pair.

        Raises:
            UsageError: This is no pair of keys of events.
        """
        name, secret = _parts(text.split(), _PAIR, 3)
        return cls(name, _bytes_of(secret))

    def __repr__(self) -> str:
        return f"<EventKey {self.name} {self.id.hex()}>"


def check_key_name(name: str) -> str:
    """Return `name` if an event key may be called so.

    Raises:
        UsageError: It may not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"an event key cannot be called {name!r:.80}: expected up to 64 letters, digits, "
            "'_', '-' or '.', with a letter or digit first"
        )
    return name


def _derived(secret: bytes, use: bytes) -> bytes:
    return HKDF(SHA256(), SECRET_BYTES, None, b"infobus event key " + use).derive(secret)


def _parts(words: list[str], kind: str, count: int) -> list[str]:
    if words[:1] != [kind] or len(words) != count:
        found = printable(" ".join(words[:1]))[:60] or "nothing"
        raise UsageError(f"expected one line of {count} words that begins with {kind}, got {found}")
    return words[1:]


def _bytes_of(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError("the event key is damaged: expected hexadecimal digits") from None
