"""A simulated node: the shipped runtime on a simulated network, and what decides and witnesses.

It speaks real bytes over a `MemoryEngine` and lives on the network's virtual clock. What receives,
repairs, dispatches, queues and holds back is the code that ships, so whatever the bus does by it
can be seen here, thousands of times a minute and repeatably. Only publishing is done here, frame
by frame, because the run must know the number of each event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from infobus.bus.deliver.event import Event
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.runtime.runtime import Runtime
from infobus.engines.memory.engine import Network
from infobus.errors import BusClosed, LossError
from infobus.filters import Filter, compile
from infobus.patience import Patience
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import lane_key, lane_of
from infobus.protocols.frames.wire import Items
from infobus.protocols.reliable.effects import Events, Lost
from infobus.protocols.reliable.peer import Route, Terms
from infobus.subjects import channel_of, matches
from infobus.testing.simulation.world import VirtualThreads, WatchedEngine, clock_of

CLASSES = ["", "business", "emergency"]  # as lanes spell them
TICK_S = 0.1
CONSUME_S_MAX = 0.1
"""An event waits in its queue for at most so long before its consumer looks."""
_QUEUE_COUNTS = [2, 8, 65_536, 65_536]


Attributes = dict[str, Any]


@dataclass(eq=False)
class SimulatedSubscription:
    """A subscription of a simulated node."""

    pattern: str
    filters: list[tuple[int, Filter | None]]  # all it has had, and the rows' version of each
    changed_at_s: float
    beside: set[str]  # channel patterns that were wanted before it began
    known: dict[str, int] = field(default_factory=dict)  # node -> version it has confirmed
    real: Subscription = field(init=False)
    due: dict[tuple[str, str], deque[int]] = field(default_factory=dict)
    """What the node has taken in for it, by sender and lane, and its consumer has not got yet."""

    def accepts(self, subject: str, attributes: Attributes) -> bool:
        """Whether the subscription wants such an event now."""
        return matches(self.pattern, subject) and _fits(self.filters[-1][1], attributes)

    def is_known_to_accept(self, node: str, subject: str, attributes: Attributes) -> bool:
        """Whether `node` has said that it knows that such an event is wanted.

        Of the filters that the subscription had since then, it may hold any.
        """
        if node not in self.known or not matches(self.pattern, subject):
            return False
        last = max(i for i, (v, _) in enumerate(self.filters) if v <= self.known[node])
        return all(_fits(where, attributes) for _, where in self.filters[last:])


def _text(where: Filter | None) -> str:
    return "" if where is None else where.text


def _fits(where: Filter | None, attributes: Attributes) -> bool:
    return where is None or where.matches(attributes)


class Witness(Protocol):
    """Whoever wants to hear what a simulated node does."""

    def published(
        self,
        node: SimulatedNode,
        lane: str,
        subject: str,
        attributes: Attributes,
        event: int,
        number: int | None,
    ) -> None:
        """An event was published; without a number it was quenched."""

    def told(self, node: SimulatedNode, known: wire.Known) -> None:
        """A peer has answered to the node's rows."""

    def heard(self, node: SimulatedNode, sender: str, lane: str, end: int) -> None:
        """The node has seen that numbers before `end` exist."""

    def delivered(self, node: SimulatedNode, events: Events) -> None:
        """The node takes events in, for whichever of its subscriptions wants them."""

    def received(
        self, node: SimulatedNode, subscription: SimulatedSubscription, event: Event
    ) -> None:
        """A consumer has got an event out of its queue."""

    def lost(self, node: SimulatedNode, lost: Lost) -> None:
        """A loss is reported to the node's subscriptions."""

    def saw(self, node: SimulatedNode, peer: str, alive: bool) -> None:
        """The node has noticed that a peer came or went."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class SimulatedNode:
    """One node of a run; its consumers take events out of their queues at drawn times."""

    def __init__(self, network: Network, name: str, terms: Terms, witness: Witness) -> None:
        self.network = network
        self.name = name
        self.subscriptions: list[SimulatedSubscription] = []
        self._witness = witness
        self._events_count = 0
        self._is_consuming = False
        self._engine = WatchedEngine(network, witness.failed)
        self.runtime = _WitnessedRuntime(self, terms, self._engine)
        self.node = self.runtime.node
        self.runtime.join()

    def subscribe(self, pattern: str, where: str = "") -> SimulatedSubscription:
        """Want what `where` lets through of `pattern` from now on."""
        new = compile(where) if where else None
        now_s, beside = self.network.now_s, self.node.own.channel_patterns()
        subscription = SimulatedSubscription(pattern, [], now_s, beside)
        subscription.real = Subscription(
            self.runtime,
            [pattern],
            terms=self.node.terms,
            where=new,
            test=False,
            demand=Demand(),
            callback=None,
            on_error=None,
            on_loss="raise",
            when_full="block",
            queue_count_max=self.network.random.choice(_QUEUE_COUNTS),
            clock=self.runtime.clock,
        )
        self.runtime.subscribe(subscription.real, timeout_s=0.0)
        subscription.filters.append((self.node.own.version, new))
        self.subscriptions.append(subscription)
        self._note_all_known(subscription)
        return subscription

    def replace(self, subscription: SimulatedSubscription, where: str) -> None:
        """Let the subscription have another filter."""
        new = compile(where) if where else None
        self.runtime.change_filter(subscription.real, new, timeout_s=0.0)
        subscription.filters.append((self.node.own.version, new))
        subscription.changed_at_s = self.network.now_s
        self._note_all_known(subscription)

    def unsubscribe(self, subscription: SimulatedSubscription) -> None:
        """Want the subscription's pattern no more."""
        self.subscriptions.remove(subscription)
        self.runtime.forget(subscription.real)

    def publish(self, events: Sequence[tuple[str, Attributes]], class_: str = "") -> bool:
        """Publish events of one class on subjects of one channel, in one frame.

        False if there was no room in the window: then nothing is published.
        """
        lane = lane_of(channel_of(events[0][0], self.node.terms.depth), class_)
        are_wanted = [self.is_wanted(*event) for event in events]
        if not any(are_wanted):
            self.node.note_unwanted(lane)
            for subject, attributes in events:
                self._events_count += 1
                self._witness.published(self, lane, subject, attributes, self._events_count, None)
            return True
        route = self.node.route(lane, self.network.now_s)
        if not route.has_room():
            return False
        items: list[wire.Item] = []
        for (subject, attributes), is_wanted in zip(events, are_wanted, strict=True):
            self._events_count += 1
            number = None
            if is_wanted:
                number = route.next + len(items)
                body = msgspec.msgpack.encode(attributes)
                now_s = self.network.now_s
                items.append(wire.Item(subject, self._events_count, now_s, 0, body))
            self._witness.published(self, lane, subject, attributes, self._events_count, number)
        self.put_items(route, lane, items)
        return True

    def put_items(self, route: Route, lane: str, items: Sequence[wire.Item]) -> None:
        frame = wire.encode(wire.Data(self.name, lane, route.next, wire.Items.of(items)))
        route.sent(frame, len(items))
        self._engine.put(lane_key(lane), frame)

    def is_wanted(self, subject: str, attributes: Attributes) -> bool:
        wanted = self.node.wanted(subject)
        return wanted if isinstance(wanted, bool) else wanted(attributes)

    def leave(self) -> None:
        """Say goodbye and close."""
        self.runtime.close()

    # What the runtime does.

    def took(self, message: wire.Message) -> None:
        """A frame was taken in."""
        if isinstance(message, wire.Known):
            for subscription in self.subscriptions:
                self._note_known(subscription, message.sender)

    def dispatched(self, sender: str, lane: str, first: int, items: Items) -> None:
        """Events were put into the queues."""
        self._witness.delivered(self, Events(sender, lane, first, items))
        if not self._is_consuming:
            self._is_consuming = True
            delay_s = self.network.random.uniform(0, CONSUME_S_MAX)
            self.network.call_later(delay_s, self._consume, node=self.name)

    def _consume(self) -> None:
        """Let every consumer take what is in its queue."""
        self._is_consuming = False
        try:
            for subscription in list(self.subscriptions):
                self._drain(subscription)
        except Exception as error:
            self._witness.failed(error)

    def _drain(self, subscription: SimulatedSubscription) -> None:
        while True:
            try:
                event = subscription.real.receive(timeout_s=0.0)
            except (TimeoutError, BusClosed):
                return
            except LossError:
                continue  # the account knows of it
            self._witness.received(self, subscription, event)

    def _note_all_known(self, subscription: SimulatedSubscription) -> None:
        for name, peer in self.node.peers.items():
            if peer.alive:  # it may know already, from rows that cover this one
                self._note_known(subscription, name)

    def _note_known(self, subscription: SimulatedSubscription, peer: str) -> None:
        confirmed = self.node.peers[peer].confirmed
        if confirmed >= subscription.filters[0][0]:
            subscription.known[peer] = max(confirmed, subscription.known.get(peer, 0))


