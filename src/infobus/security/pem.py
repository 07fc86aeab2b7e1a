"""PEM: private keys, certificates and other bytes in one file of text, with remarks between."""

from __future__ import annotations

import base64
import binascii
import re

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from infobus.errors import BadCredential

PRIVATE_KEY = "PRIVATE KEY"
CERTIFICATE = "CERTIFICATE"
POLICY = "INFOBUS POLICY"

TEXT_BYTES_MAX = 4 * 1024 * 1024
_BLOCK_COUNT_MAX = 100
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s([A-Za-z0-9+/=\s]*)-----END \1-----")


def block(label: str, data: bytes) -> str:
    """Return bytes as a block of text."""
    encoded = base64.b64encode(data).decode()
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def blocks(text: str) -> list[tuple[str, bytes]]:
    """Return the blocks of a text, with their labels, in order.

    Raises:
        BadCredential: A block cannot be read, or there is far too much.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise BadCredential(f"{len(text)} characters; at most {TEXT_BYTES_MAX} are accepted")
    found = []
    for match in _BLOCK.finditer(text):
        try:
            found.append((match[1], base64.b64decode("".join(match[2].split()), validate=True)))
        except (binascii.Error, ValueError) as error:
            raise BadCredential(f"the block {match[1]!r} cannot be read: {error}") from None
        if len(found) > _BLOCK_COUNT_MAX:
            raise BadCredential("far too many blocks")
    return found


def private_key(key: bytes) -> str:
    """Return a private key of Ed25519 as a block."""
    made = Ed25519PrivateKey.from_private_bytes(key)
    return block(PRIVATE_KEY, made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def read_private_key(data: bytes) -> bytes:
    """Return the 32 bytes of a private key.

    Raises:
        BadCredential: This is no private key of Ed25519.
    """
    try:
        key = load_der_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCredential(f"the private key cannot be read: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadCredential("the private key is not of Ed25519")
    return key.private_bytes_raw()
