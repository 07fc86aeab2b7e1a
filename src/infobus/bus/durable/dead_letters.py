"""What becomes of guaranteed events that a durable consumer could not use."""

from __future__ import annotations

from typing import Any

from infobus.errors import BadFrame
from infobus.headers import readable
from infobus.objects import DataObject, codec, spelled
from infobus.protocols.frames import transactions
from infobus.protocols.frames.guaranteed import Entry
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.frames.wire import Item
from infobus.protocols.guaranteed import effects


class DeadLetter(DataObject, name="infobus.DeadLetter"):
    """A guaranteed event that was delivered too often in vain, or came too late.

    `object` is the event's object; for a transaction, a list with the `subject` and the `object`
    of each of its events, and its `headers` if it has any. The letter has the headers of its event.
    """

    consumer: str
    reason: str
    deliveries: int
    subject: str
    event: str
    time: float
    object: Any


def letter(consumer: str, dead: effects.Bury) -> DeadLetter:
    """The dead letter of an event."""
    entry, event = dead.entry, dead.entry.name_in(dead.ledger)
    return DeadLetter(
        consumer=consumer,
        reason=dead.why,
        deliveries=dead.deliveries,
        subject=entry.subject,
        event=spelled(event),
        time=entry.time,
        object=_object(entry, event),
    )


def _object(entry: Entry, event: tuple[str, int]) -> Any:
    """The event's object; of a transaction, those of all its events. What is unreadable: bytes."""
    try:
        if entry.type != GROUP:
            return codec.decode(entry.type, entry.body, entry.object_id or event)
        return [_event(item) for item in transactions.decode(entry.body).events]
    except BadFrame:
        return entry.body


def _event(item: Item) -> dict[str, Any]:
    event = {
        "subject": item.subject,
        "object": codec.decode(item.type, item.body, item.object_id),
    }
    return {**event, "headers": dict(readable(item.headers))} if item.headers else event
