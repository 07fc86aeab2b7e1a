"""The last channel on the way: the shipped queue of a subscription, as dispatch fills it.

It is held to the same promises as the channels before it, and so are the shipped holds of a full
queue, by which it says whether it accepts a class. A consumer does not see whether an event was
raised, so of upgrades only the order is compared that they lead to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import Empty

import msgspec

from infobus.bus.clock import Clock
from infobus.bus.deliver.event import Run
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.runtime.runtime import Runtime
from infobus.engines.memory.engine import MemoryEngine, Network
from infobus.errors import LossError
from infobus.patience import DEFAULT_PATIENCE
from infobus.protocols.frames.items import Item, Items, Qos
from infobus.protocols.frames.lanes import lane_class, lane_of
from infobus.protocols.qos.classes import Marks
from infobus.protocols.qos.queues import FellBack, QueueEntry, Upgraded
from infobus.protocols.reliable.peer import Terms
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.qos_channel import (
    RUN_WEIGHT_MAX,
    Channel,
    Letter,
    Queues,
)
from infobus.testing.simulation.world import VirtualThreads

_SUBJECT = "c.s"
_CHANNEL = "c"
# An event weighs one more for every 2 KiB.
_BODIES = [msgspec.msgpack.encode({"x": b"." * 2048 * n}) for n in range(RUN_WEIGHT_MAX)]
_AGES = Demand(max_age=1e9)  # longer than any run: all events wait by class from the beginning


class ConsumerQueue:
    """A subscription on a runtime of its own, which hears of no other node."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        queue_count_max: int,
        now_s: Callable[[], float],
        expired: Callable[[Run], None],
    ) -> None:
        network = Network(0)
        engine = MemoryEngine(network)
        clock, threads = Clock(now_s, now_s), VirtualThreads(network, name, _fail)
        self._runtime = runtime = Runtime(name, terms, engine, clock, threads, DEFAULT_PATIENCE)
        runtime.expiry.note = expired  # type: ignore[method-assign, assignment]
        engine.open(name)
        self._subscription = Subscription(
            runtime,
            [_SUBJECT],
            terms=terms,
            where=None,
            test=False,
            demand=_AGES,
            callback=None,
            on_error=None,
            on_loss="raise",
            when_full="block",
            queue_count_max=queue_count_max,
            clock=clock,
        )
        runtime.subscribe(self._subscription, timeout_s=0.0)

    def dispatch(self, sender: str, lane: str, item: Item) -> None:
        """Take an event in, as if it had come from another node."""
        runtime = self._runtime
        with runtime.lock:
            runtime.delivery.dispatch(sender, lane, item.number, Items.of([item]))
            assert not runtime.delivery.late, "there is nobody to tell"

    def receive(self) -> tuple[str, str, int]:
        """Take the next event: its sender, class and number. Raises as `take_nowait` does."""
        event = self._subscription.take_nowait()
        assert event is not None, "it was not closed"
        return event.sender, event.priority, event.number

    def drop_oldest(self, class_: str) -> int:
        """Let the oldest event of a class go."""
        with self._runtime.lock:
            return self._subscription.queue.drop_oldest(class_)

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        with self._runtime.lock:
            self._runtime.tick_reliable(now_s)

    def is_accepting(self, class_: str) -> bool:
        """Whether the senders of a class need not wait."""
        return not self._subscription.holds_class(class_)

    def waiting(self, class_: str) -> int:
        """The weight of what waits in a class."""
        return self._subscription.waiting_in(class_)


def _fail(error: Exception) -> None:
    raise error


