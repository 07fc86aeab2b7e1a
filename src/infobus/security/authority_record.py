"""An authority with the policy that it signed last: all that it must remember, in one text.

Each change is a new record with the next version of the policy. It is stored as one file, so what
an authority has said and who it is never part.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from infobus.errors import BadCredential, BadPolicy
from infobus.security import pem
from infobus.security.authority import Authority
from infobus.security.certificates import Certificate, Revocation, read
from infobus.security.credential import Credential
from infobus.security.policy import FIRST_POLICY, BusPolicy, read_policy, with_version
from infobus.security.signed_policy import (
    AUTHORITIES_COUNT_MAX,
    PolicyStatement,
    SignedPolicy,
    read_signed_policy,
)


class AuthorityRecord(Struct, frozen=True):
    """What the holder of an authority keeps."""

    authority: Authority
    signed: SignedPolicy

    @classmethod
    def first(cls, authority: Authority) -> AuthorityRecord:
        """Return the record of a new authority: its first policy has the roles member and admin."""
        return cls(authority, authority.sign(FIRST_POLICY.format(bus=authority.bus)))

    @property
    def statement(self) -> PolicyStatement:
        """What it has told last."""
        return self.signed.statement

    @property
    def policy(self) -> BusPolicy:
        """The policy that counts now."""
        return read_policy(self.statement.text)

    def is_revoked(self, certificate: Certificate) -> bool:
        """Whether a certificate counts no more."""
        return any(one.concerns(certificate) for one in self.statement.revocations)

    def credential(self, certificate: Certificate, private_key: bytes = b"") -> Credential:
        """Return the file for a member."""
        authorities = tuple(map(read, self.statement.authorities))
        return Credential(private_key, certificate, authorities, self.signed)

    def published(self, text: str) -> AuthorityRecord:
        """Return the record with a new policy, whose version is the next, whatever the text says.

        Raises:
            BadPolicy: The text is no policy, or is for another bus.
        """
        if read_policy(text).bus != self.authority.bus:
            raise BadPolicy(f"this policy is not for the bus {self.authority.bus!r}", path="bus")
        return self._told(text=text)

    def revoked(self, principal: str, why: str, now_s: float) -> AuthorityRecord:
        """Return the record after nothing counts any more that a principal got until now."""
        others = [one for one in self.statement.revocations if one.principal != principal]
        revocation = Revocation(principal, int(now_s * 1000), why)
        return self._told(revocations=(*others, revocation))

    def followed_by(self, successor: Authority) -> AuthorityRecord:
        """Return the record of the authority that follows; this one still counts beside it.

        Raises:
            BadCredential: There are two already.
        """
        if len(self.statement.authorities) > 1:
            raise BadCredential(
                "two authorities count already; end that first: "
                "infobus keys rotate-authority --finish",
                why="authority",
            )
        handovers = (*self.statement.handovers, self.authority.hand_over(successor))
        return AuthorityRecord(successor, self.signed)._told(
            authorities=(self.authority.certificate.der,),
            handovers=handovers[-AUTHORITIES_COUNT_MAX:],
        )

    def alone(self) -> AuthorityRecord:
        """Return the record after no authority counts any more but this one.

        Raises:
            BadCredential: There is no other.
        """
        if len(self.statement.authorities) == 1:
            raise BadCredential("only one authority counts, so there is nothing to finish")
        return self._told(authorities=())

    def _told(self, **changed: object) -> AuthorityRecord:
        told = replace(self.statement, **changed)
        signed = self.authority.sign(
            with_version(told.text, self.signed.version + 1),
            told.revocations,
            told.authorities,
            told.handovers,
        )
        return replace(self, signed=signed)

    def to_text(self) -> str:
        """Return it as the text of a file, which is as secret as the authority."""
        return self.authority.to_text() + pem.block(pem.POLICY, self.signed.to_bytes())

    @classmethod
    def from_text(cls, text: str) -> AuthorityRecord:
        """Return the record that a text holds.

        Raises:
            BadCredential, BadPolicy: The text is none.
        """
        policies = [data for label, data in pem.blocks(text) if label == pem.POLICY]
        if len(policies) != 1:
            raise BadCredential("this is no authority: expected its keys and one policy")
        return cls(Authority.from_text(text), read_signed_policy(policies[0]))
