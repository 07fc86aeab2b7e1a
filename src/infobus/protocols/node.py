"""One node's side of the conversation: reliable routes and interest, wired together, still pure.

A `Node` is fed with what happened (a peer came or went, a frame came, time passed) and answers
with effects: frames to put, events to deliver, losses to report. The bus drives it with threads
and an engine, the simulator with a virtual clock and faults; neither adds any meaning.

Meeting works like this. Each node tells its rows to every peer it sees, again and again until
the peer answers `Known`. The answer holds the peer's next number on every channel that the rows
touch: the baseline from which the peer's events are this node's own. A peer that is suspected
dead loses its rows, and so its place in every stream; when it is back it gets a new `welcome`,
and so learns that it may have missed something, which it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infobus.errors import BadSubject
from infobus.protocols import wire
from infobus.protocols.interest import OwnRows, PeerRows, touches
from infobus.protocols.reliable import AskAgain, Deliver, Effect, Receiver, ReportLoss, Sender
from infobus.subjects import check_pattern

_WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The numbers that all guarantees are stated in."""

    depth: int = 1  # elements of a subject that name its channel; equal on the whole bus
    window_count_max: int = 32_768
    window_bytes_max: int = 64 * 1024 * 1024
    stall_s: float = 2.0  # a receiver that confirms nothing holds senders no longer than this
    ack_count: int = 8_192  # a quarter of the window
    ack_bytes: int = 8 * 1024 * 1024
    beat_s: float = 0.5  # while something is unconfirmed
    idle_beat_s: float = 2.0
    give_up_s: float = 5.0  # how long the holes of a vanished sender stay open
    peers_count_max: int = 10_000  # remembered, dead ones included


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Put a message, or ready frames, into a peer's inbox; `bulk` may be large and may block."""

    peer: str
    message: wire.Message | bytes
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class ToAll:
    """Put a message where every node hears it."""

    message: wire.Message


@dataclass(frozen=True, slots=True)
class Events:
    """Hand events to the subscriptions; `first` is 0 for best effort."""

    sender: str
    channel: str
    first: int
    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Report a loss to the subscriptions; an empty channel means any channel of the sender."""

    sender: str
    channel: str
    first: int
    last: int | None


@dataclass(frozen=True, slots=True)
class Learn:
    """Take in type descriptors that a peer has sent."""

    descriptors: list[bytes]


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """What the peers want has changed: decisions made from it are void."""


@dataclass(frozen=True, slots=True)
class Complain:
    """Log once per `peer` and count: it did something that cannot be accepted."""

    peer: str
    what: str


@dataclass(frozen=True, slots=True)
class StateWanted:
    """A newcomer at a peer asks for initial state."""

    message: wire.WantState


@dataclass(frozen=True, slots=True)
class StateCame:
    """Initial state that was asked for."""

    message: wire.State


Effects = list[
    ToPeer | ToAll | Events | Lost | Learn | InterestChanged | Complain | StateWanted | StateCame
]


@dataclass(slots=True)
class Peer:
    """What this node knows of another."""

    alive: bool = True
    welcome: int = 0  # the name of our acquaintance, given by the peer
    confirmed: int = 0  # version of our rows that the peer holds
    tell_at_s: float = 0.0
    tell_wait_s: float = 0.0
    heard_at_s: float = 0.0  # its last heartbeat or rows
    down_since_s: float = 0.0
    given_up: bool = False
    nexts: dict[str, int] = field(default_factory=dict)  # baselines of channels still silent
    receivers: dict[str, Receiver] = field(default_factory=dict)
    unwanted: set[str] = field(default_factory=set)  # channels heard of, not subscribed to
    best_effort_number: int = -1


class Route(Sender):
    """A channel's sender, and the types whose descriptors have gone out on it."""

    __slots__ = ("types",)

    def __init__(self, terms: Terms) -> None:
        super().__init__(
            window_count_max=terms.window_count_max,
            window_bytes_max=terms.window_bytes_max,
            stall_s=terms.stall_s,
        )
        self.types: set[int] = set()


def _no_descriptors(types: Iterable[int]) -> list[bytes]:
    return []


