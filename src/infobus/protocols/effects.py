"""What a node wants done: values that whoever drives it carries out, in order."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.frames import wire
from infobus.protocols.guaranteed.frames import GuaranteedMessage
from infobus.protocols.interest.own_rows import Reduction
from infobus.protocols.invocation.frames import ServiceMessage


class ToPeer(Struct, frozen=True):
    """Put a message, or ready frames, into a peer's inbox; `bulk` may be large and may block."""

    peer: str
    message: wire.Message | GuaranteedMessage | ServiceMessage | bytes
    bulk: bool = False


class ToAll(Struct, frozen=True):
    """Put a message where every node hears it."""

    message: wire.Message | GuaranteedMessage | ServiceMessage


class Events(Struct, frozen=True):
    """Hand events to the subscriptions; `first` is 0 for best effort."""

    sender: str
    lane: str
    first: int
    items: wire.Items


class Lost(Struct, frozen=True):
    """Report a loss to the subscriptions; an empty lane means any lane of the sender.

    Without `last` nobody can say what was lost: the sender had given this node up for dead, or may
    have done so while this node stood still, and some of its events since then may never have got
    a number. Then `first` is the next number that had been expected, or 0 if that is not known.
    """

    sender: str
    lane: str
    first: int
    last: int | None


class Learn(Struct, frozen=True):
    """Take in type descriptors that a peer has sent."""

    descriptors: list[bytes]


class InterestChanged(Struct, frozen=True):
    """What the peers want has changed: decisions made from it are void."""


class Reduce(Struct, frozen=True):
    """Do the reduction, which may take seconds, and hand the filters to `Node.reduced`."""

    reduction: Reduction


class Complain(Struct, frozen=True):
    """Log once per `peer` and count: it did something that cannot be accepted."""

    peer: str
    what: str


class StateWanted(Struct, frozen=True):
    """A newcomer at a peer asks for initial state."""

    message: wire.WantState


class StateCame(Struct, frozen=True):
    """Initial state that was asked for."""

    message: wire.State


Effects = list[
    ToPeer
    | ToAll
    | Events
    | Lost
    | Learn
    | InterestChanged
    | Reduce
    | Complain
    | StateWanted
    | StateCame
]
