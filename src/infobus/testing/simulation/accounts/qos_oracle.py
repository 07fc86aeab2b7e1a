"""What `ClassQueues` must do, written down as slowly and plainly as possible.

Everything that waits is in one list. Nothing is remembered that can be looked up in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from infobus.protocols.qos.classes import Classes, Marks, Upgrade
from infobus.protocols.qos.queues import FellBack, QueueEntry, Upgraded

T = TypeVar("T")


@dataclass
class Waiting:
    """One entry that waits."""

    number: int
    value: object
    class_: str
    weight: int
    expires_s: float


@dataclass
class ObviousQueues:
    """The same promises as `ClassQueues`, without its haste."""

    classes: Classes
    marks: dict[str, Marks]
    upgrade: Upgrade | None

    def __post_init__(self) -> None:
        names = self.classes.names
        self.waiting: list[Waiting] = []
        self.raises: list[tuple[str, int, float]] = []  # class, up to this number, until
        self.accepting = dict.fromkeys(names, True)
        self.held = dict.fromkeys(names, False)
        self.moved_s = dict.fromkeys(names, 0.0)
        self.turns: dict[str, int] = {}  # when each class was served last, while some took turns
        self.turns_count = 0
        self.told_raised: set[str] = set()
        self.offered_count = 0
        self.taken: dict[str, tuple[Waiting, float]] = {}  # last of each class, raised until

    def offer(
        self,
        value: object,
        class_: str,
        now_s: float,
        weight: int,
        expires_s: float,
        raised_until_s: float = 0.0,
    ) -> None:
        """Let `value` wait in its own class, raised until then."""
        self.offered_count += 1
        self.waiting.append(Waiting(self.offered_count, value, class_, weight, expires_s))
        if self.accepting[class_] and self.weight(class_) > self.marks[class_].high:
            self.accepting[class_] = False
            self.moved_s[class_] = now_s
        if raised_until_s > now_s:
            self._raise(class_, raised_until_s, now_s)

    def take(self, now_s: float) -> tuple[object, str | None, float] | None:
        """The value that goes next, the class it was raised from, and until when."""
        self.expire(now_s)
        class_ = self._next_class(now_s)
        if class_ is None:
            return None
        taken = self.of(class_)[0]
        until_s = self.raised_until_s(taken, now_s)
        self._remove(taken)
        self.taken[class_] = (taken, until_s)
        self.moved_s[class_] = now_s
        return taken.value, class_ if until_s else None, until_s

    def put_back(self, class_: str, now_s: float) -> None:
        """Let what was taken last of a class wait before the rest of it again."""
        taken, until_s = self.taken.pop(class_)
        taken.weight, taken.expires_s = 0, math.inf
        self.waiting.insert(0, taken)
        if until_s > now_s:
            self.raises.append((class_, taken.number, until_s))

    def expire(self, now_s: float) -> list[object]:
        """The values that are too old, oldest limit first."""
        if self.raises:
            self.raises = [raised for raised in self.raises if raised[2] > now_s]
        expired = [entry for entry in self.waiting if entry.expires_s <= now_s]
        if not expired:
            return []
        for entry in expired:
            self._remove(entry)
        return [e.value for e in sorted(expired, key=lambda e: (e.expires_s, e.number))]

    def drop_oldest(self, class_: str) -> object | None:
        """The value that has waited longest in a class, of those that were never taken."""
        offered = [entry for entry in self.of(class_) if entry.weight]
        if not offered:
            return None
        self._remove(offered[0])
        return offered[0].value

    def clear(self) -> None:
        """Nothing waits any more."""
        for entry in list(self.waiting):
            self._remove(entry)

    def tick(self, now_s: float) -> list[Upgraded | FellBack]:
        """Begin and end upgrades."""
        effects: list[Upgraded | FellBack] = []
        if self.upgrade is None:
            return effects
        for class_ in self.classes.names[self.classes.raised_rank + 1 :]:
            if class_ in self.told_raised and not self.is_raised(class_, now_s):
                self.told_raised.remove(class_)
                self.moved_s[class_] = now_s
                effects.append(FellBack(class_))
            can_move = not self.accepting[class_] and not self.held[class_]
            is_starved = now_s - self.moved_s[class_] >= self.upgrade.after_s
            if can_move and is_starved and not self.is_raised(class_, now_s):
                self._raise(class_, now_s + self.upgrade.period_s, now_s)
            if self.is_raised(class_, now_s) and class_ not in self.told_raised:
                self.told_raised.add(class_)
                until_s = self.raised_until_s(self.of(class_)[0], now_s)
                to = self.classes.names[self.classes.raised_rank]
                effects.append(Upgraded(class_, to, until_s))
        return effects

    def rank(self, now_s: float) -> int | None:
        """The rank under which the next entry goes."""
        class_ = self._next_class(now_s, is_asked_only=True)
        if class_ is None:
            return None
        rank = self.classes.rank(class_)
        return self.classes.raised_rank if self.is_raised(class_, now_s) else rank

    def of(self, class_: str) -> list[Waiting]:
        """What waits in a class, in order."""
        return [entry for entry in self.waiting if entry.class_ == class_]

    def weight(self, class_: str) -> int:
        """The weight of it."""
        return sum(entry.weight for entry in self.of(class_))

    def is_raised(self, class_: str, now_s: float) -> bool:
        """Whether what is first in a class is raised."""
        return bool(self.of(class_)) and self.raised_until_s(self.of(class_)[0], now_s) > 0

    def raised_until_s(self, entry: Waiting, now_s: float) -> float:
        """Until when an entry is raised; 0 if it is not."""
        return max(
            (
                until_s
                for class_, number, until_s in self.raises
                if class_ == entry.class_ and number >= entry.number and until_s > now_s
            ),
            default=0.0,
        )

    def _next_class(self, now_s: float, is_asked_only: bool = False) -> str | None:
        names = [c for c in self.classes.names if not self.held[c] and self.of(c)]
        raised = [c for c in names if self.is_raised(c, now_s)]
        if not raised or self.classes.rank(names[0]) < self.classes.raised_rank:
            return names[0] if names else None
        level = self.classes.names[self.classes.raised_rank]
        in_turn = [c for c in names if c == level or c in raised]
        # Whoever was served longest ago; of those that never were, the highest.
        class_ = min(in_turn, key=lambda c: self.turns.get(c, 0))
        if not is_asked_only:
            self.turns_count += 1
            self.turns[class_] = self.turns_count
        return class_

    def _raise(self, class_: str, until_s: float, now_s: float) -> None:
        is_lower = self.classes.rank(class_) > self.classes.raised_rank
        if self.upgrade is not None and is_lower:
            until_s = min(until_s, now_s + self.upgrade.period_s)
            self.raises.append((class_, self.of(class_)[-1].number, until_s))

    def _remove(self, entry: Waiting) -> None:
        self.waiting.remove(entry)
        self.raises = [
            (class_, number, until_s)
            for class_, number, until_s in self.raises
            if any(other.number <= number for other in self.of(class_))
        ]
        if self.weight(entry.class_) <= self.marks[entry.class_].low:
            self.accepting[entry.class_] = True


def as_told(entry: QueueEntry[T] | None) -> tuple[object, str | None, float] | None:
    """An entry of `ClassQueues` in the words of `ObviousQueues.take`."""
    return None if entry is None else (entry.value, entry.raised_from, entry.raised_until_s)
