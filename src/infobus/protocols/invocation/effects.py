"""The data of outgoing calls: the caller's request, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, field

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames.invocation import Presence, ServiceMessage
from infobus.protocols.invocation.discovery import AllAnswered, Arrived, Departed, PresenceUpdated
from infobus.protocols.invocation.item_flow import Inflow
from infobus.protocols.invocation.rules import Key

RESEND_S, RESEND_S_MAX = 1.0, 4.0
"""A call without a sign of life is sent again after this; the time doubles."""
BUSY_S, BUSY_S_MAX = 0.02, 0.5
"""A call that every server has refused is offered again after this; the time doubles."""

Why = Literal["no server", "busy", "misfit", "died", "late", "cancelled", "denied"]


class Bound(Struct, frozen=True, gc=False):
    """The arguments of a call, encoded for a certain server."""

    arguments: bytes
    types: tuple[int, ...] = ()
    is_idempotent: bool = False
    is_stream: bool = False


class Returned(Struct, frozen=True, gc=False):
    """A call has returned."""

    key: int
    body: bytes
    server: Key


class Raised(Struct, frozen=True, gc=False):
    """A call has raised an exception."""

    key: int
    error: bytes
    server: Key


class Yielded(Struct, frozen=True):
    """A stream has its next items."""

    key: int
    bodies: list[bytes]


class GivenUp(Struct, frozen=True):
    """There is no answer. It has not run unless it is at `server`, or has `died` with one.

    A call with an id may be tried again, but only at servers with that `store`.
    """

    key: int
    why: Why
    server: Key | None = None
    detail: str = ""
    store: str = ""
    policy: int = 0  # by which it was denied


CallerEffects = list[
    ToPeer[ServiceMessage | bytes]
    | ToAll[ServiceMessage]
    | Returned
    | Raised
    | Yielded
    | GivenUp
    | Learn
    | Complain
    | Arrived
    | PresenceUpdated
    | Departed
    | AllAnswered
]


class Outgoing(Struct, eq=False):
    """A call from its beginning to its answer. The first fields are the caller's request."""

    key: int
    subject: str
    operation: str
    bind: Callable[[Presence], Bound | None]
    deadline_s: float
    by_load: bool = False  # take the least loaded server, else the first one
    targets: Sequence[Key] | None = None  # take the first of these that is there
    is_idempotent: bool = False
    once: str = ""
    store: str = ""  # only a server with this store may have it
    keeps_reply: bool = False  # the id is the application's own, which may ask for the reply again
    headers: bytes = b""
    # Its state.
    started_s: float = 0.0
    peer: str = ""  # where it is; empty: nowhere
    number: int = 0
    presence: int = 0
    bound: Bound | None = None
    hops: int = 0
    refused: set[Key] = field(default_factory=set)
    why: Why = "no server"  # why it is nowhere
    has_died: bool = False  # with a server; so it may have run
    sent_store: str = ""  # of the server that has it
    resend_at_s: float = 0.0
    resend_s: float = RESEND_S
    is_underway: bool = False  # the server has shown that it has it
    busy_s: float = BUSY_S
    inflow: Inflow | None = None

    @property
    def server(self) -> Key | None:
        """The server that has it; None if none does."""
        return (self.peer, self.presence) if self.peer else None
