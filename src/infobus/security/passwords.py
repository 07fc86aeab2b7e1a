"""Passwords, kept so that whoever reads the file still has to guess: scrypt, with a salt for each.

A line of the file is `alice scrypt 32768 8 1 SALT HASH`, with the last two in hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac

SALT_BYTES = 16
PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX = 8, 1024

# 32 MiB and some 100 ms for each guess.
_COST, _BLOCK, _LANES = 2**15, 8, 1
_COST_MAX = 2**20
_HASH_BYTES = 32


def hashed(password: str, salt: bytes) -> str:
    """Return what to keep of a password; it also says how it was made."""
    digest = _digest(password, salt, _COST, _BLOCK, _LANES)
    return f"scrypt {_COST} {_BLOCK} {_LANES} {salt.hex()} {digest.hex()}"


def is_right(password: str, kept: str) -> bool:
    """Whether a password is the one of which this was kept."""
    try:
        kind, cost, block, lanes, salt, digest = kept.split()
        numbers = int(cost), int(block), int(lanes)
        if kind != "scrypt" or not 1 < numbers[0] <= _COST_MAX or max(numbers[1:]) > 16:
            return False
        wanted = bytes.fromhex(digest)
        if len(password.encode()) > PASSWORD_BYTES_MAX:
            return False
        return hmac.compare_digest(_digest(password, bytes.fromhex(salt), *numbers), wanted)
    except ValueError:
        return False


def _digest(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=cost,
        r=block,
        p=lanes,
        maxmem=256 * cost * block,
        dklen=_HASH_BYTES,
    )
