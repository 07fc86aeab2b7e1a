"""A credential: all that a member needs, in one file of text.

That is its private key, its certificate, those of the authorities that it believes in, and the
policy as it was then. A credential that was made for a request lacks the key, which has stayed
where the request was made.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from infobus.errors import BadCredential, BadPolicy
from infobus.security import pem
from infobus.security.certificates import Certificate, read
from infobus.security.signatures import public_key_of, sign
from infobus.security.signed_policy import (
    SignedPolicy,
    VerifiedPolicy,
    read_signed_policy,
    verified,
)


class Credential(Struct, frozen=True):
    """A member's key, and who says what about it."""

    private_key: bytes
    """32 bytes; empty if the key has stayed with whoever asked for the certificate."""
    certificate: Certificate
    authorities: tuple[Certificate, ...]
    policy: SignedPolicy

    @property
    def principal(self) -> str:
        """Who this is."""
        return self.certificate.principal

    @property
    def roles(self) -> tuple[str, ...]:
        """Which roles it has."""
        return self.certificate.roles

    @property
    def bus(self) -> str:
        """The bus that it is for."""
        return self.certificate.bus

    def sign(self, message: bytes) -> bytes:
        """Return this principal's signature of a message."""
        return sign(self.private_key, message)

    def with_key(self, private_key: bytes) -> Credential:
        """Return it with the key that it lacked.

        Raises:
            BadCredential: It is for another key.
        """
        if public_key_of(private_key) != self.certificate.public_key:
            raise BadCredential(f"the certificate of {self.principal} is for another key")
        return msgspec.structs.replace(self, private_key=private_key)

    def check(self, now_s: float) -> VerifiedPolicy:
        """Raise `BadCredential` or `BadPolicy` unless it counts now; return its policy."""
        policy = verified(self.policy, self.authorities, bus=self.bus, now_s=now_s)
        policy.check_member(self.certificate, now_s)
        return policy

    def to_text(self) -> str:
        """Return it as the text of a file."""
        roles = ", ".join(self.roles) or "no role"
        return (
            f"{self.principal} ({roles}) on the infobus {self.bus}. Keep this file to yourself.\n"
            + (pem.private_key(self.private_key) if self.private_key else "")
            + self.certificate.pem()
            + "".join(one.pem() for one in self.authorities)
            + pem.block(pem.POLICY, self.policy.to_bytes())
        )

    @classmethod
    def from_text(cls, text: str) -> Credential:
        """Return the credential that a text holds.

        Raises:
            BadCredential: The text is none.
        """
        found = pem.blocks(text)
        keys = [pem.read_private_key(data) for label, data in found if label == pem.PRIVATE_KEY]
        certificates = [read(data) for label, data in found if label == pem.CERTIFICATE]
        policies = [data for label, data in found if label == pem.POLICY]
        if len(keys) > 1 or len(certificates) < 2 or len(policies) != 1:
            raise BadCredential(
                "this is no credential: expected a key, a certificate, those of authorities, and "
                "a policy"
            )
        certificate, *authorities = certificates
        if certificate.signs or any(one.signs != "members" for one in authorities):
            raise BadCredential("this is no credential: its certificates are for other uses")
        try:
            policy = read_signed_policy(policies[0])
        except BadPolicy as error:
            raise BadCredential(f"this is no credential: {error}") from error
        read_it = cls(b"", certificate, tuple(authorities), policy)
        return read_it.with_key(keys[0]) if keys else read_it
