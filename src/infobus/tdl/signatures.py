"""Signatures: who holds the key may have written it.

HMAC-SHA256 with a key that is shared by those who trust each other. Every field is preceded by
its length, so no two texts are signed alike.
"""

from __future__ import annotations

import hashlib
import hmac

from infobus.errors import UsageError

KEY_BYTES_MIN = 16


def check_key(key: bytes) -> bytes:
    """`key`, if it is long enough."""
    if len(key) < KEY_BYTES_MIN:
        raise UsageError(f"the key has {len(key)} bytes; it needs at least {KEY_BYTES_MIN}")
    return key


def sign(key: bytes, purpose: str, *fields: str | int) -> bytes:
    """The signature of `fields` for one purpose.

    >>> sign(b"0123456789abcdef", "test", "a", 1).hex()[:16]
    'f3f1a04bd64cafd0'
    """
    mac = hmac.new(check_key(key), digestmod=hashlib.sha256)
    for field in ("infobus tdl", purpose, *fields):
        data = str(field).encode("utf-8", "surrogatepass")
        mac.update(len(data).to_bytes(8, "big") + data)
    return mac.digest()


def is_signed(key: bytes, signature: bytes, purpose: str, *fields: str | int) -> bool:
    """Whether the holder of `key` made the signature."""
    return hmac.compare_digest(sign(key, purpose, *fields), signature)