class Node:
    """The protocol state of one node; what its methods return is to be carried out, in order."""

    def __init__(
        self,
        name: str,
        terms: Terms | None = None,
        describe_types: Callable[[Iterable[int]], list[bytes]] = _no_descriptors,
    ) -> None:
        self.name = name
        self.terms = terms or Terms()
        self.own = OwnRows(self.terms.depth)
        self.rows = PeerRows()
        self.routes: dict[str, Route] = {}
        self.peers: dict[str, Peer] = {}
        self.held_channels: Callable[[str], bool] = lambda channel: False
        self._describe_types = describe_types
        self._beat_at_s = 0.0

    # What the application does.

    def add_interest(self, patterns: Iterable[str], now_s: float) -> Effects:
        """Want `patterns`; every live peer is told."""
        return self._tell_everyone(now_s) if self.own.add(patterns) else []

    def remove_interest(self, patterns: Iterable[str], now_s: float) -> Effects:
        """Want `patterns` once less."""
        if not self.own.remove(patterns):
            return []
        channels = self.own.channel_patterns()
        for peer in self.peers.values():
            for channel in [c for c in peer.receivers if not touches(channels, c)]:
                del peer.receivers[channel]
            for channel in [c for c in peer.nexts if not touches(channels, c)]:
                del peer.nexts[channel]
        return self._tell_everyone(now_s)

    def route(self, channel: str, now_s: float) -> Route:
        """The route on which this node publishes `channel`."""
        route = self.routes.get(channel)
        if route is None:
            route = self.routes[channel] = Route(self.terms)
            for name, record in self.rows.records.items():
                if touches(record.channels, channel):
                    route.join(name, now_s)
        return route

    def is_known(self, version: int) -> bool:
        """Whether every live peer holds this node's rows as of `version`."""
        return all(p.confirmed >= version for p in self.peers.values() if p.alive)

    def is_synced(self) -> bool:
        """Whether this node and every live peer hold each other's rows."""
        return all(
            p.welcome and p.confirmed >= self.own.version and name in self.rows.records
            for name, p in self.peers.items()
            if p.alive
        )

    def is_confirmed(self) -> bool:
        """Whether every receiver that is waited for has everything that was sent."""
        return all(route.is_confirmed() for route in self.routes.values())

    # What the world does.

    def peer_up(self, name: str, now_s: float) -> Effects:
        """A peer can be seen (again)."""
        if name == self.name:
            return []
        peer = self.peers.get(name)
        if peer is None:
            self._make_room_for_a_peer()
            peer = self.peers[name] = Peer()
        elif peer.alive:
            return []
        peer.alive, peer.given_up = True, False
        return self._tell(name, peer, now_s, since=0)

    def peer_down(self, name: str, now_s: float) -> Effects:
        """A peer can no longer be seen: its place in our streams is given up."""
        peer = self.peers.get(name)
        if peer is None or not peer.alive:
            return []
        peer.alive, peer.down_since_s = False, now_s
        return self._forget_rows(name)

    def take(self, message: wire.Message, now_s: float) -> Effects:
        """Take in a frame."""
        if message.sender == self.name:
            return []
        return _HANDLERS[type(message)](self, message, now_s)

    def tick(self, now_s: float) -> Effects:
        """Time has passed: repeat what was not answered, confirm what came, give up the late."""
        effects: Effects = []
        for name, peer in self.peers.items():
            if not peer.alive and now_s - peer.heard_at_s >= self.terms.give_up_s:
                # Rows of a peer that was heard but is not seen: it died before it was seen.
                effects += self._forget_rows(name)
            if peer.alive:
                if peer.confirmed < self.own.version and now_s >= peer.tell_at_s:
                    effects += self._tell(name, peer, now_s)
                for channel, receiver in peer.receivers.items():
                    if receiver.ask_at_s is not None:
                        effects += self._lift(name, channel, receiver.on_tick(now_s))
                effects += self.acks(name, peer)
            elif not peer.given_up and now_s - peer.down_since_s >= self.terms.give_up_s:
                peer.given_up = True
                effects += self._sender_lost(name, peer, now_s)
        for channel, route in self.routes.items():
            for name in route.on_tick(now_s):
                effects.append(Complain(name, f"confirmed nothing on {channel!r}; not waited for"))
        return effects + self._beat(now_s)

    def leave(self) -> Effects:
        """This node closes on purpose."""
        return [ToAll(wire.Bye(self.name))]

    def acks(self, name: str, peer: Peer) -> Effects:
        """Confirm to `peer` what has come, except on channels that are held on purpose."""
        nexts: dict[str, int] = {}
        held: dict[str, int] = {}
        for channel, receiver in peer.receivers.items():
            if receiver.next is not None and receiver.next != receiver.acked:
                if self.held_channels(channel):
                    held[channel] = receiver.acked
                else:
                    nexts[channel] = receiver.acked = receiver.next
                    receiver.unacked_bytes = 0
        effects: Effects = []
        if nexts:
            effects.append(ToPeer(name, wire.Ack(self.name, nexts)))
        if held:
            effects.append(ToPeer(name, wire.Ack(self.name, held, True)))
        return effects

    def pause(self, channel: str, paused: bool, now_s: float) -> Effects:
        """Take nothing in on `channel` for lack of room, or take it up again."""
        effects: Effects = []
        for name, peer in self.peers.items():
            receiver = peer.receivers.get(channel)
            if receiver is not None and receiver.paused != paused:
                effects += self._lift(name, channel, receiver.on_pause(paused, now_s))
        return effects

    def beat(self) -> wire.Beat:
        """The heartbeat, with the next number of every route not wholly confirmed."""
        nexts = {c: route.next for c, route in self.routes.items() if not route.is_confirmed()}
        return wire.Beat(self.name, _WIRE, self.own.version, nexts)

    # Frames.

    def _on_data(self, data: wire.Data, now_s: float) -> Effects:
        effects: Effects = [Learn(data.descriptors)] if data.descriptors else []
        peer = self._peer(data.sender)
        if data.first == 0:
            return effects + self._best_effort(peer, data)
        receiver = peer.receivers.get(data.channel)
        if receiver is None:
            receiver = self._new_receiver(peer, data.channel, now_s)
            if receiver is None:
                return effects
        return effects + self._lift(
            data.sender, data.channel, receiver.on_data(data.first, data.items, now_s)
        )

    def _best_effort(self, peer: Peer, data: wire.Data) -> Effects:
        # Two declarations of one node may overlap for a moment and bring a frame twice.
        items = [item for item in data.items if item.number > peer.best_effort_number]
        if not items:
            return []
        peer.best_effort_number = items[-1].number
        return [Events(data.sender, data.channel, 0, items)]

    def _on_ack(self, ack: wire.Ack, now_s: float) -> Effects:
        for channel, number in ack.nexts.items():
            route = self.routes.get(channel)
            if route is not None:
                route.on_ack(ack.sender, number, ack.held, now_s)
        return []

    def _on_ask(self, ask: wire.Ask, now_s: float) -> Effects:
        route = self.routes.get(ask.channel)
        if route is None or ask.sender not in self.rows.records:
            return []
        frames, gone = route.on_ask(ask.first, ask.last)
        effects: Effects = [ToPeer(ask.sender, frame, bulk=True) for frame in frames]
        if gone is not None:
            effects.insert(0, ToPeer(ask.sender, wire.Gone(self.name, ask.channel, *gone)))
        return effects

    def _on_gone(self, gone: wire.Gone, now_s: float) -> Effects:
        receiver = self._peer(gone.sender).receivers.get(gone.channel)
        if receiver is None or gone.first > (receiver.next or 0):
            return []
        return self._lift(gone.sender, gone.channel, receiver.on_gone(gone.last, now_s))

    def _on_beat(self, beat: wire.Beat, now_s: float) -> Effects:
        effects: Effects = []
        peer = self._peer(beat.sender)
        peer.heard_at_s = now_s
        record = self.rows.records.get(beat.sender)
        if record is None or record.version != beat.interest:
            effects.append(self._known(beat.sender, now_s))
        for channel, number in beat.nexts.items():
            receiver = peer.receivers.get(channel) or self._new_receiver(peer, channel, now_s)
            if receiver is not None:
                effects += self._lift(beat.sender, channel, receiver.on_end(number, now_s))
                if receiver.next is not None:
                    receiver.acked = min(receiver.acked, receiver.next - 1)  # confirm once more
        return effects + self.acks(beat.sender, peer)

    def _on_interest(self, told: wire.Interest, now_s: float) -> Effects:
        name = told.sender
        if told.depth != self.terms.depth:
            what = (
                f"has channel depth {told.depth}, this node {self.terms.depth}: "
                "set the same depth on the whole bus"
            )
            return [Complain(name, what)]
        try:
            for pattern in told.added:
                check_pattern(pattern)
        except BadSubject as error:
            return [Complain(name, f"wants something malformed: {error}")]
        peer = self._peer(name)
        peer.heard_at_s = now_s
        self.rows.update(name, told.since, told.version, told.added, told.removed, told.depth)
        record = self.rows.records.get(name)
        for channel, route in self.routes.items():
            if record is not None and touches(record.channels, channel):
                route.join(name, now_s)
            else:
                route.leave(name)
        effects: Effects = [InterestChanged(), self._known(name, now_s)]
        if not peer.welcome and now_s >= peer.tell_at_s:
            effects += self._tell(name, peer, now_s)
        return effects

    def _on_known(self, known: wire.Known, now_s: float) -> Effects:
        effects: Effects = [Learn(known.descriptors)] if known.descriptors else []
        peer = self._peer(known.sender)
        if known.welcome == 0:
            peer.confirmed = 0
            return effects + self._tell(known.sender, peer, now_s, since=0)
        if (known.welcome, known.version) < (peer.welcome, peer.confirmed):
            return effects  # overtaken by a newer answer
        was_cut = peer.welcome not in (0, known.welcome)
        peer.welcome, peer.confirmed = known.welcome, known.version
        if was_cut:
            effects += self._cut(known.sender, peer, known.nexts, now_s)
        peer.nexts.update((c, n) for c, n in known.nexts.items() if c not in peer.receivers)
        for channel, receiver in peer.receivers.items():
            if receiver.next is None:
                effects += self._baseline(known.sender, peer, channel, receiver, now_s)
        if peer.confirmed < self.own.version and now_s >= peer.tell_at_s:
            effects += self._tell(known.sender, peer, now_s)
        return effects

    def _on_want_types(self, want: wire.WantTypes, now_s: float) -> Effects:
        descriptors = self._describe_types(want.types)
        if not descriptors:
            return []
        return [ToPeer(want.sender, wire.Types(self.name, descriptors), bulk=True)]

    def _on_types(self, types: wire.Types, now_s: float) -> Effects:
        return [Learn(types.descriptors)]

    def _on_bye(self, bye: wire.Bye, now_s: float) -> Effects:
        peer = self.peers.pop(bye.sender, None)
        if peer is None:
            return []
        return self._sender_lost(bye.sender, peer, now_s) + self._forget_rows(bye.sender)

    def _on_want_state(self, want: wire.WantState, now_s: float) -> Effects:
        return [StateWanted(want)]

    def _on_state(self, state: wire.State, now_s: float) -> Effects:
        effects: Effects = [Learn(state.descriptors)] if state.descriptors else []
        return [*effects, StateCame(state)]

    # Helpers.

    def _peer(self, name: str) -> Peer:
        """The peer, which may be heard before it is seen; it counts as alive once it is seen."""
        peer = self.peers.get(name)
        if peer is None:
            self._make_room_for_a_peer()
            peer = self.peers[name] = Peer(alive=False, given_up=True)
        return peer

    def _make_room_for_a_peer(self) -> None:
        while len(self.peers) >= self.terms.peers_count_max:
            dead = next((name for name, peer in self.peers.items() if not peer.alive), None)
            if dead is None:
                return
            del self.peers[dead]

    def _tell_everyone(self, now_s: float) -> Effects:
        effects: Effects = []
        for name, peer in self.peers.items():
            peer.unwanted.clear()
            if peer.alive:
                effects += self._tell(name, peer, now_s)
        self.own.forget_removals(
            min((p.confirmed for p in self.peers.values() if p.alive), default=self.own.version)
        )
        return effects

    def _tell(self, name: str, peer: Peer, now_s: float, since: int | None = None) -> Effects:
        since = peer.confirmed if since is None else since
        fresh = since == 0 or peer.tell_wait_s == 0.0
        peer.tell_wait_s = 0.05 if fresh else min(1.0, peer.tell_wait_s * 2)
        peer.tell_at_s = now_s + peer.tell_wait_s
        added, removed = self.own.since(since)
        told = wire.Interest(
            self.name, _WIRE, self.terms.depth, since, self.own.version, added, removed
        )
        return [ToPeer(name, told, bulk=True)]

    def _known(self, name: str, now_s: float) -> ToPeer:
        record = self.rows.records.get(name)
        if record is None:
            return ToPeer(name, wire.Known(self.name, 0, 0))
        nexts: dict[str, int] = {}
        types: set[int] = set()
        for channel, route in self.routes.items():
            if touches(record.channels, channel):
                nexts[channel] = route.join(name, now_s)
                types |= route.types
        descriptors = self._describe_types(sorted(types))
        known = wire.Known(self.name, record.version, record.welcome, nexts, descriptors)
        return ToPeer(name, known, bulk=bool(descriptors))

    def _new_receiver(self, peer: Peer, channel: str, now_s: float) -> Receiver | None:
        if channel in peer.unwanted:
            return None
        version = self.own.version_that_touched(channel)
        if version is None:
            peer.unwanted.add(channel)
            return None
        receiver = peer.receivers[channel] = Receiver()
        if peer.welcome and peer.confirmed >= version:
            receiver.on_baseline(peer.nexts.pop(channel, 1), now_s)
        return receiver

    def _baseline(
        self, name: str, peer: Peer, channel: str, receiver: Receiver, now_s: float
    ) -> Effects:
        version = self.own.version_that_touched(channel)
        if version is None or peer.confirmed < version:
            return []
        number = peer.nexts.pop(channel, 1)
        return self._lift(name, channel, receiver.on_baseline(number, now_s))

    def _cut(self, name: str, peer: Peer, nexts: dict[str, int], now_s: float) -> Effects:
        effects: Effects = []
        for channel, receiver in peer.receivers.items():
            effects += self._lift(name, channel, receiver.on_cut(nexts.get(channel, 1), now_s))
        if not any(isinstance(effect, Lost) for effect in effects) and self.own.added:
            effects.append(Lost(name, "", 0, None))
        return effects

    def _sender_lost(self, name: str, peer: Peer, now_s: float) -> Effects:
        effects: Effects = []
        for channel, receiver in peer.receivers.items():
            effects += self._lift(name, channel, receiver.on_sender_lost(now_s))
        return effects

    def _forget_rows(self, name: str) -> Effects:
        if name not in self.rows.records:
            return []
        self.rows.forget(name)
        for route in self.routes.values():
            route.leave(name)
        return [InterestChanged()]

    def _lift(self, sender: str, channel: str, effects: list[Effect]) -> Effects:
        """The effects of one route, as effects of the node."""
        lifted: Effects = []
        for effect in effects:
            match effect:
                case Deliver(first, items):
                    lifted.append(Events(sender, channel, first, items))
                case AskAgain(first, last):
                    lifted.append(ToPeer(sender, wire.Ask(self.name, channel, first, last)))
                case ReportLoss(first, last):
                    lifted.append(Lost(sender, channel, first, last))
        return lifted

    def _beat(self, now_s: float) -> Effects:
        if now_s < self._beat_at_s:
            return []
        beat = self.beat()
        self._beat_at_s = now_s + (self.terms.beat_s if beat.nexts else self.terms.idle_beat_s)
        return [ToAll(beat)]


_HANDLERS: dict[type[Any], Callable[..., Effects]] = {
    wire.Data: Node._on_data,
    wire.Ack: Node._on_ack,
    wire.Ask: Node._on_ask,
    wire.Gone: Node._on_gone,
    wire.Beat: Node._on_beat,
    wire.Interest: Node._on_interest,
    wire.Known: Node._on_known,
    wire.WantTypes: Node._on_want_types,
    wire.Types: Node._on_types,
    wire.Bye: Node._on_bye,
    wire.WantState: Node._on_want_state,
    wire.State: Node._on_state,
}
