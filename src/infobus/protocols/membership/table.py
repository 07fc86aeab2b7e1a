"""What the members share besides their view: a table, changed by agreed operations.

The members agree on a sequence of decisions, one for each slot. A decision is a view or an
operation. Only the table knows what an operation means. All members apply the same decisions to
equal tables in the same order, so the tables stay equal, slot by slot.
"""

from __future__ import annotations

from typing import Protocol

from infobus.protocols.frames.membership import OPERATION_BYTES_MAX as OPERATION_BYTES_MAX
from infobus.protocols.frames.membership import SNAPSHOT_BYTES_MAX as SNAPSHOT_BYTES_MAX


class AgreedTable(Protocol):
    """A state that changes by agreed decisions alone.

    It is asked by one thread at a time. Its answers may depend on nothing but the decisions
    before: no clock, no chance, no name of the host. It must not raise: what it cannot accept, it
    says in the result.
    """

    def apply(self, slot: int, operation: bytes) -> bytes:
        """The operation was decided for this slot; return its result, for who asked for it.

        Several operations may share a slot; they are applied in their order. Operations come from
        outside: also one that makes no sense needs a result.
        """

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        """A view was decided for this slot: these are the members now, the most senior first.

        A member is called `name#incarnation`, such as `oak#2`. A member that comes back after it
        was excluded has the next incarnation.
        """

    def snapshot(self) -> bytes:
        """Return the whole state, at most `SNAPSHOT_BYTES_MAX`: equal tables, equal bytes."""

    def restore(self, state: bytes) -> None:
        """Become the table that this snapshot was made of; empty bytes stand for no decision yet.

        It comes from another member or from disk, and this version of the program made it.
        """
