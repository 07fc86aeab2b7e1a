"""The decisions so far; slot by slot, they are the same at all members of a group."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from infobus.protocols.frames.membership import (
    BATCH_COUNT_MAX,
    Decision,
    GroupLabel,
    NewView,
)
from infobus.protocols.membership.table import AgreedTable

DECISIONS_COUNT_MAX = 1000
"""Kept for members that are behind. One that is further behind leaves and joins again."""
VIEWS_COUNT_MAX = 200
"""Kept for programs that change to another member."""
RESULTS_COUNT_MAX, RESULTS_BYTES_MAX = 4096, 4 * 1024 * 1024
"""Results of operations, kept in case that their requests come again."""


class _State(Struct, array_like=True):
    """All of it as of one slot, for a newcomer and for the disk."""

    number: int
    views: dict[int, tuple[str, ...]]
    results: dict[str, bytes]
    tables: dict[str, bytes]


_decoder = msgspec.msgpack.Decoder(_State)


class AgreedSequence:
    """The decisions of a group, and what came of them."""

    def __init__(self, tables: Mapping[str, AgreedTable]) -> None:
        self.tables = tables
        self.clear()

    def clear(self) -> None:
        """Know nothing; no group."""
        self.group = GroupLabel()
        self.slot = 0
        self.number = 0  # of the view
        self.view_slot = 0  # which decided it, or at which it was learned
        self.members: tuple[str, ...] = ()
        self.log: dict[int, Decision] = {}
        self.views: dict[int, tuple[str, ...]] = {}
        self.results: dict[str, bytes] = {}
        self._results_bytes = 0
        for table in self.tables.values():
            table.restore(b"")

    def begin(self, group: GroupLabel, members: tuple[str, ...]) -> None:
        """Begin a group: slot 0 needs no decision."""
        self.clear()
        self.group = group
        self._view(members)

    def install(self, decision: Decision) -> None:
        """The next slot was decided so."""
        self.slot += 1
        self.log[self.slot] = decision
        self.log.pop(self.slot - DECISIONS_COUNT_MAX, None)
        if isinstance(decision, NewView):
            self._view(decision.members)
            return
        for request in decision.requests:
            if request.id in self.results:
                continue
            table = self.tables.get(request.table)
            self._note(request.id, table.apply(self.slot, request.operation) if table else b"")

    def after(self, slot: int) -> list[Decision] | None:
        """What followed a slot, as much as fits a frame; None if that is no longer known."""
        known = range(slot + 1, min(self.slot, slot + BATCH_COUNT_MAX) + 1)
        if any(one not in self.log for one in known):
            return None
        return [self.log[one] for one in known]

    def members_at(self, slot: int) -> tuple[str, ...]:
        """Who decided for the slot after this one; nobody if that is no longer known."""
        if slot >= self.slot:
            return self.members
        number = self.number
        for later in range(self.slot, slot, -1):
            if later not in self.log:
                return ()
            number -= isinstance(self.log[later], NewView)
        return self.views.get(number, ())

    def snapshot(self) -> bytes:
        """Everything that the present slot has come to."""
        tables = {name: self.tables[name].snapshot() for name in sorted(self.tables)}
        return msgspec.msgpack.encode(_State(self.number, self.views, self.results, tables))

    def restore(self, group: GroupLabel, slot: int, state: bytes) -> None:
        """Become what a snapshot of that slot says.

        Raises:
            msgspec.DecodeError: It is no snapshot.
        """
        told = _decoder.decode(state)
        self.clear()
        self.group, self.slot, self.number, self.view_slot = group, slot, told.number, slot
        self.views, self.results = told.views, told.results
        self.members = told.views[told.number]
        self._results_bytes = sum(map(len, told.results.values()))
        for name, table in self.tables.items():
            table.restore(told.tables.get(name, b""))

    def _view(self, members: tuple[str, ...]) -> None:
        self.number += 1
        self.view_slot = self.slot
        self.members = self.views[self.number] = members
        self.views.pop(self.number - VIEWS_COUNT_MAX, None)
        for table in self.tables.values():
            table.view(self.slot, members)

    def _note(self, id: str, result: bytes) -> None:
        self.results[id] = result
        self._results_bytes += len(result)
        while len(self.results) > RESULTS_COUNT_MAX or self._results_bytes > RESULTS_BYTES_MAX:
            self._results_bytes -= len(self.results.pop(next(iter(self.results))))
