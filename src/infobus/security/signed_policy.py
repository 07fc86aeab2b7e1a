"""What the authority of a bus tells all its nodes: the policy, revocations, and who it is.

It is signed with the authority's key for policies, whose certificate comes along. So whoever knows
the authority can believe it, whoever handed it on. The newer of two is the one with the higher
version.

An authority that is followed by another tells of both. A node that knows only the old one believes
in the new one because the old one has signed it: a `Handover`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from infobus.errors import BadCredential, BadPolicy
from infobus.printable import printable
from infobus.security.certificates import Certificate, Revocation, read, verify
from infobus.security.policy import POLICY_BYTES_MAX, BusPolicy, read_policy
from infobus.security.signatures import is_signed, sign

SIGNED_POLICY_BYTES_MAX = POLICY_BYTES_MAX + 1024 * 1024
REVOCATIONS_COUNT_MAX = 10_000
AUTHORITIES_COUNT_MAX = 4

_POLICY = b"infobus policy 1\0"
_HANDOVER = b"infobus handover 1\0"


class Handover(Struct, frozen=True, array_like=True):
    """An authority says that another one follows it."""

    certificate: bytes
    """The new one's."""
    signature: bytes
    """By the old one's key for members."""


class PolicyStatement(Struct, frozen=True, array_like=True):
    """What an authority says; a later version may say more, which an older one skips."""

    bus: str
    version: int
    text: str
    revocations: tuple[Revocation, ...]
    authorities: tuple[bytes, ...]
    """Certificates of the authorities that count from now on."""
    handovers: tuple[Handover, ...]
    signer: bytes
    """The certificate of the key that has signed this."""


class SignedPolicy(Struct, frozen=True):
    """One version of the policy as it travels; believe it only if it is `verified`."""

    statement: PolicyStatement
    body: bytes
    """The statement as it was signed."""
    signature: bytes

    @property
    def version(self) -> int:
        """Which version it says it is."""
        return self.statement.version

    def to_bytes(self) -> bytes:
        """Return it as it is sent and stored."""
        return msgspec.msgpack.encode((self.body, self.signature))


class VerifiedPolicy(Struct, frozen=True):
    """A policy that the authority of the bus has signed, with what follows from it."""

    signed: SignedPolicy
    policy: BusPolicy
    authorities: tuple[Certificate, ...]

    @property
    def version(self) -> int:
        """Which version this is."""
        return self.policy.version

    @property
    def revocations(self) -> tuple[Revocation, ...]:
        """Whose certificates do not count any more."""
        return self.signed.statement.revocations

    def check_member(self, certificate: Certificate, now_s: float) -> None:
        """Raise `BadCredential` unless this is the certificate of a member now."""
        verify(
            certificate,
            self.authorities,
            bus=self.policy.bus,
            now_s=now_s,
            revocations=self.revocations,
        )


def handed_over(old_key: bytes, new: Certificate) -> Handover:
    """Return the word of an authority, by its key for members, that another one follows it."""
    return Handover(new.der, sign(old_key, _HANDOVER + new.der))


def signed(statement: PolicyStatement, key: bytes) -> SignedPolicy:
    """Return a statement, signed with a key for policies."""
    body = msgspec.msgpack.encode(statement)
    return SignedPolicy(statement, body, sign(key, _POLICY + body))


def read_signed_policy(data: bytes) -> SignedPolicy:
    """Return the signed policy in these bytes, unverified.

    Raises:
        BadPolicy: They are none.
    """
    if len(data) > SIGNED_POLICY_BYTES_MAX:
        raise BadPolicy(
            f"a policy of {len(data)} bytes; at most {SIGNED_POLICY_BYTES_MAX} are accepted"
        )
    try:
        body, signature = _pair.decode(data)
        statement = _statement.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadPolicy(f"this is no signed policy: {printable(str(error))}") from error
    if (
        len(statement.revocations) > REVOCATIONS_COUNT_MAX
        or max(len(statement.authorities), len(statement.handovers)) > AUTHORITIES_COUNT_MAX
    ):
        raise BadPolicy("this signed policy names too many revocations or authorities")
    return SignedPolicy(statement, body, signature)


def verified(
    told: SignedPolicy, known: Iterable[Certificate], *, bus: str, now_s: float
) -> VerifiedPolicy:
    """Return the policy if an authority that is known here, or follows such a one, has signed it.

    Raises:
        BadPolicy: It is not; or it is for another bus, or cannot be read.
    """
    statement = told.statement
    try:
        believed = _believed(statement.handovers, tuple(known))
        signer = read(statement.signer)
        verify(signer, believed, bus=bus, now_s=now_s, signs="policies")
        named = tuple(map(read, statement.authorities))
    except BadCredential as error:
        raise BadPolicy(f"this policy cannot be believed: {error}") from error
    if not is_signed(signer.public_key, _POLICY + told.body, told.signature):
        raise BadPolicy("this policy is not signed with the authority's key for policies")
    counting = tuple(one for one in named if any(one.der == other.der for other in believed))
    if not counting:
        raise BadPolicy("this policy names no authority that is known here")
    policy = read_policy(statement.text)
    if (policy.bus, policy.version) != (statement.bus, statement.version) or policy.bus != bus:
        raise BadPolicy(
            f"this is policy {policy.version} of the bus {printable(policy.bus)!r}; expected "
            f"policy {statement.version} of {bus!r}"
        )
    return VerifiedPolicy(told, policy, counting)


def _believed(
    handovers: tuple[Handover, ...], known: tuple[Certificate, ...]
) -> tuple[Certificate, ...]:
    """The known authorities, and those that one of them hands over to, step by step."""
    believed = list(known)
    for _ in handovers:  # each round believes at least one more, or nothing changes any more
        for handover in handovers:
            new = read(handover.certificate)
            if new.signs == "members" and all(new.der != one.der for one in believed):
                message = _HANDOVER + handover.certificate
                if any(is_signed(one.public_key, message, handover.signature) for one in believed):
                    believed.append(new)
    return tuple(believed)


_pair = msgspec.msgpack.Decoder(tuple[bytes, bytes])
_statement = msgspec.msgpack.Decoder(PolicyStatement)
