"""What this node sends: one numbered route for each lane of a channel on which somebody listens.

A lane gets its route with the first event that somebody may want. Lanes on which only
events went by that nobody wanted are remembered, so that a node that was cut off meanwhile is
told that it may have missed something there.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in, class_in, in_words, urgency_of
from infobus.protocols.interest.peer_rows import PeerRows
from infobus.protocols.reliable.channel import Progress
from infobus.protocols.reliable.effects import Effects
from infobus.protocols.reliable.peer import Parted, Route, Terms

_UNWANTED_COUNT_MAX = 100_000


class Routes(Struct):
    """The routes of node `name`; who listens on them follows from what the peers want."""

    name: str
    terms: Terms
    rows: PeerRows
    by_lane: dict[str, Route] = field(default_factory=dict)
    unwanted: dict[str, None] = field(default_factory=dict)  # lanes, oldest first
    absent: set[str] = field(default_factory=set)  # peers that have rows and cannot be seen
    parted: Parted = field(default_factory=Parted)

    def route(self, lane: str, now_s: float) -> Route:
        """The route of `lane`, made if there was none."""
        route = self.by_lane.get(lane)
        if route is None:
            route = self.by_lane[lane] = Route.on(self.terms, self.parted)
            for name in self.rows.listeners(channel_in(lane)):
                self._join(route, name, now_s)
        return route

    def note_unwanted(self, lane: str) -> None:
        """Something was published on `lane` that nobody wants."""
        if lane not in self.by_lane:
            self.unwanted[lane] = None
            if len(self.unwanted) > _UNWANTED_COUNT_MAX:
                del self.unwanted[next(iter(self.unwanted))]

    def rows_changed(self, name: str, left: Collection[str], now_s: float) -> None:
        """Let a peer join the routes that its rows touch, and leave the others.

        On the lanes that it has `left` meanwhile it joins anew.
        """
        for lane in [c for c in self.unwanted if name in self.rows.listeners(channel_in(c))]:
            del self.unwanted[lane]
            self.route(lane, now_s)
        for lane, route in self.by_lane.items():
            is_listening = name in self.rows.listeners(channel_in(lane))
            if not is_listening or lane in left:
                route.leave(name)
            if is_listening:
                self._join(route, name, now_s)

    def away(self, name: str) -> None:
        """A peer cannot be seen: keep its places, and do not wait for it."""
        self.absent.add(name)
        for route in self.by_lane.values():
            route.away(name)

    def back(self, name: str, now_s: float) -> None:
        """It can be seen again."""
        self.absent.discard(name)
        for route in self.by_lane.values():
            route.back(name, now_s)

    def leave(self, name: str) -> None:
        """A peer listens to nothing any more."""
        self.absent.discard(name)
        for route in self.by_lane.values():
            route.leave(name)

    def starts(self, name: str) -> tuple[dict[str, Progress], set[int]]:
        """How far a peer is on every route that it has joined, and the types of these."""
        joined = {c: route for c, route in self.by_lane.items() if name in route.receivers}
        types = {type_ for route in joined.values() for type_ in route.types}
        return {c: route.receivers[name] for c, route in joined.items()}, types

    def ends(self) -> dict[str, int]:
        """The next number of every route not wholly confirmed."""
        return {c: route.next for c, route in self.by_lane.items() if not route.is_quiet()}

    def on_ack(self, ack: wire.Ack, now_s: float) -> bool:
        """A peer has confirmed what came; False if it has what was never sent."""
        is_true = True
        for lane, number in ack.nexts.items():
            route = self.by_lane.get(lane)
            is_true &= number <= (1 if route is None else route.next)
            if route is not None:
                route.on_ack(ack.sender, number, ack.held, now_s)
        return is_true

    def on_ask(self, ask: wire.Ask) -> Effects | None:
        """Send again what a peer misses; None if it does not listen here."""
        route = self.by_lane.get(ask.lane)
        if route is None or ask.sender not in self.rows.records:
            return None
        frames, gone = route.on_ask(ask.first, ask.last)
        # A repair is as urgent as what it repairs, whatever else waits for a slow link.
        urgency = urgency_of(self.terms.classes, class_in(ask.lane))
        effects: Effects = [ToPeer(ask.sender, frame, True, urgency) for frame in frames]
        if gone is not None:
            word = wire.Gone(self.name, ask.lane, *gone, to=ask.sender)
            effects.insert(0, ToPeer(ask.sender, word))
        return effects

    def _join(self, route: Route, name: str, now_s: float) -> None:
        record = self.rows.records[name]
        route.join(name, now_s, record.window, record.version, name in self.absent)

    def tick(self, now_s: float) -> Effects:
        """Stop waiting for receivers that stall a full window."""
        effects: Effects = []
        for lane, route in self.by_lane.items():
            for name in route.on_tick(now_s) if route.buffer or route.keeps else ():
                what = f"confirmed nothing on {in_words(lane)}; not waited for"
                effects.append(Complain(name, what))
        return effects
