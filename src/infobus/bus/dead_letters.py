"""What becomes of guaranteed events that a durable consumer could not use."""

from __future__ import annotations

from typing import Any

from infobus.errors import BadFrame
from infobus.objects import DataObject, codec, spelled
from infobus.protocols import durable_effects


class DeadLetter(DataObject, name="infobus.DeadLetter"):
    """A guaranteed event that was delivered too often in vain, or came too late."""

    consumer: str
    reason: str
    deliveries: int
    subject: str
    event: str
    time: float
    object: Any


def letter(consumer: str, dead: durable_effects.DeadLetter) -> DeadLetter:
    """The dead letter of an event."""
    entry, event = dead.entry, (dead.ledger, dead.entry.number)
    try:
        obj = codec.decode(entry.type, entry.body, entry.object_id or event)
    except BadFrame:
        obj = entry.body
    return DeadLetter(
        consumer=consumer,
        reason=dead.why,
        deliveries=dead.deliveries,
        subject=entry.subject,
        event=spelled(event),
        time=entry.time,
        object=obj,
    )
