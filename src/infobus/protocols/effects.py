"""What every protocol may want done: values that the runtime carries out, in order.

These four are the same for every guarantee. What only one of them wants done is stated in its own
folder, and carried out by a handler of its own.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

M_co = TypeVar("M_co", covariant=True)


class ToPeer(Struct, Generic[M_co], frozen=True):
    """Put a message, or ready frames, into a peer's inbox.

    `bulk` may be large and may block; it has the `urgency` of the class that it is for.
    """

    peer: str
    message: M_co
    bulk: bool = False
    urgency: int = 0


class ToAll(Struct, Generic[M_co], frozen=True):
    """Put a message where every node hears it."""

    message: M_co


class Learn(Struct, frozen=True):
    """Take in type descriptors that a peer has sent."""

    descriptors: list[bytes]
    peer: str


class Complain(Struct, frozen=True):
    """Log once per `peer` and count: it did something that cannot be accepted."""

    peer: str
    what: str