class _WitnessedRuntime(Runtime):
    """The shipped runtime, which tells the witness of a run what it does."""

    def __init__(self, node: SimulatedNode, terms: Terms, engine: WatchedEngine) -> None:
        self._simulated = node
        self._witness = node._witness
        network, failed = node.network, self._witness.failed
        threads = VirtualThreads(network, node.name, failed)
        clock, patience = clock_of(network), Patience(tick_s=TICK_S)
        super().__init__(node.name, terms, engine, clock, threads, patience)
        self._dispatch = self.delivery.dispatch
        self.delivery.dispatch = self._witnessed_dispatch  # type: ignore[method-assign]

    def on_frame(self, payload: bytes) -> None:
        message = wire.decode(payload)
        assert message is not None
        if isinstance(message, wire.Known):
            self._witness.told(self._simulated, message)
        elif isinstance(message, wire.Data):
            end = message.first + len(message.items)
            self._witness.heard(self._simulated, message.sender, message.lane, end)
        super().on_frame(payload)
        self._simulated.took(message)

    def _on_token(self, key: str, alive: bool) -> None:
        self._witness.saw(self._simulated, key.rpartition("/")[2], alive)
        super()._on_token(key, alive)

    def _witnessed_dispatch(self, sender: str, lane: str, first: int, items: Items) -> None:
        self._dispatch(sender, lane, first, items)
        self._simulated.dispatched(sender, lane, first, items)

    def _report(self, lost: Lost, lane: str) -> None:
        super()._report(lost, lane)
        self._witness.lost(self._simulated, lost)
