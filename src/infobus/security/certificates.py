"""Certificates: who says that a key belongs to a principal, which roles it has, and until when.

They are X.509 with Ed25519, so that the same ones serve TLS. The common name is the principal. URIs
among the alternative names say the rest: `infobus:bus/plant`, `infobus:role/operator`, and
`infobus:signs/members` or `infobus:signs/policies`, which only those of an authority have.

The serial number begins with the millisecond of issue. So a revocation need not know what was
issued: it names a principal, and counts for everything that was issued to it until then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from infobus.errors import BadCredential
from infobus.printable import printable

CERTIFICATE_BYTES_MAX = 8 * 1024
ROLES_COUNT_MAX = 64

AUTHORITY = "~authority"
POLICIES = "~policies"
"""The principals of an authority's two keys; nobody else's name begins with `~`."""

# Clocks differ: what was issued just now is good on hosts that are a little behind, too.
_BEFORE_ISSUE_S = 300.0

_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]{0,63}")
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_DIGEST_BITS = 64


class Certificate(Struct, frozen=True):
    """What a certificate says. Times are seconds since 1970."""

    der: bytes
    principal: str
    roles: tuple[str, ...]
    bus: str
    signs: str
    """`members` or `policies` for an authority's keys; empty for everyone else."""
    public_key: bytes
    issued_ms: int
    not_before_s: float
    not_after_s: float

    def pem(self) -> str:
        """Return it as other programs read it."""
        return x509.load_der_x509_certificate(self.der).public_bytes(Encoding.PEM).decode()


class Revocation(Struct, frozen=True, array_like=True):
    """No certificate counts that a principal got until then."""

    principal: str
    until_ms: int
    why: str = ""

    def concerns(self, certificate: Certificate) -> bool:
        """Whether it is about this certificate."""
        return self.principal == certificate.principal and certificate.issued_ms <= self.until_ms


class CertificateRequest(Struct, frozen=True):
    """A principal asks for a certificate for its own key, which it has proven to have."""

    principal: str
    public_key: bytes


def check_principal(name: str) -> None:
    """Raise `BadCredential` unless this can be a principal's name."""
    if not _PRINCIPAL.fullmatch(name):
        raise BadCredential(
            f"principal {printable(name)[:80]!r}: expected at most 64 letters, digits, '_', '-' "
            "and ':', beginning with a letter or digit",
            why="malformed",
        )


def check_role(name: str) -> None:
    """Raise `BadCredential` unless this can be a role's name."""
    if not _ROLE.fullmatch(name):
        raise BadCredential(
            f"role {printable(name)[:80]!r}: expected at most 64 letters, digits, '_' and '-', "
            "beginning with a letter or digit",
            why="malformed",
        )


def issue(
    issuer_key: bytes,
    issuer: str,
    *,
    principal: str,
    public_key: bytes,
    bus: str,
    now_s: float,
    valid_s: float,
    roles: Iterable[str] = (),
    signs: str = "",
) -> Certificate:
    """Return a new certificate, signed with the private key of `issuer`, an authority's name."""
    roles = tuple(dict.fromkeys(roles))
    if not signs:
        check_principal(principal)
    for role in roles:
        check_role(role)
    if len(roles) > ROLES_COUNT_MAX:
        raise BadCredential(
            f"{len(roles)} roles; at most {ROLES_COUNT_MAX} are allowed", why="malformed"
        )
    uris = [f"infobus:bus/{_quoted(bus)}", *(f"infobus:role/{role}" for role in roles)]
    uris += [f"infobus:signs/{signs}"] if signs else []
    key = Ed25519PublicKey.from_public_bytes(public_key)
    said = repr((principal, public_key, uris, now_s, valid_s)).encode()
    digest = int.from_bytes(hashlib.blake2b(said, digest_size=_DIGEST_BITS // 8).digest(), "big")
    is_authority = signs == "members"
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(principal))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(int(now_s * 1000) << _DIGEST_BITS | digest)
        .not_valid_before(_moment(now_s - _BEFORE_ISSUE_S))
        .not_valid_after(_moment(now_s + valid_s))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), True)
        .add_extension(_usage(is_authority), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
    if not signs:  # TLS asks for it
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        made = made.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    signing = Ed25519PrivateKey.from_private_bytes(issuer_key)
    made = made.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
    )
    signed = made.sign(signing, None)
    return read(signed.public_bytes(Encoding.DER))


