"""What a subscription hands out: one event, with where it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from infobus.errors import BadFrame
from infobus.objects import DataObject, codec, spelled, type_of
from infobus.protocols.wire import Item

#: A run of consecutive events: sender, channel, number of the first, events, initial state or not.
Run = tuple[str, str, int, Sequence[Item], bool]


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


def weight_of(items: Sequence[Item]) -> int:
    """How much room a run takes in a queue: one per event, and one more for every 2 KiB.

    So a queue that is bounded by a number is bounded in memory, too. Frames are closed by the
    event that makes them large, so in a long run only the last one can be.
    """
    count = len(items)
    if count > 16:
        return count + (len(items[-1].body) >> 11)
    return count + sum(len(item.body) >> 11 for item in items)


def events_of(run: Run, on_bad_object: Callable[[str, BadFrame], None]) -> list[Event]:
    """Decode a run, without events whose object cannot be read."""
    sender, _, seq, items, initial = run
    # Best effort has no numbers, and initial state has that of the event it follows.
    step = 1 if seq and not initial else 0
    events = []
    type_, read = -1, codec.reader_for(0)
    for item in items:
        if item.type != type_:
            type_ = item.type
            read = codec.reader_for(type_)
        number = item.number
        try:
            data = read(item.body, item.object_id or (sender, number))
        except BadFrame as error:
            on_bad_object(sender, error)
        else:
            events.append(
                Event(item.subject, data, sender, seq, item.time, number, "regular", initial)
            )
        seq += step
    return events
