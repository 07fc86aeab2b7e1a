"""What waits between the bus and one consumer: a bounded queue, plain for as long as it can be.

The bus puts whole runs of events in, under its lock; the consumer takes them out. The plain queue
is first in, first out. Once there is more than one class, an age limit or a rate, everything
waits in a `Classed` instead, and the plain queue only says that there is something.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty

from infobus.bus.deliver.event import Event, Reading, Run, weight_of
from infobus.bus.deliver.priority_queue import Classed, Demand
from infobus.protocols.effects import Lost
from infobus.protocols.frames.lanes import class_in
from infobus.protocols.qos.classes import Marks
from infobus.protocols.reliable.peer import Terms
from infobus.waiters import Mailbox


class Look:
    """Stands in the plain queue for whatever waits by class."""


_LOOK = Look()


class Inbox:
    """The queue of a subscription; the bounds are the bus's to look after."""

    def __init__(self, terms: Terms, demand: Demand, queue_count_max: int) -> None:
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
        self._ready: list[Event] = []
        self._reading: Reading | None = None  # the rest of the run that they are from
        # Between the two.
        self.classed: Classed | None = self._make_classed() if demand else None
        self._class_lock = threading.Lock()  # held by whoever changes it
        self.is_interrupted = False  # something waits that goes before what is ready
        self._queue: Mailbox[Run | Lost | Look | None] = Mailbox()
        self._must_look = False  # there is a `Look` in the queue
        self._is_plain_over = bool(demand)  # nothing from before there were classes is left there
        self._dropped: dict[tuple[str, str], tuple[int, int]] = {}  # route -> first, last
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
            self._queue.put(run)

    def _put_in_parts(self, run: Run) -> None:
        # The oldest run is dropped as a whole: a small queue must not lose everything by that.
        for at in range(0, len(run.items), self.high_count):
            part = run.part(at, at + self.high_count)
            self.offered += weight_of(part.items)
            self._queue.put(part)

    def offer_by_class(self, run: Run) -> set[str]:
        """Put a run of events where its class waits; the classes that got some are returned."""
        if self.classed is None:
            self.classed = self._make_classed()
        with self._class_lock:
            classes = self.classed.offer(run, time.monotonic(), time.time())
        self._look()
        return classes

    def _make_classed(self) -> Classed:
        return Classed(self._terms, self.demand, Marks(self.high_count, self.low_count))

    def _look(self) -> None:
        """Let the consumer look at what waits by class."""
        assert self.classed is not None
        if self.classed.is_urgent():
            self.is_interrupted = True
        if not self._must_look:
            self._must_look = True
            self._queue.put(_LOOK)

    def wake_with(self, entry: Lost | None) -> None:
        """Put a loss, or None for the end, into the queue."""
        if entry is not None and (self.classed is not None or class_in(entry.lane)):
            with self._class_lock:
                if self.classed is None:
                    self.classed = self._make_classed()
                self.classed.offer_loss(entry, time.monotonic())
            self._look()
            return
        self._queue.put(entry)

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
        reading = self._reading
        unread = reading.left_count if reading is not None else 0
        return self.waiting_in(class_) + len(self._ready) + unread

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
        for _ in range(self._queue.qsize() if class_ == self.default_class else 0):
            try:
                entry = self._queue.get_nowait()
            except Empty:
                break
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)
                return self._note_dropped(entry)
            self._queue.put(entry)
        if self.classed is None:
            return 0
        with self._class_lock:
            dropped = self.classed.drop_oldest(class_, time.monotonic())
        return 0 if dropped is None else self._note_dropped(dropped)

    def _note_dropped(self, run: Run) -> int:
        first, route = run.seqs[0], (run.sender, run.lane)
        if first:  # best effort is not reported
            with self._drop_lock:
                start, _last = self._dropped.get(route, (first, first))
                self._dropped[route] = (start, run.seqs[-1])
        return len(run.items)

    def tick(self, now_s: float) -> list[Run]:
        """Time has passed: what has grown too old leaves, and is returned."""
        if self.classed is None:
            return []
        with self._class_lock:
            return self.classed.tick(now_s)

    def clear(self) -> None:
        """Empty the queue, as for a newcomer; the word of its end stays."""
        for entry in self._drained():
            if isinstance(entry, Run):
                self.offered -= weight_of(entry.items)
        if self.classed is not None:
            with self._class_lock:
                self.classed.clear()

    def is_empty(self) -> bool:
        """Whether there is nothing to take now."""
        return (
            self._queue.empty()
            and not (self._ready or self._reading or self._dropped)
            and (self.classed is None or self.classed.is_empty())
        )

    def abandon_locks(self) -> None:
        """Begin anew in a forked child, where the parent's threads may hold locks for ever."""
        self._drop_lock, self._class_lock = threading.Lock(), threading.Lock()
        self._queue = Mailbox()
        self._forget_ready()
        self._dropped, self.classed, self._must_look = {}, None, False

    # What the consumer does, under its lock.

    def _next_entry(self, deadline_s: float | None) -> Run | Lost | list[Event] | Look | None:
        """What goes next: a run, a loss, events that were set aside, or None for the end.

        A `Look` says to ask again. Raises `queue.Empty` if nothing came in time.
        """
        if self.classed is not None:
            if not self._is_plain_over:
                self._move_plain(self.classed)
            with self._class_lock:
                entry = self.classed.take(time.monotonic())
            if entry is not None:
                return entry
        # Written out, because every run of events comes this way.
        if deadline_s is None:
            taken = self._queue.get()
        elif (left_s := deadline_s - time.monotonic()) > 0:
            taken = self._queue.get(timeout=left_s)
        else:
            taken = self._queue.get_nowait()
        if isinstance(taken, Run):
            self.taken += weight_of(taken.items)
        elif taken is _LOOK:
            self._must_look = False
        return taken

    def _move_plain(self, classed: Classed) -> None:
        """Let what came before there were classes wait with the others of its class."""
        self._is_plain_over = True
        plain: list[Run | Lost] = []
        for entry in self._drained():
            if isinstance(entry, Run):
                self.taken += weight_of(entry.items)
                plain.append(entry)
            elif isinstance(entry, Lost):
                plain.append(entry)
        with self._class_lock:
            classed.put_first(plain, time.monotonic(), time.time())

    def _drained(self) -> Iterator[Run | Lost | Look | None]:
        """Everything in the plain queue, taken out of it, except for the word of its end."""
        is_ended = False
        with suppress(Empty):
            while True:
                entry = self._queue.get_nowait()
                is_ended |= entry is None
                yield entry
        self._must_look = False
        if is_ended:
            self._queue.put(None)

    def _set_aside(self) -> None:
        """Let what is more urgent go before what is ready."""
        self.is_interrupted = False
        assert self.classed is not None
        reading, self._reading = self._reading, None
        later = reading.read(None) if reading is not None else []
        aside: list[Event] = []
        with suppress(IndexError):  # one by one: other threads may be taking some
            while True:
                aside.append(self._ready.pop())
        aside += later
        aside.reverse()
        with self._class_lock:
            self.classed.set_aside(aside, time.monotonic())

    def _forget_ready(self) -> None:
        self._reading = None
        self._ready.clear()
