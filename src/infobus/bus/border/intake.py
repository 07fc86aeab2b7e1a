"""Takes events in from the bus of a border: a queue for each class, and a thread to empty it.

To the bus, this is a subscription whose rows change. Runs of events wait by class as they came,
with their objects still encoded. Each class has its own worker, so a class that is held up does not
hold up another: its queue fills, and the border's `when_full` decides what happens to its senders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from queue import Empty

from msgspec.structs import replace

from infobus.bus.border.rows import BorderRows
from infobus.bus.deliver.event import Run
from infobus.bus.deliver.priority_queue import Demand, Waits
from infobus.bus.deliver.queue import Inbox
from infobus.bus.deliver.subscription import Subscription, WhenFull
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.threads import Worker
from infobus.errors import BusClosed, BusError
from infobus.protocols.interest.own_rows import Row
from infobus.protocols.qos.classes import RESERVED, Classes
from infobus.protocols.reliable.effects import Lost

log = logging.getLogger("infobus")

_AGE_PART = 0.9
"""Of its life, what an event may wait for its way out; the rest is for the way.

Under lasting overload the oldest that may go still goes first. Without a rest, each of them would
be carried far, and be too old when it arrives.
"""


class Intake(Subscription):
    """The subscription of a border. Its events go to `take`, the losses among them to `on_loss`."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        take: Callable[[Run], None],
        on_loss: Callable[[Lost], None],
        when_full: WhenFull,
        queue_count_max: int,
    ) -> None:
        terms = runtime.node.terms
        super().__init__(
            runtime,
            (),
            terms=terms,
            where=None,
            test=False,
            demand=Demand(),
            callback=None,
            on_error=None,
            on_loss="ignore",
            when_full=when_full,
            queue_count_max=queue_count_max,
            clock=runtime.clock,
        )
        # Nothing is raised here: no class waits for another one.
        classes = Classes((*terms.classes.given, RESERVED))
        plain = replace(terms, upgrade=None, classes=classes)
        self.queue = Inbox(plain, Demand(age_part=_AGE_PART), queue_count_max, by_class=True)
        self.queue.mail.bell = self._on_bell
        self._runtime = runtime
        self._rows = BorderRows(terms.depth)
        self._take_run = take
        self._on_loss = on_loss
        self._workers: dict[str, Worker] = {}
        self._is_finishing = False  # nothing more is wanted, though what has come still is
        self._due: set[str] = set()  # classes whose worker has been asked to look
        for class_ in classes.names:
            self._workers[class_] = runtime.threads.worker(
                f"infobus-{runtime.name}-border-{class_}"
            )

    def rows(self) -> list[Row]:
        """What other nodes are told that it wants."""
        return [] if self._is_finishing else list(self._rows.rows)

    def want(self, rows: Collection[Row]) -> None:
        """Want exactly these rows from now on; one caller at a time."""
        added, removed = self._rows.replace(rows)
        if added or removed:
            self._runtime.change_rows(self, added, removed)

    def finish(self, timeout_s: float) -> None:
        """Want nothing more, and hand over what waits, within that time."""
        before, self._is_finishing = self.rows(), True
        self._runtime.change_rows(self, (), before)
        until_s = self._runtime.clock.now_s() + timeout_s
        for worker in self._workers.values():
            worker.call(lambda: None, max(0.0, until_s - self._runtime.clock.now_s()))

    def end(self, error: BusError | None = None) -> None:
        """Take no more in, and let go what waits."""
        super().end(error)
        self.queue.clear()
        for worker in self._workers.values():
            worker.stop()

    def _on_bell(self) -> None:
        """There may be something to take, in any class. Called under the runtime's lock, mostly."""
        queue = self.queue
        with suppress(Empty):
            while True:
                queue.note_look(queue.mail.get_nowait())
        for class_, worker in self._workers.items():
            if class_ not in self._due and (queue.losses or queue.waiting_in(class_)):
                self._due.add(class_)
                worker.do(partial(self._empty, class_))

    def _empty(self, class_: str) -> None:
        """Hand over everything that waits in a class, on its worker."""
        self._due.discard(class_)  # first: what comes from now on asks anew
        while (entry := self.queue.take_of(class_, self._runtime.clock.now_s())) is not None:
            try:
                self._hand_over(entry)
            except BusClosed:
                pass  # of whichever bus
            except Exception:
                log.exception("what came to the border of this bus is lost; what follows goes on")
            if self.queue.watched and self.queue.is_relieved():
                self._runtime.relieved(self)

    def _hand_over(self, entry: Waits) -> None:
        if isinstance(entry, Lost):
            self._on_loss(entry)
        elif isinstance(entry, Run) and (run := self.sifted(entry)) is not None:
            try:
                self._take_run(run)
            except Exception:
                if run.seqs[0]:  # best effort is not reported
                    self._on_loss(Lost(run.sender, run.lane, run.seqs[0], run.seqs[-1]))
                raise

    def sifted(self, run: Run) -> Run | None:
        """What the rows ask for, of a run; its types are waited for, as other consumers do."""
        unknown = self._runtime.unknown_types
        if unknown and not unknown.isdisjoint(run.items.types):
            self._runtime.wait_for_types(run.items)
        return self._rows.sifted(run, self._runtime.on_bad_object)
