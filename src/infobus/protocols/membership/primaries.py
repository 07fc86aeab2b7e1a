"""Decides which of several candidates for a service is its primary; agreed on like views."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

_ROWS_COUNT_MAX = 10_000
OK, FULL, MALFORMED, NO_MEMBER = b"ok", b"full", b"malformed", b"no member"
TABLE = "primaries"


class CandidateEntry(Struct, array_like=True, frozen=True):
    """A candidate enters, by way of a member; it is gone when the member is."""

    id: Annotated[str, Meta(max_length=200)]
    service: Annotated[str, Meta(max_length=1024)]
    rank: int
    member: Annotated[str, Meta(max_length=100)]


class _Enter(Struct, array_like=True, tag=1):
    entry: CandidateEntry


class _Withdraw(Struct, array_like=True, tag=2):
    id: str
    member: str


class _Rows(Struct, array_like=True):
    members: tuple[str, ...]
    entries: list[CandidateEntry]
    primaries: dict[str, str]


_operations: msgspec.msgpack.Decoder[_Enter | _Withdraw] = msgspec.msgpack.Decoder(
    _Enter | _Withdraw
)
_rows = msgspec.msgpack.Decoder(_Rows)


def entering(entry: CandidateEntry) -> bytes:
    """The operation by which a candidate enters."""
    return msgspec.msgpack.encode(_Enter(entry))


def withdrawing(id: str, member: str) -> bytes:
    """The operation by which it is gone, unless it has entered by way of another member since."""
    return msgspec.msgpack.encode(_Withdraw(id, member))


class PrimaryTable:
    """The candidates of each service, and who is its primary.

    A primary stays until it is gone: a candidate of a higher rank waits for its turn. So nobody is
    told that it is no primary any more while it still acts as one. Then comes the candidate of
    the highest rank, of several the oldest.
    """

    def __init__(self) -> None:
        self.members: tuple[str, ...] = ()
        self.entries: dict[str, CandidateEntry] = {}
        self.primaries: dict[str, str] = {}

    def apply(self, slot: int, operation: bytes) -> bytes:
        """A candidate enters, or is gone."""
        try:
            told = _operations.decode(operation)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return MALFORMED
        if isinstance(told, _Withdraw):
            entry = self.entries.get(told.id)
            # A request that comes late would end a primary that another member has given a lease.
            if entry is not None and entry.member == told.member:
                self._remove([told.id])
        elif told.entry.member not in self.members:
            return NO_MEMBER  # it was decided after that one had gone: nobody would withdraw it
        elif told.entry.id not in self.entries:
            if len(self.entries) >= _ROWS_COUNT_MAX:
                return FULL
            self.entries[told.entry.id] = told.entry
            self.primaries.setdefault(told.entry.service, told.entry.id)
        return OK

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        """The candidates of those who are no members any more are gone."""
        self.members = members
        self._remove([id for id, one in self.entries.items() if one.member not in members])

    def snapshot(self) -> bytes:
        """Everything; the order of the candidates counts."""
        return msgspec.msgpack.encode(
            _Rows(self.members, list(self.entries.values()), self.primaries)
        )

    def restore(self, state: bytes) -> None:
        """Become what a snapshot says."""
        rows = _rows.decode(state) if state else _Rows((), [], {})
        self.members = rows.members
        self.entries = {entry.id: entry for entry in rows.entries}
        self.primaries = rows.primaries

    def is_primary(self, id: str) -> bool:
        """Whether a candidate is the primary of its service."""
        entry = self.entries.get(id)
        return entry is not None and self.primaries.get(entry.service) == id

    def _remove(self, ids: list[str]) -> None:
        vacant = set()
        for id in ids:
            entry = self.entries.pop(id, None)
            if entry is not None and self.primaries.get(entry.service) == id:
                del self.primaries[entry.service]
                vacant.add(entry.service)
        for service in sorted(vacant):
            waiting = [one for one in self.entries.values() if one.service == service]
            if waiting:
                self.primaries[service] = max(waiting, key=lambda one: one.rank).id
