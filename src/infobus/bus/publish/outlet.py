"""Where a lane's events leave this node: numbered, gathered into frames, within the window."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from infobus.bus.clock import Clock
from infobus.bus.deliver.event import Run
from infobus.bus.publish.gather import ALONE, FULL, ITEM_BYTES, Gathering
from infobus.bus.threads import Threads, Worker
from infobus.errors import BusError, UsageError
from infobus.open_files import open_files_needed
from infobus.protocols.frames.lanes import in_words
from infobus.protocols.frames.wire import FRAME_BYTES_MAX, Data, Item, Items, encode
from infobus.protocols.qos.classes import Upgrade
from infobus.protocols.reliable.peer import Route

if TYPE_CHECKING:
    from infobus.protocols.frames.lane_upgrade import LaneUpgrade

log = logging.getLogger("infobus")

_LOCK_WAIT_S = 0.002
_FULL_S = 0.001  # between looks at a full window


class Batch(Struct, frozen=True):
    """Gather small events into frames of up to `bytes`, for up to `ms` milliseconds."""

    bytes: int = 16 * 1024
    ms: float = 2.0

    def __post_init__(self) -> None:
        if not (isinstance(self.bytes, int) and 1 <= self.bytes <= FRAME_BYTES_MAX):
            raise UsageError(f"batch: bytes is {self.bytes!r}; expected 1 to {FRAME_BYTES_MAX}")
        if not (isinstance(self.ms, int | float) and 0 <= self.ms <= 60_000):
            raise UsageError(f"batch: ms is {self.ms!r}; expected 0 to 60000")


class Outlet:
    """One lane's way out. Any thread may send; events leave in the order they were taken in."""

    def __init__(
        self,
        sender: str,
        lane: str,
        route: Route,
        *,
        put: Callable[[bytes], None],
        describe_types: Callable[[Iterable[int]], list[bytes]],
        wait_for_room: Callable[[Outlet], None],
        on_expired: Callable[[Run], None],
        flusher: Flusher,
        clock: Clock,
        upgrade: Upgrade | None = None,
    ) -> None:
        self.lane = lane
        self.route = route
        self.lock = threading.RLock()
        self.local_next = 1  # numbers what this node's own subscriptions get
        self.flush_is_asked = False
        self.frames = 0
        self._sender = sender
        self._put_frame = put
        self._describe_types = describe_types
        self._wait_for_room = wait_for_room
        self._on_expired = on_expired
        self._flusher = flusher
        self._upgrade: LaneUpgrade | None = None
        if upgrade is not None:
            with open_files_needed():  # late: for publishers
                from infobus.protocols.frames.lane_upgrade import LaneUpgrade

            self._upgrade = LaneUpgrade(upgrade)
        self._wall_s = clock.wall_s
        self._gathering = Gathering(flusher.frame_bytes, flusher.batch is not None)
        self._types: tuple[int, ...] | None = ()  # of the last event; None once closed
        self._closed: BusError | None = None
        self._descriptors: list[bytes] = []

    def send(self, item: Item, size: int, types: tuple[int, ...], gather: bool) -> None:
        """Take an event over. It leaves now, or with others very soon."""
        with self.lock:
            if types is not self._types:
                self._announce(types)
            gathering = self._gathering
            if gathering.room_bytes > 0:  # `take`, written out: nearly every event comes this way
                gathering.pending.append(item)
                gathering.room_bytes -= size + ITEM_BYTES
                return
            taken = gathering.take(item, size, gather)
            if taken is FULL:
                self.flush()  # first, so that an error leaves `item` out and the others in
                taken = gathering.take(item, size, gather)
            if taken is ALONE:
                if not self.route.has_room():
                    self._wait_for_room(self)
                self._put(Items.of([item]))
                gathering.left(1, self._wall_s())
                return
            self._flusher.gathering = self
            if not (self.flush_is_asked or gather):
                self.ask_flush()

    def send_run(self, items: Items, size: int, types: tuple[int, ...]) -> None:
        """Send several alike events now, of `size` bytes in all."""
        count = len(items)
        with self.lock:
            if types is not self._types:
                self._announce(types)
            self.flush()
            step = self._gathering.step(count, size)
            for at in range(0, count, step):
                if not self.route.has_room():
                    self._wait_for_room(self)
                self._put(items[at : at + step] if step < count else items)

    def send_frame(self, items: Items, types: tuple[int, ...]) -> None:
        """Send some events now, in one frame; all of them wait for room, or none has left."""
        with self.lock:
            self._announce(types)
            self.flush()
            if not self.route.has_room():
                self._wait_for_room(self)
            self._put(items)

    def lose(self, count: int) -> None:
        """Take numbers that no event will have, so that receivers report so many as lost."""
        with self.lock:
            self.flush()
            self.route.sent(b"", count)

    def send_best_effort(self, item: Item, types: tuple[int, ...]) -> None:
        """Send without a number: nobody will ask for it again."""
        with self.lock:
            self._put_frame(self.unnumbered(item, types))

    def send_frame_best_effort(self, items: Items, types: tuple[int, ...]) -> None:
        """Send some events without numbers."""
        with self.lock:
            self._put_frame(self._unnumbered(items, types))

    def unnumbered(self, item: Item, types: tuple[int, ...]) -> bytes:
        """The frame of an event without a number, to be sent."""
        return self._unnumbered(Items.of([item]), types)

    def _unnumbered(self, items: Items, types: tuple[int, ...]) -> bytes:
        with self.lock:
            self._announce(types)
            descriptors, self._descriptors = self._descriptors, []
            self.frames += 1
            return encode(Data(self._sender, self.lane, 0, items, descriptors))

    def flush(self) -> None:
        """Send what was gathered. Raises `Backpressure`, and keeps it, if there is no room."""
        with self.lock:
            if self._gathering.pending:
                if not self.route.has_room():
                    self._wait_or_leave_later()
                pending = self._gathering.release(len(self.route.receivers))
                if self._flusher.gathering is self:
                    self._flusher.gathering = None
                self._put(Items.of(pending))
                self._gathering.left(len(pending), self._wall_s())

    def _wait_or_leave_later(self) -> None:
        try:
            self._wait_for_room(self)
        except BusError:
            self.ask_flush()  # or what was gathered would stay until somebody publishes again
            raise

    def close(self, why: BusError) -> None:
        """Send what was gathered, if there is room, and take nothing more."""
        with self.lock:
            if self.route.has_room():
                self.flush()
            self._closed, self._types = why, None

    def is_full(self) -> bool:
        """Whether the next event would have to wait for a frame to leave."""
        return self._gathering.is_full()

    def is_gathering(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._gathering.pending)

    def ask_flush(self) -> None:
        """Have what was gathered sent by the flusher."""
        if not self.flush_is_asked:
            self.flush_is_asked = True
            self._flusher.ask(self)

    def flush_if_room(self) -> bool:
        """Send what was gathered unless the window is full; True if nothing is left."""
        if not self.lock.acquire(timeout=_LOCK_WAIT_S):
            return False  # its holder may have to wait; the flusher has other lanes
        try:
            self.flush_is_asked = False
            if not self.route.has_room():
                if self.is_gathering():
                    self.note_held()
                return not self.is_gathering()
            self.flush()
            return True
        finally:
            self.lock.release()

    def note_held(self) -> None:
        """Something waits, and the window is full."""
        if self._upgrade is not None:
            self._upgrade.held(self._wall_s())

    def _put(self, items: Items) -> None:
        if items.qos:
            items = self._without_expired(items)
        upgrade = self._upgrade
        if upgrade is not None and (upgrade.since_s is not None or upgrade.until_s > 0):
            items = self._raised(upgrade, items)
        count = len(items.bodies)
        if not count:
            return  # all of it had grown too old
        route, descriptors = self.route, self._descriptors
        parted = route.take_parted() if route.parted_count != route.parted.state[0] else ()
        frame = encode(Data(self._sender, self.lane, route.next, items, descriptors, parted))
        if descriptors:
            self._descriptors = []
        route.sent(frame, count)
        self.frames += 1
        self._put_frame(frame)

    def _raised(self, upgrade: LaneUpgrade, items: Items) -> Items:
        now_s = self._wall_s()
        upgrade.moves(now_s)
        return upgrade.marked(items, now_s) if items.bodies else items

    def _without_expired(self, items: Items) -> Items:
        """What is not too old by now, to be sent: nothing else ever gets a number."""
        now_s = self._wall_s()
        late: list[int] = []
        asked = zip(range(len(items)), items.each_time(), items.each_qos(), strict=False)
        for place, time_s, qos in asked:
            if qos is not None and qos.max_age and time_s + qos.max_age <= now_s:
                late.append(place)
        if not late:
            return items
        self._on_expired(Run(self._sender, self.lane, (0,) * len(late), items.at(late)))
        return items.at(sorted({*range(len(items))}.difference(late)))

    def _announce(self, types: tuple[int, ...]) -> None:
        if self._closed is not None:
            raise self._closed
        self._types = types
        new = [fingerprint for fingerprint in types if fingerprint not in self.route.types]
        if new:
            self._descriptors = self._descriptors + self._describe_types(new)
            self.route.types.update(new)