class ConsumerChannel(Channel):
    """The channel that the consumer is connected to, which takes events at its own pace."""

    def make_queues(self) -> Queues:
        """A new subscription; all its classes have the same marks, whose low one is given."""
        high = self.marks[self.classes.names[0]].high
        self.marks = dict.fromkeys(self.classes.names, Marks(high, high // 2))
        self._clock_s = 0.0
        self._letters: dict[tuple[str, str, int], Letter] = {}  # that were put in
        self._dropped: dict[tuple[str, str], int] = {}  # last of a sender and class, to be told
        self._expired: list[Letter] = []
        self._queue = ConsumerQueue(
            self.name,
            Terms(classes=self.classes, upgrade=self.upgrade),
            2 * high,
            lambda: self._clock_s,
            self._note_expired,
        )
        return self._queue

    def put(self, letter: Letter, entry: QueueEntry[Letter] | None, now_s: float) -> None:
        """Let a letter wait, as one event of its weight."""
        self._clock_s = now_s
        self._letters[letter.sender, letter.class_, letter.number] = letter
        max_age = letter.age_max_s if letter.age_max_s < math.inf else 0.0
        until_s = entry.raised_until_s if entry else 0.0
        qos = Qos(max_age, raised_until=until_s) if max_age or until_s else None
        body = _BODIES[letter.weight - 1]
        item = Item(_SUBJECT, letter.number, letter.sent_s, 0, body, qos=qos)
        lane = lane_of(_CHANNEL, lane_class(self.classes, letter.class_))
        self._queue.dispatch(letter.sender, lane, item)

    def next_entry(self, now_s: float) -> QueueEntry[Letter] | None:
        """Let the consumer take what goes next."""
        self._clock_s = now_s
        self.untold += self.obvious.expire(now_s)
        letter = self._received()
        expected = self.obvious.take(now_s)
        if letter != (expected and expected[0]):
            raise Uneven(f"{self.name}: the consumer got {letter}, expected {expected}")
        if letter is None or expected is None:
            return None
        _, raised_from, until_s = expected
        place = (letter, letter.class_, letter.weight, letter.expires_s, letter.number)
        return QueueEntry(*place, raised_from, until_s)

    def drop_next(self, class_: str) -> Letter | None:
        """Let the oldest of a class go; the consumer must be told."""
        count, letter = self._queue.drop_oldest(class_), self.obvious.drop_oldest(class_)
        if count != (letter is not None):
            raise Uneven(f"{self.name} dropped {count} of {class_}, expected {letter}")
        if not isinstance(letter, Letter):
            return None
        self._dropped[letter.sender, letter.class_] = letter.number
        return letter

    def pass_time(self, now_s: float) -> tuple[list[Letter], list[Upgraded | FellBack]]:
        """What has grown too old, and which classes must be raised or fall back."""
        self._clock_s = now_s
        effects = self.obvious.tick(now_s)
        self._queue.tick(now_s)
        expired, self._expired = self._expired, []
        if expired != self.untold + self.obvious.expire(now_s):
            raise Uneven(f"{self.name} let {expired} expire at {now_s}")
        return expired, effects

    def is_raised(self, class_: str, now_s: float) -> bool:
        """Whether a class must be raised."""
        return self.obvious.is_raised(class_, now_s)

    def lose(self) -> list[Letter]:
        """What waits here, and what was not yet told to be too old."""
        here = [entry.value for entry in self.obvious.waiting] + self.untold
        return [letter for letter in here if isinstance(letter, Letter)]

    def _received(self) -> Letter | None:
        """What the consumer gets; of what was dropped it is told first."""
        letter: Letter | None = None
        while letter is None:
            try:
                letter = self._letters.pop(self._queue.receive())
            except Empty:
                break
            except LossError as loss:
                if self._dropped.pop((loss.sender, loss.priority), None) != loss.last:
                    raise Uneven(f"{self.name} told its consumer: {loss}") from loss
        if self._dropped:
            raise Uneven(f"{self.name} has not told its consumer of {self._dropped}")
        return letter

    def _note_expired(self, run: Run) -> None:
        for item in run.items:
            class_ = run.class_ or self.classes.default
            self._expired.append(self._letters.pop((run.sender, class_, item.number)))
