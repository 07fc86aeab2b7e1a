"""The frames between ledgers and durable consumers (`docs/wire.md` is the specification).

They have the same form as those in `wire`, with tags from 20 on. A `session` distinguishes one use
of a durable name from the next within the same node, so that an answer to an earlier use, perhaps
with other patterns, is not mistaken for one to the present use.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from infobus.protocols.frames.items import Time

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Position = Annotated[int, Meta(ge=-1, le=2**63 - 1)]  # -1: no position yet
NodeName = Annotated[str, Meta(min_length=1, max_length=200)]
LedgerName = Annotated[str, Meta(min_length=1, max_length=200)]
DurableName = Annotated[str, Meta(min_length=1, max_length=200)]
Subject = Annotated[str, Meta(max_length=4096)]
Patterns = Annotated[list[Subject], Meta(max_length=1000)]
Filter = Annotated[str, Meta(max_length=64 * 1024)]
Words = Annotated[str, Meta(max_length=1000)]

# Why a server refuses.
UNKNOWN = "unknown"
"""The server knows nothing of the consumer: tell it who you are."""
IN_USE = "in use"
"""Another node, which the server has heard of lately, uses the name."""
NOT_SERVED = "not served"
"""The ledger is not served by this node (any more)."""
BEYOND = "beyond"
"""The consumer claims to be further on than the ledger."""
TOO_MANY = "too many"
"""The server or the ledger knows as many durable consumers as it can."""


class Durable(Struct, array_like=True, tag=20):
    """I use this durable name and want these events; no patterns: I no longer use it."""

    sender: NodeName
    name: DurableName
    session: Count  # grows with each use of the name by the sender
    patterns: Patterns
    where: Filter = ""
    registered_at: Time = 0.0  # wall clock: events published since then are wanted
    test: bool = False  # test events are wanted, too


class Ledgers(Struct, array_like=True, tag=21):
    """I serve these ledgers."""

    sender: NodeName
    ledgers: list[LedgerName]


class Fetch(Struct, array_like=True, tag=22):
    """I have settled everything up to `settled`; send me what follows `after`.

    `after` is -1 if the consumer has never heard of this ledger: then the ledger decides where
    the consumer begins.
    """

    sender: NodeName
    name: DurableName
    session: Count
    ledger: LedgerName
    after: Position
    settled: Position
    credit_count: Count
    credit_bytes: Count


class Entry(Struct, array_like=True, frozen=True, gc=False):
    """One event of a ledger."""

    number: Number
    subject: Subject
    time: Time
    type: Annotated[int, Meta(ge=0)]  # fingerprint; 0 for an untyped notification
    body: bytes
    object_id: str | None = None  # only where it is not the event's own id
    expires: float | None = None  # wall clock
    test: bool = False
    priority: Words = "regular"
    # The place that follows is reserved: some nodes of this version say nil there.


class Kept(Struct, array_like=True, tag=23):
    """The answer to `Fetch`: the events for you among the numbers after `after` up to `upto`.

    Numbers `gone[0]` to `gone[1]`, which precede all entries, are no longer stored. All other
    numbers that are not among the entries are not for you.
    """

    sender: NodeName
    name: DurableName
    session: Count
    ledger: LedgerName
    after: Position
    upto: Count
    entries: list[Entry] = []
    gone: tuple[Number, Number] | None = None
    descriptors: list[bytes] = []


class NameRefused(Struct, array_like=True, tag=24):
    """I do not serve you, on one ledger or (empty) at all; `detail` is for people."""

    sender: NodeName
    name: DurableName
    session: Count
    ledger: Annotated[str, Meta(max_length=200)]
    why: Words  # one of those above; newer versions may add some
    detail: Words = ""


GuaranteedMessage = Durable | Ledgers | Fetch | Kept | NameRefused
