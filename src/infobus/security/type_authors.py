"""Whose descriptors of types count: those of authors whom the policy names for a namespace."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from infobus.errors import BadCredential
from infobus.security.certificates import Certificate, read
from infobus.security.signatures import KEY_BYTES, is_signed
from infobus.security.signed_policy import VerifiedPolicy

_NOBODY: frozenset[str] = frozenset()


def is_by(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a key, or the key of a certificate, has signed a message. All may be hostile."""
    if len(key) != KEY_BYTES:
        certificate = _certificate(key)
        if certificate is None:
            return False
        key = certificate.public_key
    return is_signed(key, message, signature)


class TypeAuthors:
    """Who may define types on a bus, by its policy."""

    def __init__(self, policy: VerifiedPolicy, wall_s: Callable[[], float]) -> None:
        self._policy = policy
        self._wall_s = wall_s

    def names(self, key: bytes) -> frozenset[str]:
        """The principal of a certificate and its roles; none if it does not count now."""
        certificate = _certificate(key)
        if certificate is None:
            return _NOBODY
        try:
            self._policy.check_member(certificate, self._wall_s())
        except BadCredential:
            return _NOBODY
        return frozenset((certificate.principal, *certificate.roles))

    def is_governed(self, type_name: str) -> bool:
        """Whether the definitions of some authors alone count for a type."""
        return self._policy.policy.authors(type_name) is not None

    def may_define(self, type_name: str, key: bytes) -> bool:
        """Whether definitions by the owner of a certificate count for a type."""
        roles = self._policy.policy.authors(type_name)
        if roles is None:
            return True
        certificate = _certificate(key) if self.names(key) else None
        return certificate is not None and not roles.isdisjoint(certificate.roles)


@lru_cache(256)
def _certificate(der: bytes) -> Certificate | None:
    try:
        return read(der)
    except BadCredential:
        return None
