"""What a node wants done: values that whoever drives it carries out, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infobus.protocols import wire


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Put a message, or ready frames, into a peer's inbox; `bulk` may be large and may block."""

    peer: str
    message: wire.Message | bytes
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class ToAll:
    """Put a message where every node hears it."""

    message: wire.Message


@dataclass(frozen=True, slots=True)
class Events:
    """Hand events to the subscriptions; `first` is 0 for best effort."""

    sender: str
    channel: str
    first: int
    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Report a loss to the subscriptions; an empty channel means any channel of the sender.

    Without `last` nobody can say what was lost: the sender had given this node up for dead, and
    some of its events since then may never have got a number. Then `first` is the next number
    that had been expected, or 0 if nothing had come yet.
    """

    sender: str
    channel: str
    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Learn:
    """Take in type descriptors that a peer has sent."""

    descriptors: list[bytes]


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """What the peers want has changed: decisions made from it are void."""


@dataclass(frozen=True, slots=True)
class Complain:
    """Log once per `peer` and count: it did something that cannot be accepted."""

    peer: str
    what: str


@dataclass(frozen=True, slots=True)
class StateWanted:
    """A newcomer at a peer asks for initial state."""

    message: wire.WantState


@dataclass(frozen=True, slots=True)
class StateCame:
    """Initial state that was asked for."""

    message: wire.State


Effects = list[
    ToPeer | ToAll | Events | Lost | Learn | InterestChanged | Complain | StateWanted | StateCame
]
