"""Quarantine: store the bytes of refused objects until somebody has repaired the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from infobus.objects import codec
from infobus.repository import schema
from infobus.repository.to_rows import ObjectRecord


@dataclass(frozen=True)
class SetAside:
    """An object that could not be stored: its origin, its bytes, and the reason."""

    number: int
    subject: str
    time: datetime | None
    id: str
    fingerprint: int
    payload: bytes
    reason: str

    def record(self) -> ObjectRecord:
        """Decode the object into a record that you can store."""
        obj: Any = codec.decode(self.fingerprint, self.payload, self.id)
        return ObjectRecord(obj, self.id, self.subject, self.time)

    def forget(self, connection: Connection) -> bool:
        """Remove it from the quarantine; return False if another process did so first."""
        chosen = schema.set_aside.c.number == self.number
        return connection.execute(delete(schema.set_aside).where(chosen)).rowcount == 1


def set_aside(connection: Connection, records: Sequence[ObjectRecord], reason: str) -> None:
    """Put objects into the quarantine, as bytes."""
    for record in records:
        fingerprint, payload, _ = codec.encode(record.obj)
        values = {
            "subject": record.subject or "",
            "time": record.time,
            "id": record.id,
            "fingerprint": f"{fingerprint:016x}",
            "payload": payload,
            "reason": reason,
        }
        # After a crash, the same object may arrive again.
        connection.execute(delete(schema.set_aside).where(schema.set_aside.c.id == record.id))
        connection.execute(insert(schema.set_aside).values(values))


def all_set_aside(connection: Connection) -> list[SetAside]:
    """Return the objects in the quarantine, oldest first."""
    columns = schema.set_aside.c
    return [
        SetAside(
            row.number,
            row.subject,
            row.time,
            row.id,
            int(row.fingerprint, 16),
            bytes(row.payload),
            row.reason,
        )
        for row in connection.execute(select(schema.set_aside).order_by(columns.number))
    ]
