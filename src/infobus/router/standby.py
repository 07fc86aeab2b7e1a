"""What a standby router keeps, so that it can continue where its predecessor ended.

It takes in the same events as the carrying router of its group, and hears which ones that router
passes on. Events that it has taken in and not heard again may not have been passed: when it becomes
the carrying router, it passes these first. Time comes in as `now_s`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from infobus.bus.deliver.event import Run

HOLD_S = 10.0
"""How long what was not heard is kept, if a router carries: longer than it takes to replace it."""

_HELD_COUNT_MAX = 50_000  # events of a class and direction
_IDS_COUNT_MAX = 200_000
_Id = tuple[str, int]


class Duty(Struct):
    """Who of a group carries, as one router of it knows. Its router keeps it up to date."""

    is_shared: bool = False
    """Whether there may be other routers in the group at all."""
    carries: Callable[[], bool] = lambda: True
    """Whether this one carries, now."""
    peers: dict[str, None] = {}
    """Nodes on the backbone of the other routers of the group."""
    doubled: dict[str, None] = {}
    """Other sites that have had several routers: when one takes over, some events come twice."""


class Recent:
    """The events of the last seconds, by first sender and number."""

    def __init__(self, keep_s: float = 2 * HOLD_S) -> None:
        self._keep_s = keep_s
        self._at_s: dict[_Id, float] = {}  # the oldest first
        self.heard_s = float("-inf")  # when anything was noted

    def note(self, run: Run, now_s: float) -> list[int]:
        """Note the events of a run; return the places of those that are new."""
        known = self._at_s
        self.heard_s = now_s
        new = []
        for at, one in enumerate(_ids(run)):
            if one not in known:
                new.append(at)
                known[one] = now_s
        while known and (
            len(known) > _IDS_COUNT_MAX or next(iter(known.values())) < now_s - self._keep_s
        ):
            del known[next(iter(known))]
        return new

    def missing(self, run: Run) -> list[int]:
        """The places of the events of a run that were not noted."""
        return [at for at, one in enumerate(_ids(run)) if one not in self._at_s]


class Backlog:
    """Runs that wait until this router carries, of one class and in one direction."""

    def __init__(self) -> None:
        self._runs: deque[tuple[float, Run]] = deque()
        self._count = 0
        self.dropped = 0
        """Events for which there was no room, while no router carried."""

    def __len__(self) -> int:
        return self._count

    def hold(self, run: Run, passed: Recent, now_s: float) -> None:
        """Keep a run; let go of old ones, if another router passes on what comes later."""
        self._runs.append((now_s, run))
        self._count += len(run.items)
        while self._runs[0][0] < min(now_s - HOLD_S, passed.heard_s):
            self._count -= len(self._runs.popleft()[1].items)
        while self._count > _HELD_COUNT_MAX and len(self._runs) > 1:
            _, oldest = self._runs.popleft()
            self._count -= len(oldest.items)
            self.dropped += len(passed.missing(oldest))

    def take(self, passed: Recent) -> list[Run]:
        """Take what is kept, without what was passed on by another router, in order."""
        runs, self._runs, self._count, self.dropped = self._runs, deque(), 0, 0
        left = []
        for _, run in runs:
            places = passed.missing(run)
            if len(places) == len(run.items):
                left.append(run)
            elif places:
                left.append(run.at(places))
        return left


def _ids(run: Run) -> Iterator[_Id]:
    items = run.items
    return zip(items.each_first_sender(run.sender), items.each_number(), strict=False)
