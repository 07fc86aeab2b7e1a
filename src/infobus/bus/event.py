"""What a subscription hands out: one event, with where it came from."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from infobus.objects import DataObject, spelled, type_of


class Event(Struct, frozen=True, gc=False):
    """One published object as a subscriber gets it.

    `seq` numbers the sender's events on this channel without gaps, except where a loss was
    reported; `time` is the sender's clock in seconds since 1970; `initial` marks initial
    state that a producer handed to a newcomer, as of the event numbered `seq`.
    """

    subject: str
    data: Any
    sender: str
    seq: int
    time: float
    number: int
    priority: str = "regular"
    initial: bool = False

    @property
    def id(self) -> str:
        """The event's name, the same for every subscriber and across replays."""
        return spelled((self.sender, self.number))

    @property
    def type(self) -> str | None:
        """The name of the object's type; None for an untyped notification (a plain dict)."""
        return type_of(self.data).name if isinstance(self.data, DataObject) else None
