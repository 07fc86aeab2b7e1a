"""The link to one neighbour: whether it is up, what waits for it, and how much is in flight.

Little is in flight at a time, so urgent parcels overtake others here, in queues by class, rather
than get stuck behind them in a socket. A place counts the bytes of parcels; the neighbour says up
to which place it has seen them. A lost parcel does not block the window, because later ones have
greater places. If it was the last one, `Hello` tells the place, and after `_LATE_S` nobody waits
for it.

A link may have a rate: events leave no faster than that, less the routers' own messages, which
never wait. Each class queues only as much here as can leave in `_QUEUE_S`. The rest waits where it
came from, and may grow too old there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from msgspec import Struct

from infobus.protocols.frames.routing import (
    DATA,
    Hello,
    Parcel,
    RoutingMessage,
    SeenSoFar,
)
from infobus.protocols.qos.classes import Marks, Rate
from infobus.protocols.qos.queues import ClassQueues
from infobus.protocols.routing.reserved import ReservedLink
from infobus.protocols.routing.terms import RoutingTerms

_LATE_S = 2.0
_OVERHEAD_BYTES = 100
_CHANNELS = ("c/", "q/")  # keys of events begin so; see `infobus.protocols.frames.lanes.lane_key`
_OWN_PART = 16  # of what may wait of a class, this router puts so small a part itself
_QUEUE_S = 1.6  # what may wait of each class on a link with a rate
_BURST_S = 0.05  # what such a link sends at once
_SEEN_PART = 4  # of a window, after which it is said how much was seen


class Cargo(Struct, frozen=True):
    """A parcel that waits for a link; `to` is what the neighbour is to be responsible for."""

    source: int
    key: str
    to: tuple[int, ...]
    trail: tuple[int, ...]
    rank: int
    kind: int
    number: int
    payload: bytes

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return len(self.payload) + _OVERHEAD_BYTES + 9 * (len(self.to) + len(self.trail))


class Link:
    """What is known of one neighbour, and what goes there."""

    def __init__(self, own: str, peer: str, session: int, terms: RoutingTerms) -> None:
        self.own = own
        self.peer = peer
        self.session = session
        self.terms = terms
        self.name = self.domain = ""
        self.is_shown = False  # its token can be seen
        self.is_up = False
        self.is_synced = False  # it has told its tables
        self.is_refused = False
        self.refuses = False
        self.heard_s: float | None = None
        self.is_heard_there = False
        self.tables_hash = 0
        self.differed = False  # that hash, from the own one
        self.load = 0
        self.held: tuple[str, ...] = ()
        self.must_greet = False
        self.greeted_s = float("-inf")
        self.queues: ClassQueues[Cargo] = ClassQueues(
            terms.classes, _own(terms.marks), terms.upgrade
        )
        self.reserved: ReservedLink[Cargo] = ReservedLink()
        self.bytes_per_s: float | None = None
        self.marks = terms.marks
        self._rate: Rate | None = None
        self.moved_s = dict.fromkeys(terms.classes.names, 0.0)
        self.dropped_count = 0
        self.events_count = 0  # frames of events that have left
        self.events_bytes = 0
        self.crowded: set[str] = set()
        self.own_waiting = Counter[int]()  # bytes of this router's own parcels, by rank
        self._payloads = Counter[int]()  # those that wait in `queues`, by their identity
        self._control: deque[RoutingMessage | Cargo] = deque()
        self._sent = self._acked = 0
        self.their_session = 0
        self._seen = self._seen_told = 0
        self._told_sent: deque[tuple[float, int]] = deque()

    # Whether it is there.

    def hears(self, now_s: float) -> bool:
        """Whether the neighbour is heard, and may be."""
        return (
            self.is_shown
            and not self.is_refused
            and self.heard_s is not None
            and now_s - self.heard_s < self.terms.lease_s
        )

    def excuse(self, now_s: float) -> None:
        """It may have said something that could not be read."""
        if self.heard_s is not None:
            self.heard_s = now_s

    def should_be_up(self, now_s: float) -> bool:
        """Whether both ends hear each other."""
        return self.hears(now_s) and self.is_heard_there and not self.refuses

    def on_hello(self, hello: Hello, now_s: float) -> bool:
        """Take in a word of the neighbour; False if it is another one than before."""
        is_same = self.their_session in (0, hello.session)
        if self.their_session != hello.session:
            self.their_session, self._seen, self._seen_told = hello.session, 0, 0
            self._told_sent.clear()
        did_hear = self.hears(now_s)
        self.heard_s = now_s
        if not did_hear or hello.hears != self.is_heard_there:
            self.must_greet = True
        self.is_heard_there, self.refuses = hello.hears, not hello.welcome
        self.name, self.domain = hello.name, hello.domain
        self.load, self.held = hello.load, tuple(hello.held)
        for name in self.terms.classes.names:
            self.queues.hold(name, name in self.held)
        if hello.your_session == self.session:
            self.on_seen(hello.seen)
        self._told_sent.append((now_s, hello.sent))
        while self._told_sent and self._told_sent[0][0] <= now_s - _LATE_S:
            self._seen = max(self._seen, self._told_sent.popleft()[1])
        return is_same

    def greeting(self, now_s: float, *, name: str, domain: str, tables: int, load: int) -> Hello:
        """What to say now; `held` is filled in by the router."""
        self.must_greet, self.greeted_s = False, now_s
        self._seen_told = self._seen
        return Hello(
            self.own,
            self.peer,
            self.session,
            name,
            domain,
            self.hears(now_s),
            not self.is_refused,
            tables,
            self._sent,
            self.their_session,
            self._seen,
            load,
        )

    # The rate.

    def limit(self, bytes_per_s: float | None) -> None:
        """Send so much from now on, and no more."""
        if bytes_per_s == self.bytes_per_s:
            return
        self.bytes_per_s = bytes_per_s
        self._rate, self.marks = None, self.terms.marks
        if bytes_per_s is not None:
            self._rate = Rate(bytes_per_s=bytes_per_s, burst_s=_BURST_S)
            high = min(self.marks.high, max(1, int(bytes_per_s * _QUEUE_S)))
            self.marks = Marks(high, min(self.marks.low, high * 3 // 4))
        self.queues.change_marks(_own(self.marks))

    def spent(self, size: int, now_s: float) -> None:
        """A frame of so many bytes has left."""
        if self._rate is not None:
            self._rate.take(now_s, 1, size)

    def pause_s(self, now_s: float) -> float:
        """How long events have to wait for the rate; 0: they need not, or there are none."""
        if self._rate is None or not (len(self.queues) or len(self.reserved)):
            return 0.0
        return self._rate.allow(now_s, 0, 0)

    def note_crowd(self, class_: str) -> bool:
        """Whether so much of a class waits that neighbours should send no more of it."""
        waiting = self.queues.waiting(class_)
        if waiting > self.marks.high:
            self.crowded.add(class_)
        elif waiting <= self.marks.low:
            self.crowded.discard(class_)
        return class_ in self.crowded

    # The window.

    def on_parcel(self, place: int) -> None:
        """A parcel has come."""
        self._seen = max(self._seen, place)

    @property
    def must_say_seen(self) -> bool:
        """Whether so much has come that the neighbour may wait to hear of it."""
        return self._seen - self._seen_told >= self.terms.window_bytes // _SEEN_PART

    def on_seen(self, place: int) -> None:
        """The neighbour has seen so much."""
        self._acked = max(self._acked, min(place, self._sent))

    @property
    def under_way(self) -> int:
        """Bytes that were sent and are not seen yet."""
        return self._sent - self._acked

    @property
    def waiting(self) -> int:
        """Bytes that wait here."""
        waiting = self.reserved.waiting
        if len(self.queues):
            waiting += sum(self.queues.waiting(name) for name in self.terms.classes.names)
        return waiting

    # What goes there.

    def say(self, message: RoutingMessage | Cargo) -> None:
        """Send without a window; if far too much waits, it is dropped, and asked for again."""
        if len(self._control) < self.terms.control_count_max:
            self._control.append(message)
        else:
            self.dropped_count += 1

    def offer(self, parcel: Cargo, now_s: float, raised_s: float = 0.0) -> None:
        """Let a parcel wait for its turn, control in a queue of its own."""
        if parcel.kind != DATA:
            self.say(parcel)
            return
        names = self.terms.classes.names
        self._payloads[id(parcel.payload)] += 1
        if self._is_reserved(parcel.rank) and self.reserved.offer(
            parcel.source, parcel, parcel.size
        ):
            return
        class_ = names[min(parcel.rank, len(names) - 1)]
        if not self.queues.waiting(class_):
            self.moved_s[class_] = now_s
        if len(parcel.trail) == 1:
            self.own_waiting[parcel.rank] += parcel.size
        self.queues.offer(
            parcel,
            names[self.terms.classes.raised_rank] if raised_s else class_,
            now_s,
            weight=parcel.size,
            raised_from=class_ if raised_s else None,
            raised_until_s=now_s + raised_s,
        )

    def has_room(self, parcel: Cargo, class_: str) -> bool:
        """Whether this router may put more of its own: neither that nor what it carries is much."""
        rank = parcel.rank
        if self._is_reserved(rank) and self.reserved.has_room(parcel.source, parcel.size):
            return True
        return class_ not in self.crowded and self.own_waiting[rank] <= _own(self.marks).high

    def _is_reserved(self, rank: int) -> bool:
        """Whether a parcel is in the rank behind all classes: it goes by what is reserved."""
        return rank == len(self.terms.classes.names)

    def keeps(self, payload: bytes) -> bool:
        """Whether these very bytes still wait here."""
        return id(payload) in self._payloads

    def _forget(self, parcel: Cargo) -> None:
        if len(parcel.trail) == 1:
            self.own_waiting[parcel.rank] -= parcel.size
        self._forget_payload(parcel)

    def _forget_payload(self, parcel: Cargo) -> None:
        self._payloads[id(parcel.payload)] -= 1
        if not self._payloads[id(parcel.payload)]:
            del self._payloads[id(parcel.payload)]

    def next(self, now_s: float, greet: Callable[[Link], Hello]) -> RoutingMessage | None:
        """Take what is to leave now; None if nothing may."""
        if self.must_greet:
            return greet(self)
        if self._control:
            message = self._control.popleft()
            return self._parcel(message, 0.0) if isinstance(message, Cargo) else message
        if self.must_say_seen:
            self._seen_told = self._seen
            return SeenSoFar(self.own, self.their_session, self._seen)
        if self.under_way >= self.terms.window_bytes or not self.is_up:
            return None
        if self.pause_s(now_s) > 0:
            return None
        if (first := self.reserved.take(now_s)) is not None:
            self._forget_payload(first)
            return self._parcel(first, 0.0)
        entry = self.queues.take(now_s)
        if entry is None:
            return None
        self._forget(entry.value)
        self.moved_s[entry.raised_from or entry.class_] = now_s
        raised_s = entry.raised_until_s - now_s if entry.raised_from else 0.0
        return self._parcel(entry.value, max(0.0, raised_s))

    def say_seen(self) -> None:
        """Say how much was seen, if that has not been said yet."""
        if self._seen > self._seen_told:
            self._seen_told = self._seen
            self.say(SeenSoFar(self.own, self.their_session, self._seen))

    def tick(self, now_s: float) -> int:
        """Raise what starves; let go of what cannot leave; return how many that were."""
        self.queues.tick(now_s)
        dropped = 0
        for name in self.terms.classes.names:
            is_stuck = now_s - self.moved_s[name] >= self.terms.stall_s
            # Only a crowded class holds up others. Those with less may wait as long as they must.
            while is_stuck and name in self.crowded and self.queues.waiting(name) > self.marks.low:
                if (entry := self.queues.drop_oldest(name)) is not None:
                    self._forget(entry.value)
                dropped += 1
        self.dropped_count += dropped
        return dropped

    def take_all(self, now_s: float) -> list[Cargo]:
        """Take all parcels, because the link is down."""
        for name in self.terms.classes.names:
            self.queues.hold(name, False)
        parcels = [one for one in self._control if isinstance(one, Cargo)]
        self._control.clear()
        parcels += self.reserved.take_all()
        while (entry := self.queues.take(now_s)) is not None:
            parcels.append(entry.value)
        self._payloads.clear()
        self.own_waiting.clear()
        return parcels

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not (self._control or len(self.queues) or len(self.reserved))

    def _parcel(self, one: Cargo, raised_s: float) -> Parcel:
        self._sent += one.size
        if one.key.startswith(_CHANNELS):
            self.events_count += 1
            self.events_bytes += len(one.payload)
        return Parcel(
            self.own,
            self._sent,
            one.source,
            one.key,
            list(one.to),
            list(one.trail),
            one.rank,
            one.kind,
            one.number,
            raised_s,
            one.payload,
        )


def _own(marks: Marks) -> Marks:
    """The watermarks of what a router puts itself, of those that hold its neighbours.

    They are far lower: where routers stand in a circle, only what is carried already may fill their
    queues. Else each would hold the one before, and wait for the one behind.
    """
    high = max(1, marks.high // _OWN_PART)
    return Marks(high, high * 3 // 4)
