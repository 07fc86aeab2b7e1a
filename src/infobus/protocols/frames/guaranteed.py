"""The frames between ledgers and durable consumers (`docs/wire.md` is the specification).

They have the same form as those in `wire`, with tags from 20 on. A `session` distinguishes one use
of a durable name from the next within the same home, so that an answer to an earlier use, perhaps
with other patterns, is not mistaken for one to the present use, nor a dead user for the present.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from infobus.protocols.frames.items import HeaderBytes, Time
from infobus.protocols.frames.node_names import NodeName

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Position = Annotated[int, Meta(ge=-1, le=2**63 - 1)]  # -1: no position yet
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
    session: Count  # grows with each use of the name by the sender's home
    patterns: Patterns
    where: Filter = ""
    registered_at: Time = 0.0  # wall clock: events published since then are wanted
    test: bool = False  # test events are wanted, too

    def is_of_home(self, registered_at: float) -> bool:
        """Whether the home that says this is the one that registered the name at that time."""
        return self.registered_at == registered_at != 0.0


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


FirstKept = tuple[LedgerName, Number, Annotated[str, Meta(max_length=200)]]
"""The name that an event has wherever it is kept: its first ledger, its number there, its site."""


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
    headers: HeaderBytes | None = None  # some nodes of version 1.1 say nil here
    origin: FirstKept | None = None  # of an event from another site

    def name_in(self, ledger: str) -> tuple[str, int]:
        """The event's own name, if it is read from this ledger: it keeps that of its site."""
        return (ledger, self.number) if self.origin is None else self.origin[:2]


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


LEDGERS_TOLD_COUNT_MAX = 1_000
ABOVE_TOLD_COUNT_MAX = 1_000


class NamePlace(Struct, array_like=True, frozen=True):
    """How far the uses of a durable name have come in one ledger."""

    position: Position
    above: Annotated[list[Number], Meta(max_length=ABOVE_TOLD_COUNT_MAX)] = []  # settled, too


Places = Annotated[dict[LedgerName, NamePlace], Meta(max_length=LEDGERS_TOLD_COUNT_MAX)]


class SiteKeeper(Struct, array_like=True, tag=70):
    """I keep the places of durable names for this site: ask me before you go on with one."""

    sender: NodeName


class SiteName(Struct, array_like=True, tag=71):
    """The answer of a keeper to a `Durable`: who has the name, if not you, and how far it came."""

    sender: NodeName
    name: DurableName
    session: Count
    holder: Annotated[str, Meta(max_length=120)] = ""
    places: Places = {}


class NameProgress(Struct, array_like=True, tag=72):
    """I have come so far with this use of a durable name, and it is on my disk."""

    sender: NodeName
    name: DurableName
    session: Count
    places: Places


GuaranteedMessage = (
    Durable | Ledgers | Fetch | Kept | NameRefused | SiteKeeper | SiteName | NameProgress
)
