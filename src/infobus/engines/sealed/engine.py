"""An engine over an engine: it shakes hands with each node, and seals what is put.

The node above notices nothing. A token of another node is reported once that node has shown who it
is, and a frame is handed on once it was opened, and is by the node that it names. What cannot be
opened is counted and dropped. The engine below carries sealed frames only.

Besides what the node declares there are two keys of its own: `k/<node>` is where messages of
handshakes arrive, and a token of that name says that the node shakes hands.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Protocol

from infobus.engines.base import (
    Declaration,
    Engine,
    Guarded,
    Links,
    abandon_in_forked_child,
    closed_error,
    log,
)
from infobus.engines.sealed.intake import SealedIntake
from infobus.engines.sealed.tokens import MetWatch
from infobus.errors import BadFrame, BusError, PeerError, UsageError
from infobus.keys import keys_intersect
from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames.security import (
    BODY_KEY_BYTES,
    Posture,
    decode_handshake,
    decode_sealed,
    encode,
    sender_of,
)
from infobus.protocols.frames.wire import SECURITY_TAGS
from infobus.protocols.security.effects import Effects, Met, Unmet
from infobus.protocols.security.handshakes import Handshakes
from infobus.protocols.security.introduction import Bearer, Identity, is_bound
from infobus.protocols.security.seals import (
    STREAM_BITS,
    STREAMS_COUNT_MAX,
    Seal,
    sealed_for_many,
    sealed_for_one,
)

_TICK_S = 0.1
_LOOK_S = 0.002
_REFRESH_S = 10.0
_KEYS_COUNT_MAX = 10_000
_TOLD_COUNT_MAX = 1_000  # nodes of open buses that are answered, once each
_KNOWN_COUNT_MAX = 100_000  # nodes whose principals are remembered after they have gone
_ANSWERS = -1  # the place at which answers arrive
_ALL = "all"
_OF_SECURED = frozenset(bytes([tag]) for tag in SECURITY_TAGS)


class Every(Protocol):
    """Starts what is done again and again; returns what ends it."""

    def __call__(
        self, period_s: float, job: Callable[[], None], name: str
    ) -> Callable[[], None]: ...


@dataclass(frozen=True)
class World:
    """Clocks, threads and chance, which a simulation replaces."""

    now_s: Callable[[], float] = time.monotonic
    wall_s: Callable[[], float] = time.time
    draw: Callable[[int], bytes] = os.urandom
    every: Every | None = None
    wait: Callable[[], None] = lambda: time.sleep(_LOOK_S)
    """Lets something happen, for whoever waits until it has."""


@dataclass
class SealCounts:
    """What came and was not handed on."""

    unopened: int = 0
    repeated: int = 0
    plain: int = 0
    forged: int = 0


class SealedEngine:
    """One node's engine on a secured bus; see `Engine` for the promises.

    Args:
        below: Carries what was sealed.
        bus: The bus's name, on which both sides of a handshake must agree.
        static: This node's private static key; its name is bound to it.
        identity: Whom it acts for.
        handshake_s: How long it waits for nodes to show who they are, when it opens and watches.
        refresh: Called every 10 s; returns another identity, if there is one by now.
        is_name_of: Whether a name is that of the node with this static key.
        world: Clocks, threads and chance.
    """

    def __init__(
        self,
        below: Engine,
        bus: str,
        static: bytes,
        identity: Identity,
        *,
        handshake_s: float = 1.0,
        refresh: Callable[[], Identity | None] = lambda: None,
        is_name_of: Callable[[str, bytes], bool] = is_bound,
        world: World | None = None,
    ) -> None:
        self.below = below
        self.declarations_count_max = below.declarations_count_max
        self.counts = SealCounts()
        self.on_complaint: Callable[[str, str], None] = _log_complaint
        """Called with a node and what it did that cannot be accepted."""
        self.listeners: Callable[[str], Iterable[str]] | None = None
        """Returns the nodes that what is put on a channel's key is for; None: all of them."""
        self.interest_version: Callable[[], int] = lambda: 0
        """Changes when `listeners` would say something else."""
        self._bus, self._static, self._identity = bus, static, identity
        self._handshake_s = handshake_s
        self._refresh = refresh
        self._is_name_of = is_name_of
        self._world = world or World()
        self._lock = threading.Lock()  # over the handshakes
        self._answering = threading.Lock()  # over the windows of answers
        self._handshakes: Handshakes | None = None
        self._node = ""
        self._is_closed = self._is_forked = False
        self._outlets: dict[tuple[str, bool, int], _Outlet] = {}
        self._numbers = [itertools.count((n << STREAM_BITS) + 1) for n in range(STREAMS_COUNT_MAX)]
        self._questions, self._answers = (partial(next, one) for one in self._numbers[:2])
        self._streams = itertools.count(2)
        self._places = itertools.count(1)
        self._watches: dict[MetWatch, None] = {}
        self._waited: set[str] = set()  # in vain
        self._told: dict[str, None] = {}  # nodes without a credential
        self._known: dict[str, Bearer] = {}
        self._refresh_at_s = 0.0
        self._policy = 0
        self._stop_ticking: Callable[[], None] = lambda: None

    # Opening and closing.

    def open(self, node: str) -> None:
        """Join the bus as `node`; the nodes that were met have shown who they are, if they can."""
        if self._node:
            raise UsageError(f"the engine of {self._node!r} was opened before: make a new one")
        self.below.open(node)
        self._node = node
        world = self._world
        self._handshakes = Handshakes(
            node, self._bus, self._static, self._identity, world.draw, self._is_name_of
        )
        self._handshakes.policy = self._policy
        self._refresh_at_s = world.now_s() + _REFRESH_S
        abandon_in_forked_child(self)
        every = world.every or _every
        self._stop_ticking = every(_TICK_S, self._tick, f"infobus-{node}-seal")
        self.below.declare(f"k/{node}", self._on_handshake)
        self.below.announce(f"k/{node}")
        self.below.watch("k/*", self._on_peer)
        self.wait_for(self._shaking().unmet)

    def close(self) -> None:
        """Leave the bus; frames that were put before are still sent."""
        self._is_closed = True
        self._outlets = {}
        self._stop_ticking()
        self.below.close()

    def abandon(self) -> None:
        """In a forked child: it has the parent's keys, and must not use them."""
        self._lock, self._answering = threading.Lock(), threading.Lock()
        self._is_closed = self._is_forked = True
        self._outlets = {}

    # Who is who.

    def bearer_of(self, node: str) -> Bearer | None:
        """Who is behind a node, also after it has gone; None if it never showed that."""
        if node == self._node:
            return self._identity.check(self._identity.certificate, self._world.wall_s())
        seal = None if self._handshakes is None else self._handshakes.seal_with(node)
        return self._known.get(node) if seal is None else seal.bearer

    def principal_of(self, node: str) -> str | None:
        """The principal of a node, also after it has gone; None if it never showed that."""
        bearer = self.bearer_of(node)
        return None if bearer is None else bearer.principal

    def roles_of(self, node: str) -> tuple[str, ...]:
        """The roles in the certificate that a node has shown."""
        bearer = self.bearer_of(node)
        return () if bearer is None else bearer.roles

    def nodes(self) -> list[str]:
        """The other nodes that have shown who they are, and still count."""
        with self._lock:
            return [seal.peer for seal in self._shaking().sealed_with()]

    def drop(self, node: str, why: str) -> None:
        """Take nothing more from a node, and send it nothing, until it shakes hands anew."""
        with self._lock:
            effects = self._shaking().drop(node, why)
        self._carry_out(effects)

    def recheck(self) -> None:
        """Look at all certificates again, and drop those that do not count any more."""
        with self._lock:
            effects = self._shaking().recheck(self._world.wall_s())
        self._carry_out(effects)

    def renew(self, identity: Identity) -> None:
        """Act for this identity from now on, and show it to everyone."""
        with self._lock:
            self._identity = identity
            self._shaking().identity = identity
            self._shaking().renew(self._world.now_s())

    def tell_policy(self, version: int) -> None:
        """The version of the policy that is told in handshakes from now on."""
        with self._lock:
            self._policy = version
            if self._handshakes is not None:
                self._handshakes.policy = version

    def policies(self) -> dict[str, int]:
        """The versions of the policy that other nodes told when they were met."""
        with self._lock:
            return {seal.peer: seal.policy for seal in self._shaking().sealed_with()}

    # What a node asks of its engine.

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key` to those that it is for, and nobody else can read it."""
        try:
            outlet = self._outlets[key, control, urgency]
        except KeyError:
            outlet = self._outlet(key, control, urgency)
        outlet.put(payload)

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        intake = SealedIntake(self, key, self._place(), on_frame)
        return _Declared(self, intake.place, self.below.declare(key, intake.take))

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer queries on `key` of nodes that have shown who they are."""
        place = self._place()

        def reply(question: bytes) -> bytes:
            found = self.opened(question, place, _asks(key))
            if found is None:
                raise BadFrame("a question that has come before")
            seal, plain = found
            return self._sealed([seal], self._answers(), _answers(question), handler(plain))

        return _Declared(self, place, self.below.answer(key, reply))

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key`, and has shown who it is."""
        self._check_open()
        with self._lock:
            seals = self._shaking().sealed_with()
        if not seals:
            return []
        question = self._sealed(seals, self._questions(), f"?{key}", payload)
        bound = _answers(question)
        found = []
        for answer in self.below.query(key, question, timeout_s):
            try:
                with self._answering:
                    opened = self.opened(answer, _ANSWERS, bound.__eq__)
            except PeerError:
                self.counts.unopened += 1
                continue
            if opened is not None:
                found.append(opened[1])
        return found

    def announce(self, key: str) -> Declaration:
        """Show a token on `key`; its last element must be the name of this node."""
        self._check_open()
        return self.below.announce(key)

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens on `key` of nodes that have shown who they are."""
        self._check_open()
        watch = MetWatch(on_change, self._shaking().is_met, Guarded(key))
        self._watches[watch] = None
        declared = self.below.watch(key, watch.changed)
        self.wait_for(watch.untold)
        return _Watched(self._watches, watch, declared)

    def endpoints(self) -> dict[str, str]:
        """Those of the engine below."""
        return self.below.endpoints()

    def links(self) -> Links:
        """Those of the engine below."""
        return self.below.links()

    # What comes.

    def opened(
        self, payload: bytes, place: int, is_key: Callable[[str], bool]
    ) -> tuple[Seal, bytes] | None:
        """What a sealed frame holds, and its seal; None if it has come before.

        Raises:
            BadFrame: It cannot be opened here.
        """
        return SealedIntake.opened(self.seals, decode_sealed(payload), place, is_key)

    @property
    def handshakes(self) -> Handshakes:
        """The handshakes of this node."""
        return self._shaking()

    @property
    def seals(self) -> dict[str, tuple[Seal, ...]]:
        """By node, the seals that can be opened."""
        return self._shaking().seals

    def on_plain(self, payload: bytes) -> None:
        """A frame has come that is not sealed: its sender is on an open bus of this name.

        Frames of handshakes come here as well when the engine below takes a wrong way.
        """
        if payload[1:2] in _OF_SECURED:
            self.counts.unopened += 1
            return
        self.counts.plain += 1
        sender = sender_of(payload)
        if not sender or sender in self._told or len(self._told) >= _TOLD_COUNT_MAX:
            return
        self._told[sender] = None
        what = f"has no credential, and bus {self._bus!r} is secured; it is not heard"
        self.on_complaint(sender, what)
        self._send(f"n/{sender}", encode(Posture(self._node)))

    def _on_handshake(self, payload: bytes) -> None:
        try:
            message = decode_handshake(payload)
        except PeerError:
            self.counts.unopened += 1
            return
        with self._lock:
            now_s, wall_s = self._world.now_s(), self._world.wall_s()
            effects = self._shaking().take(message, now_s, wall_s)
        self._carry_out(effects)

    def _on_peer(self, token: str, is_alive: bool) -> None:
        peer = token.rpartition("/")[2]
        with self._lock:
            step = self._shaking().peer_up if is_alive else self._shaking().peer_down
            effects = step(peer, self._world.now_s())
        self._carry_out(effects)

    def _tick(self) -> None:
        now_s = self._world.now_s()
        if now_s >= self._refresh_at_s:
            self._refresh_at_s = now_s + _REFRESH_S
            identity = self._refresh()
            if identity is not None:
                self.renew(identity)
        with self._lock:
            effects = self._shaking().tick(now_s, self._world.wall_s())
        self._carry_out(effects)

    def _carry_out(self, effects: Effects) -> None:
        for one in effects:
            match one:
                case ToPeer(peer, message):
                    self._send(f"k/{peer}", encode(message))
                case Complain(peer, what):
                    self.on_complaint(peer, what)
                case Met(peer) | Unmet(peer):
                    self._note(peer)
                    for watch in list(self._watches):
                        watch.look_at(peer)

    def _send(self, key: str, frame: bytes) -> None:
        """Put a frame of a handshake, which is repeated if it does not arrive."""
        try:
            if not self._is_closed:
                self.below.put(key, frame, control=True)
        except BusError as error:
            if not self._is_closed:  # else it was closed just now
                self.on_complaint("engine", str(error))

    def _note(self, peer: str) -> None:
        seal = self._shaking().seal_with(peer)
        if seal is None:
            return
        self._waited.discard(peer)
        if len(self._known) >= _KNOWN_COUNT_MAX:
            del self._known[next(iter(self._known))]
        self._known[peer] = seal.bearer

    def wait_for(self, untold: Callable[[], list[str]]) -> None:
        """Wait, bounded, until there are none; who was waited for in vain is so once."""
        deadline_s = self._world.now_s() + self._handshake_s
        while waited := set(untold()) - self._waited:
            if self._world.now_s() >= deadline_s:
                self._waited |= waited
                return
            self._world.wait()

    # What goes.

    def _outlet(self, key: str, control: bool, urgency: int) -> _Outlet:
        self._check_open()
        if "*" in key:
            raise UsageError(f"key {key!r} is a pattern; frames are put on one key")
        with self._lock:
            if len(self._outlets) >= _KEYS_COUNT_MAX:
                self._outlets.clear()
            number = self._numbers[next(self._streams) % STREAMS_COUNT_MAX]
            outlet = _Outlet(self, key, partial(next, number), control, urgency)
            self._outlets[key, control, urgency] = outlet
            return outlet

    def receivers(self, key: str) -> list[Seal]:
        """The seals of those that what is put on a key is for."""
        shaking = self._shaking()
        with self._lock:
            if key.startswith("n/"):
                seal = shaking.seal_with(key[2:])
                return [] if seal is None else [seal]
            if key == _ALL or self.listeners is None:
                return shaking.sealed_with()
        names = self.listeners(key)
        found = (shaking.seal_with(name) for name in names)
        return [seal for seal in found if seal is not None]

    def version(self) -> tuple[int, int]:
        """Changes when `receivers` would say something else."""
        return self._shaking().version, self.interest_version()

    def seal(self, seals: Sequence[Seal], number: int, key: str, payload: bytes) -> bytes:
        """The frame that is put for these receivers."""
        return self._sealed(seals, number, key, payload)

    def _sealed(self, seals: Sequence[Seal], number: int, key: str, payload: bytes) -> bytes:
        self._shaking().frames += 1
        if len(seals) == 1:
            return sealed_for_one(self._node, seals[0], number, key, payload)
        body_key = self._world.draw(BODY_KEY_BYTES)
        return sealed_for_many(self._node, seals, number, key, payload, body_key)

    def _place(self) -> int:
        """That of a new declaration."""
        self._check_open()
        place = next(self._places)
        with self._lock:
            for seals in self.seals.values():
                for seal in seals:
                    seal.begin(place)
        return place

    def forget(self, place: int) -> None:
        """A declaration has ended."""
        with self._lock:
            for seals in self.seals.values():
                for seal in seals:
                    seal.forget(place)

    def _check_open(self) -> None:
        if self._handshakes is None or self._is_closed:
            raise closed_error(forked=self._is_forked, opened=bool(self._node))

    def _shaking(self) -> Handshakes:
        handshakes = self._handshakes
        if handshakes is None:
            raise closed_error(forked=self._is_forked, opened=bool(self._node))
        return handshakes


