"""Transactions on the wire: a group of events that every node on the way treats as one event.

A group travels as one item of the reserved type `GROUP`. So it has one number on its route, is
repaired and dropped as a whole, and no receiver can ever hold a part of it. Its events are numbered
within it by their place, and `count` at the end shows that it is complete (paper 002, section 8).
The sender puts it once on each channel that one of its events belongs to; receivers that listen to
several of them use the first copy and drop the others, by the group's number.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.wire import Count, Item, Items

GROUP = 1
"""The type of an item that is a group; no fingerprint of a real type is that small."""

EVENTS_COUNT_MAX = 10_000
"""Most events of one transaction."""

_COPIES_COUNT_MAX = 10_000


class Group(Struct, array_like=True):
    """The events of one transaction, in order."""

    number: Count  # of the sender's events: names the transaction
    epoch: Count  # grows with every transaction of the sender
    channels: Annotated[int, Meta(ge=1)]  # on which it is put
    events: Items
    count: Count  # the ending flag: as many events as there are
    places: dict[str, Count] = {}  # its number on each lane, if there are several


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Group)


def encode(group: Group) -> bytes:
    """Return the body of the item that carries a group."""
    return _encoder.encode(group)


def decode(body: bytes) -> Group:
    """Return the group in an item of type `GROUP`.

    Raises:
        BadFrame: The bytes are not a group, or not a whole one.
    """
    try:
        group = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrame(f"not a transaction: {error}") from error
    if not group.events.is_whole() or len(group.events) != group.count or not group.count:
        raise BadFrame("a transaction that is not whole")
    return group


def item(subject: str, time: float, group: Group) -> Item:
    """Return the item that carries `group`, under the subject of one of its events."""
    return Item(subject, group.number, time, GROUP, encode(group))


class Copies:
    """Distinguishes the first copy of a transaction from those on its other channels."""

    def __init__(self) -> None:
        self._come: dict[tuple[str, int], None] = {}  # by sender and number, oldest first

    def is_first(self, sender: str, group: Group) -> bool:
        """Return whether this transaction, first published by `sender`, has not arrived before."""
        if group.channels == 1:
            return True
        key = (sender, group.number)
        if key in self._come:
            return False
        self._come[key] = None
        if len(self._come) > _COPIES_COUNT_MAX:
            del self._come[next(iter(self._come))]
        return True
