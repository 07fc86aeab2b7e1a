"""A node that serves and calls, over a simulated network; its services only count."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from infobus.engines.memory.engine import MemoryEngine, Network
from infobus.protocols.effects import ToAll, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.caller import SERVER, Caller
from infobus.protocols.invocation.discovery import Directory
from infobus.protocols.invocation.effects import (
    Bound,
    CallerEffects,
    GivenUp,
    Outgoing,
    Raised,
    Returned,
    Yielded,
)
from infobus.protocols.invocation.offers import Acknowledged, Claim, Id, Offer, Room, RunCall, Stop
from infobus.protocols.invocation.server import Server

TICK_S = 0.2
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode
_answers: msgspec.msgpack.Decoder[wire.Reply | wire.Failed] = msgspec.msgpack.Decoder(
    wire.Reply | wire.Failed
)


class MemoryReplies:
    """A store of replies that outlives the nodes of its home."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.rows: dict[str, tuple[str, bytes]] = {}


class InvocationWitness(Protocol):
    """Whoever wants to hear what a node does."""

    def executed(self, node: InvocationNode, arguments: dict[str, Any]) -> None:
        """An operation begins."""

    def answered(self, node: InvocationNode, effect: Returned | Raised | GivenUp) -> None:
        """A call has come to its end."""

    def yielded(self, node: InvocationNode, effect: Yielded) -> None:
        """A stream has items."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class InvocationNode:
    """Joins one `Directory`, one `Caller`, one `Server` and one `MemoryEngine`."""

    def __init__(
        self, network: Network, name: str, replies: MemoryReplies, witness: InvocationWitness
    ) -> None:
        self.network = network
        self.name = name
        self.replies = replies
        self.is_alive = True
        self._peers: dict[str, None] = {}
        self._witness = witness
        self._running: dict[Id, wire.Call] = {}
        self._paused: dict[Id, int] = {}  # streams whose callers have no room -> items produced
        self._engine = MemoryEngine(network)
        self._engine.open(name)
        self.directory = Directory(name, lambda: self._peers, lambda id: self.server.load(id))
        self.caller = Caller(self.directory, lambda types: [])
        self.server = Server(self.directory)
        for key in (f"n/{name}", "all"):
            self._engine.declare(key, self._on_frame)
        self._engine.announce(f"l/{name}")
        self._engine.watch("l/*", self._on_token)
        self._tick_later()

    # What the application does.

    def serve(self, subject: str, draw: random.Random) -> None:
        """Offer something, with limits and a rule that are drawn."""
        rule = draw.choice(["", "", "elected", "balanced", "primary"])
        presence = Presence(
            1, 0, subject, SERVER, self.network.now_s, rule=rule, store=self.replies.id
        )
        if rule:
            self.do(self.caller.watch(subject, self.network.now_s))
        presence, effects = self.directory.announce(presence)
        limits = draw.choice([1, 2, 8]), draw.choice([0, 2, 100])
        self.server.offer(Offer(presence.id, subject, *limits, rule))
        self.do(self.caller.noted(effects, self.network.now_s))

    def retire(self, offer: Offer) -> None:
        """Offer something no longer."""
        self.do(self.caller.noted(self.directory.withdraw(offer.id), self.network.now_s))
        self.do(self.server.retire(offer.id))

    def call(self, key: int, subject: str, arguments: dict[str, Any], **options: Any) -> None:
        """Call the one operation there is; of a stream, `arguments["count"]` items."""
        bound = Bound(
            _encode(arguments),
            is_idempotent=arguments["idempotent"],
            is_stream=arguments["count"] > 0,
        )
        call = Outgoing(key, subject, "count", lambda presence: bound, **options)
        self.do(self.caller.start(call, self.network.now_s))

    def cancel(self, key: int) -> None:
        """Give up a call."""
        self.do(self.caller.cancel(key, self.network.now_s))

    def crash(self) -> None:
        """Be no more, in the middle of whatever runs."""
        self.is_alive = False
        self.network.crash(self.name)

    # What runs.

    def _claim(self, id: Id, call: wire.Call) -> None:
        owner, answer = self.replies.rows.setdefault(call.once, (self.name, b""))
        claimed: Any = None
        if answer:
            claimed = _answers.decode(answer)
        elif owner != self.name:
            if owner in self._peers:
                claimed = wire.Refused(self.name, id[1], wire.BUSY)
            elif _decode(call.arguments)["idempotent"]:
                self.replies.rows[call.once] = (self.name, b"")
            else:
                claimed = wire.Failed(self.name, id[1], b"interrupted")
        self.do(self.server.claimed(id, claimed, self.network.now_s))

    def _run(self, id: Id, call: wire.Call) -> None:
        self._running[id] = call
        arguments = _decode(call.arguments)
        self._witness.executed(self, arguments)
        self._later(self.network.random.choice([0.0, 0.05, 1.0]), partial(self._go_on, id, 0))

    def _go_on(self, id: Id, produced: int) -> None:
        """Run on until the operation ends, or the caller of a stream has no room."""
        call = self._running.get(id)
        if call is None:
            return
        arguments = _decode(call.arguments) if call.arguments else {"count": 0}
        while produced < arguments["count"]:
            produced += 1
            has_room, effects = self.server.produced(id, _encode(produced), [])
            if not has_room:
                self._paused[id] = produced  # before the caller, perhaps this node, makes room
            self.do(effects)
            if not has_room:
                return
        del self._running[id]
        answer = wire.Reply(self.name, id[1], _encode(arguments.get("result")))
        if call.once:
            self.replies.rows[call.once] = (self.name, _encode(answer))
        self.do(self.server.finished(id, answer, self.network.now_s))

    # What the world does.

    def _on_frame(self, payload: bytes) -> None:
        self._watched(self._take, wire.decode(payload))

    def _on_token(self, key: str, alive: bool) -> None:
        self._watched(self._see, key.rpartition("/")[2], alive)

    def _watched(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # the engine would log it and go on
            self._witness.failed(error)

    def _see(self, peer: str, alive: bool) -> None:
        now_s = self.network.now_s
        if alive:
            self._peers[peer] = None
            self.do(self.directory.peer_up(peer, now_s))
        else:
            self._peers.pop(peer, None)
            self.do(self.caller.noted(self.directory.peer_down(peer), now_s))
            self.do(self.caller.peer_down(peer, now_s))
            self.do(self.server.peer_down(peer))

    def _take(self, message: Any) -> None:
        now_s = self.network.now_s
        match message:
            case wire.Who():
                self.do(self.directory.take_who(message))
            case wire.IAm():
                self.do(self.caller.noted(self.directory.take_i_am(message), now_s))
            case wire.Call() | wire.Settled() | wire.Credit():
                self.do(self.server.take(message, now_s))
            case _:
                self.do(self.caller.take(message, now_s))

    def _later(self, delay_s: float, function: Callable[[], None]) -> None:
        self.network.call_later(delay_s, partial(self._watched, function), node=self.name)

    def _tick_later(self) -> None:
        self._later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_s = self.network.now_s
        self.do(self.caller.noted(self.directory.tick(now_s), now_s))
        self.do(self.caller.tick(now_s))
        self.do(self.server.tick(now_s))
        self._tick_later()

    def do(self, effects: CallerEffects | Any) -> None:
        """Carry out what the halves say."""
        for one in effects:
            match one:
                case ToPeer(self.name, message):
                    self._take(message)
                case ToPeer(peer, message):
                    self._engine.put(f"n/{peer}", _encode(message))
                case ToAll(message):
                    self._engine.put("all", _encode(message))
                case RunCall(id, call):
                    self._run(id, call)
                case Claim(id, call):
                    self._later(0.01, partial(self._claim, id, call))
                case Room(id):
                    if (produced := self._paused.pop(id, None)) is not None:
                        self._go_on(id, produced)
                case Stop(id):
                    self._stop(id)
                case Acknowledged(once):
                    if self.replies.rows.get(once, ("", b""))[1]:
                        # Not forgotten: an old copy of the call may still be on its way.
                        done = wire.Failed(self.name, 1, b"acknowledged")
                        self.replies.rows[once] = (self.name, _encode(done))
                case Returned() | Raised() | GivenUp():
                    self._witness.answered(self, one)
                case Yielded():
                    self._witness.yielded(self, one)
                    self.do(self.caller.taken(one.key, self._taken(one)))
                case _:
                    pass  # the rest is for people

    def _taken(self, yielded: Yielded) -> int:
        call = self.caller.calls.get(yielded.key)
        return call.inflow.received if call is not None and call.inflow is not None else 0

    def _stop(self, id: Id) -> None:
        """An operation that nobody waits for stops by raising."""
        self._paused.pop(id, None)
        if self._running.pop(id, None) is not None:
            answer = wire.Failed(self.name, id[1], b"stopped")
            self.do(self.server.finished(id, answer, self.network.now_s))
