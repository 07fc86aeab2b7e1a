"""A simulated node: the shipped runtime on a simulated network, and what decides and witnesses.

It speaks real bytes over a `MemoryEngine` and lives on the network's virtual clock. What gathers,
flushes, receives, repairs, dispatches, queues and holds back is the code that ships, so whatever
the bus does by it can be seen here, thousands of times a minute and repeatably. The node reads the
frames that leave, because the run must know the number of each event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from infobus.bus.deliver.event import Event
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import Subscription, WhenFull
from infobus.bus.publish.outlet import Batch, Flusher, Outlet
from infobus.bus.runtime.runtime import Runtime
from infobus.engines import Engine
from infobus.engines.memory.engine import Network
from infobus.errors import Backpressure, BusClosed, LossError
from infobus.filters import Filter, compile
from infobus.patience import Patience
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in, lane_key, lane_of
from infobus.protocols.frames.wire import Items
from infobus.protocols.interest.own_rows import channel_pattern, touches
from infobus.protocols.reliable.effects import Events, Lost
from infobus.protocols.reliable.peer import Terms
from infobus.subjects import channel_of, matches
from infobus.testing.simulation.world import VirtualThreads, WatchedEngine, clock_of

CLASSES = ["", "business", "emergency"]  # as lanes spell them
TICK_S = 0.1
CONSUME_S_MAX = 0.1
"""An event waits in its queue for at most so long before its consumer looks, unless it rests."""
GATHER_BYTES = 300
"""Of events that are gathered for one receiver: a few events."""


Attributes = dict[str, Any]
Word = tuple[str, int, int | None]
"""Of a loss: its sender, the first and the last number."""


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
    words: list[Word] = field(default_factory=list)
    """Of losses that its consumer is to hear of."""

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


def _give_up(outlet: Outlet) -> None:
    """Nobody can wait where time stands still until the caller is done."""
    raise Backpressure(f"the window of {outlet.lane!r} is full")


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
        """An event leaves; without a number it was quenched."""

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

    def ends(self, node: SimulatedNode, peer: str) -> None:
        """The node has heard that a peer has left or died."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class SimulatedNode:
    """One node of a run; its consumers take events out of their queues at drawn times."""

    queue_counts = (2, 8, 65_536, 65_536)

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: Witness,
        batch: Batch | None = None,
    ) -> None:
        self.network = network
        self.name = name
        self.subscriptions: list[SimulatedSubscription] = []
        self._witness = witness
        self._events_count = 0
        self._is_consuming = False
        self._rests_until_s = 0.0
        self._engine = self.new_engine()
        self.runtime = _WitnessedRuntime(self, terms, self._engine)
        self.node = self.runtime.node
        self._leaving: dict[tuple[str, int], tuple[str, Attributes]] = {}  # by lane and event
        self.outlets: dict[str, Outlet] = {}  # by lane
        self._flusher = Flusher(name, batch, self.runtime.threads, GATHER_BYTES)
        self.runtime.join()
        self._flusher.start()

    def new_engine(self) -> Engine:
        """What carries its frames."""
        return WatchedEngine(self.network, self._witness.failed)

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
            when_full=self.when_full(),
            queue_count_max=self.network.random.choice(self.queue_counts),
            clock=self.runtime.clock,
        )
        self.runtime.subscribe(subscription.real, timeout_s=0.0)
        subscription.filters.append((self.node.own.version, new))
        self.subscriptions.append(subscription)
        self._note_all_known(subscription)
        return subscription

    def when_full(self) -> WhenFull:
        """What the next subscription wants to be done when its queue is full."""
        return "block"

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
        """Publish events of one class on subjects of one channel; they leave now or soon.

        False if there was no room in the window: then some of them are not published.
        """
        lane = lane_of(channel_of(events[0][0], self.node.terms.depth), class_)
        wanted: list[wire.Item] = []
        for subject, attributes in events:
            self._events_count += 1
            event = self._events_count
            if self.is_wanted(subject, attributes):
                self._leaving[lane, event] = (subject, attributes)
                body = msgspec.msgpack.encode(attributes)
                wanted.append(wire.Item(subject, event, self.runtime.clock.wall_s(), 0, body))
            else:
                self._witness.published(self, lane, subject, attributes, event, None)
        if not wanted:
            self.node.note_unwanted(lane)
            return True
        outlet = self.outlet(lane)
        if not class_:
            self._flusher.make_way_for(outlet)
        if len(wanted) > 1 and self.network.random.random() < 0.5:
            return self._send_run(outlet, wanted)
        return self._send(outlet, wanted)

    def _send(self, outlet: Outlet, items: list[wire.Item]) -> bool:
        is_several = len(items) > 1
        taken_count = 0
        try:
            for item in items:
                outlet.send(item, len(item.body), (), is_several)
                taken_count += 1
        except Backpressure:
            for item in items[taken_count:]:
                del self._leaving[outlet.lane, item.number]
        if is_several and not outlet.flush_if_room():
            outlet.ask_flush()
        return taken_count == len(items)

    def _send_run(self, outlet: Outlet, items: list[wire.Item]) -> bool:
        try:
            outlet.send_run(wire.Items.of(items), sum(len(item.body) for item in items), ())
        except Backpressure:
            for item in items:  # those that were sent leave no more
                self._leaving.pop((outlet.lane, item.number), None)
            return False
        return True

    def outlet(self, lane: str) -> Outlet:
        """The way out of a lane."""
        if lane not in self.outlets:
            self.outlets[lane] = Outlet(
                self.name,
                lane,
                self.node.route(lane, self.network.now_s),
                put=partial(self._put, lane),
                describe_types=lambda _: [],
                wait_for_room=_give_up,
                on_expired=lambda _: None,
                flusher=self._flusher,
                clock=self.runtime.clock,
            )
        return self.outlets[lane]

    def published_count(self, lane: str) -> int:
        """How many events were published on a lane that are numbered, or will be."""
        waiting_count = sum(on == lane for on, _ in self._leaving)
        return self.outlet(lane).route.next - 1 + waiting_count

    def is_leaving(self) -> bool:
        """Whether anything was published that has not left yet."""
        return bool(self._leaving)

    def left(self, lane: str, number: int, item: wire.Item) -> None:
        """An event has got its number on the route."""
        event = self._leaving.pop((lane, item.number), None)
        assert event is not None, f"{self.name} sent event {item.number} on {lane!r} twice"
        self._witness.published(self, lane, *event, item.number, number)

    def _put(self, lane: str, frame: bytes) -> None:
        message = wire.decode(frame)
        assert isinstance(message, wire.Data)
        for number, item in enumerate(message.items, message.first):
            self.left(lane, number, item)
        self._engine.put(lane_key(lane), frame)

    def is_wanted(self, subject: str, attributes: Attributes) -> bool:
        wanted = self.node.wanted(subject)
        return wanted if isinstance(wanted, bool) else wanted(attributes)

    def leave(self) -> None:
        """Send what was gathered, if there is room, say goodbye and close."""
        for outlet in self.outlets.values():
            outlet.close(BusClosed(f"{self.name} has left"))
        self._flusher.stop()
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
        self.consume_soon()

    def consume_soon(self) -> None:
        """Something is in the queues: an event, or the word of a loss, which fills them, too."""
        if not self._is_consuming:
            self._is_consuming = True
            delay_s = self.network.random.uniform(0, CONSUME_S_MAX)
            self.network.call_later(delay_s, self._consume, node=self.name)

    def rest(self, seconds: float) -> None:
        """Let no consumer take anything for a while; their queues fill, and hold the senders."""
        self._rests_until_s = self.network.now_s + seconds

    @property
    def rest_s(self) -> float:
        """How much longer its consumers take nothing."""
        return self._rests_until_s - self.network.now_s

    @property
    def is_consuming(self) -> bool:
        """Whether its consumers are about to look into their queues."""
        return self._is_consuming

    def _consume(self) -> None:
        if self.rest_s > 0:
            self.network.call_later(self.rest_s, self._consume, node=self.name)
            return
        self._is_consuming = False
        try:
            self.drain()
        except Exception as error:
            self._witness.failed(error)

    def drain(self) -> None:
        """Let every consumer take what is in its queue."""
        for subscription in list(self.subscriptions):
            self.drain_one(subscription)

    def drain_one(self, subscription: SimulatedSubscription) -> None:
        """Let a consumer take what is in its queue."""
        while True:
            try:
                event = subscription.real.receive(timeout_s=0.0)
            except (TimeoutError, BusClosed):
                return
            except LossError as loss:
                self.told(subscription, loss)
            else:
                self._witness.received(self, subscription, event)

    def told(self, subscription: SimulatedSubscription, loss: LossError) -> None:
        """A consumer has heard of a loss."""
        word = (loss.sender, loss.first, loss.last)
        assert word in subscription.words, f"{loss}, of which the node did not hear"
        subscription.words.remove(word)

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

    def __init__(self, node: SimulatedNode, terms: Terms, engine: Engine) -> None:
        self._simulated = node
        self._witness = node._witness
        network, failed = node.network, self._witness.failed
        threads = VirtualThreads(network, node.name, failed)
        clock, patience = clock_of(network), Patience(tick_s=TICK_S)
        super().__init__(node.name, terms, engine, clock, threads, patience)
        self._dispatch = self.delivery.dispatch
        self.delivery.dispatch = self._witnessed_dispatch  # type: ignore[method-assign]
        gate = self.delivery.gate
        self._look_again = gate.look_again
        gate.look_again = self._witnessed_look_again  # type: ignore[method-assign]

    def on_frame(self, payload: bytes) -> None:
        message = wire.decode(payload)
        assert message is not None
        if isinstance(message, wire.Known) and message.to == self.name:
            self._witness.told(self._simulated, message)
        elif isinstance(message, wire.Data):
            end = message.first + len(message.items)
            self._witness.heard(self._simulated, message.sender, message.lane, end)
        elif isinstance(message, wire.Bye):
            self._witness.ends(self._simulated, message.sender)
        elif isinstance(message, wire.Died):
            self._witness.ends(self._simulated, message.node)
        refused_from = self._refused_from(message)
        super().on_frame(payload)
        if refused_from is not None:
            assert self._refused_from(message) in (refused_from, None), "it took in what it refuses"
        self._simulated.took(message)

    def _refused_from(self, message: wire.Message) -> int | None:
        """If the lane of a frame is refused for lack of room: the number that comes next on it."""
        if not isinstance(message, wire.Data) or message.sender not in self.node.peers:
            return None
        receiver = self.node.peers[message.sender].receivers.get(message.lane)
        return receiver.next if receiver is not None and receiver.paused else None

    def _on_token(self, key: str, alive: bool) -> None:
        self._witness.saw(self._simulated, key.rpartition("/")[2], alive)
        super()._on_token(key, alive)

    def _witnessed_dispatch(self, sender: str, lane: str, first: int, items: Items) -> None:
        self._dispatch(sender, lane, first, items)
        self._simulated.dispatched(sender, lane, first, items)

    def _witnessed_look_again(self, now_s: float) -> None:
        self._look_again(now_s)
        self._simulated.consume_soon()  # what waited may have been delivered

    def report(
        self, lost: Lost, lanes: tuple[str, ...], *, but: Subscription | None = None
    ) -> None:
        depth = self.node.terms.depth
        for subscription in self._simulated.subscriptions:
            wanted = [channel_pattern(subscription.pattern, depth)]
            if any(not lane or touches(wanted, channel_in(lane)) for lane in lanes):
                subscription.words.append((lost.sender, lost.first, lost.last))
        super().report(lost, lanes, but=but)
        self._witness.lost(self._simulated, lost)
        self._simulated.consume_soon()
