"""Transactions over several channels: a lane waits at one until the other lanes have reached it.

An engine may bring the frames of two channels in any order, and a frame that was lost comes later.
So of a transaction the copy on one lane may be here before events that were published earlier on
another. It tells its place on each lane; its lane waits, and what follows on it, until all others
that are taken here have come that far. What was published in one order arrives in that order.

Nothing waits for ever: a lane on which a loss is reported has come that far, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, field

from infobus.bus.deliver.event import Run

_WAIT_S_MAX = 10.0  # longer than the tries to repair a frame take together
_HELD_COUNT_MAX = 65_536  # events, of all senders

Name = tuple[str, int]
"""Of a transaction: who published it first, and the number of its first event."""

Place = Callable[[str, str], int | None]
"""The number that is due next on a sender's lane; None if nothing of it is waited for."""


class _Waiting(Struct):
    """A transaction that has come on some of its lanes."""

    sender: str
    name: Name
    run: Run  # its first copy
    places: dict[str, int]
    missing: set[str]  # lanes
    since_s: float
    held: dict[str, list[Run]] = field(default_factory=dict)  # what follows on the other lanes


class GroupGate:
    """Holds the lanes that wait. Everything here is called under the runtime's lock."""

    def __init__(
        self,
        place: Place,
        deliver_group: Callable[[Run], None],
        deliver: Callable[[Run], None],
    ) -> None:
        self.lanes: dict[tuple[str, str], _Waiting] = {}
        """The lanes that wait, of which senders, and what for."""
        self.busy: dict[tuple[str, str], int] = {}
        """The numbers of what is delivered just now, by lane: more of the frame follows."""
        self._place = place
        self._deliver_group, self._deliver = deliver_group, deliver
        self._groups: dict[tuple[str, Name], _Waiting] = {}
        self._held_count = 0
        self._is_open = False  # for all, while what waited leaves

    def hold(self, run: Run) -> None:
        """Keep what came on a lane that waits."""
        waiting = self.lanes[run.sender, run.lane]
        waiting.held[run.lane].append(run)
        self._held_count += len(run.items)
        if self._held_count > _HELD_COUNT_MAX:
            self.open()

    def arrive(self, run: Run, name: Name, places: dict[str, int], now_s: float) -> bool:
        """The first copy of a transaction has come; False: its lane waits from now on."""
        if self._is_open or places.get(run.lane) != run.seqs[0]:
            return True  # the latter is a lie, or it has one place only
        missing = {lane for lane in places if lane != run.lane and self._is_due(run, lane, places)}
        if missing:
            waiting = _Waiting(run.sender, name, run, places, missing, now_s, {run.lane: []})
            self._groups[run.sender, name] = self.lanes[run.sender, run.lane] = waiting
        return not missing

    def arrive_again(self, run: Run, name: Name) -> bool:
        """Another copy has come; False: its lane waits, too."""
        waiting = self._groups.get((run.sender, name))
        if waiting is None or run.lane not in waiting.places:
            return True
        waiting.missing.discard(run.lane)
        if waiting.missing:
            waiting.held[run.lane] = []
            self.lanes[run.sender, run.lane] = waiting
            return False
        self._let_go(waiting)
        return True

    def look_again(self, now_s: float) -> None:
        """Let go what has no reason to wait any more, or has waited for too long."""
        for waiting in list(self._groups.values()):
            run, places = waiting.run, waiting.places
            waiting.missing = {lane for lane in waiting.missing if self._is_due(run, lane, places)}
            if now_s - waiting.since_s > _WAIT_S_MAX:
                self._open([waiting])
            elif not waiting.missing:
                self._let_go(waiting)

    def open_for(self, sender: str, lane: str) -> None:
        """A loss is to be told: what came before it leaves first. An empty lane is all of them."""
        found = [one for (name, at), one in self.lanes.items() if name == sender]
        self._open([one for one in found if not lane or lane in one.held])

    def open(self) -> None:
        """Let go whatever waits."""
        self._open(list(self._groups.values()))

    def _open(self, some: Iterable[_Waiting]) -> None:
        """Let transactions go, and what waits behind them, wherever the other lanes are."""
        self._is_open = True
        try:
            for waiting in some:
                self._let_go(waiting)
        finally:
            self._is_open = False

    def _is_due(self, run: Run, lane: str, places: dict[str, int]) -> bool:
        """Whether the transaction is still to come on a lane."""
        key = (run.sender, lane)
        if (before := self.lanes.get(key)) is not None:  # the lane waits
            return before.places[lane] < places[lane]
        place = self.busy.get(key)
        if place is None:
            place = self._place(*key)
        return place is not None and place <= places[lane]

    def _let_go(self, waiting: _Waiting) -> None:
        if self._groups.pop((waiting.sender, waiting.name), None) is None:
            return  # it went with one before it
        self._deliver_group(waiting.run)
        for lane, runs in waiting.held.items():
            del self.lanes[waiting.sender, lane]  # not before: what comes on others waits for it
            for run in runs:
                self._held_count -= len(run.items)
                if (waiting.sender, lane) in self.lanes:
                    self.hold(run)
                else:
                    self._deliver(run)
