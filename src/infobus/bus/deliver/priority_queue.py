"""A subscription's queue once classes, ages or rates play a part in it.

Most subscriptions never need this: their queue is plain, and whole runs of events go through it.
The first event of another class, or with an age limit, turns a plain queue into this one. Here
the highest class goes first, also past events that the consumer has at hand already, and what has
grown too old leaves wherever it waits.

Time comes in: `now_s` by a clock that only goes forward, `wall_s` by the one that events are dated
by. One thread at a time: locking is the caller's.
"""

from __future__ import annotations

import math

from infobus.bus.deliver.event import Event, Run, weight_of
from infobus.protocols.frames.lanes import class_in
from infobus.protocols.frames.wire import Qos
from infobus.protocols.qos.classes import RESERVED, Marks, Rate
from infobus.protocols.qos.queues import ClassQueues, QueueEntry
from infobus.protocols.reliable.effects import Lost
from infobus.protocols.reliable.peer import Terms

_LOWEST = 1 << 30
_PLAIN = Qos()

Waits = Run | Lost | list[Event]
"""What waits: a run, the word of a loss, or events that were set aside, the next one last."""


class Demand:
    """What a consumer asks for when it subscribes."""

    __slots__ = ("age_part", "max_age", "max_rate", "priority")

    def __init__(
        self,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
        age_part: float = 1.0,
    ) -> None:
        self.priority = priority
        self.max_age = max_age or math.inf
        self.max_rate = max_rate
        self.age_part = age_part  # of their life, events of this bus may wait so much

    def __bool__(self) -> bool:
        return bool(self.priority or self.max_rate) or self.max_age < math.inf


