"""What a node that shakes hands wants done, beside what every machine may want."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames.security import HandshakeMessage


class Met(Struct, frozen=True):
    """A peer that can be seen has shown who it is: it may be told of, and heard."""

    peer: str


class Unmet(Struct, frozen=True):
    """A peer cannot be seen any more, or does not count any more."""

    peer: str


Effects = list[ToPeer[HandshakeMessage] | Complain | Met | Unmet]