class Flusher:
    """Sends what was gathered, soon after, or when the batch's time is over."""

    def __init__(self, name: str, batch: Batch | None, threads: Threads, gather_bytes: int) -> None:
        self.batch = batch
        self.frame_bytes = gather_bytes if batch is None else batch.bytes
        self.gathering: Outlet | None = None  # the lane that gathered last
        self._name = f"{name}-flush"
        self._threads = threads
        self._worker: Worker | None = None

    def start(self) -> None:
        """Begin."""
        self._worker = self._threads.worker(self._name)

    def make_way_for(self, outlet: Outlet) -> None:
        """Send first what another lane has gathered: they must not overtake each other."""
        gathering = self.gathering
        if gathering is not None and gathering is not outlet:
            gathering.flush_if_room()

    def ask(self, outlet: Outlet) -> None:
        """`outlet` has gathered something."""
        self._flush_in(0.0 if self.batch is None else self.batch.ms / 1000, outlet)

    def stop(self) -> None:
        """End, once what was asked before is done."""
        if self._worker is not None:
            self._worker.stop()

    def _flush_in(self, after_s: float, outlet: Outlet) -> None:
        assert self._worker is not None, "nothing is published before the node is open"
        self._worker.do(partial(self._flush, outlet), after_s)

    def _flush(self, outlet: Outlet) -> None:
        try:
            is_done = outlet.flush_if_room()
        except BusError as error:
            where = in_words(outlet.lane)
            log.warning("events gathered on %s were not sent: %s", where, error)
            return
        if not is_done:
            # Room comes with acknowledgements; a publisher in a hurry flushes by itself.
            outlet.flush_is_asked = True
            self._flush_in(_FULL_S, outlet)
