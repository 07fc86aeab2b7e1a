"""What a subscription hands out: one event, with where it came from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from msgspec import Struct

from infobus.errors import BadFrame
from infobus.objects import DataObject, codec, runs, spelled, type_of
from infobus.protocols.wire import Items

#: A run of consecutive events: sender, channel, number of the first, events, initial state or not.
Run = tuple[str, str, int, Items, bool]


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


def weight_of(items: Items) -> int:
    """How much room a run takes in a queue: one per event, and one more for every 2 KiB.

    So a queue that is bounded by a number is bounded in memory, too. Frames are closed by the
    event that makes them large, so in a long run only the last one can be.
    """
    bodies = items.bodies
    count = len(bodies)
    if count > 16:
        return count + (len(bodies[-1]) >> 11)
    return count + sum(len(body) >> 11 for body in bodies)


def events_of(run: Run, on_bad_object: Callable[[str, BadFrame], None]) -> list[Event]:
    """Decode a run, without events whose object cannot be read."""
    sender, _, seq, items, initial = run
    count, numbers = len(items), items.each_number()
    # Best effort has no numbers, and initial state has that of the event it follows.
    seqs = range(seq, seq + count) if seq and not initial else repeat(seq)
    if count > 1 and len(items.types) == 1 and not items.object_ids:
        objects = runs.decode(items.types[0], items.bodies, zip(repeat(sender), numbers))
        if objects is not None:
            subjects, marks = items.each_subject(), repeat(initial)
            envelopes = (repeat(sender), seqs, items.times, numbers, repeat("regular"), marks)
            return list(map(Event, subjects, objects, *envelopes))
    events = []
    for item, event_seq in zip(items, seqs, strict=False):
        object_id = item.object_id or (sender, item.number)
        try:
            data = codec.reader_for(item.type)(item.body, object_id)
        except BadFrame as error:
            on_bad_object(sender, error)
        else:
            place = (sender, event_seq, item.time, item.number)
            events.append(Event(item.subject, data, *place, "regular", initial))
    return events
