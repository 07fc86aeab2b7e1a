"""One bus as a router sees it: its interest and its events, which pass unread.

A router has one `Border` for each bus that it joins. It asks one bus (`want`) for what nodes on
the other bus want (`wanted`), and sends to one bus (`send`) what it takes in from the other
(`take`). It passes on columns of events as they came: with numbers, times, ids, ages and headers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from infobus.bus.border.forwarder import Forwarder
from infobus.bus.border.intake import Intake
from infobus.bus.bus import Bus, interior
from infobus.bus.deliver.event import Run
from infobus.bus.deliver.subscription import WhenFull, check_choice
from infobus.errors import BusClosed, UsageError
from infobus.protocols.frames.wire import Items
from infobus.protocols.interest.own_rows import Row
from infobus.protocols.reliable.effects import Lost
from infobus.subjects import OWN, TEST_SPACE


class Border:
    """What crosses the border of a bus.

    Args:
        bus: An open bus, of which the router is a node.
        take: Called with events that the rows of `want` ask for, as they came and still encoded.
            Each class has a thread of its own: while `take` keeps one waiting, no other waits, and
            the queue of that class fills.
        on_loss: Called with the losses among them, on the thread of their class.
        on_wanted: Called after `wanted` has changed, on a thread of its own, holding no lock.
        when_full: `pace` or `block` holds publishers when a queue is full, as with subscriptions;
            `drop_oldest` lets the oldest events go, and reports that to `on_loss`.
        queue_count_max: How many events may wait in each class.
        ignore: Nodes whose rows do not count, such as another router's of the same bus.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        take: Callable[[Run], None],
        on_loss: Callable[[Lost], None],
        on_wanted: Callable[[], None],
        when_full: WhenFull = "pace",
        queue_count_max: int | None = None,
        ignore: Collection[str] = (),
    ) -> None:
        check_choice("when_full", when_full, WhenFull)
        if when_full == "disconnect":
            raise UsageError("when_full='disconnect' would end the border; choose another")
        self.bus = bus
        self.ignore = ignore
        parts = interior(bus)
        self._runtime = runtime = parts.runtime
        self._on_wanted = on_wanted
        self._changing = threading.Lock()  # what is wanted, one caller at a time
        self._intake = Intake(
            runtime,
            take=take,
            on_loss=on_loss,
            when_full=when_full,
            queue_count_max=queue_count_max or bus.bounds.queue_count_max,
        )
        self._forwarder = Forwarder(parts, self._intake, bus.bounds.gather_bytes)
        self._worker = runtime.threads.worker(f"infobus-{runtime.name}-border")
        self._is_told = True  # the worker looks at what is wanted, or is about to
        self._last: frozenset[Row] = frozenset()
        with runtime.lock:
            for channels in (">", f"{TEST_SPACE}>"):
                runtime.node.rows.need(channels)  # all rows, also of those whom nobody here asks
        runtime.subscribe(self._intake, 0.0)
        runtime.watch_interest(self._note_change)
        self._worker.do(self._tell)

    def wanted(self) -> list[Row]:
        """What other nodes of this bus want now: patterns, each with the text of a filter.

        Rows of this node are left out, those of nodes in `ignore`, and those about the bus's own
        subjects. A pattern may appear with several filters.
        """
        found: dict[Row, None] = {}
        with self._runtime.lock:
            for name, record in self._runtime.node.rows.records.items():
                if name not in self.ignore:
                    found.update(dict.fromkeys(record.all_rows()))
        return [row for row in found if row[0][:1] != OWN or row[0].startswith(TEST_SPACE)]

    def want(self, rows: Collection[Row]) -> None:
        """Want exactly these rows from now on, on behalf of others.

        Returning means that the other nodes are being told. They send what passes the filter of
        any row. An event that fits several rows is taken once.
        """
        allowed = [row for row in rows if row[0][:1] != OWN or row[0].startswith(TEST_SPACE)]
        with self._changing:
            self._intake.want(allowed)

    def asked_for(self, run: Run) -> Run | None:
        """What the rows of `want` ask for, of a run of this bus; None if that is nothing."""
        return self._intake.sifted(run)

    def send(self, items: Items, class_: str, *, reliable: bool = True) -> None:
        """Send events of another bus to all who want them here, this process included.

        They must say their origin (`Items.come_from`). Returning means what it means for `publish`:
        the bus has taken them over. It waits for receivers for as long as they hold it.

        Args:
            items: In order; `Border` keeps their numbers, times, ids, requests and headers.
            class_: The class in which they go; empty: the default class.
            reliable: False sends them at best effort.

        Raises:
            UsageError: They say no origin, or this bus has no such class; nothing was sent.
            Backpressure: The border was closed meanwhile; some of them may have been sent.
            BusClosed: The same of the bus.
        """
        self._forwarder.send(items, class_, reliable)

    def lose(self, subject: str, class_: str, count: int) -> None:
        """Tell subscribers here that so many events of another bus are lost.

        It is told to those who want anything on the channel of `subject`, as a loss of this node.

        Raises:
            Backpressure, BusClosed: As with `send`.
        """
        self._forwarder.lose(subject, class_, count)

    def close(self, timeout_s: float | None = None) -> None:
        """Want nothing any more, hand over what waits, and take nothing more in. Idempotent.

        It takes `timeout_s` at most, or the patience of the node if that is None. Close it before
        the bus, and before the buses that its events go to.
        """
        if self._forwarder.is_closed:
            return
        self._runtime.unwatch_interest(self._note_change)
        if not self._runtime.is_closed:
            with self._changing:
                self._intake.finish(self.bus.patience.close_s if timeout_s is None else timeout_s)
        self._forwarder.is_closed = True
        self._intake.close()
        self._worker.stop()

    def _note_change(self) -> None:
        """Somebody wants something else. Called under the runtime's lock."""
        if not self._is_told:
            self._is_told = True
            self._worker.do(self._tell)

    def _tell(self) -> None:
        self._is_told = False  # first: what changes from now on is told anew
        wanted = frozenset(self.wanted())
        if wanted != self._last:
            self._last = wanted
            with suppress(BusClosed):  # whichever bus it tells
                self._on_wanted()
