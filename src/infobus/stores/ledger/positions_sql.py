"""Exactly-once effects: a consumer's position in its own database, in its own transaction.

A handler whose process dies after its effects and before its acknowledgement gets the event
again. If it settles the event in the same transaction as the effects, both happen or neither:

    positions = PositionsIn("billing")
    with engine.begin() as connection:
        positions.create(connection)

    def handle(event):
        with engine.begin() as connection:
            if positions.settle(connection, event):
                connection.execute(...)  # the event's effects, once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table


class Numbered(Protocol):
    """A guaranteed event: the ledger that stores it, and its number there."""

    @property
    def sender(self) -> str:
        """The id of the ledger."""

    @property
    def number(self) -> int:
        """The number in the ledger."""


class PositionsIn:
    """The positions of one durable consumer, in a table of its own database.

    It stores one number per ledger, so it is for consumers that get their events in order.
    """

    def __init__(self, consumer: str, *, table: str = "infobus_positions") -> None:
        self.consumer = consumer
        self._table = _table(table)

    def create(self, connection: Connection) -> None:
        """Create the table, if it does not exist."""
        self._table.create(connection, checkfirst=True)

    def position(self, connection: Connection, ledger: str) -> int:
        """Return the number of the last event settled in a ledger, 0 if there is none."""
        from sqlalchemy import select

        return connection.scalar(select(self._table.c.position).where(self._row(ledger))) or 0

    def settle(self, connection: Connection, event: Numbered) -> bool:
        """Record in the connection's transaction that the event is settled.

        Returns False if it was settled before: then it has had its effects already.
        """
        from sqlalchemy import insert, update

        columns = self._table.c
        behind = self._row(event.sender) & (columns.position < event.number)
        moved = connection.execute(update(self._table).where(behind).values(position=event.number))
        if moved.rowcount:
            return True
        if self.position(connection, event.sender):
            return False
        # Two transactions at once cannot both insert the row: the other one fails.
        values = {"consumer": self.consumer, "ledger": event.sender, "position": event.number}
        connection.execute(insert(self._table).values(values))
        return True

    def _row(self, ledger: str) -> ColumnElement[bool]:
        columns = self._table.c
        return (columns.consumer == self.consumer) & (columns.ledger == ledger)


def _table(name: str) -> Table:
    from sqlalchemy import BigInteger, Column, MetaData, String, Table

    return Table(
        name,
        MetaData(),
        Column("consumer", String(255), primary_key=True),
        Column("ledger", String(64), primary_key=True),
        Column("position", BigInteger, nullable=False),
    )
