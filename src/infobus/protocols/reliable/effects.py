"""What a node of reliable delivery wants done."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.interest.own_rows import Reduction


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
    `reason` is `unreachable` if the sender is out of reach, and may go on without this node.
    """

    sender: str
    lane: str
    first: int
    last: int | None
    reason: str = ""


class Unreachable(Struct, frozen=True):
    """A sender is out of reach: tell the subscriptions that want any of these lanes, once."""

    sender: str
    lanes: tuple[str, ...]


class InterestChanged(Struct, frozen=True):
    """What the peers want has changed: decisions made from it are void."""


class Reduce(Struct, frozen=True):
    """Do the reduction, which may take seconds, and hand the filters to `Node.reduced`."""

    reduction: Reduction


OwnEffect = Events | Lost | Unreachable | InterestChanged | Reduce
"""What only reliable delivery wants done."""

Effects = list[ToPeer[wire.Message | bytes] | ToAll[wire.Message] | Learn | Complain | OwnEffect]
