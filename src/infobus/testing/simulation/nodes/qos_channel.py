"""Event channels of paper 002 in the simulator: queues by class, a link onwards, and a checker.

Whatever a channel does is done by an `ObviousQueues` as well, and the two must agree. A `Relay`
passes on what it takes; the channel at the end of the way is in `qos_consumer`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from infobus.protocols.qos.classes import Classes, Marks, Rate, Upgrade
from infobus.protocols.qos.queues import ClassQueues, FellBack, QueueEntry, Upgraded
from infobus.testing.simulation.accounts.qos_oracle import ObviousQueues, as_told
from infobus.testing.simulation.accounts.reliable import Uneven

RUN_WEIGHT_MAX = 3
"""The most events that are offered at one stroke."""


@dataclass(frozen=True)
class Letter:
    """A run of events of one sender and class, numbered among these."""

    sender: str
    class_: str
    number: int
    weight: int
    sent_s: float
    age_max_s: float

    @property
    def expires_s(self) -> float:
        """When it is too old."""
        return self.sent_s + self.age_max_s


class Queues(Protocol):
    """What waits in a channel."""

    def waiting(self, class_: str) -> int:
        """The weight of what waits in a class."""

    def is_accepting(self, class_: str) -> bool:
        """Whether more of a class may come."""


@dataclass
class Channel(ABC):
    """A stop on the way: takes letters in, and lets them go at its own pace."""

    name: str
    classes: Classes
    marks: dict[str, Marks]
    upgrade: Upgrade | None
    rate: Rate
    delay_s: float
    tick_s: float
    next: Channel | None  # None: the consumer is connected here
    down_until_s: float = 0.0
    link: deque[tuple[float, QueueEntry[Letter]]] = field(
        default_factory=deque
    )  # with time of arrival
    coming: Counter[str] = field(default_factory=Counter)  # class -> weight on links to this one

    def __post_init__(self) -> None:
        self.sent_count = 0
        self.opened_s: float | None = None
        self.start()

    def start(self) -> None:
        """Begin with empty queues, as after a crash."""
        self.queues = self.make_queues()
        self.obvious = ObviousQueues(self.classes, self.marks, self.upgrade)
        self.untold: list[object] = []  # too old when something was taken
        self.account: Counter[str] = Counter()  # weights of what was offered, taken, ...
        self.stuck_since_s: dict[str, float] = {}
        self.strict_s = 0.0  # when a class above all upgrades was taken last

    @abstractmethod
    def make_queues(self) -> Queues:
        """New queues, in which nothing waits."""

    @abstractmethod
    def put(self, letter: Letter, entry: QueueEntry[Letter] | None, now_s: float) -> None:
        """Let a letter wait: from a supplier, or as the entry that a neighbour took."""

    @abstractmethod
    def next_entry(self, now_s: float) -> QueueEntry[Letter] | None:
        """Take what goes next; it must be what the obvious queues say."""

    @abstractmethod
    def drop_next(self, class_: str) -> Letter | None:
        """Let the oldest of a class go; it must be what the obvious queues say."""

    @abstractmethod
    def pass_time(self, now_s: float) -> tuple[list[Letter], list[Upgraded | FellBack]]:
        """What has grown too old, and which classes are raised or fall back."""

    @abstractmethod
    def is_raised(self, class_: str, now_s: float) -> bool:
        """Whether a class is raised."""

    @abstractmethod
    def lose(self) -> list[Letter]:
        """What waits here, and what was not yet told to be too old."""

    def accepts(self, class_: str, now_s: float) -> bool:
        """Whether a neighbour or supplier may send of a class; what is on the way counts."""
        if now_s < self.down_until_s:
            return False
        waiting = self.queues.waiting(class_) + self.coming[class_]
        return self.queues.is_accepting(class_) and waiting <= self.marks[class_].high

    def offer(self, letter: Letter, entry: QueueEntry[Letter] | None, now_s: float) -> None:
        """Take a letter in: from a supplier, or as the entry that a neighbour took."""
        self.put(letter, entry, now_s)
        until_s = entry.raised_until_s if entry else 0.0
        self.obvious.offer(letter, letter.class_, now_s, letter.weight, letter.expires_s, until_s)
        self.account["offered"] += letter.weight
        if entry and entry.raised_from:
            self.stuck_since_s.pop(entry.raised_from, None)  # an upgrade from elsewhere begins

    def take(self, now_s: float) -> QueueEntry[Letter] | None:
        """What goes next, if there is room for it where it goes."""
        if self.rate.allow(now_s, 1, 0) > 0:
            return None
        entry = self.next_entry(now_s)
        if entry is not None:
            self._taken(entry, now_s)
        return entry

    def send(self, entry: QueueEntry[Letter], now_s: float) -> None:
        """Put on the link to the next channel what was taken."""
        assert self.next is not None
        self.next.coming[entry.value.class_] += entry.weight
        self.link.append((now_s + self.delay_s, entry))

    def arrive(self) -> QueueEntry[Letter]:
        """Take from the link what is at its end."""
        assert self.next is not None
        _, entry = self.link.popleft()
        self.next.coming[entry.value.class_] -= entry.weight
        return entry

    def drop_oldest(self, class_: str) -> Letter | None:
        """Let the oldest of a class go."""
        letter = self.drop_next(class_)
        if letter is not None:
            self.account["dropped"] += letter.weight
        return letter

    def tick(self, now_s: float) -> tuple[list[Letter], list[Upgraded | FellBack]]:
        """What has grown too old, and which classes are raised or fall back."""
        expired, effects = self.pass_time(now_s)
        self.untold = []
        self.account["expired"] += sum(letter.weight for letter in expired)
        for effect in effects:
            if isinstance(effect, FellBack):
                self.stuck_since_s.pop(effect.class_, None)
        return expired, effects

    def crash(self) -> list[Letter]:
        """Lose what is here and on the link."""
        lost = [self.arrive().value for _ in range(len(self.link))] + self.lose()
        self.start()
        return lost

    def check(self, now_s: float) -> None:
        """Hold the channel to its promises."""
        if now_s < self.down_until_s:
            return
        weights = {class_: self.queues.waiting(class_) for class_ in self.classes.names}
        account, total = self.account, sum(weights.values())
        left = account["taken"] + account["expired"] + account["dropped"]
        if account["offered"] != left + total:
            raise Uneven(f"{self.name} is not even: {dict(account)}, and {total} wait")
        if any(entry.expires_s <= now_s for entry in self.obvious.waiting):
            raise Uneven(f"{self.name} keeps what is too old")
        for class_, waiting in weights.items():
            marks, is_accepting = self.marks[class_], self.queues.is_accepting(class_)
            if waiting > marks.high + RUN_WEIGHT_MAX:
                raise Uneven(f"{self.name} holds {waiting} of {class_}, its mark is {marks}")
            is_over, is_under = waiting > marks.high, waiting <= marks.low
            if (is_over and is_accepting) or (is_under and not is_accepting):
                what = f"{waiting} wait, {is_accepting=}, its marks are {marks}"
                raise Uneven(f"{self.name}: of {class_} {what}")
            if not (is_accepting or self.obvious.held[class_]):
                self._check_moves(class_, now_s)
            else:
                self.stuck_since_s.pop(class_, None)

    def _check_moves(self, class_: str, now_s: float) -> None:
        """A class that starves is raised, and then moves unless a strict one takes every turn."""
        if self.upgrade is None or self.classes.rank(class_) <= self.classes.raised_rank:
            return
        since_s = self.stuck_since_s.setdefault(class_, now_s)
        stuck_s = now_s - since_s
        is_starving = stuck_s > self.upgrade.after_s + 2 * self.tick_s
        if is_starving and not self.is_raised(class_, now_s):
            raise Uneven(f"{self.name}: {class_} starves for {stuck_s} s and is not raised")
        # A turn comes once everyone else who takes turns had one.
        per_s = self.rate.events_per_s or 1.0
        turn_s = len(self.classes.names) / per_s + 2 * self.tick_s
        is_fair = turn_s < self.upgrade.period_s and self.strict_s < since_s
        if is_fair and stuck_s > self.upgrade.after_s + self.upgrade.period_s + 2 * self.tick_s:
            raise Uneven(f"{self.name}: {class_} has not moved for {stuck_s} s")

    def _taken(self, entry: QueueEntry[Letter], now_s: float) -> None:
        letter = entry.value
        if entry.expires_s <= now_s:
            raise Uneven(f"{self.name} took {letter} too late, at {now_s}")
        self.rate.take(now_s, 1, 0)
        self.account["taken"] += entry.weight
        self.stuck_since_s.pop(letter.class_, None)
        if self.classes.rank(letter.class_) < self.classes.raised_rank:
            self.strict_s = now_s
        self._check_pace(now_s)

    def _check_pace(self, now_s: float) -> None:
        if self.opened_s is None:
            self.opened_s = now_s
        self.sent_count += 1
        allowed = (self.rate.events_per_s or 0) * (now_s - self.opened_s + self.rate.burst_s) + 1
        if self.sent_count > allowed + 1e-6:
            raise Uneven(f"{self.name} sent {self.sent_count}, its rate allows {allowed}")


class Relay(Channel):
    """A channel that passes letters on to the next one, class by class as that accepts them."""

    def make_queues(self) -> Queues:
        """New queues, in which nothing waits."""
        self._queues: ClassQueues[Letter] = ClassQueues(self.classes, self.marks, self.upgrade)
        return self._queues

    def put(self, letter: Letter, entry: QueueEntry[Letter] | None, now_s: float) -> None:
        """Let a letter wait: from a supplier, or as the entry that a neighbour took."""
        self._queues.offer(
            letter,
            entry.class_ if entry else letter.class_,
            now_s,
            weight=letter.weight,
            expires_s=letter.expires_s,
            raised_from=entry.raised_from if entry else None,
            raised_until_s=entry.raised_until_s if entry else 0.0,
        )

    def next_entry(self, now_s: float) -> QueueEntry[Letter] | None:
        """Take what goes next of the classes that the neighbour accepts."""
        for class_ in self.classes.names:
            is_held = self.next is not None and not self.next.accepts(class_, now_s)
            self._queues.hold(class_, is_held)
            self.obvious.held[class_] = is_held
        self.untold += self.obvious.expire(now_s)
        entry = self._queues.take(now_s)
        expected = self.obvious.take(now_s)
        if as_told(entry) != expected:
            raise Uneven(f"{self.name} took {entry}, expected {expected}")
        return entry

    def drop_next(self, class_: str) -> Letter | None:
        """Let the oldest of a class go; it must be what the obvious queues say."""
        entry = self._queues.drop_oldest(class_)
        if (entry and entry.value) != self.obvious.drop_oldest(class_):
            raise Uneven(f"{self.name} dropped {entry}, which is not the oldest of {class_}")
        return entry.value if entry is not None else None

    def pass_time(self, now_s: float) -> tuple[list[Letter], list[Upgraded | FellBack]]:
        """What has grown too old, and which classes are raised or fall back."""
        expired = [entry.value for entry in self._queues.expire(now_s)]
        if expired != self.untold + self.obvious.expire(now_s):
            raise Uneven(f"{self.name} let {expired} expire at {now_s}")
        effects = self._queues.tick(now_s)
        if effects != self.obvious.tick(now_s):
            raise Uneven(f"{self.name}: {effects} is not what an upgrade is")
        if len(self._queues) != len(self.obvious.waiting):
            raise Uneven(f"{self.name} says that {len(self._queues)} wait")
        return expired, effects

    def is_raised(self, class_: str, now_s: float) -> bool:
        """Whether a class is raised."""
        return self._queues.state()[class_].raised

    def lose(self) -> list[Letter]:
        """What waits here, and what was not yet told to be too old."""
        lost = []
        for class_ in self.classes.names:
            while (letter := self.drop_next(class_)) is not None:
                lost.append(letter)
        return lost + [entry.value for entry in self._queues.expire(-math.inf)]
