"""Queues by priority class: strict order, watermarks, age limits, and timed upgrades.

There is one queue for each class (paper 002, section 4.2). The highest class that has an entry goes
first, and inside a class no entry overtakes another. A class above its high mark stops accepting
until it is down to its low mark; a sender that feeds these queues holds back that class, and no
other. Entries that are too old leave at once, wherever they wait.

A class starves if it stopped accepting and nothing of it was taken for a while: its waiting entries
are *raised* for a stated period, and take turns, entry by entry, with the class they are raised to.
An entry that is taken in that time carries what it was raised from and until when, so that the next
queues continue with that. A raised entry that arrives from elsewhere waits in its own class, and
everything before it is raised with it. So inside a class no entry overtakes even then, and falling
back moves nothing. Without an `Upgrade`, priority is strict, and raised entries go by their own
class.

Time comes in as `now_s`. Use one thread at a time: locking is up to the caller.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from msgspec import Struct, field

from infobus.errors import UsageError
from infobus.protocols.qos.classes import Classes, Marks, Upgrade

T = TypeVar("T")

#: Fewer entries than this that have left are not worth tidying up after.
_TIDY_COUNT = 32


class QueueEntry(Struct, Generic[T]):
    """An entry that waits, or waited, in a class; `weight` is how many events it stands for.

    If it was taken while raised, `class_` is the class that it was raised to until
    `raised_until_s`, and `raised_from` its own.
    """

    value: T
    class_: str
    weight: int
    expires_s: float
    number: int  # counts the entries that were offered to these queues
    raised_from: str | None = None
    raised_until_s: float = 0.0
    is_waiting: bool = True


class Upgraded(Struct, frozen=True):
    """The entries of `class_` go with class `to` until `until_s`."""

    class_: str
    to: str
    until_s: float


class FellBack(Struct, frozen=True):
    """The entries of `class_` go by their own priority again."""

    class_: str


class ClassState(Struct, frozen=True):
    """The state of a class; `waiting` is a weight."""

    waiting: int
    accepting: bool
    raised: bool


class _Lane(Struct, Generic[T], eq=False):
    """One class's queue. Its head is never an entry that has left."""

    name: str
    rank: int
    marks: Marks
    queue: deque[QueueEntry[T]] = field(default_factory=deque)
    left_count: int = 0  # entries that have left, but are still in the queue
    waiting: int = 0
    accepting: bool = True
    held: bool = False
    moved_s: float = 0.0  # when something was taken last, or the class stopped accepting
    # What is raised: up to the entry of this number, until that time. Numbers ascend and times
    # descend, so the first is what holds for the head.
    raises: deque[tuple[int, float]] = field(default_factory=deque)
    told_raised: bool = False
    turn: int = 0  # when it was served last, of those that take turns

    def is_raised(self, now_s: float) -> bool:
        return bool(self.raises) and self.raises[0][1] > now_s

    def leave(self, entry: QueueEntry[T]) -> None:
        """Account for an entry that no longer waits."""
        entry.is_waiting = False
        self.waiting -= entry.weight
        if not self.accepting and self.waiting <= self.marks.low:
            self.accepting = True

    def tidy(self) -> None:
        """Restore the invariant of the head, and bound the memory for entries that have left."""
        queue = self.queue
        if self.left_count:
            while queue and not queue[0].is_waiting:
                queue.popleft()
                self.left_count -= 1
            if self.left_count > max(_TIDY_COUNT, len(queue) // 2):
                self.queue = queue = deque(entry for entry in queue if entry.is_waiting)
                self.left_count = 0
        while self.raises and (not queue or self.raises[0][0] < queue[0].number):
            self.raises.popleft()


class ClassQueues(Generic[T]):
    """The queues of all classes at one place.

    `offer` never refuses: check `is_accepting` before you call it. A class then holds at most its
    high mark and one offer.

    >>> from infobus.protocols.qos.classes import DEFAULT_CLASSES
    >>> queues = ClassQueues(DEFAULT_CLASSES, Marks(high=2, low=0), Upgrade())
    >>> for value, class_ in [("a", "regular"), ("b", "regular"), ("c", "emergency")]:
    ...     queues.offer(value, class_, 0.0)
    >>> [queues.take(0.0).value for _ in range(len(queues))]
    ['c', 'a', 'b']

    Args:
        classes: The global order.
        marks: The watermarks, in weights: of each class, or the same for all.
        upgrade: When a starving class is raised; None: never.

    Raises:
        UsageError: A class has no marks.
    """

    def __init__(
        self,
        classes: Classes,
        marks: Marks | Mapping[str, Marks],
        upgrade: Upgrade | None = None,
    ) -> None:
        self.classes = classes
        self.upgrade = upgrade
        if isinstance(marks, Marks):
            marks = dict.fromkeys(classes.names, marks)
        self._lanes: list[_Lane[T]] = []
        for rank, name in enumerate(classes.names):
            if name not in marks:
                raise UsageError(f"no watermarks for priority class {name!r}")
            self._lanes.append(_Lane(name, rank, marks[name]))
        self._by_name = {lane.name: lane for lane in self._lanes}
        self._raised_rank = classes.raised_rank
        self._raised: list[_Lane[T]] = []  # lanes with raises, some of which may be over
        self._turns_count = 0
        self._count = 0
        self._number = 0
        # A heap of what has an age limit. Entries that were taken in time stay in it for a while.
        self._ageing: list[tuple[float, int, QueueEntry[T]]] = []
        self._ageing_count = 0  # of those that still wait
        self._expired: list[QueueEntry[T]] = []  # left, not yet reported

    def __len__(self) -> int:
        """How many entries wait."""
        return self._count

    def offer(
        self,
        value: T,
        class_: str,
        now_s: float,
        *,
        weight: int = 1,
        expires_s: float = math.inf,
        raised_from: str | None = None,
        raised_until_s: float = 0.0,
    ) -> None:
        """Add `value` to the queue of its class, at the end.

        Args:
            value: The value to be taken later.
            class_: Its class.
            now_s: The time.
            weight: How many events it stands for: at least 1.
            expires_s: When it is too old to be taken.
            raised_from: Its own class, if it was raised to `class_` elsewhere.
            raised_until_s: When that ends; here it lasts no longer than the upgrade's period.

        Raises:
            UsageError: There is no such class; nothing was added.
        """
        lane = self._lane(raised_from or class_)
        self._number += 1
        entry = QueueEntry(value, lane.name, weight, expires_s, self._number)
        lane.queue.append(entry)
        lane.waiting += weight
        self._count += 1
        if lane.accepting and lane.waiting > lane.marks.high:
            lane.accepting = False
            lane.moved_s = now_s
        if expires_s < math.inf:
            self._ageing_count += 1
            heapq.heappush(self._ageing, (expires_s, self._number, entry))
        if raised_from is not None and raised_until_s > now_s:
            self._raise(lane, raised_until_s, now_s)

    def take(self, now_s: float) -> QueueEntry[T] | None:
        """Return the next entry, or None. It is not too old; `expire` reports those that are."""
        if self._ageing and self._ageing[0][0] <= now_s:
            self._let_expire(now_s)
        lane = self._in_turn(now_s) if self._raised else self._highest()
        if lane is None:
            return None
        entry = lane.queue.popleft()
        if lane.is_raised(now_s):
            entry.class_, entry.raised_from = self.classes.names[self._raised_rank], lane.name
            entry.raised_until_s = lane.raises[0][1]
        lane.moved_s = now_s
        self._left(lane, entry)
        return entry

    def take_of(self, class_: str, now_s: float) -> QueueEntry[T] | None:
        """Return the next entry of one class, or None: for who serves each class by itself."""
        if self._ageing and self._ageing[0][0] <= now_s:
            self._let_expire(now_s)
        lane = self._lane(class_)
        if not lane.queue:
            return None
        entry = lane.queue.popleft()
        lane.moved_s = now_s
        self._left(lane, entry)
        return entry

    def put_back(self, value: T, taken: QueueEntry[T], now_s: float) -> None:
        """Let the rest of an entry that was taken wait again, before all others of its class.

        Call this before you take another entry of that class. The rest was already counted as gone:
        it has no weight, does not become too old, and is not dropped.
        """
        lane = self._lane(taken.raised_from or taken.class_)
        lane.queue.appendleft(QueueEntry(value, lane.name, 0, math.inf, taken.number))
        self._count += 1
        until_s = taken.raised_until_s
        if until_s > now_s and not (lane.raises and lane.raises[0][1] >= until_s):
            lane.raises.appendleft((taken.number, until_s))
            if lane not in self._raised:
                self._raised.append(lane)

    def peek_rank(self) -> int | None:
        """Return the rank of the next entry, as of the last `take` or `tick`."""
        highest = self._highest()
        if highest is None:
            return None
        is_lower = self._raised and highest.rank > self._raised_rank
        if is_lower and any(not lane.held for lane in self._raised):
            return self._raised_rank
        return highest.rank

    def expire(self, now_s: float) -> list[QueueEntry[T]]:
        """Remove everything that is too old; return it, and what `take` found too old."""
        self._let_expire(now_s)
        expired, self._expired = self._expired, []
        return expired

    def next_expiry_s(self) -> float:
        """Return when `expire` will have something to report: -inf is now, inf never."""
        if self._expired:
            return -math.inf
        while self._ageing and not self._ageing[0][2].is_waiting:
            heapq.heappop(self._ageing)
        return self._ageing[0][0] if self._ageing else math.inf

    def drop_oldest(self, class_: str) -> QueueEntry[T] | None:
        """Drop the first entry of a class that was never taken; None if there is none."""
        lane = self._lane(class_)
        for at, entry in enumerate(lane.queue):  # only the first may have been put back
            if entry.weight and entry.is_waiting:
                del lane.queue[at]
                self._left(lane, entry)
                return entry
        return None

    def clear(self) -> None:
        """Drop all entries that wait."""
        for lane in self._lanes:
            while lane.queue:
                self._left(lane, lane.queue.popleft())

    def change_marks(self, marks: Marks) -> None:
        """Go by other watermarks from now on, the same for all classes."""
        for lane in self._lanes:
            lane.marks = marks
            lane.accepting = lane.waiting <= (marks.high if lane.accepting else marks.low)

    def waiting(self, class_: str) -> int:
        """The weight of what waits in a class."""
        return self._lane(class_).waiting

    def is_accepting(self, class_: str) -> bool:
        """Return False from above the high mark until the class is down to its low mark."""
        return self._lane(class_).accepting

    def hold(self, class_: str, held: bool) -> None:
        """Take nothing of a class while its receiver does not accept it, or resume."""
        self._lane(class_).held = held

    def tick(self, now_s: float) -> list[Upgraded | FellBack]:
        """Begin and end upgrades; return which classes were raised, and which fell back."""
        effects: list[Upgraded | FellBack] = []
        if self.upgrade is None:
            return effects
        for lane in self._lanes[self._raised_rank + 1 :]:
            if lane.told_raised and not lane.is_raised(now_s):
                lane.told_raised = False
                lane.moved_s = now_s  # one upgrade does not begin where another ends
                effects.append(FellBack(lane.name))
            can_move = not (lane.accepting or lane.held or lane.is_raised(now_s))
            if can_move and now_s - lane.moved_s >= self.upgrade.after_s:
                self._raise(lane, now_s + self.upgrade.period_s, now_s)
            if lane.is_raised(now_s) and not lane.told_raised:
                lane.told_raised = True
                to = self.classes.names[self._raised_rank]
                effects.append(Upgraded(lane.name, to, lane.raises[0][1]))
        self._forget_ended(now_s)
        return effects

    def state(self) -> dict[str, ClassState]:
        """Return the state of each class, highest first, as of the last `take` or `tick`."""
        return {
            lane.name: ClassState(lane.waiting, lane.accepting, lane in self._raised)
            for lane in self._lanes
        }

    def _lane(self, name: str) -> _Lane[T]:
        lane = self._by_name.get(name)
        return lane if lane is not None else self._lanes[self.classes.rank(name)]

    def _highest(self) -> _Lane[T] | None:
        for lane in self._lanes:
            if lane.queue and not lane.held:
                return lane
        return None

    def _in_turn(self, now_s: float) -> _Lane[T] | None:
        """Return the lane to take from while some are raised."""
        self._forget_ended(now_s)
        highest = self._highest()
        lanes = [lane for lane in self._raised if not lane.held]
        if highest is None or not lanes or highest.rank < self._raised_rank:
            return highest
        if highest.rank == self._raised_rank:
            lanes.append(highest)
        lane = min(lanes, key=lambda lane: (lane.turn, lane.rank))
        self._turns_count += 1
        lane.turn = self._turns_count
        return lane

    def _raise(self, lane: _Lane[T], until_s: float, now_s: float) -> None:
        """Raise everything that waits in `lane` now."""
        if self.upgrade is None or lane.rank <= self._raised_rank:
            return
        until_s = min(until_s, now_s + self.upgrade.period_s)
        while lane.raises and lane.raises[-1][1] <= until_s:
            lane.raises.pop()
        lane.raises.append((lane.queue[-1].number, until_s))
        if lane not in self._raised:
            self._raised.append(lane)

    def _forget_ended(self, now_s: float) -> None:
        for lane in list(self._raised):
            if not lane.is_raised(now_s):
                lane.raises.clear()
                self._raised.remove(lane)

    def _left(self, lane: _Lane[T], entry: QueueEntry[T]) -> None:
        """Account for an entry that was the head of its lane."""
        self._count -= 1
        lane.leave(entry)
        if entry.expires_s < math.inf:
            self._ageing_count -= 1
            if len(self._ageing) > 2 * self._ageing_count + _TIDY_COUNT:
                self._ageing = [aged for aged in self._ageing if aged[2].is_waiting]
                heapq.heapify(self._ageing)
        if lane.left_count or lane.raises:
            lane.tidy()
            if not lane.raises and lane in self._raised:
                self._raised.remove(lane)

    def _let_expire(self, now_s: float) -> None:
        ageing = self._ageing
        lanes = set()
        while ageing and ageing[0][0] <= now_s:
            entry = heapq.heappop(ageing)[2]
            if entry.is_waiting:
                lane = self._by_name[entry.class_]
                lane.leave(entry)
                lane.left_count += 1
                self._count -= 1
                self._ageing_count -= 1
                self._expired.append(entry)
                lanes.add(lane)
        for lane in lanes:
            lane.tidy()
            if not lane.raises and lane in self._raised:
                self._raised.remove(lane)