class Classed:
    """The events that wait for one consumer, by class."""

    def __init__(self, terms: Terms, demand: Demand, marks: Marks) -> None:
        self._classes = terms.classes
        self._demand = demand
        self._keeps_reserved = RESERVED in terms.classes.names
        self._rate = Rate(events_per_s=demand.max_rate) if demand.max_rate else None
        self._queues: ClassQueues[Waits] = ClassQueues(terms.classes, marks, terms.upgrade)
        self._run_count_max = marks.high
        # What the consumer has at hand, and its rank. What it took before there were classes is of
        # the default one, and older than anything that is offered.
        self._hand: QueueEntry[Waits] = QueueEntry([], terms.classes.default, 0, math.inf, 0)
        self._rank = terms.classes.rank(terms.classes.default)
        self.thinned = 0  # events left out because of `max_rate`

    def offer(self, run: Run, now_s: float, wall_s: float) -> set[str]:
        """Let a run wait; the classes that it waits in are returned."""
        items = run.items
        ahead_s = now_s - wall_s
        class_ = self._demand.priority or self._known(run.class_, self._classes.default)
        if items.is_plain() and self._demand.max_age == math.inf and self._rate is None:
            self._offer_run(run, class_, now_s, ahead_s)
            return {class_}
        return {
            self._offer_one(run.part(at, at + 1), qos or _PLAIN, class_, now_s, ahead_s)
            for at, qos in zip(range(len(items)), items.each_qos(), strict=False)
            if self._is_in_time(now_s)
        }

    def _offer_run(self, run: Run, class_: str, now_s: float, ahead_s: float) -> None:
        # In parts: the oldest entry is dropped as a whole, which must not be everything.
        step = self._run_count_max
        for at in range(0, len(run.items), step):
            part = run if len(run.items) <= step else run.part(at, at + step)
            self._queues.offer(
                part,
                class_,
                now_s,
                weight=weight_of(part.items),
                raised_from=class_,
                raised_until_s=self._raised_until_s(part, ahead_s),
            )

    def _raised_until_s(self, run: Run, ahead_s: float) -> float:
        """Until when a run stays raised here; a consumer that chose a class decides itself."""
        until = run.items.raised_until()
        return until + ahead_s if until and not self._demand.priority else 0.0

    def put_first(self, entries: list[Run | Lost], now_s: float, wall_s: float) -> None:
        """Let what came before there were classes wait in front of the default one.

        What the consumer had at hand, and was set aside, is older still.
        """
        class_ = self._classes.default
        later = []
        while (entry := self._queues.drop_oldest(class_)) is not None:
            later.append(entry)
        for one in entries:
            if isinstance(one, Run):
                self._offer_run(one, class_, now_s, now_s - wall_s)
            else:
                self._queues.offer(one, class_, now_s)
        for entry in later:
            value = entry.value
            until_s = self._raised_until_s(value, now_s - wall_s) if isinstance(value, Run) else 0.0
            self._queues.offer(
                value,
                class_,
                now_s,
                weight=entry.weight,
                expires_s=entry.expires_s,
                raised_from=class_,
                raised_until_s=until_s,
            )

    def _is_in_time(self, now_s: float) -> bool:
        """Whether the consumer's rate has room for one more."""
        rate = self._rate
        if rate is None:
            return True
        if rate.allow(now_s, 1, 0) > 0:
            self.thinned += 1
            return False
        rate.take(now_s, 1, 0)
        return True

    def _offer_one(self, run: Run, qos: Qos, class_: str, now_s: float, ahead_s: float) -> str:
        age_max = min(qos.max_age or math.inf, self._demand.max_age)
        if not run.items.origins:
            age_max *= self._demand.age_part
        weight = weight_of(run.items)
        # A time from the future, by a clock that is ahead, gives no event a longer life.
        expires_s = min(run.items.times[0] + ahead_s, now_s) + age_max
        own = self._demand.priority or self._known(qos.class_, class_)
        if qos.reserved and self._keeps_reserved:
            own = RESERVED
        self._queues.offer(
            run,
            class_,
            now_s,
            weight=weight,
            expires_s=expires_s,
            raised_from=own,
            raised_until_s=self._raised_until_s(run, ahead_s),
        )
        return own

    def _known(self, class_: str, otherwise: str) -> str:
        """A class that a frame names, which may be any word."""
        return class_ if class_ in self._classes.names else otherwise

    def offer_loss(self, lost: Lost, now_s: float) -> None:
        """Let the word of a loss wait behind the events that came before it."""
        default = self._classes.default
        class_ = self._demand.priority or self._known(class_in(lost.lane), default)
        self._queues.offer(lost, class_, now_s)

    def is_urgent(self) -> bool:
        """Whether something waits that is to go before what the consumer has at hand."""
        rank = self._queues.peek_rank()
        return rank is not None and rank < self._rank

    def set_aside(self, events: list[Event], now_s: float) -> None:
        """Keep events that the consumer had at hand, the next one last, for later.

        They wait in their own class again: whatever becomes of it, they are its first.
        """
        if events:
            self._queues.put_back(events, self._hand, now_s)

    def take(self, now_s: float) -> Waits | None:
        """What goes next, or None."""
        entry = self._queues.take(now_s)
        if entry is None:
            self._rank = _LOWEST
            return None
        self._hand, self._rank = entry, self._classes.rank(entry.class_)
        return entry.value

    def take_of(self, class_: str, now_s: float) -> Waits | None:
        """What goes next of one class, or None."""
        entry = self._queues.take_of(class_, now_s)
        return None if entry is None else entry.value

    def drop_oldest(self, class_: str) -> tuple[Run | None, list[Lost]]:
        """Let the oldest run of a class go; also returns the words of losses that were before it.

        What was set aside stays: it is not dropped.
        """
        lost: list[Lost] = []
        dropped: Run | None = None
        while dropped is None and (entry := self._queues.drop_oldest(class_)) is not None:
            if isinstance(entry.value, Run):
                dropped = entry.value
            elif isinstance(entry.value, Lost):
                lost.append(entry.value)
        return dropped, lost

    def tick(self, now_s: float) -> list[Run]:
        """Time has passed: begin and end upgrades; what has grown too old leaves, and is told."""
        self._queues.tick(now_s)
        entries = self._queues.expire(now_s)
        return [entry.value for entry in entries if isinstance(entry.value, Run)]

    def waiting_in(self, class_: str) -> int:
        """How much waits in a class."""
        return self._queues.waiting(class_)

    def waiting_count(self) -> int:
        """How much waits in all classes."""
        return sum(self._queues.waiting(name) for name in self._classes.names)

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        return not len(self._queues)

    def clear(self) -> None:
        """Let everything go."""
        self._queues.clear()
