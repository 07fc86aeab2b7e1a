"""Runs a member on a node: its ticks, its disk, and the callers that wait for decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

from infobus.bus.membership.strand import DAEMONS_KEY, MembersStrand
from infobus.bus.runtime.registration import Step
from infobus.protocols.membership.effects import (
    Answered,
    Excluded,
    Installed,
    MembershipEffect,
    SaveState,
)
from infobus.protocols.membership.member import GroupMember
from infobus.protocols.membership.primaries import TABLE, PrimaryTable
from infobus.protocols.membership.reception import Reception
from infobus.protocols.membership.table import AgreedTable
from infobus.protocols.membership.terms import MembershipTerms

TICKS = 10
"""In one heartbeat."""


class StateStore(Protocol):
    """What a member must not forget, by keys."""

    def load(self) -> dict[str, bytes]:
        """All of it."""

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Change it all at once; returning means that it is on disk.

        Raises:
            StoreError: It is not, and nothing has changed.
        """


class MemberHost:
    """Runs a `GroupMember` on the strand of its node.

    `on_news` is called on the strand with each `Installed`, `Excluded` and `Answered`.
    """

    def __init__(
        self,
        strand: MembersStrand,
        name: str,
        terms: MembershipTerms,
        tables: Mapping[str, AgreedTable],
        store: StateStore,
        stamp: int,
        on_news: Callable[[Any], None],
    ) -> None:
        runtime = strand.runtime
        self._strand = strand
        self._store = store
        self._on_news = on_news
        now_s = runtime.clock.now_s()
        node = runtime.name
        primaries = PrimaryTable()
        whole = {**tables, TABLE: primaries}
        self.member = GroupMember(node, name, terms, whole, store.load(), stamp, now_s)
        self._reception = Reception(self.member, primaries, self._complaints)
        self._part = strand.add("membership", self._reception, self._do)
        self.step(lambda now_s: self.member.begin())
        self._token = runtime.engine.announce(f"{DAEMONS_KEY}/{node}")
        strand.note_own(True)
        self._is_tick_due = False
        period_s = terms.heartbeat_s / TICKS
        self._stop_ticking = runtime.threads.every(period_s, self._tick, f"infobus-{node}-member")

    def step(self, step: Step) -> None:
        """Ask the member something, on the strand; returns at once."""
        heard = self._reception.heard
        self._strand.step(self._part, lambda now_s: heard(list(step(now_s)), now_s))

    def close(self) -> None:
        """End, without a word."""
        self._stop_ticking()
        self._token.undeclare()
        self._strand.note_own(False)
        self._strand.remove(self._part)

    def _tick(self) -> None:
        if not self._is_tick_due:  # a strand that is late needs only one
            self._is_tick_due = True
            self._strand.step(self._part, self._on_tick)

    def _on_tick(self, now_s: float) -> list[Any]:
        self._is_tick_due = False
        if self._part.waiting:
            return []  # for room on the disk: the tick tries again
        return self._reception.tick(now_s)

    def _complaints(self) -> list[tuple[str, str]]:
        counters = self._strand.runtime.counters
        return [(peer, what) for peer, what in counters.complaints.items()]

    def _do(self, effect: MembershipEffect) -> None:
        match effect:
            case SaveState(changes):
                self._store.save(changes)
            case Installed() | Excluded() | Answered():
                self._on_news(effect)
            case _:
                assert_never(effect)  # an effect that nobody does would be lost in silence
