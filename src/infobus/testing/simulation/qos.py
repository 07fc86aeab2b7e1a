"""Whole runs of event channels under overload, each drawn from one seed.

`simulate(seed)` lets suppliers of all classes send more than the consumer can take, through a few
channels of paper 002 that are joined by slow links. A channel holds a class towards a neighbour
that does not accept it, events grow too old on the way, starving classes are raised and travel on
raised, and channels crash and lose what they hold. After every step each `Channel` is held to its
promises: strict priority except under a stated upgrade, bounded queues, nothing that is too old,
and no class that starves for ever. Then the suppliers stop, and everything must be at the consumer,
or be accounted for as expired, dropped or lost with a channel: once, in order per sender and class.
The consumer's channel is a shipped subscription; the others are made of the shipped queues.

A seed that fails is replayed by `python -m infobus.testing.simulation.qos SEED`.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from infobus.protocols.qos.classes import Classes, Marks, Rate, Upgrade
from infobus.protocols.qos.queues import Upgraded
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.qos_channel import RUN_WEIGHT_MAX, Channel, Letter, Relay
from infobus.testing.simulation.nodes.qos_consumer import ConsumerChannel
from infobus.testing.simulation.reliable import replayable

SETTLE_S = 60.0
"""Virtual time within which channels run empty once nothing new comes."""

_STEP_S = 0.05
_ORDERS = [("emergency", "business", "regular")] * 4 + [("high", "low"), ("only",), tuple("abcde")]


@dataclass(frozen=True)
class QosOutcome:
    """What happened in a run that kept all promises; counts are of runs of events."""

    seed: int
    delivered_count: int
    expired_count: int
    dropped_count: int
    lost_count: int
    raised_count: int  # taken while raised
    carried_count: int  # still raised when they came to the next channel
    upgrades_count: int
    refused_count: int  # suppliers that had to hold what they had
    crashes_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> QosOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = _Run(seed)
    with replayable("infobus.testing.simulation.qos", seed, run):
        run.do_harm()
        settled_after_s = run.settle()
    counts = run.counts
    return QosOutcome(
        seed,
        counts["delivered"],
        counts["expired"],
        counts["dropped"],
        counts["lost"],
        counts["raised"],
        counts["carried"],
        counts["upgrades"],
        counts["refused"],
        counts["crashes"],
        settled_after_s,
        tuple(run.trace),
    )


@dataclass
class _Supplier:
    name: str
    class_: str
    channel: Channel
    per_step: float
    age_max_s: float
    numbers_count: int = 0


class _Run:
    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.now_s = 0.0
        self.counts: Counter[str] = Counter()
        self.trace: list[tuple[object, ...]] = []
        self.unsettled: set[Letter] = set()
        self.last_numbers: dict[tuple[str, str], int] = {}
        self.classes = Classes(draw.choice(_ORDERS))
        self.is_rough = draw.random() < 0.6
        self.is_dropping = draw.random() < 0.2
        # Where no class is above all upgrades, every class keeps moving.
        is_calm = draw.random() < 0.4
        upgrade = Upgrade(draw.choice([0.2, 0.5]), draw.choice([0.3, 0.6]))
        self.channels: list[Channel] = []
        for index in range(draw.randint(1, 4)):  # the first is the consumer's
            to = draw.choice(self.channels) if self.channels else None
            self.channels.append(
                (Relay if to else ConsumerChannel)(
                    f"channel{index}",
                    self.classes,
                    {name: self._marks() for name in self.classes.names},
                    upgrade if draw.random() < 0.9 else None,
                    Rate(events_per_s=draw.choice([4.0, 10.0, 20.0, 30.0])),
                    draw.choice([0.0, 0.05, 0.2]),
                    _STEP_S,
                    to,
                )
            )
        used = self.classes.names[self.classes.raised_rank if is_calm else 0 :]
        self.suppliers = [
            _Supplier(
                f"supplier{index}",
                draw.choice(used),
                draw.choice(self.channels),
                draw.choice([0.1, 0.5, 1.5]),
                draw.choice([math.inf, math.inf, 0.5, 3.0]),
            )
            for index in range(draw.randint(2, 6))
        ]

    def do_harm(self) -> None:
        for _ in range(self.random.randint(30, 90)):
            for supplier in self.suppliers:
                while self.random.random() < supplier.per_step / (1 + supplier.per_step):
                    self._supply(supplier)
            if self.is_rough and self.random.random() < 0.02:
                self._crash(self.random.choice(self.channels))
            if self.is_dropping and self.random.random() < 0.1:
                self._drop(self.random.choice(self.channels))
            self._step()

    def settle(self) -> float:
        stopped_s = self.now_s
        while self.unsettled:
            if self.now_s - stopped_s > SETTLE_S:
                raise Uneven(f"{self.unsettled} are nowhere {SETTLE_S} s after the last was sent")
            self._step()
        return self.now_s - stopped_s

    def _marks(self) -> Marks:
        high = self.random.choice([2, 5, 10])
        return Marks(high, self.random.randint(0, high))

    def _step(self) -> None:
        self.now_s += _STEP_S
        for channel in self.channels:
            self._carry(channel)
            while (entry := channel.take(self.now_s)) is not None:
                self.trace.append((self.now_s, channel.name, entry.value, entry.raised_from))
                self.counts["raised"] += entry.raised_from is not None
                if channel.next is None:
                    self._deliver(entry.value)
                else:
                    channel.send(entry, self.now_s)
        for channel in self.channels:
            expired, effects = channel.tick(self.now_s)
            for letter in expired:
                self._end(letter, "expired")
            self.counts["upgrades"] += sum(isinstance(effect, Upgraded) for effect in effects)
            channel.check(self.now_s)

    def _carry(self, channel: Channel) -> None:
        """Let arrive what has reached the end of the channel's link."""
        while channel.next is not None and channel.link and channel.link[0][0] <= self.now_s:
            entry = channel.arrive()
            if self.now_s < channel.next.down_until_s:
                self._end(entry.value, "lost")
            else:
                self.counts["carried"] += entry.raised_until_s > self.now_s
                channel.next.offer(entry.value, entry, self.now_s)

    def _supply(self, supplier: _Supplier) -> None:
        if not supplier.channel.accepts(supplier.class_, self.now_s):
            self.counts["refused"] += 1
            return
        supplier.numbers_count += 1
        letter = Letter(
            supplier.name,
            supplier.class_,
            supplier.numbers_count,
            self.random.randint(1, RUN_WEIGHT_MAX),
            self.now_s,
            self.random.uniform(0.0, 1.0) * supplier.age_max_s,
        )
        self.unsettled.add(letter)
        supplier.channel.offer(letter, None, self.now_s)

    def _crash(self, channel: Channel) -> None:
        self.counts["crashes"] += 1
        for letter in channel.crash():
            self._end(letter, "lost")
        channel.down_until_s = self.now_s + self.random.choice([0.0, 0.5, 2.0])

    def _drop(self, channel: Channel) -> None:
        letter = channel.drop_oldest(self.random.choice(self.classes.names))
        if letter is not None:
            self._end(letter, "dropped")

    def _deliver(self, letter: Letter) -> None:
        stream = letter.sender, letter.class_
        if letter.number <= self.last_numbers.get(stream, 0):
            raise Uneven(f"{letter} comes after number {self.last_numbers[stream]}")
        self.last_numbers[stream] = letter.number
        if letter.expires_s <= self.now_s:
            raise Uneven(f"{letter} is delivered at {self.now_s}")
        self._end(letter, "delivered")

    def _end(self, letter: Letter, how: str) -> None:
        """Note what has become of a letter: one thing, once."""
        if letter not in self.unsettled:
            raise Uneven(f"{letter} is {how}, and had come to an end before")
        self.unsettled.remove(letter)
        self.counts[how] += 1


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
