"""The effects that the machine of a router asks for."""

from __future__ import annotations

from msgspec import Struct


class ParcelArrived(Struct, frozen=True):
    """A parcel for this router: hand it to those who declared its key, or answer on it."""

    source: int
    key: str
    rank: int
    kind: int
    number: int
    payload: bytes


class TokenChanged(Struct, frozen=True):
    """A token of another router appeared or disappeared."""

    key: str
    alive: bool


class Unacceptable(Struct, frozen=True):
    """A neighbour sent what cannot be accepted."""

    peer: str
    what: str


Effect = ParcelArrived | TokenChanged | Unacceptable
