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


def events_of(run: Run, on_bad_object: Callable[[str, BadFrame], None]) -> list[Event]:
    """Decode a run, without events whose object cannot be read."""
    sender, _, seq, items, initial = run
    # Best effort has no numbers, and initial state has that of the event it follows.
    step = 1 if seq and not initial else 0
    plan_for, read = codec.plan_for, codec.read
    events = []
    for item in items:
        number = item.number
        object_id = item.object_id or (sender, number)
        try:
            data = read(plan_for(item.type), item.body, object_id)  # type: ignore[arg-type]
        except Exception:  # no plan, or not as planned: whatever it is, the long way tells
            try:
                data = codec.decode(item.type, item.body, object_id)
            except BadFrame as error:
                on_bad_object(sender, error)
                seq += step
                continue
        events.append(Event(item.subject, data, sender, seq, item.time, number, "regular", initial))
        seq += step
    return events
