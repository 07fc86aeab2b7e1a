"""A bus with an authority, out of keys that are the same in every run."""

import hashlib

from infobus.security.authority import Authority
from infobus.security.credential import Credential
from infobus.security.policy import FIRST_POLICY
from infobus.security.signatures import public_key_of

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


def key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def authority(bus: str = "plant", salt: str = "") -> Authority:
    return Authority.made(bus, key(f"members {bus} {salt}"), key(f"policies {bus} {salt}"), NOW_S)


def policy_text(*roles: str, bus: str = "plant", version: int = 1) -> str:
    return "\n".join([f'bus = "{bus}"', f"version = {version}", *roles])


def credential(
    principal: str, *roles: str, of: Authority | None = None, text: str = "", now_s: float = NOW_S
) -> Credential:
    of = of or authority()
    text = text or FIRST_POLICY.format(bus=of.bus)
    certificate = of.issue(principal, public_key_of(key(principal)), roles, now_s)
    return Credential(key(principal), certificate, (of.certificate,), of.sign(text))
