"""A whole node but for threads and user code: a protocol `Node` over a simulated network.

It speaks real bytes over a `MemoryEngine` and lives on the network's virtual clock, so whatever
the bus does by the protocols can be seen here, thousands of times a minute and repeatably.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec

from infobus.engines.base import Declaration
from infobus.engines.memory.engine import MemoryEngine, Network
from infobus.filters import Filter, compile
from infobus.protocols.effects import ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import class_key, lane_key, lane_of
from infobus.protocols.interest.own_rows import Reduction, reduced_filters
from infobus.protocols.reliable.effects import Effects, Events, Lost, Reduce
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.peer import Route, Terms
from infobus.subjects import channel_keys_of, channel_of, matches

CLASSES = ["", "business", "emergency"]  # as lanes spell them
TICK_S = 0.1
REDUCING_S_MAX = 0.5


Attributes = dict[str, Any]


@dataclass(eq=False)
class SimulatedSubscription:
    """A subscription of a simulated node."""

    pattern: str
    filters: list[tuple[int, Filter | None]]  # all it has had, and the rows' version of each
    changed_at_s: float
    beside: set[str]  # channel patterns that were wanted before it began
    known: dict[str, int] = field(default_factory=dict)  # node -> version it has confirmed

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
        """Events are handed to the node's subscriptions."""

    def lost(self, node: SimulatedNode, lost: Lost) -> None:
        """A loss is reported to the node's subscriptions."""

    def saw(self, node: SimulatedNode, peer: str, alive: bool) -> None:
        """The node has noticed that a peer came or went."""

    def failed(self, error: Exception) -> None:
        """The node, or the witness itself, has raised within an engine's callback."""


