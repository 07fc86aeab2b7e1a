"""Objects that could not be stored: kept as they came, until somebody has mended the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from infobus.objects import codec
from infobus.repository import schema
from infobus.repository.to_rows import Record


@dataclass(frozen=True)
class SetAside:
    """An object that could not be stored: where it came from, and why."""

    number: int
    subject: str
    time: datetime | None
    id: str
    fingerprint: int
    payload: bytes
    reason: str

    def record(self) -> Record:
        """The object, to be stored."""
        obj: Any = codec.decode(self.fingerprint, self.payload, self.id)
        return Record(obj, self.id, self.subject, self.time)

    def forget(self, connection: Connection) -> bool:
        """Remove it; False if somebody else did."""
        chosen = schema.set_aside.c.number == self.number
        return connection.execute(delete(schema.set_aside).where(chosen)).rowcount == 1


def set_aside(connection: Connection, records: Sequence[Record], reason: str) -> None:
    """Keep objects as they are."""
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
        # It may have come again, because of a crash.
        connection.execute(delete(schema.set_aside).where(schema.set_aside.c.id == record.id))
        connection.execute(insert(schema.set_aside).values(values))


def all_set_aside(connection: Connection) -> list[SetAside]:
    """Everything that was set aside, in that order."""
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
