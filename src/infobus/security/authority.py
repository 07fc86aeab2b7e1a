"""The authority of a bus: the key that makes members, and the key that signs policies.

They are two, so that what can be done with one of them is bounded: who makes members cannot give
them rights, and who writes policies cannot make members.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from infobus.errors import BadCredential
from infobus.security import pem
from infobus.security.certificates import (
    AUTHORITY,
    POLICIES,
    Certificate,
    Revocation,
    issue,
    read,
)
from infobus.security.policy import read_policy
from infobus.security.signatures import public_key_of
from infobus.security.signed_policy import (
    Handover,
    PolicyStatement,
    SignedPolicy,
    handed_over,
    signed,
)

YEAR_S = 365.0 * 24 * 3600
MEMBER_VALID_S = YEAR_S
AUTHORITY_VALID_S = 10 * YEAR_S


class Authority(Struct, frozen=True):
    """Two private keys of 32 bytes, and their certificates."""

    members_key: bytes
    policies_key: bytes
    certificate: Certificate
    policies_certificate: Certificate

    @property
    def bus(self) -> str:
        """The bus that it is for."""
        return self.certificate.bus

    @classmethod
    def made(cls, bus: str, members_key: bytes, policies_key: bytes, now_s: float) -> Authority:
        """Return a new authority, out of 32 random bytes for each of its keys."""
        certificates = [
            issue(
                members_key,
                AUTHORITY,
                principal=principal,
                public_key=public_key_of(key),
                bus=bus,
                now_s=now_s,
                valid_s=AUTHORITY_VALID_S,
                signs=signs,
            )
            for principal, key, signs in (
                (AUTHORITY, members_key, "members"),
                (POLICIES, policies_key, "policies"),
            )
        ]
        return cls(members_key, policies_key, certificates[0], certificates[1])

    def issue(
        self,
        principal: str,
        public_key: bytes,
        roles: Iterable[str],
        now_s: float,
        valid_s: float = MEMBER_VALID_S,
    ) -> Certificate:
        """Return a certificate for a member, good until then or until the authority's own ends."""
        return issue(
            self.members_key,
            AUTHORITY,
            principal=principal,
            public_key=public_key,
            bus=self.bus,
            now_s=now_s,
            valid_s=min(valid_s, self.certificate.not_after_s - now_s),
            roles=roles,
        )

    def sign(
        self,
        text: str,
        revocations: Iterable[Revocation] = (),
        authorities: Iterable[bytes] = (),
        handovers: Iterable[Handover] = (),
    ) -> SignedPolicy:
        """Return a policy, signed; `authorities` are others that count beside this one.

        Raises:
            BadPolicy: The text is no policy.
        """
        policy = read_policy(text)
        if policy.bus != self.bus:
            raise BadCredential(
                f"this is the authority of the bus {self.bus!r}; the policy is for {policy.bus!r}",
                why="bus",
            )
        statement = PolicyStatement(
            bus=policy.bus,
            version=policy.version,
            text=text,
            revocations=tuple(revocations),
            authorities=tuple(dict.fromkeys((self.certificate.der, *authorities))),
            handovers=tuple(handovers),
            signer=self.policies_certificate.der,
        )
        return signed(statement, self.policies_key)

    def hand_over(self, successor: Authority) -> Handover:
        """Return the word of this authority that another one follows it."""
        return handed_over(self.members_key, successor.certificate)

    def to_text(self) -> str:
        """Return it as text; whoever has the text is the authority."""
        return (
            f"The authority of the infobus {self.bus}. Whoever can read this file decides who is\n"
            "a member of the bus, and what members may do.\n"
            + pem.private_key(self.members_key)
            + pem.private_key(self.policies_key)
            + self.certificate.pem()
            + self.policies_certificate.pem()
        )

    @classmethod
    def from_text(cls, text: str) -> Authority:
        """Return the authority that a text holds.

        Raises:
            BadCredential: The text is none.
        """
        found = pem.blocks(text)
        keys = [pem.read_private_key(data) for label, data in found if label == pem.PRIVATE_KEY]
        certificates = [read(data) for label, data in found if label == pem.CERTIFICATE]
        if (
            len(keys) != 2
            or [one.signs for one in certificates] != ["members", "policies"]
            or [one.public_key for one in certificates] != list(map(public_key_of, keys))
        ):
            raise BadCredential("this is no authority: expected two keys and their certificates")
        return cls(keys[0], keys[1], certificates[0], certificates[1])
