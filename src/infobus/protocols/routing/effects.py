"""The effects that the machine of a router asks for."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.routing.reserved import Refusal


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


class ReservationTold(Struct, frozen=True):
    """How it stands with a reservation of this router; `refusal` is None while all hops keep it."""

    number: int
    refusal: Refusal | None


Effect = ParcelArrived | TokenChanged | Unacceptable | ReservationTold
