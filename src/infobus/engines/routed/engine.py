"""The engine of routers: carries frames from neighbour to neighbour, by all shortest paths.

It consists of another engine, which has links to the neighbours only, and of the machine of a
router, which decides. So nodes without a link between them form one bus. Each neighbour has its own
sending thread: a slow link holds up only what has to cross it.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

import msgspec
from msgspec import Struct, field

from infobus.engines.base import (
    Declaration,
    Engine,
    Guarded,
    Links,
    abandon_in_forked_child,
    closed_error,
    log,
)
from infobus.engines.routed.declared import Declarations, RoutedDeclaration, RoutedWatch
from infobus.engines.routed.ports import LinkThreads, LinkWorker
from infobus.engines.routed.status import DestinationState, NeighbourState, RoutingState
from infobus.errors import BusClosed, BusError, PeerError, UsageError
from infobus.protocols.frames.routing import (
    ANSWER,
    ANSWERS,
    CONTROL,
    DATA,
    DECLARED,
    QUERY,
    TOKEN,
    Parcel,
    RouterTable,
    RoutingMessage,
    TableVersions,
    decode,
    encode,
    id_of,
)
from infobus.protocols.routing.effects import (
    Effect,
    ParcelArrived,
    ReservationTold,
    TokenChanged,
    Unacceptable,
)
from infobus.protocols.routing.machine import RoutingMachine
from infobus.protocols.routing.reserved import LinkClaim, Refusal
from infobus.protocols.routing.terms import RoutingTerms
from infobus.waiters import Changed

_WATCH = "w"
_BURST_COUNT = 8
"""So many changes in quick succession are told at once; those after them, together."""
_ANSWERS_KEY = "answers"
_answers = msgspec.msgpack.Decoder(list[bytes])


class Waits(Struct, frozen=True, kw_only=True):
    """How long a routed engine lets its callers wait, in seconds."""

    open_s: float = 1.0  # for neighbours to tell their tables
    quiet_s: float = 0.02  # and then until nothing new has come for so long
    room_s: float = 3.0  # `put`, while a class is full; by then it was raised, or let something go
    close_s: float = 2.0  # for links to take what was put
    tick_s: float = 0.05


class _Question(Struct):
    """A query that waits: who has not answered yet, and what came."""

    asked: set[int]
    answers: list[bytes] = field(default_factory=list)


class RoutedEngine:
    """One router's engine; see `Engine` for the promises.

    Args:
        links: An engine, not open yet, that has links to neighbours alone.
        threads: What starts its threads.
        name: What people call this router.
        domain: Where it belongs.
        accepts: Whether there is a link to the neighbour of that name.
        rate_of: Bytes a second that the link to that neighbour carries; None: no limit.
        terms: The times and sizes of the router.
        waits: How long callers wait.
        now_s: Its clock.
    """

    declarations_count_max = 10_000
    """Keys that a node declares singly; each is a row in the tables of all routers."""

    def __init__(
        self,
        links: Engine,
        *,
        threads: LinkThreads,
        name: str = "",
        domain: str = "",
        accepts: Callable[[str], bool] = lambda name: True,
        rate_of: Callable[[str], float | None] = lambda name: None,
        terms: RoutingTerms | None = None,
        waits: Waits | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links = links
        self._threads = threads
        self._name = name
        self._domain = domain
        self._accepts = accepts
        self._rate_of = rate_of
        self._terms = terms or RoutingTerms()
        self._waits = waits or Waits()
        self._now_s = now_s
        self._node = ""
        self._router: RoutingMachine | None = None
        self._lock = threading.Lock()
        self._changed = Changed(self._lock)
        self._declarations = Declarations(self._tell)
        self._workers: dict[str, LinkWorker] = {}
        self._sending: set[str] = set()
        self._is_telling = False
        self._told_s, self._burst_count = 0.0, 0
        self._questions: dict[int, _Question] = {}
        self._questions_count = 0
        self._logged: set[str] = set()
        self._stop_ticking: Callable[[], None] = lambda: None
        self._is_forked = False
        self._is_leaving = False
        classes = self._terms.classes
        self._default_rank = classes.rank(classes.default)
        self._rank_max = len(classes.names) - 1  # behind it, what goes by reservations
        self._reserved_urgency = self._default_rank - classes.raised_rank
        self._reservations: dict[int, Callable[[Refusal | None], None]] = {}

    # Opening and closing.

    def open(self, node: str) -> None:
        """Join the backbone; returning means that the neighbours that are there have told all."""
        if self._node:
            raise UsageError(f"the engine of {self._node!r} was opened before: make a new one")
        self._node = node
        self._links.open(node)
        abandon_in_forked_child(self)
        self._router = RoutingMachine(
            node,
            secrets.randbits(48),
            self._terms,
            name=self._name,
            domain=self._domain,
            accepts=self._accepts,
            rate_of=self._rate_of,
        )
        for part in ("c", "t", *range(self._rank_max + 1)):
            self._links.declare(f"r/{node}/{part}", self._on_frame)
        self._links.announce(f"l/{node}")
        self._links.watch("l/*", self._on_neighbour)
        self._stop_ticking = self._threads.every(
            self._waits.tick_s, self._tick, f"infobus-{node}-routes"
        )
        self._meet(self._router)
        self._tell_now()

    def wait_no_more(self) -> None:
        """The backbone is about to be left: `put` lets go of what finds no room at once."""
        with self._lock:
            self._is_leaving = True
            self._changed.notify_all()

    def close(self) -> None:
        """Leave the backbone; frames that were put before are still sent."""
        router = self._router
        if router is None:
            return
        self.wait_no_more()
        if not self._changed.wait_for(lambda: self._is_idle(router), self._waits.close_s):
            for peer in list(router.links):  # as much as its window allows
                self._send_to(peer)
        with self._lock:
            self._router = None
            workers, self._workers = self._workers, {}
            self._changed.notify_all()
        self._declarations.silence()
        self._stop_ticking()
        for worker in workers.values():
            worker.stop()
        self._links.close()

    def abandon(self) -> None:
        """In a forked child: the links abandon what they hold themselves."""
        self._is_forked = True
        self._router = None
        self._lock = threading.Lock()
        self._changed = Changed(self._lock)
        self._workers = {}

    def _meet(self, router: RoutingMachine) -> None:
        """Wait for the tables of all: what others have declared just now is still on its way."""
        began_s = self._now_s()
        self._changed.wait_for(router.is_met, self._waits.open_s)
        version = None
        while version != router.tables.hash and self._now_s() - began_s < self._waits.open_s:
            version = router.tables.hash
            self._changed.wait_for(lambda: False, self._waits.quiet_s)

    # What a node asks of its engine.

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key`. While its class is full on a link, data waits, up to 3 s."""
        kind = CONTROL if control else DATA
        rank = min(max(self._default_rank - urgency, 0), self._rank_max + 1)
        with self._lock:
            router = self._checked()
            if router.has_changes:  # who reads this may answer to what was declared before
                self._carry_out(router.tell_changes(self._now_s()))
            parcel = router.parcel(key, payload, kind=kind, rank=rank)
            if parcel is None:
                return
            is_sent = router.put(parcel, self._now_s())
            self._send_woken(router)
        if is_sent:
            return

        def is_over() -> bool:
            nonlocal is_sent
            is_sent = router.put(parcel, self._now_s())
            return is_sent or self._is_leaving

        self._changed.wait_for(is_over, self._waits.room_s)
        with self._lock:
            if not is_sent:
                router.put(parcel, self._now_s(), must=True)
            self._send_woken(router)

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        guarded = Guarded(key).wrap(on_frame)
        return self._add(
            DECLARED, RoutedDeclaration(self._declarations, DECLARED + key, key, guarded)
        )

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer queries on `key`. A handler that raises leaves its query without an answer."""
        guard = Guarded(key)

        def reply(question: bytes) -> bytes | None:
            try:
                return handler(question)
            except Exception as error:
                guard.report(error)
                return None

        return self._add(ANSWERS, RoutedDeclaration(self._declarations, ANSWERS + key, key, reply))

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key`; returns when all have, or at the timeout."""
        with self._lock:
            router = self._checked()
            self._questions_count += 1
            number = self._questions_count
            parcel = router.parcel(key, payload, kind=QUERY, number=number)
            if parcel is None:
                return []
            question = self._questions[number] = _Question(set(parcel.to))
            router.put(parcel, self._now_s())
            self._send_woken(router)
        self._changed.wait_for(lambda: not question.asked or self._router is None, timeout_s)
        with self._lock:
            del self._questions[number]
            return list(question.answers)

    def announce(self, key: str) -> Declaration:
        """Show a token on `key`."""
        return self._add(
            TOKEN, RoutedDeclaration(self._declarations, TOKEN + key, key, lambda _: None)
        )

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens of other nodes on `key`, those that are known at once."""
        watch = RoutedWatch(self._declarations, key, on_change)
        self._add(_WATCH, watch)
        with self._lock:
            tokens = self._checked().tokens()
        for token in tokens:
            watch.call((token, True))
        return watch

    def endpoints(self) -> dict[str, str]:
        """What became of each endpoint of the links."""
        return self._links.endpoints()

    def links(self) -> Links:
        """The neighbours whose links are up."""
        with self._lock:
            router = self._router
            up = [] if router is None else [p for p, link in router.links.items() if link.is_up]
        return Links("router", self._node, tuple(sorted(up)))

    def reserve(
        self,
        number: int,
        claim: LinkClaim,
        to: Collection[str],
        on_told: Callable[[Refusal | None], None],
    ) -> None:
        """Have so much kept on all hops to these nodes, from now on and whatever paths there are.

        `on_told` is called when it is kept everywhere (None), and when it is not, on a thread of
        the engine; also when that changes. What is put with the urgency behind that of all classes
        goes by it.
        """
        with self._lock:
            router = self._checked()
            self._reservations[number] = on_told
            self._carry_out(router.reserve(number, claim, [*map(id_of, to)], self._now_s()))
            self._after(router)

    def give_back(self, number: int) -> None:
        """Reserve it no more. Harmless if it is not reserved."""
        with self._lock:
            router = self._router
            if router is not None and self._reservations.pop(number, None) is not None:
                router.give_back(number)
                self._after(router)

    def routing(self) -> RoutingState:
        """Neighbours, all shortest paths to all routers, and counts, as of now."""
        with self._lock:
            return _routing(self._checked())

    # What the links call.

    def _on_frame(self, payload: bytes) -> None:
        try:
            message = decode(payload)
        except PeerError as error:
            self._complain("a frame", str(error))
            return
        if message is None:
            return
        with self._lock:
            router = self._router
            if router is not None:
                self._carry_out(router.take(message, self._now_s()))
                self._after(router)

    def _on_neighbour(self, token: str, is_shown: bool) -> None:
        with self._lock:
            router = self._router
            if router is not None:
                peer = token.rpartition("/")[2]
                self._carry_out(router.neighbour_shown(peer, is_shown, self._now_s()))
                self._after(router)

    def _tick(self) -> None:
        with self._lock:
            router = self._router
            if router is None:
                return
            self._carry_out(router.tick(self._now_s()))
            self._after(router)
            gone = [name for name in self._workers if name[:3] == "to-"]
            stopped = [self._workers.pop(n) for n in gone if n[3:] not in router.links]
        for worker in stopped:
            worker.stop()

    # Doing what the machine says, under the lock.

    def _after(self, router: RoutingMachine) -> None:
        self._send_woken(router)
        if router.must_look:
            self._tell_soon()
        self._changed.notify_all()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ParcelArrived(kind=kind) if kind in (DATA, CONTROL):
                    name = str(effect.rank) if kind == DATA else "c"
                    self._worker(f"from-{name}").do(partial(self._deliver, effect))
                case ParcelArrived(kind=kind) if kind == QUERY:
                    self._worker(_ANSWERS_KEY).do(partial(self._reply, effect))
                case ParcelArrived():
                    self._answered(effect)
                case TokenChanged(token, is_alive):
                    for watch in self._declarations.of(_WATCH):
                        self._worker("tokens").do(partial(watch.call, (token, is_alive)))
                case Unacceptable(peer, what):
                    self._complain(peer, what)
                case ReservationTold(number, refusal):
                    if (on_told := self._reservations.get(number)) is not None:
                        self._worker("reservations").do(partial(on_told, refusal))

    def _send_woken(self, router: RoutingMachine) -> None:
        for peer in router.woken:
            if peer not in self._sending:
                self._sending.add(peer)
                self._worker(f"to-{peer}").do(partial(self._send_to, peer))
        router.woken = {}

    def _worker(self, name: str) -> LinkWorker:
        worker = self._workers.get(name)
        if worker is None:
            worker = self._threads.worker(f"infobus-{self._node}-{name}")
            self._workers[name] = worker
        return worker

    # On the threads of workers.

    def _send_to(self, peer: str) -> None:
        size = 0
        while True:
            with self._lock:
                router, now_s = self._router, self._now_s()
                message = None if router is None else router.next(peer, now_s, size)
                if message is None:
                    self._pause(router, peer, now_s)
                self._changed.notify_all()
            if message is None:
                return
            size = self._put_link(peer, message)

    def _pause(self, router: RoutingMachine | None, peer: str, now_s: float) -> None:
        """Go on when something is woken, or when the rate of the link allows it."""
        pause_s = 0.0 if router is None else router.pause_s(peer, now_s)
        if pause_s > 0:  # what need not wait for the rate comes to no more than a tick late
            again_s = min(pause_s, self._waits.tick_s)
            self._worker(f"to-{peer}").do(partial(self._send_to, peer), again_s)
        else:
            self._sending.discard(peer)

    def _put_link(self, peer: str, message: RoutingMessage) -> int:
        """Send a message; returns how many bytes it has."""
        part, is_control, urgency = "c", True, 0
        if isinstance(message, Parcel) and message.kind == DATA:
            part, is_control = str(min(message.rank, self._rank_max)), False
            urgency = self._default_rank - message.rank
            if message.rank > self._rank_max:
                urgency = self._reserved_urgency
        elif isinstance(message, RouterTable | TableVersions):
            part, is_control, urgency = "t", False, self._default_rank
        frame = encode(message)
        try:
            self._links.put(f"r/{peer}/{part}", frame, control=is_control, urgency=urgency)
        except BusClosed:
            pass
        except BusError as error:
            self._complain(peer, str(error))
        return len(frame)

    def _deliver(self, arrived: ParcelArrived) -> None:
        try:
            for declared in self._declarations.on(DECLARED, arrived.key):
                declared.call(arrived.payload)
        finally:
            with self._lock:
                if arrived.kind == DATA and self._router is not None:
                    self._router.consumed(arrived.rank, len(arrived.payload))
                    self._send_woken(self._router)

    def _reply(self, asked: ParcelArrived) -> None:
        declared = self._declarations.on(ANSWERS, asked.key)
        answers = [one for d in declared if (one := d.call(asked.payload)) is not None]
        with self._lock:
            router = self._router
            if router is not None:
                parcel = router.parcel(
                    asked.key, encode(answers), kind=ANSWER, number=asked.number, to=[asked.source]
                )
                assert parcel is not None, "it is for whoever asked"
                router.put(parcel, self._now_s())
                self._send_woken(router)

    def _answered(self, answer: ParcelArrived) -> None:
        question = self._questions.get(answer.number)
        if question is not None and answer.source in question.asked:
            question.asked.discard(answer.source)
            with contextlib.suppress(msgspec.DecodeError):
                question.answers += _answers.decode(answer.payload)

    # Telling what was declared.

    def _add(self, kind: str, declared: RoutedDeclaration) -> RoutedDeclaration:
        with self._lock:
            self._checked()
        self._declarations.add(kind, declared)
        return declared

    def _tell(self, entry: str, is_there: bool) -> None:
        with self._lock:
            router = self._router
            if router is not None:
                (router.add_entry if is_there else router.remove_entry)(entry)
                now_s = self._now_s()
                is_new_burst = now_s - self._told_s > self._terms.gather_s
                self._burst_count = 1 if is_new_burst else self._burst_count + 1
                self._told_s = now_s
                if self._burst_count <= _BURST_COUNT:
                    self._carry_out(router.tell_changes(now_s))
                    self._after(router)
                else:
                    self._tell_soon()

    def _tell_soon(self) -> None:
        if not self._is_telling:
            self._is_telling = True
            self._worker("tables").do(self._tell_now, self._terms.gather_s)

    def _tell_now(self) -> None:
        with self._lock:
            self._is_telling = False
            router = self._router
            if router is not None:
                self._carry_out(router.tell_changes(self._now_s()))
                self._after(router)

    # Little things.

    def _is_idle(self, router: RoutingMachine) -> bool:
        up = [link for link in router.links.values() if link.is_up]
        return not self._sending and all(link.is_idle for link in up)

    def _checked(self) -> RoutingMachine:
        if self._router is None:
            raise closed_error(forked=self._is_forked, opened=bool(self._node))
        return self._router

    def _complain(self, whom: str, what: str) -> None:
        """Log once for each neighbour."""
        if whom not in self._logged and len(self._logged) < 1_000:
            self._logged.add(whom)
            log.warning("%s, a router: %s: %s", self._node, whom, what)


def _routing(router: RoutingMachine) -> RoutingState:
    tables, mine = router.tables.tables, router.tables.mine
    paths = router.paths
    return RoutingState(
        router.own,
        mine.name,
        mine.domain,
        tuple(
            NeighbourState(
                *(peer, link.name, link.domain, link.is_up, link.is_refused or link.refuses),
                *(link.load, link.held),
                {name: link.queues.waiting(name) for name in router.terms.classes.names},
                *(link.under_way, link.dropped_count, link.events_count, link.events_bytes),
                link.bytes_per_s,
                {
                    tables[node].name: claim
                    for node in tables
                    if (claim := reserved.get(id_of(node))) is not None
                },
                link.reserved.waiting,
            )
            for peer, link in sorted(router.links.items())
            if link.is_shown
            for reserved in [link.reserved.of_sources()]
        ),
        tuple(
            DestinationState(
                *(node, tables[node].name, tables[node].domain, tables[node].version),
                *(tables[node].neighbours, len(tables[node].entries), tuple(paths.to(node))),
            )
            for node in sorted(paths.hops)
        ),
        len(tables) - len(paths.distances),
        len(router.relays),
        dict(router.counts),
    )
