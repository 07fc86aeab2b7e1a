"""What waits between the bus and one consumer: a bounded queue, plain for as long as it can be.

The bus puts whole runs of events in, under its lock; the consumer takes them out. The plain queue
is first in, first out. Once there is more than one class, an age limit or a rate, everything
waits in a `Classed` instead, and the plain queue only says that there is something.

Nothing here waits or reads a clock: the consumer waits for `mail`, and time comes in as `now_s`, by
a clock that only goes forward, and `wall_s`, by the one that events are dated by. The locks are for
what both sides change, and are held for moments.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty

from infobus.bus.deliver.event import Event, Reading, Run, weight_of
from infobus.bus.deliver.priority_queue import Classed, Demand, Waits
from infobus.objects.codec import Mismatched
from infobus.protocols.frames.lanes import class_in
from infobus.protocols.qos.classes import Marks
from infobus.protocols.reliable.effects import Lost
from infobus.protocols.reliable.peer import Terms
from infobus.waiters import Mailbox


class Look:
    """Stands in the plain queue for whatever waits by class."""


_LOOK = Look()

Entry = Run | Lost | Look | None
"""What is in the plain queue; None is the word of its end."""


def _is_mismatch(event: Event) -> bool:
    return isinstance(event.data, Mismatched)


class Inbox:
    """The queue of a subscription; the bounds are the bus's to look after."""

    def __init__(
        self, terms: Terms, demand: Demand, queue_count_max: int, *, by_class: bool = False
    ) -> None:
        self.demand = demand
        self.default_class = terms.classes.default
        self.queue_count_max = queue_count_max
        self.high_count = (queue_count_max + 1) // 2
        self.low_count = queue_count_max // 4
        self._terms = terms
        # The bus's side, under the bus's lock.
        self.offered = 0  # to the plain queue
        self.holding: set[str] = set()  # classes whose senders are asked to wait
        self.watched: set[str] = set()  # classes that are to tell when they have room again
        self.staged: list[Run] | None = None  # runs that wait for initial state
        self.contained: dict[tuple[str, str], int] = {}  # route -> last event in its state
        # The consumer's side.
        self.taken = 0  # from the plain queue
        # Of runs taken from the queue; the next event is last. The list is never replaced.
        self.ready: list[Event] = []
        self.reading: Reading | None = None  # the rest of the run that they are from
        self.has_mismatches = False  # some event may hold a `Mismatched` instead of its object
        # The first such event of those taken from the queue, and what follows it; next is last.
        self.held_back: list[Event] = []
        # Between the two.
        is_classed = by_class or bool(demand)
        self.classed: Classed | None = self._make_classed() if is_classed else None
        self._class_lock = threading.Lock()  # held while it is changed
        self.is_interrupted = False  # something waits that goes before what is ready
        self.mail: Mailbox[Entry] = Mailbox()  # the plain queue, for which the consumer waits
        self._must_look = False  # there is a `Look` in the queue
        self._is_plain_over = is_classed  # nothing from before there were classes is left there
        # Once there are classes: initial state, which goes before all of them. Even an emergency
        # has followed it.
        self._state: deque[Run] = deque()
        # What the consumer is told of before its next event: what was dropped, and the losses of
        # which the word stood before it.
        self.losses: dict[tuple[str, str] | Lost, Lost] = {}  # by route, or each for itself
        self._drop_lock = threading.Lock()

    # What the bus does, under its lock.

    def not_contained(self, run: Run) -> Run:
        """The part of a run that its sender published after it gave its state."""
        route = (run.sender, run.lane)
        last = self.contained.get(route, 0)
        if not last or not run.seqs[0] or run.initial:
            return run
        if run.seqs[-1] > last:
            del self.contained[route]  # a sender's events are in order
        return run.part(bisect_right(run.seqs, last), None)

    def offer(self, run: Run) -> None:
        """Put a run of events into the queue."""
        items = run.items
        if len(items.bodies) > self.high_count:
            self._put_in_parts(run)
        else:
            self.offered += weight_of(items)
            mail = self.mail  # `put`, written out: every run of events comes this way
            mail.post(run)
            if mail.sleepers or mail.bell is not None:
                mail.wake()

    def _put_in_parts(self, run: Run) -> None:
        # The oldest run is dropped as a whole: a small queue must not lose everything by that.
        for at in range(0, len(run.items), self.high_count):
            part = run.part(at, at + self.high_count)
            self.offered += weight_of(part.items)
            self.mail.put(part)

    def offer_by_class(self, run: Run, now_s: float, wall_s: float) -> set[str]:
        """Put a run of events where its class waits; the classes that got some are returned."""
        if self.classed is None:
            self.classed = self._make_classed()
        if run.initial:
            self.offered += weight_of(run.items)
            self._state.append(run)
            self._wake()
            return {self.default_class}
        with self._class_lock:
            classes = self.classed.offer(run, now_s, wall_s)
        self._look()
        return classes

    def _make_classed(self) -> Classed:
        return Classed(self._terms, self.demand, Marks(self.high_count, self.low_count))

    def _look(self) -> None:
        """Let the consumer look at what waits by class."""
        assert self.classed is not None
        if self.classed.is_urgent():
            self.is_interrupted = True
        self._wake()

    def _wake(self) -> None:
        if not self._must_look:
            self._must_look = True
            self.mail.put(_LOOK)

    def offer_loss(self, lost: Lost, now_s: float) -> None:
        """Put the word of a loss into the queue, behind what came before it."""
        if self.classed is None and not class_in(lost.lane):
            self.mail.put(lost)
            return
        with self._class_lock:
            if self.classed is None:
                self.classed = self._make_classed()
            self.classed.offer_loss(lost, now_s)
        self._look()

    def end(self) -> None:
        """Put the word of the end into the queue."""
        self.mail.put(None)

    @property
    def waiting_count(self) -> int:
        """How many events wait in the queue; large ones count once more for every 2 KiB."""
        waiting_count = self.offered - self.taken
        return waiting_count + (self.classed.waiting_count() if self.classed is not None else 0)

    def waiting_in(self, class_: str) -> int:
        """How many events of a class wait; see `waiting_count`."""
        waiting_count = self.offered - self.taken if class_ == self.default_class else 0
        return waiting_count + (self.classed.waiting_in(class_) if self.classed is not None else 0)

    def left_in(self, class_: str) -> int:
        """The same, with what the consumer has at hand."""
        reading = self.reading
        unread = reading.left_count if reading is not None else 0
        return self.waiting_in(class_) + len(self.ready) + len(self.held_back) + unread

    @property
    def thinned(self) -> int:
        """How many events were left out because of `max_rate`."""
        return self.classed.thinned if self.classed is not None else 0

    def holds_class(self, class_: str) -> bool:
        """Whether the senders of events of a class (empty: the default) are asked to wait."""
        own = self.demand.priority or class_ or self.default_class
        return own in self.holding

    def drop_oldest(self, class_: str) -> int:
        """Let the oldest run of a class go; the consumer is told before its next event.

        Returns how many events went; 0 if none waits.
        """
        overtaken: list[Lost] = []
        for _ in range(self.mail.qsize() if class_ == self.default_class else 0):
            try:
                entry = self.mail.get_nowait()
            except Empty:
                break
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)
                return self._note_dropped(entry, overtaken)
            if isinstance(entry, Lost):
                overtaken.append(entry)
            else:
                self.mail.put(entry)
        run: Run | None = None
        if self.classed is not None:
            with self._class_lock:
                run, words = self.classed.drop_oldest(class_)
            overtaken += words
        return self._note_dropped(run, overtaken)

    def _note_dropped(self, run: Run | None, overtaken: list[Lost]) -> int:
        with self._drop_lock:
            self.losses.update({lost: lost for lost in overtaken})
            if run is not None and (first := run.seqs[0]):  # best effort is not reported
                before = self.losses.get(route := (run.sender, run.lane))
                start = first if before is None else before.first
                self.losses[route] = Lost(run.sender, run.lane, start, run.seqs[-1])
        if overtaken and run is None:
            self._wake()  # nothing else does
        return 0 if run is None else len(run.items)

    def tick(self, now_s: float) -> list[Run]:
        """Time has passed: what has grown too old leaves, and is returned."""
        if self.classed is None:
            return []
        with self._class_lock:
            return self.classed.tick(now_s)

    def forget(self) -> None:
        """Let go what the consumer has at hand, and the word of what was dropped."""
        self.reading = None
        self.ready.clear()
        self.held_back.clear()
        self.losses.clear()

    def clear(self) -> None:
        """Empty the queue, as for a newcomer; the word of its end stays."""
        for entry in (*self._drained(), *self._state):
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)
        self._state.clear()
        if self.classed is not None:
            with self._class_lock:
                self.classed.clear()

    def is_relieved(self) -> bool:
        """Whether a class has room again that is to tell when it has."""
        return any(self.waiting_in(class_) <= self.low_count for class_ in tuple(self.watched))

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        return (
            self.mail.empty()
            and not (self.ready or self.held_back or self.reading or self.losses or self._state)
            and (self.classed is None or self.classed.is_empty())
        )

    def abandon(self) -> None:
        """Begin anew in a forked child, where the parent's threads may hold locks for ever."""
        self._drop_lock, self._class_lock = threading.Lock(), threading.Lock()
        self.mail = Mailbox()
        self.forget()
        self.classed, self._must_look = None, False
        self._state.clear()

    # What the consumer does, under its lock.

    def take_by_class(self, now_s: float, wall_s: float) -> Waits | None:
        """What goes next of what waits by class, or None."""
        if self.classed is None:
            return None
        if not self._is_plain_over:
            self._move_plain(self.classed, now_s, wall_s)
        if self._state:
            state = self._state.popleft()
            self.taken += weight_of(state.items)
            return state
        with self._class_lock:
            return self.classed.take(now_s)

    def take_of(self, class_: str, now_s: float) -> Waits | None:
        """What goes next of one class, or None: for a consumer that serves each by itself."""
        with self._drop_lock:
            for route, lost in self.losses.items():
                if (class_in(lost.lane) or self.default_class) == class_:
                    return self.losses.pop(route)
        assert self.classed is not None
        with self._class_lock:
            return self.classed.take_of(class_, now_s)

    def note_look(self, entry: Entry) -> None:
        """The consumer has taken something else than a run out of `mail`."""
        if entry is _LOOK:
            self._must_look = False

    def read_on(self, reading: Reading) -> None:
        """Make the next few events of a long run ready."""
        events = reading.read()
        events.reverse()
        if not reading.left_count:
            self.reading = None
        self.make_ready(events)

    def make_ready(self, events: list[Event]) -> None:
        """Let the consumer take these events, of which the next is last, after what is ready."""
        if self.has_mismatches:
            at = next((i for i in reversed(range(len(events))) if _is_mismatch(events[i])), -1)
            self.held_back, events = events[: at + 1], events[at + 1 :]
        self.ready[:0] = events

    def next_held_back(self) -> Event | None:
        """The event of `held_back` that has no object, or None after making the next ones ready."""
        if _is_mismatch(self.held_back[-1]):
            return self.held_back.pop()
        self.make_ready(self.held_back)
        return None

    def next_loss(self) -> Lost:
        """The first of `losses`, which is told now."""
        with self._drop_lock:
            return self.losses.pop(next(iter(self.losses)))

    def _move_plain(self, classed: Classed, now_s: float, wall_s: float) -> None:
        """Let what came before there were classes wait with the others of its class."""
        self._is_plain_over = True
        plain: list[Run | Lost] = []
        for entry in self._drained():
            if isinstance(entry, Run) and entry.initial:
                self._state.append(entry)
            elif isinstance(entry, Run):
                self.taken += weight_of(entry.items)
                plain.append(entry)
            elif isinstance(entry, Lost):
                plain.append(entry)
        with self._class_lock:
            classed.put_first(plain, now_s, wall_s)

    def _drained(self) -> Iterator[Entry]:
        """Everything in the plain queue, taken out of it, except for the word of its end."""
        is_ended = False
        with suppress(Empty):
            while True:
                entry = self.mail.get_nowait()
                is_ended |= entry is None
                yield entry
        self._must_look = False
        if is_ended:
            self.mail.put(None)

    def set_aside(self, now_s: float) -> None:
        """Let what is more urgent go before what is ready."""
        self.is_interrupted = False
        assert self.classed is not None
        reading, self.reading = self.reading, None
        later = reading.read(None) if reading is not None else []
        aside: list[Event] = []
        with suppress(IndexError):  # one by one: other threads may be taking some
            while True:
                aside.append(self.ready.pop())
        aside += self.held_back[::-1]
        self.held_back = []
        aside += later
        aside.reverse()
        with self._class_lock:
            self.classed.set_aside(aside, now_s)
