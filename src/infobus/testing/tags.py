"""Tags without daemons: nodes of one process that hold the table, and a decider for all of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infobus.bus.bus import Bus
    from infobus.bus.tags.role import TagRole


@contextmanager
def table_of_its_own(*buses: Bus) -> Iterator[list[TagRole]]:
    """Let these nodes hold one table of tags, for a test; they agree because one decides."""
    roles = [bus.tags.hold() for bus in buses]
    members = tuple(f"member-{number}#1" for number in range(len(buses)))
    slots = itertools.count(1)
    deciding = threading.Lock()

    def propose(id: str, operation: bytes) -> None:
        with deciding:
            slot = next(slots)
            for role in roles:
                role.table.apply(slot, operation)

    for role, member in zip(roles, members, strict=True):
        role.table.view(0, members)
        role.begin(lambda member=member: member, propose)  # type: ignore[misc]
    try:
        yield roles
    finally:
        for role in roles:
            role.close()