def read(der: bytes) -> Certificate:
    """Return what a certificate says. That is not verified yet.

    Raises:
        BadCredential: These bytes, which may come from anyone, are no certificate of a bus.
    """
    if len(der) > CERTIFICATE_BYTES_MAX:
        raise _malformed(f"{len(der)} bytes; at most {CERTIFICATE_BYTES_MAX} are accepted")
    try:
        # The library refuses what is malformed by errors of many kinds, some of them when a part is
        # first looked at.
        certificate = x509.load_der_x509_certificate(der)
        return _told(certificate, der)
    except BadCredential:
        raise
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise _malformed(str(error)) from error
    except (x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise _malformed(str(error)) from error


def _told(certificate: x509.Certificate, der: bytes) -> Certificate:
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise _malformed("its key is not of Ed25519")
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or len(list(certificate.subject)) != 1:
        raise _malformed("expected one common name, and no other")
    principal = names[0].value
    others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    said: dict[str, list[str]] = {"bus": [], "role": [], "signs": []}
    for uri in others.get_values_for_type(x509.UniformResourceIdentifier):
        kind, _, value = uri.removeprefix("infobus:").partition("/")
        if not uri.startswith("infobus:") or kind not in said:
            continue  # a later version may say more
        said[kind].append(value)
    if len(said["bus"]) != 1 or len(said["signs"]) > 1 or len(said["role"]) > ROLES_COUNT_MAX:
        raise _malformed("expected one bus, and not too many roles")
    signs = said["signs"][0] if said["signs"] else ""
    if not isinstance(principal, str) or signs not in ("", "members", "policies"):
        raise _malformed("it says what no certificate of a bus does")
    if {"members": AUTHORITY, "policies": POLICIES}.get(signs, principal) != principal:
        raise _malformed("its name and its use do not fit")
    if not signs:
        check_principal(principal)
    for role in said["role"]:
        check_role(role)
    is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    if is_authority != (signs == "members"):
        raise _malformed("whether it is an authority's is not clear")
    return Certificate(
        der=der,
        principal=principal,
        roles=tuple(said["role"]),
        bus=_unquoted(said["bus"][0]),
        signs=signs,
        public_key=key.public_bytes_raw(),
        issued_ms=certificate.serial_number >> _DIGEST_BITS,
        not_before_s=certificate.not_valid_before_utc.timestamp(),
        not_after_s=certificate.not_valid_after_utc.timestamp(),
    )


def verify(
    certificate: Certificate,
    authorities: Iterable[Certificate],
    *,
    bus: str,
    now_s: float,
    signs: str = "",
    revocations: Iterable[Revocation] = (),
) -> Certificate:
    """Return the authority by which a certificate counts now, on this bus, for this use.

    Raises:
        BadCredential: It does not count; `why` is one word: `authority`, `bus`, `use`, `early`,
            `expired` or `revoked`.
    """
    whose = f"the certificate of {printable(certificate.principal)}"
    if certificate.signs != signs:
        expected = f"signing {signs}" if signs else "a member"
        raise BadCredential(f"{whose} is not for {expected}", why="use")
    if certificate.bus != bus:
        raise BadCredential(
            f"{whose} is for the bus {printable(certificate.bus)!r}, not for {bus!r}", why="bus"
        )
    authority = next((one for one in authorities if _is_by(certificate, one)), None)
    if authority is None or authority.bus != bus:
        raise BadCredential(f"{whose} is of no authority of the bus {bus!r}", why="authority")
    for one, name in ((certificate, whose), (authority, "its authority's")):
        if now_s < one.not_before_s:
            raise BadCredential(f"{name} is not valid before {_shown(one.not_before_s)}", "early")
        if now_s >= one.not_after_s:
            raise BadCredential(f"{name} expired at {_shown(one.not_after_s)}", why="expired")
    for revocation in revocations:
        if revocation.concerns(certificate):
            reason = f": {printable(revocation.why)}" if revocation.why else ""
            raise BadCredential(f"{whose} was revoked{reason}", why="revoked")
    return authority


def request(private_key: bytes, principal: str) -> str:
    """Return, as PEM, the wish for a certificate for this key."""
    check_principal(principal)
    made = x509.CertificateSigningRequestBuilder().subject_name(_name(principal))
    signed = made.sign(Ed25519PrivateKey.from_private_bytes(private_key), None)
    return signed.public_bytes(Encoding.PEM).decode()


def read_request(pem: str) -> CertificateRequest:
    """Return what is asked for.

    Raises:
        BadCredential: It is no request, or was not made by the owner of its key.
    """
    try:
        asked = x509.load_pem_x509_csr(pem.encode())
        key, names = asked.public_key(), asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not asked.is_signature_valid:
            raise ValueError("its signature is wrong")
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise BadCredential(f"this is no request: {printable(str(error))}", "malformed") from error
    if not isinstance(key, Ed25519PublicKey) or len(names) != 1:
        raise BadCredential("this request is not for one name and an Ed25519 key", "malformed")
    principal = str(names[0].value)
    check_principal(principal)
    return CertificateRequest(principal, key.public_bytes_raw())


def _is_by(certificate: Certificate, authority: Certificate) -> bool:
    if authority.signs != "members":
        return False
    one, other = (x509.load_der_x509_certificate(which.der) for which in (certificate, authority))
    try:
        one.verify_directly_issued_by(other)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _moment(at_s: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(at_s))


def _shown(at_s: float) -> str:
    return f"{_moment(at_s):%Y-%m-%d %H:%M} UTC"


def _quoted(bus: str) -> str:
    """A bus may have a name of any letters; a URI has only those of ASCII."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in bus.encode())


def _unquoted(bus: str) -> str:
    if not bus.isascii():
        raise _malformed("the name of its bus is not ASCII")
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), bus.encode())
    return raw.decode()  # a `UnicodeDecodeError` is a `ValueError`, which `read` expects


def _malformed(what: str) -> BadCredential:
    return BadCredential(f"this is no certificate of a bus: {printable(what)}", why="malformed")
