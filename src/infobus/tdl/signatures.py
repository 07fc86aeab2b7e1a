"""Signatures: prove that the author of a program holds the shared key.

They are HMAC-SHA256 with a key shared by people who trust each other. Every field is preceded
by its length, so different fields never produce the same signed bytes.
"""

from __future__ import annotations

import hashlib
import hmac

from infobus.errors import UsageError

KEY_BYTES_MIN = 16


def check_key(key: bytes) -> bytes:
    """Return `key`; raise `UsageError` if it is too short."""
    if len(key) < KEY_BYTES_MIN:
        raise UsageError(f"the key has {len(key)} bytes; it needs at least {KEY_BYTES_MIN}")
    return key


def sign(key: bytes, purpose: str, *fields: str | int) -> bytes:
    """Return the signature of `fields` for one purpose.

    >>> sign(b"0123456789abcdef", "test", "a", 1).hex()[:16]
    'f3f1a04bd64cafd0'
    """
    mac = hmac.new(check_key(key), digestmod=hashlib.sha256)
    for field in ("infobus tdl", purpose, *fields):
        data = str(field).encode("utf-8", "surrogatepass")
        mac.update(len(data).to_bytes(8, "big") + data)
    return mac.digest()


def is_signed(key: bytes, signature: bytes, purpose: str, *fields: str | int) -> bool:
    """Return whether a holder of `key` made the signature."""
    return hmac.compare_digest(sign(key, purpose, *fields), signature)
