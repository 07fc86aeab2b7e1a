"""A node that serves and calls, over a simulated network; its services only count.

What takes frames in, dispatches, sends and claims is the code that ships: the exchange of calls, on
the runtime. Here are the callers and the operations, and what the run witnesses of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from infobus.bus.runtime.runtime import Runtime
from infobus.bus.service_port import Serving
from infobus.engines.memory.engine import Network
from infobus.patience import Patience
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.caller import SERVER
from infobus.protocols.invocation.effects import Bound, GivenUp, Outgoing, Raised, Returned, Yielded
from infobus.protocols.invocation.offers import Id, Offer
from infobus.protocols.invocation.rules import Key
from infobus.protocols.reliable.peer import Terms
from infobus.services.exactly_once import claim, written
from infobus.services.exchange import Exchange
from infobus.services.failures import write_error
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.world import (
    VirtualOperations,
    VirtualThreads,
    WatchedEngine,
    clock_of,
)

TICK_S = 0.2
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


class MemoryReplies:
    """A store of replies that outlives the nodes of its home."""

    def __init__(self, name: str) -> None:
        self.id = name
        self._rows: dict[str, tuple[str, bytes]] = {}

    def claim(self, call: str, owner: str, use: str) -> tuple[str, bytes]:
        """Begin a call, unless somebody has: then who, and the answer if there is one."""
        found = self._rows.get(call, ("", b""))
        self._rows.setdefault(call, (owner, b""))
        return found

    def take_over(self, call: str, owner: str, new_owner: str) -> bool:
        """Begin a call once more that `owner` had begun; False if somebody else was quicker."""
        is_free = self._rows[call] == (owner, b"")
        if is_free:
            self._rows[call] = (new_owner, b"")
        return is_free

    def keep(self, call: str, answer: bytes) -> None:
        """A call has its answer."""
        self._rows[call] = (self._rows[call][0], answer)

    def forget(self, calls: Collection[str], instead: bytes) -> None:
        """The callers have the answers."""
        for call in calls:
            owner, answer = self._rows.get(call, ("", b""))
            if answer:
                self._rows[call] = (owner, instead)


class InvocationWitness(Protocol):
    """Whoever wants to hear what a node does."""

    def executed(self, node: InvocationNode, arguments: dict[str, Any]) -> None:
        """An operation begins."""

    def answered(self, node: InvocationNode, effect: Returned | Raised | GivenUp) -> None:
        """A call has come to its end."""

    def yielded(self, node: InvocationNode, effect: Yielded) -> None:
        """A stream has items."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within a callback or a job."""


class InvocationNode:
    """One node of a run: the shipped exchange and runtime on a simulated network."""

    def __init__(
        self, network: Network, name: str, replies: MemoryReplies, witness: InvocationWitness
    ) -> None:
        self.network = network
        self.name = name
        self.replies = replies
        self.witness = witness
        runtime = Runtime(
            name,
            Terms(idle_beat_s=60.0),  # nobody publishes here
            WatchedEngine(network, witness.failed),
            clock_of(network),
            VirtualThreads(network, name, witness.failed),
            Patience(tick_s=TICK_S),
        )
        self.threads = VirtualOperations(network, name, witness.failed)
        self.exchange = _Serving(runtime, replies, self.threads).exchange
        self.caller, self.server = self.exchange.caller, self.exchange.server
        runtime.join()

    # What the application does.

    def serve(self, subject: str, draw: random.Random) -> None:
        """Offer something, with limits and a rule that are drawn."""
        rule = draw.choice(["", "", "elected", "balanced", "primary"])
        limits = draw.choice([1, 2, 8]), draw.choice([0, 2, 100])
        presence = Presence(
            1, 0, subject, SERVER, self.network.now_s, rule=rule, store=self.replies.id
        )
        if rule:
            self.exchange.servers(subject, 0.0)
        self.exchange.announce_offer(
            presence, lambda id: Offer(id, subject, *limits, rule), _CountingRunner(self, subject)
        )

    def retire(self, offer: Offer) -> None:
        """Offer something no longer."""
        self.exchange.withdraw(offer.id)
        self.exchange.retire(offer.id)

    def call(self, key: int, subject: str, arguments: dict[str, Any], **options: Any) -> None:
        """Call the one operation there is; of a stream, `arguments["count"]` items."""
        bound = Bound(
            _encode(arguments),
            is_idempotent=arguments["idempotent"],
            is_stream=arguments["count"] > 0,
        )
        call = Outgoing(key, subject, "count", lambda presence: bound, **options)
        self.exchange.call(call, _WitnessedCall(self, key))

    def cancel(self, key: int) -> None:
        """Give up a call."""
        self.exchange.cancel(key)

    def crash(self) -> None:
        """Be no more, in the middle of whatever runs."""
        self.network.crash(self.name)


