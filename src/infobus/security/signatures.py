"""Ed25519 over raw bytes: a private key has 32, a public key 32, a signature 64."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def public_key_of(private_key: bytes) -> bytes:
    """Return the public half of a private key; any 32 random bytes are a private key."""
    return Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()


def sign(private_key: bytes, message: bytes) -> bytes:
    """Return the signature of a message."""
    return _private(private_key).sign(message)


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key has signed exactly this message. All may be hostile."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=16)  # making the object takes longer than signing with it
def _private(private_key: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(private_key)