class SimulatedNode:
    """Joins one `Node` and one `MemoryEngine`; its own effects are carried out at once."""

    def __init__(self, network: Network, name: str, terms: Terms, witness: Witness) -> None:
        self.network = network
        self.name = name
        self.node = Node(name, terms)
        self.subscriptions: list[SimulatedSubscription] = []
        self._witness = witness
        self._events_count = 0
        self._declared: dict[str, Declaration] = {}
        self._engine = MemoryEngine(network)
        self._engine.open(name)
        for key in (f"n/{name}", "all"):
            self._engine.declare(key, self._on_frame)
        self._engine.announce(f"l/{name}")
        self._engine.watch("l/*", self._on_token)
        # Nodes do not tick in step.
        self._tick_after(network.random.uniform(0, TICK_S))

    def subscribe(self, pattern: str, where: str = "") -> SimulatedSubscription:
        """Want what `where` lets through of `pattern` from now on."""
        new = compile(where) if where else None
        beside = self.node.own.channel_patterns()
        effects = self.node.add_interest([pattern], self.network.now_s, _text(new))
        subscription = SimulatedSubscription(
            pattern, [(self.node.own.version, new)], self.network.now_s, beside
        )
        self.subscriptions.append(subscription)
        self._tell(subscription, effects)
        return subscription

    def replace(self, subscription: SimulatedSubscription, where: str) -> None:
        """Let the subscription have another filter."""
        old, new = subscription.filters[-1][1], compile(where) if where else None
        added, removed = ((subscription.pattern, _text(where)) for where in (new, old))
        effects = self.node.change_interest([added], [removed], self.network.now_s)
        subscription.filters.append((self.node.own.version, new))
        subscription.changed_at_s = self.network.now_s
        self._tell(subscription, effects)

    def unsubscribe(self, subscription: SimulatedSubscription) -> None:
        """Want the subscription's pattern no more."""
        self.subscriptions.remove(subscription)
        patterns, now_s = [subscription.pattern], self.network.now_s
        where = _text(subscription.filters[-1][1])
        self._do(self.node.remove_interest(patterns, now_s, where))
        self._declare_channels()

    def publish(self, events: Sequence[tuple[str, Attributes]], class_: str = "") -> bool:
        """Publish events of one class on subjects of one channel, in one frame.

        False if there was no room in the window: then nothing is published.
        """
        lane = lane_of(channel_of(events[0][0], self.node.terms.depth), class_)
        are_wanted = [self._is_wanted(*event) for event in events]
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
        self._put(route, lane, items)
        return True

    def _put(self, route: Route, lane: str, items: Sequence[wire.Item]) -> None:
        frame = wire.encode(wire.Data(self.name, lane, route.next, wire.Items.of(items)))
        route.sent(frame, len(items))
        self._engine.put(lane_key(lane), frame)

    def _is_wanted(self, subject: str, attributes: Attributes) -> bool:
        wanted = self.node.wanted(subject)
        return wanted if isinstance(wanted, bool) else wanted(attributes)

    def _tell(self, subscription: SimulatedSubscription, effects: Effects) -> None:
        self._declare_channels()
        self._do(effects)
        for name, peer in self.node.peers.items():
            if peer.alive:  # it may know already, from rows that cover this one
                self._note_known(subscription, name)

    def _declare_channels(self) -> None:
        depth = self.node.terms.depth
        keys = {
            class_key(channel_keys_of(pattern, depth), class_)
            for pattern in self.node.own.channel_patterns()
            for class_ in CLASSES
        }
        for key in sorted(keys.difference(self._declared)):
            self._declared[key] = self._engine.declare(key, self._on_frame)
        for key in sorted(self._declared.keys() - keys):
            self._declared.pop(key).undeclare()

    def leave(self) -> None:
        """Say goodbye and close."""
        self._do(self.node.leave())
        self._engine.close()

    def _on_frame(self, payload: bytes) -> None:
        self._watched(self._take, payload)

    def _on_token(self, key: str, alive: bool) -> None:
        self._watched(self._see, key.rpartition("/")[2], alive)

    def _watched(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # the engine would log it and go on
            self._witness.failed(error)

    def _take(self, payload: bytes) -> None:
        message = wire.decode(payload)
        assert message is not None
        if isinstance(message, wire.Known):
            self._witness.told(self, message)
        elif isinstance(message, wire.Data):
            end = message.first + len(message.items)
            self._witness.heard(self, message.sender, message.lane, end)
        self._do(self.node.take(message, self.network.now_s))
        if isinstance(message, wire.Known):
            for subscription in self.subscriptions:
                self._note_known(subscription, message.sender)

    def _note_known(self, subscription: SimulatedSubscription, peer: str) -> None:
        confirmed = self.node.peers[peer].confirmed
        if confirmed >= subscription.filters[0][0]:
            subscription.known[peer] = max(confirmed, subscription.known.get(peer, 0))

    def _see(self, peer: str, alive: bool) -> None:
        self._witness.saw(self, peer, alive)
        notice = self.node.peer_up if alive else self.node.peer_down
        self._do(notice(peer, self.network.now_s))

    def _tick_after(self, delay_s: float) -> None:
        self.network.call_later(delay_s, self._tick, node=self.name)

    def _tick(self) -> None:
        self._do(self.node.tick(self.network.now_s))
        self._tick_after(TICK_S)

    def _reduce(self, reduction: Reduction) -> None:
        filters = reduced_filters(reduction)
        self._do(self.node.reduced(reduction, filters, self.network.now_s))

    def _deliver(self, events: Events) -> None:
        self._witness.delivered(self, events)

    def _do(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case ToPeer(peer, message):
                    frame = message if isinstance(message, bytes) else wire.encode(message)
                    self._engine.put(f"n/{peer}", frame)
                case ToAll(message):
                    self._engine.put("all", wire.encode(message))
                case Events():
                    self._deliver(effect)
                case Lost():
                    self._witness.lost(self, effect)
                case Reduce(reduction):
                    later_s = self.network.random.uniform(0, REDUCING_S_MAX)
                    self.network.call_later(
                        later_s, partial(self._reduce, reduction), node=self.name
                    )
                case _:
                    pass  # types, complaints and initial state are the bus's business
