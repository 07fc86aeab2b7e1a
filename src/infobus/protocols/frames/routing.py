"""The frames between neighbour routers (`docs/wire.md` is the specification).

They travel on the links of a routed engine only, never among the nodes of a bus. They have the same
form as those in `wire`, with tags from 80 on. A router is named by the node that it is on its
backbone; where many are named in one frame, by its id.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import ClassName, Count
from infobus.protocols.frames.node_names import NodeName, bad_name, is_sender

HOPS_COUNT_MAX = 64
"""A parcel that has passed so many routers goes no further."""
ROUTERS_COUNT_MAX = 10_000
"""Routers of one backbone."""
NEIGHBOURS_COUNT_MAX = 256
"""Neighbours of one router."""
ENTRIES_COUNT_MAX = 30_000
"""Keys and tokens in the table of one router."""
_FRAME_BYTES_MAX = 72 * 1024 * 1024  # a parcel with the largest payload there is
_IDS_COUNT_MAX = 65_536

DECLARED, ANSWERS, TOKEN = "c", "q", "t"
"""The first character of an entry says what the router does with the key behind it."""

DATA, CONTROL, QUERY, ANSWER = range(4)
"""What a parcel is."""

Id = Count
Place = Count
Key = Annotated[str, Meta(max_length=8192)]
Entry = Annotated[str, Meta(min_length=1, max_length=8192)]
Entries = Annotated[list[Entry], Meta(max_length=ENTRIES_COUNT_MAX)]
Words = Annotated[str, Meta(max_length=120)]
Amount = Annotated[float, Meta(ge=0, le=1e15)]


@lru_cache(_IDS_COUNT_MAX)
def id_of(node: str) -> int:
    """The id of a router: 63 bits of a hash of its node's name."""
    return int.from_bytes(blake2b(node.encode(), digest_size=8).digest(), "big") >> 1


class Hello(Struct, array_like=True, tag=80):
    """I am here, and this is how it stands between us. Sent regularly, and when it changes.

    The link is up when each has heard the other say that it `hears`, and is `welcome`. `session`
    is different each time I begin to count what I send you; `sent` says how far that is, and `seen`
    how much of your `your_session` has come here. `tables` is a hash of the tables that I use.
    """

    sender: NodeName
    to: NodeName
    session: Count
    name: Words = ""
    domain: Words = ""
    hears: bool = False
    welcome: bool = True
    tables: Count = 0
    sent: Place = 0
    your_session: Count = 0
    seen: Place = 0
    load: Count = 0  # bytes that wait here for further links
    held: Annotated[list[ClassName], Meta(max_length=16)] = []  # send me nothing of these classes


class TableVersions(Struct, array_like=True, tag=81):
    """I hold these versions of the tables of these routers: send me those of which you have more.

    `whole` says that I hold no others. That is answered by what I lack, and then by an `answer`
    that asks in turn.
    """

    sender: NodeName
    held: Annotated[dict[NodeName, Count], Meta(max_length=ROUTERS_COUNT_MAX)]
    whole: bool = False
    answer: bool = False


class RouterTable(Struct, array_like=True, tag=82):
    """What the router `origin` says of itself, as of `version`; passed on by every router.

    The entries are changes to what they were at `since` (0: these are all); the rest is whole.
    """

    sender: NodeName
    origin: NodeName
    version: Count
    since: Count
    name: Words
    domain: Words
    neighbours: Annotated[list[NodeName], Meta(max_length=NEIGHBOURS_COUNT_MAX)]
    added: Entries = []
    removed: Entries = []


class Parcel(Struct, array_like=True, tag=83, gc=False):
    """A frame on its way from the router `source` to those in `to`, by those in `trail`."""

    sender: NodeName
    place: Place
    source: Id
    key: Key
    to: Annotated[list[Id], Meta(max_length=ROUTERS_COUNT_MAX)]
    trail: Annotated[list[Id], Meta(max_length=HOPS_COUNT_MAX)]
    rank: Annotated[int, Meta(ge=0, le=15)]  # of its class; 0 is the highest
    kind: Annotated[int, Meta(ge=DATA, le=ANSWER)]
    number: Count  # of a question, also in its answer
    raised_s: Annotated[float, Meta(ge=0, le=3600)]  # its class is raised for so long
    payload: bytes


class SeenSoFar(Struct, array_like=True, tag=84):
    """So much of what you sent in this session has come here."""

    sender: NodeName
    session: Count
    place: Place


class Reserve(Struct, array_like=True, tag=85):
    """Keep so much of your links for what `source` sends to those in `to`, and ask further hops.

    It is asked again and again, in a new `round`, for as long as it is wanted; whoever hears no
    more of it lets it go. Without anyone in `to`, it is given back.
    """

    sender: NodeName
    source: Id
    number: Count  # of the source's reservations
    round: Count
    to: Annotated[list[Id], Meta(max_length=ROUTERS_COUNT_MAX)] = []
    trail: Annotated[list[Id], Meta(max_length=HOPS_COUNT_MAX)] = []
    bytes_per_s: Amount = 0.0
    buffer_bytes: Amount = 0.0


class Reserved(Struct, array_like=True, tag=86):
    """The answer: it is kept on all hops from here, or on none, because `hop` refuses.

    What is free is what that hop could keep for it, on its link to `toward`.
    """

    sender: NodeName
    source: Id
    number: Count
    round: Count
    hop: Words = ""  # empty: it is kept
    toward: Words = ""
    bytes_per_s: Amount = 0.0
    buffer_bytes: Amount = 0.0
    why: Words = ""


RoutingMessage = Hello | TableVersions | RouterTable | Parcel | SeenSoFar | Reserve | Reserved

_decoder: msgspec.msgpack.Decoder[RoutingMessage] = msgspec.msgpack.Decoder(RoutingMessage)
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
encode = msgspec.msgpack.Encoder().encode


def decode(payload: bytes) -> RoutingMessage | None:
    """Read one frame; None for a kind of frame that a newer minor version has added.

    Raises:
        BadFrame: Anything else that is not such a frame.
    """
    if len(payload) > _FRAME_BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {_FRAME_BYTES_MAX} are accepted")
    try:
        message = _decoder.decode(payload)
    except _UNREADABLE as error:
        tag = payload[1] if len(payload) > 1 else 0
        if Reserved.__struct_config__.tag < tag < 128:  # type: ignore[operator]
            return None
        raise BadFrame(f"malformed frame (tag {tag}): {error}") from error
    names = [message.sender]
    if isinstance(message, RouterTable):
        names += [message.origin, *message.neighbours]
    for name in names:
        if not is_sender(name):
            raise bad_name(name)
    return message