class _Outlet:
    """One stream of a node: what it puts on one key, with one urgency."""

    def __init__(
        self,
        engine: SealedEngine,
        key: str,
        number: Callable[[], int],
        control: bool,
        urgency: int,
    ) -> None:
        self._engine, self._key = engine, key
        self.number = number
        self._put = partial(engine.below.put, key, control=control, urgency=urgency)
        self._version: tuple[int, int] | None = None
        self._seals: list[Seal] = []

    def put(self, payload: bytes) -> None:
        engine = self._engine
        version = engine.version()
        if version != self._version:
            self._seals = engine.receivers(self._key)
            self._version = version
        if self._seals:
            self._put(engine.seal(self._seals, self.number(), self._key, payload))


class _Declared:
    def __init__(self, engine: SealedEngine, place: int, below: Declaration) -> None:
        self._engine, self._place, self._below = engine, place, below

    def undeclare(self) -> None:
        self._below.undeclare()
        self._engine.forget(self._place)


class _Watched:
    def __init__(self, watches: dict[MetWatch, None], watch: MetWatch, below: Declaration) -> None:
        self._watches, self._watch, self._below = watches, watch, below

    def undeclare(self) -> None:
        self._watches.pop(self._watch, None)
        self._watch.end()
        self._below.undeclare()


def _asks(pattern: str) -> Callable[[str], bool]:
    return lambda key: key[:1] == "?" and keys_intersect(pattern, key[1:])


def _answers(question: bytes) -> str:
    """The key of answers to a question: no answer fits another one."""
    return f"!{sha256(question).hexdigest()}"


def _every(period_s: float, job: Callable[[], None], name: str) -> Callable[[], None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(period_s):
            try:
                job()
            except Exception:
                if not ended.is_set():
                    log.exception("a node goes on shaking hands after an error of its own")

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended.set


def _log_complaint(peer: str, what: str) -> None:
    log.warning("node %s %s", peer, what)