class _Serving(Serving):
    """The shipped node as services see it, with a store and threads of this world."""

    def __init__(
        self, runtime: Runtime, replies: MemoryReplies, threads: VirtualOperations
    ) -> None:
        super().__init__(runtime, Path("nowhere"), test=False)
        self._replies = replies  # type: ignore[assignment]
        self._threads = self.exchange._threads = threads

    def carry_out(
        self, effects: Sequence[Any], do: Callable[[Any], None], may_wait: bool
    ) -> Sequence[Any]:
        def do_once(one: Any) -> None:
            is_end = isinstance(one, Returned | Raised | GivenUp)
            if is_end and one.key not in self.exchange.waiters:
                raise Uneven(f"call {one.key} ends as {one}, after it had ended")
            do(one)

        return super().carry_out(effects, do_once, may_wait)


class _WitnessedCall:
    """Whoever made a call; takes the items of a stream as they come."""

    def __init__(self, node: InvocationNode, key: int) -> None:
        self._node = node
        self._key = key
        self._taken_count = 0

    def returned(self, body: bytes, server: Key) -> None:
        self._node.witness.answered(self._node, Returned(self._key, body, server))

    def raised(self, error: bytes, server: Key) -> None:
        self._node.witness.answered(self._node, Raised(self._key, error, server))

    def yielded(self, bodies: list[bytes]) -> None:
        self._node.witness.yielded(self._node, Yielded(self._key, bodies))
        self._taken_count += len(bodies)
        self._node.exchange.taken(self._key, self._taken_count)

    def given_up(self, given_up: GivenUp) -> None:
        self._node.witness.answered(self._node, given_up)

    def ended(self, error: Exception) -> None:
        raise AssertionError(f"{self._node.name} is never closed, but says {error}")


@dataclass(eq=False)
class _Operation:
    """One call while it runs."""

    call: wire.Call
    arguments: dict[str, Any]
    produced: int = 0
    has_room: bool = True
    is_held: bool = False  # until the caller of a stream has room


class _CountingRunner:
    """Runs the calls of an offer as a thread of each would, if it could wait here."""

    def __init__(self, node: InvocationNode, subject: str) -> None:
        self._node = node
        self._subject = subject
        self._running: dict[Id, _Operation] = {}

    @property
    def _exchange(self) -> Exchange:
        return self._node.exchange

    def run(self, id: Id, call: wire.Call) -> Callable[[], None]:
        return partial(self._claim if call.once else self._begin, id, call)

    def is_async(self, operation: str) -> bool:
        return False

    def stop(self, id: Id) -> None:
        """An operation that nobody waits for stops by raising."""
        error = write_error(InterruptedError("stopped"), with_traceback=False)
        self._node.threads.do(partial(self._finish, id, wire.Failed("-", id[1], error)))

    def go_on(self, id: Id) -> None:
        if (operation := self._running.get(id)) is not None:
            operation.has_room = True
            if operation.is_held:
                operation.is_held = False
                self._node.threads.do(partial(self._count, id))

    def drained(self) -> None:
        if self._running:
            raise Uneven(f"an offer of {self._node.name} is drained, but {self._running} run")

    def asked_to_retire(self) -> None:
        raise AssertionError("nobody asks for it")

    def _claim(self, id: Id, call: wire.Call) -> None:
        is_idempotent = _decode(call.arguments)["idempotent"]
        node = self._exchange.node
        answer = claim(node, call, self._subject, is_idempotent=is_idempotent)
        if answer is not None:
            self._exchange.claimed(id, answer)
        else:
            self._begin(id, call)

    def _begin(self, id: Id, call: wire.Call) -> None:
        arguments = _decode(call.arguments)
        self._running[id] = _Operation(call, arguments)
        self._node.witness.executed(self._node, arguments)
        delay_s = self._node.network.random.choice([0.0, 0.05, 1.0])
        self._node.threads.do_after(delay_s, partial(self._count, id))

    def _count(self, id: Id) -> None:
        """Run on until the operation ends, or the caller of a stream has no room."""
        if (operation := self._running.get(id)) is None:
            return
        while operation.produced < operation.arguments["count"]:
            operation.produced += 1
            operation.has_room = False  # before the caller, perhaps this node, makes room
            has_room = self._exchange.produced(id, _encode(operation.produced), [])
            if not has_room and not operation.has_room:
                operation.is_held = True
                return
        self._finish(id, wire.Reply("-", id[1], _encode(operation.arguments["result"])))

    def _finish(self, id: Id, answer: wire.Reply | wire.Failed) -> None:
        if (operation := self._running.pop(id, None)) is not None:
            if operation.call.once:
                self._node.replies.keep(operation.call.once, written(answer))
            self._exchange.finished(id, answer)
