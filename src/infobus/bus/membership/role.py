"""The role of a daemon: any process can be a member of the group that agrees on who is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infobus.bus.membership.host import MemberHost
from infobus.errors import UsageError
from infobus.protocols.frames.membership import OperationRequest
from infobus.protocols.membership.table import AgreedTable
from infobus.protocols.membership.terms import MembershipTerms, Mode
from infobus.stores.member_state import MemberStateFile

if TYPE_CHECKING:
    from infobus.bus.bus import Bus

SHARED_TABLE = "shared"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEARTBEAT_S_MIN, _HEARTBEAT_S_MAX = 0.02, 60.0


class MembershipRole:
    """Makes the node of `bus` a member, until it is closed.

    The member finds the others by itself, agrees with them on views and on operations of `table`,
    and answers the programs of the bus. It goes on where it was when it is started again with the
    same `state`. All members need the same `heartbeat_s`, `founders` and `mode`, and a table of
    the same kind.

    Args:
        bus: Its node; the role ends when it is closed, too.
        heartbeat_s: The pace. A failure is known to all within three heartbeats.
        founders: Names of members of which a majority begins the group, and nobody else does.
            Without any, who finds nobody for a second begins a group alone.
        state: A folder for what the member must not forget; no other member may use it.
        table: What the members keep in common, besides who they are.
        mode: With `any`, those that are left go on without a majority. That is safe only where the
            network never falls into parts.
        name: What the member is called; else the host and a few letters, kept in `state`.

    Raises:
        StoreError: `state` cannot be used, or another process uses it.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        heartbeat_s: float = 1.0,
        founders: Iterable[str] = (),
        state: Path,
        table: AgreedTable | None = None,
        mode: Mode = "majority",
        name: str | None = None,
    ) -> None:
        terms = checked_terms(heartbeat_s, tuple(founders), mode)
        membership = bus.members
        membership.check_open()
        self.bus = bus
        self._membership = membership
        self.store = MemberStateFile(Path(state))
        self._is_closed = False
        try:
            self.name = self._kept_name(name, terms.founders)
            tables = {} if table is None else {SHARED_TABLE: table}
            stamp = int(membership.runtime.clock.wall_s() * 1000)
            strand = membership.strand
            hosts: list[MemberHost] = []
            strand.call(
                lambda: hosts.append(
                    MemberHost(strand, self.name, terms, tables, self.store, stamp, self._on_news)
                ),
                timeout_s=10.0,
            )
            self._host = hosts[0]
        except BaseException:
            self.store.close()
            raise
        self._heartbeat_s = heartbeat_s
        membership.roles.append(self)

    @property
    def id(self) -> str:
        """The member's id; it changes when the others have gone on without it."""
        return self._host.member.id

    @property
    def is_stable(self) -> bool:
        """Whether the view is stable, as this member sees it."""
        now_s = self._membership.runtime.clock.now_s()
        return self._host.member.stable_left_s(now_s) > 0

    @property
    def why_unstable(self) -> str:
        """Why it is not; empty if it is."""
        return self._host.member.why_unstable(self._membership.runtime.clock.now_s())

    @property
    def members(self) -> tuple[str, ...]:
        """The members of its view, the most senior first; empty while it is not let in."""
        return self._host.member.seat.sequence.members

    def propose(self, id: str, operation: bytes) -> None:
        """Have an operation of the table decided; it is not waited for.

        Proposing it again, by the same id, changes nothing.
        """
        request = OperationRequest(id, SHARED_TABLE, operation)
        self._host.step(lambda now_s: self._host.member.request(request, now_s))

    def force(self) -> None:
        """Go on alone, whatever the others do; when they are met, they join anew.

        For people who know that most members are gone for good. What those have decided meanwhile
        is lost, if they are not gone after all.
        """
        self._host.step(self._host.member.force)

    def close(self, timeout_s: float | None = None) -> None:
        """Leave: the others go on without this member, at once if they can. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        member, membership = self._host.member, self._membership
        self._host.step(member.leave)
        patience_s = 3 * self._heartbeat_s if timeout_s is None else timeout_s
        if member.seat.others:
            membership.runtime.wait_until(lambda: member.is_over, patience_s)
        self._end()

    def abandon(self) -> None:
        """End without leaving, as if the process were killed. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        membership = self._membership
        membership.strand.call(self._host.close, timeout_s=2.0)
        membership.strand.call(self.store.close, timeout_s=2.0)
        if self in membership.roles:
            membership.roles.remove(self)

    def __enter__(self) -> MembershipRole:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _on_news(self, news: Any) -> None:
        self._membership.runtime.wake()

    def _kept_name(self, name: str | None, founders: tuple[str, ...]) -> str:
        kept = self.store.load().get("name", b"").decode()
        if name is not None and not _NAME.fullmatch(name):
            raise UsageError(
                f"the name of a member is {name!a}; expected up to 64 letters, digits, '_' and '-'"
            )
        if kept and name not in (None, kept):
            raise UsageError(f"this state belongs to a member called {kept!r}, not {name!r}")
        host = re.sub(r"[^A-Za-z0-9_-]", "_", os.uname().nodename)[:40] or "host"
        own = host if host in founders else f"{host}-{os.urandom(2).hex()}"
        chosen = kept or name or own
        if not kept:
            self.store.save({"name": chosen.encode()})
        return chosen


def checked_terms(heartbeat_s: float, founders: tuple[str, ...], mode: Mode) -> MembershipTerms:
    """The terms of a group, or `UsageError` if they are none."""
    if not _HEARTBEAT_S_MIN <= heartbeat_s <= _HEARTBEAT_S_MAX:
        raise UsageError(
            f"heartbeat_s is {heartbeat_s}; expected {_HEARTBEAT_S_MIN} to {_HEARTBEAT_S_MAX}"
        )
    if mode not in ("majority", "any"):
        raise UsageError(f"mode is {mode!r}; expected 'majority' or 'any'")
    for one in founders:
        if not _NAME.fullmatch(one):
            raise UsageError(f"the name of a founder is {one!a}; see `name`")
    return MembershipTerms(heartbeat_s=heartbeat_s, founders=founders, mode=mode)
