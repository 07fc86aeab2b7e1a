"""Members of a secured bus for tests: identities without files, made from a seed."""

import random

import msgspec

from infobus.engines import Engine
from infobus.engines.sealed.engine import SealedEngine
from infobus.errors import BadCredential, BadFrame
from infobus.protocols.security.introduction import Bearer
from infobus.security import signatures

AUTHORITY = b"\x07" * 32


class TestIdentity:
    """A principal whose certificate is a plain list, signed by an authority."""

    __test__ = False

    def __init__(
        self,
        principal: str,
        *,
        authority: bytes = AUTHORITY,
        from_s: float = 0.0,
        until_s: float = 2e9,
        seed: int = 0,
    ) -> None:
        self.principal = principal
        self._key = random.Random(f"{principal} {seed}").randbytes(32)
        said = msgspec.msgpack.encode(
            [principal, signatures.public_key_of(self._key), from_s, until_s]
        )
        self.certificate = said + signatures.sign(authority, said)
        self.revoked: set[str] = set()

    def sign(self, message: bytes) -> bytes:
        return signatures.sign(self._key, message)

    def check(self, certificate: bytes, wall_s: float) -> Bearer:
        said, signature = certificate[:-64], certificate[-64:]
        if not signatures.is_signed(signatures.public_key_of(AUTHORITY), said, signature):
            raise BadFrame("its certificate is of no authority of this bus")
        principal, public_key, from_s, until_s = msgspec.msgpack.decode(said)
        if not from_s <= wall_s < until_s:
            raise BadFrame("its certificate does not count now")
        if principal in self.revoked:
            raise BadCredential(f"{principal} was revoked", "revoked")
        return Bearer(principal, ("member",), public_key, until_s, certificate)


def sealed(below: Engine, bus: str, principal: str = "alice", **options: object) -> SealedEngine:
    """A sealed engine for nodes of any name."""
    return SealedEngine(
        below,
        bus,
        random.randbytes(32),
        TestIdentity(principal),
        is_name_of=lambda name, static: True,
        **options,
    )
