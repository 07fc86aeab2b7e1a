"""`bus.members`: who is there, as a program sees it."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from infobus.bus.lifetime import Lifetime
from infobus.bus.membership.health import Health
from infobus.bus.membership.primary import Primary
from infobus.bus.membership.role import SHARED_TABLE, MembershipRole
from infobus.bus.membership.strand import MembersStrand
from infobus.bus.membership.view import ExcludedView, MembersView
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import BadValue, Unstable
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.membership import (
    OPERATION_BYTES_MAX,
    OperationRequest,
    Roster,
    WantRoster,
)
from infobus.protocols.membership.effects import Answered
from infobus.protocols.membership.follower import ToldState, ToldView, ViewFollower
from infobus.waiters import Changed

if TYPE_CHECKING:
    from infobus.bus.runtime.registration import Part
    from infobus.bus.threads import Worker

_TICK_S = 0.05
_NEWS_COUNT_MAX = 10_000
log = logging.getLogger("infobus")

OnMembers = Callable[[MembersView | ExcludedView], object]

NO_DAEMON = (
    "no daemon: nobody on this bus agrees on who is there; start one with `infobus daemon run`, "
    "or make a process a member with `infobus.MembershipRole`"
)


class Membership:
    """Follows the members of the bus, by way of one of them. Begins when it is first asked."""

    def __init__(self, runtime: Runtime, life: Lifetime) -> None:
        self.runtime = runtime
        self.roles: list[MembershipRole] = []
        self._life = life
        self._now_s = runtime.clock.now_s
        self._lock = threading.Lock()
        self._changed = Changed(self._lock)
        self._beginning = threading.Lock()
        self._strand: MembersStrand | None = None
        self._follower: ViewFollower | None = None
        self._part: Part | None = None
        self._stop_ticking: Callable[[], None] = lambda: None
        self._view: tuple[int, tuple[str, ...]] | None = None
        self._state = ToldState("", float("-inf"), "", frozenset(), {})
        self._answers: dict[str, bytes | None] = {}
        self._rosters: dict[int, dict[str, Roster]] = {}
        self._callbacks: list[OnMembers] = []
        self._teller: Worker | None = None
        self._waiting_news = 0
        self._numbers = itertools.count(1)
        self.health = Health(runtime)

    @property
    def strand(self) -> MembersStrand:
        """The strand of this node's membership."""
        with self._beginning:
            if self._strand is None:
                self._strand = MembersStrand(self.runtime)
            return self._strand

    def check_open(self) -> None:
        """Raise `BusClosed` once the bus has ended."""
        self._life.check()

    # What a program asks.

    def __call__(self, timeout_s: float = 1.0) -> MembersView:
        """Return the last view that this program was told of, stable or not.

        Raises:
            Unstable: There is no daemon, or none has answered within `timeout_s`.
        """
        self.follow()
        if not self._changed.wait_for(lambda: self._view is not None, timeout_s):
            raise Unstable(self._why())
        return self._now()

    def stable(self, timeout_s: float = 2.0) -> MembersView:
        """Wait until the view is stable, and return it.

        No two programs of a bus are given different views as stable at one time.

        Raises:
            Unstable: It was not within `timeout_s`; the message says why.
        """
        self.follow()
        if not self._changed.wait_for(self._is_stable, timeout_s):
            raise Unstable(self._why())
        return self._now()

    def on_view(self, callback: OnMembers) -> None:
        """Call `callback` with the present view and each that follows, in order, on one thread.

        Where the views do not continue, it is called with an `ExcludedView` first.
        """
        self.follow()
        with self._lock:
            self._callbacks.append(callback)
            if self._teller is None:
                self._teller = self.runtime.threads.worker(f"infobus-{self.runtime.name}-views")
            if self._view is not None:
                view = self._view_of(*self._view, is_stable=self._is_stable())
                self._teller.do(partial(self._tell, callback, view))

    def primary(self, service: str, *, rank: int = 0) -> Primary:
        """Offer to be the primary of `service`; see `Bus.primary`."""
        self.follow()
        id = f"{self.runtime.name}/{next(self._numbers)}"
        return Primary(self, self._changed, id, service, rank)

    def decide(
        self, operation: bytes, *, table: str = SHARED_TABLE, timeout_s: float = 5.0
    ) -> bytes:
        """Have the members decide an operation on their table; returns its result.

        Raises:
            Unstable: It was not decided within `timeout_s`. It may be decided later.
        """
        if len(operation) > OPERATION_BYTES_MAX:
            raise BadValue(
                f"an operation of {len(operation)} bytes; at most {OPERATION_BYTES_MAX} are taken"
            )
        follower = self.follow()
        id = f"{self.runtime.name}:{next(self._numbers)}"
        request = OperationRequest(id, table, operation)
        with self._lock:
            self._answers[id] = None
        self._step(partial(follower.decide, request))
        try:
            if not self._changed.wait_for(lambda: self._answers[id] is not None, timeout_s):
                raise Unstable(
                    f"not decided within {timeout_s} s, and it may be later: {self._why()}"
                )
            return self._answers[id] or b""
        finally:
            self._step(partial(self._forget, follower, id))
            with self._lock:
                del self._answers[id]

    def roster(self, timeout_s: float = 1.0, *, force_at: str = "") -> list[Roster]:
        """Ask every daemon how it sees the members; `force_at` makes that one go on alone."""
        self.follow()
        number = next(self._numbers)
        with self._lock:
            rosters = self._rosters[number] = {}
        self.strand.do(partial(self._ask_rosters, number, force_at))
        self._changed.wait_for(
            lambda: rosters and len(rosters) >= len(self.strand.daemons), timeout_s
        )
        with self._lock:
            del self._rosters[number]
            return [rosters[node] for node in sorted(rosters)]

    # For its parts.

    def is_primary(self, id: str) -> bool:
        """Whether a candidate of this program is primary now. The caller holds the lock."""
        return id in self._state.primary_of and self._is_stable() and not self.health.is_hung()

    def claim(self, candidate: Any, is_wanted: bool) -> None:
        """Be a candidate, or be none any more."""
        follower = self.follow()

        def step(now_s: float) -> list[Any]:
            if is_wanted:
                follower.candidates[candidate.id] = candidate
            else:
                follower.candidates.pop(candidate.id, None)
            return follower.ask_now(now_s)

        self._step(step)

    def close(self) -> None:
        """Follow no more, and leave the group if this node is a member."""
        for role in list(self.roles):
            role.close()
        self.health.close()
        self._stop_ticking()
        if self._follower is not None:
            self._step(self._follower.leave)
        if self._strand is not None:
            self._strand.call(lambda: None, timeout_s=1.0)
            self._strand.close()
        if self._teller is not None:
            self._teller.stop()
        with self._lock:
            self._changed.notify_all()

    # Following.

    def follow(self) -> ViewFollower:
        """Follow the members from now on."""
        self._life.check()
        strand = self.strand
        with self._beginning:
            if self._follower is None:
                application = self.runtime.node.application
                follower = ViewFollower(self.runtime.name, application)
                strand.call(partial(self._begin, strand, follower), timeout_s=5.0)
                self._follower = follower
                self.health.follow(follower)
                self._stop_ticking = self.runtime.threads.every(
                    _TICK_S, self._tick, f"infobus-{self.runtime.name}-follow"
                )
            return self._follower

    def _begin(self, strand: MembersStrand, follower: ViewFollower) -> None:
        self._part = strand.add("members", _Hears(follower, self._on_roster), self._do)

    def _step(self, step: Callable[[float], list[Any]]) -> None:
        assert self._part is not None
        self.strand.step(self._part, step)

    def _tick(self) -> None:
        follower = self._follower
        if follower is not None:
            self.health.note()
            self._step(follower.tick)
            with self._lock:
                self._changed.notify_all()  # a lease may have ended

    def _forget(self, follower: ViewFollower, id: str, now_s: float) -> list[Any]:
        follower.withdraw(id)
        return []

    def _do(self, effect: Any) -> None:
        with self._lock:
            match effect:
                case ToldView(number, members, is_anew):
                    before, self._view = self._view, (number, members)
                    if is_anew and before is not None:
                        self._spread(ExcludedView(before[0]))
                    self._spread(self._view_of(number, members, is_stable=False))
                case ToldState():
                    self._state = effect
                    if not effect.node:
                        self._view = None
                case Answered(id, result):
                    if id in self._answers:
                        self._answers[id] = result
                case unknown:
                    raise AssertionError(f"nobody does {unknown!r}")
            self._changed.notify_all()

    def _on_roster(self, roster: Roster) -> None:
        with self._lock:
            if (rosters := self._rosters.get(roster.request)) is not None:
                rosters[roster.sender] = roster
                self._changed.notify_all()

    def _ask_rosters(self, number: int, force_at: str) -> None:
        assert self._part is not None
        node = self.runtime.name
        effects = [
            ToPeer(daemon, WantRoster(node, number, daemon == force_at))
            for daemon in self.strand.daemons
        ]
        self.strand.step_now(self._part, lambda now_s: effects)

    def _spread(self, news: MembersView | ExcludedView) -> None:
        if self._teller is None:
            return
        for callback in self._callbacks:
            if self._waiting_news >= _NEWS_COUNT_MAX:
                log.warning("a callback of on_members does not return; views are left out")
                return
            self._waiting_news += 1
            self._teller.do(partial(self._tell, callback, news, is_counted=True))

    def _tell(
        self, callback: OnMembers, news: MembersView | ExcludedView, is_counted: bool = False
    ) -> None:
        try:
            callback(news)
        finally:
            if is_counted:
                with self._lock:
                    self._waiting_news -= 1

    # Under the lock.

    def _is_stable(self) -> bool:
        return self._view is not None and self._now_s() < self._state.until_s

    def _view_of(self, number: int, members: tuple[str, ...], is_stable: bool) -> MembersView:
        nodes = {one: node for one, node in self._state.nodes.items() if one in members}
        return MembersView(number, members, members[0] if members else "", is_stable, nodes)

    def _now(self) -> MembersView:
        with self._lock:
            if self._view is None:
                raise Unstable(self._why())
            return self._view_of(*self._view, is_stable=self._is_stable())

    def _why(self) -> str:
        if not self._state.node:
            return NO_DAEMON
        return self._state.why or f"no answer from the daemon at {self._state.node}"


class _Hears:
    """The follower, and the callers that wait for rosters."""

    def __init__(self, follower: ViewFollower, on_roster: Callable[[Roster], None]) -> None:
        self._on_roster = on_roster
        self._follower = follower
        self.peer_up, self.peer_down = follower.peer_up, follower.peer_down
        self.tick = follower.tick

    def take(self, message: Any, now_s: float) -> list[Any]:
        if isinstance(message, Roster):
            self._on_roster(message)
            return []
        return self._follower.take(message, now_s)
