"""The objects that every engine carries: five attributes, padded to the size asked for.

All engines send the same MessagePack map of attribute names to values. The names alone take 29
bytes, so the smallest object is larger than the paper's smallest message. Reports give the size
that was really sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

FIRST_NUMBER = 1 << 20
"""Numbers start where MessagePack needs five bytes for them, so all objects have the same size."""

HELLO_NUMBER = FIRST_NUMBER - 1
"""The number of the objects that are sent before the measurement, to check the connection."""


class PeerQuote(msgspec.Struct):
    """The object as the peers encode and decode it; infobus has a class with the same attributes.

    `bid` carries the event's number, by which consumers check order and completeness.
    """

    symbol: str
    venue: str
    bid: int
    size: int
    price: float


def make_quote(quote_class: Callable[..., Any], venue: str, number: int) -> Any:
    """An object numbered `number`, of the peers' class or of infobus's."""
    return quote_class(symbol="GMC", venue=venue, bid=number, size=100, price=42.5)


def encoded_bytes(venue: str) -> int:
    """The size of an object on the wire, without what the engine adds."""
    return len(msgspec.msgpack.encode(make_quote(PeerQuote, venue, FIRST_NUMBER)))


def venue_for(size: int) -> str:
    """The attribute value that brings an object to `size` bytes, or as close as can be.

    >>> encoded_bytes(venue_for(1024)), encoded_bytes(venue_for(16))
    (1024, 53)
    """
    venue = "XNYS".ljust(size - encoded_bytes(""))
    # The length prefix of a string grows with the string: a few bytes too many are cut off.
    surplus = max(0, encoded_bytes(venue) - size)
    return venue[: max(4, len(venue) - surplus)]


def subject_names(count: int) -> list[str]:
    """The subjects to publish on, one per event in turn.

    >>> subject_names(2)
    ['bench.s0', 'bench.s1']
    """
    return [f"bench.s{index}" for index in range(count)]
