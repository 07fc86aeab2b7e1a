"""The frames of discovery, callers and servers (see `docs/wire.md`).

They have the same form as those in `wire`, with tags from 30 on. A call is named by its caller's
node and a number that the caller counts separately for each server: 1, 2, 3, ... So a server can
distinguish a repeated frame from a new call, and remembers little. Since other nodes count alike,
what is about a call says for whom it is (`to`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import HeaderBytes
from infobus.protocols.frames.node_names import Addressee, NodeName, bad_name, is_sender

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Subject = Annotated[str, Meta(max_length=4096)]
Words = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(max_length=255)]
Filter = Annotated[str, Meta(max_length=64 * 1024)]
Numbers = Annotated[list[Number], Meta(max_length=100_000)]

# Why a server refuses a call. It has not begun, and never will at this server.
BUSY = "busy"
"""As many calls wait as may."""
RETIRED = "retired"
"""It serves the subject no longer, or never did."""
DENIED = "denied"
"""The policy of the bus does not let this caller make it; `policy` is the version."""
MOVED = "moved"
"""The servers have agreed that another one, `taker`, takes this call."""


class Presence(Struct, array_like=True, frozen=True):
    """One participant: its role under a subject, and its description."""

    id: Number  # counted by its node, never used again
    revision: Count  # grows with each change
    subject: Subject
    role: Name
    since: float  # wall clock
    info: bytes = b"\x80"  # a map, for the application
    interface: bytes = b""  # of a server: its operations
    load: Count = 0  # calls that run or wait
    rule: Name = ""  # how the servers of the subject share the calls; empty: callers choose
    rank: int = 0
    store: Name = ""  # where it stores the replies of calls that must run exactly once
    application: Name = ""  # the name of its program, if it has one


class Who(Struct, array_like=True, tag=30):
    """Who's out there? Every node answers, even if it has no match."""

    sender: NodeName
    request: Number
    pattern: Subject
    role: Name = ""  # empty: any
    where: Filter = ""  # a condition on descriptions


class IAm(Struct, array_like=True, tag=31):
    """I am: these participants are here, and those whose ids are `gone` are no longer.

    Said to all when something changes (`request` 0), and in answer to `Who`; an answer names all
    participants that match, of those with an id below `next_id`.
    """

    sender: NodeName
    request: Count
    next_id: Number
    presences: Annotated[list[Presence], Meta(max_length=100_000)] = []
    gone: Numbers = []
    to: Addressee = ""


class Call(Struct, array_like=True, tag=32):
    """Run this. The caller repeats it, unchanged, until the server shows that it has it."""

    sender: NodeName
    number: Number
    presence: Number
    operation: Name
    arguments: bytes
    left_s: float = 0.0  # how long the caller will wait
    settled: Numbers = []  # calls to this node that the caller is done with
    credit: Count = 0  # how many items of a stream may be sent at first
    once: Name = ""  # the id of a call that must run exactly once
    lot: Count = 0  # the same wherever the call is sent
    hops: Count = 0  # how often the servers have passed it on
    descriptors: list[bytes] = []
    headers: HeaderBytes = b""
    to: Addressee = ""


class Reply(Struct, array_like=True, tag=33, gc=False):
    """The result of a call, or the end of a stream of `count` items."""

    sender: NodeName
    number: Number
    body: bytes
    load: Count = 0
    count: Count = 0
    descriptors: list[bytes] = []
    to: Addressee = ""


class Failed(Struct, array_like=True, tag=34):
    """The call has raised an exception, after `count` items of a stream."""

    sender: NodeName
    number: Number
    error: bytes
    load: Count = 0
    count: Count = 0
    descriptors: list[bytes] = []
    to: Addressee = ""


class Refused(Struct, array_like=True, tag=35):
    """The call has not begun here, and will not."""

    sender: NodeName
    number: Number
    why: Name  # one of those above; newer versions may add some
    detail: Words = ""
    taker: tuple[NodeName, Number] | None = None
    to: Addressee = ""
    policy: Count = 0


class Underway(Struct, array_like=True, tag=36, gc=False):
    """I have this call; sent when a call arrives again."""

    sender: NodeName
    number: Number
    to: Addressee = ""


class Streamed(Struct, array_like=True, tag=37):
    """Items `first`, `first + 1`, ... of a stream; the first one of all has number 1."""

    sender: NodeName
    number: Number
    first: Number
    bodies: list[bytes]
    descriptors: list[bytes] = []
    to: Addressee = ""


class Credit(Struct, array_like=True, tag=38):
    """Of a stream, `received` items have arrived, and items up to `upto` may be sent.

    `again`: items are late; send them once more, or report the state of the call.
    """

    sender: NodeName
    number: Number
    received: Count
    upto: Count
    again: bool = False
    to: Addressee = ""


class Settled(Struct, array_like=True, tag=39):
    """I have finished with these calls: forget them, and stop those that still wait or run."""

    sender: NodeName
    numbers: Numbers
    acknowledged: list[Name] = []  # ids of calls that must run once, whose replies have arrived
    to: Addressee = ""


class Retire(Struct, array_like=True, tag=40):
    """A new server has taken over: finish running calls, and accept none under this subject."""

    sender: NodeName
    subject: Subject


class CallGone(Struct, array_like=True, tag=41):
    """I no longer have this call: it has run, or was stopped when you seemed dead."""

    sender: NodeName
    number: Number
    to: Addressee = ""


ServiceMessage = (
    Who
    | IAm
    | Call
    | Reply
    | Failed
    | Refused
    | Underway
    | Streamed
    | Credit
    | Settled
    | Retire
    | CallGone
)

FRAME_BYTES_MAX = 64 * 1024 * 1024
_decoder: msgspec.msgpack.Decoder[ServiceMessage] = msgspec.msgpack.Decoder(ServiceMessage)
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def decode(payload: bytes) -> ServiceMessage | None:
    """Read one frame; None for a kind of frame that a newer minor version has added.

    Raises:
        BadFrame: Anything else that is not such a frame.
    """
    if len(payload) > FRAME_BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {FRAME_BYTES_MAX} are accepted")
    try:
        message = _decoder.decode(payload)
    except _UNREADABLE as error:
        if payload[1] > CallGone.__struct_config__.tag:  # type: ignore[operator]
            return None
        raise BadFrame(f"malformed frame (tag {payload[1]}): {error}") from error
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    return message
