"""One node's side of the conversation: reliable routes and interest, wired together, still pure.

A `Node` is fed with what happened (a peer came or went, a frame came, time passed) and answers
with effects: frames to put, events to deliver, losses to report. The bus drives it with threads
and an engine, the simulator with a virtual clock and faults; neither adds any meaning.

Meeting works like this. Each node tells its rows to every peer it sees, again and again until
the peer answers `Known`. The answer holds the peer's next number on every lane that the rows
touch: the baseline from which the peer's events are this node's own.

A peer is present while its token is seen. When the token disappears it is absent: its rows stay,
and events are numbered and kept for it, but nobody waits for it. If it is back soon it goes on
where it was. If not it is gone, as it is at once after a goodbye, or when somebody knows that it
has died.

A peer that is gone loses its rows, and so its place in every stream. When it is back,
its rows are taken only under a new `welcome`; learning that, it starts every stream anew and
reports a loss on the lanes that were in use. So a row is never held for a node that does
not know of the break, whatever is lost, doubled or late on the way. One that does not know and
still hears events finds its name in the first frame after the break (see `Parted`), and delivers
nothing more before it knows.

Rows are told when peers see each other and when they change, and heartbeats tell who is behind.
If no frame is lost, a live publisher that can be reached therefore has every row after at most
`idle_beat_s` and two round trips; each lost frame adds at most a second or one more heartbeat.

Frames say who sent them, and nobody can check that; tokens are harder to take away from others. So
a goodbye counts once the token is gone, and rows once it is seen. Where two nodes find that they
cannot both be right (rows that were never told, numbers that were never sent), the one that has
rows of the other gives it up: they meet anew, and a loss is reported. That can be forced by a lie,
but nothing can be lost without a word by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

from infobus.errors import BadSubject
from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.node_names import ASTRAY, is_astray
from infobus.protocols.interest.own_rows import OwnRows, Reduction, Row
from infobus.protocols.interest.peer_rows import PeerRows, Wanted
from infobus.protocols.interest.requests import Requests
from infobus.protocols.reliable.effects import (
    Effects,
    Events,
    InterestChanged,
    Reduce,
    Unreachable,
)
from infobus.protocols.reliable.freeze import Freezing
from infobus.protocols.reliable.peer import Peer, Route, Terms, make_room
from infobus.protocols.reliable.routes import Routes
from infobus.protocols.reliable.streams import Streams
from infobus.protocols.reliable.views import Views
from infobus.subjects import channel_of, check_pattern

_WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)
_SEEN_SINCE = 2  # the minor version of nodes that answer `Seen`
_ASKED_COUNT = 3  # peers that a newcomer asks: one of them may be a newcomer itself
_TELL_WAIT_S_MAX = 1.0
_TOLD_COUNT_MAX = 1_000  # rows that wait for their owner's token; of more they must be told again
_PLACES_COUNT_MAX = 1_000  # places in the streams of a node that left, should that not be true
_BEATS_PER_S = 10  # that anyone hears while nothing is unconfirmed, however many peers there are
_NOTHING: Effects = []  # for the steady state, which makes nothing that it does not need


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
        self.application = ""  # the name of this program, told to every peer
        self.terms = terms or Terms()
        terms = self.terms
        self.own = OwnRows(terms.depth, terms.rows_count_max, terms.filters_count_max)
        self.rows = PeerRows(terms.depth, spare_count_max=terms.spare_count_max)
        self.peers: dict[str, Peer] = {}
        self.is_held: Callable[[str, str], bool] = lambda peer, lane: False
        self._describe_types = describe_types
        self._streams = Streams(name, self.own, self.terms.lanes_count_max)
        self._routes = Routes(name, terms, self.rows)
        self.routes = self._routes.by_lane
        self.requests = Requests(terms.classes, self.rows, terms.limits.queue_count_max or 0)
        self._freezing = Freezing(terms.freeze_s, terms.stranger_s)
        self._views = Views(name)
        self._strangers: dict[str, None] = {}  # peers that were heard and never seen
        self._welcomes = 0
        self._beat_sent_s = float("-inf")

    # What the application does.

    def add_interest(self, patterns: Iterable[str], now_s: float, where: str = "") -> Effects:
        """Want `patterns`, as far as the filter `where` lets through; live peers are told."""
        return self._tell_everyone(now_s) if self.own.add(patterns, where) else []

    def remove_interest(self, patterns: Iterable[str], now_s: float, where: str = "") -> Effects:
        """Want `patterns` with this filter once less."""
        return self._tell_less(now_s) if self.own.remove(patterns, where) else []

    def change_interest(self, add: Iterable[Row], remove: Iterable[Row], now_s: float) -> Effects:
        """Want some rows more and some less, at one stroke: no event goes by in between."""
        return self._tell_less(now_s) if self.own.change(add, remove) else []

    def request(self, requests: list[wire.Request], more: bool, now_s: float) -> Effects:
        """Ask something more of the events of some patterns, or take that back."""
        if not requests:
            return []
        self.requests.change(requests, more)
        self.own.version += 1
        return self._tell_everyone(now_s)

    def wanted(self, subject: str, chars_max: int | None = None) -> Wanted:
        """Whether any peer wants events of `subject`; good until `InterestChanged`.

        From now on rows about the subject's channel are held, or asked for if they are not. For
        `chars_max` see `PeerRows.wanted`.
        """
        self.rows.need(channel_of(subject, self.terms.depth))
        return self.rows.wanted(subject, chars_max)

    def route(self, lane: str, now_s: float) -> Route:
        """The route on which this node publishes `lane`.

        The lanes that have a route, and those of `note_unwanted`, are those on which a node
        that was cut off is told that it may have missed events.
        """
        return self._routes.route(lane, now_s)

    def note_unwanted(self, lane: str) -> None:
        """Something was published on `lane` that nobody wants, so it has no route.

        A node that was cut off is told of it all the same once it is back: it may have missed
        events there. Of very many such lanes only the latest are remembered.
        """
        self._routes.note_unwanted(lane)

    def is_known(self, version: int) -> bool:
        """Whether every live peer holds this node's rows as of `version`."""
        return all(peer.confirmed >= version for peer in self.peers.values() if peer.is_awaited)

    def is_synced(self) -> bool:
        """Whether this node and every live peer hold each other's rows."""
        return self.is_known(self.own.version) and all(
            name in self.rows.records for name, peer in self.peers.items() if peer.is_awaited
        )

    def ask_around(self) -> Effects:
        """As a newcomer: ask some of the peers whom they see; `has_met_all` tells the end."""
        able = (name for name, one in self.peers.items() if one.is_awaited and one.tells_seen)
        asked = [*islice(able, _ASKED_COUNT)]
        self._views.ask(asked)
        return [self._seen(name) for name in asked]

    def has_met_all(self) -> bool:
        """Whether this node sees whom the peers see that it asked, and is synced with them."""
        return self._views.is_complete and self.is_synced()

    def is_confirmed(self) -> bool:
        """Whether every receiver that is waited for has everything that was sent."""
        return all(route.is_confirmed() for route in self.routes.values())

    def missed(self) -> dict[str, str]:
        """The nodes that a peer sees and this node does not, for a while now, and that peer."""
        return {name: one.by for name, one in self._views.missed.items() if one.is_told}

    # What the world does.

    def peer_up(self, name: str, now_s: float) -> Effects:
        """A peer can be seen (again)."""
        effects = self._notice_freeze(now_s)
        peer = self.peers.get(name)
        if name == self.name or (peer is not None and peer.alive):
            return effects
        self._strangers.pop(name, None)
        if peer is None:
            peer = self._new_peer(name, now_s)
        elif peer.welcome:
            self._streams.suspend(peer, now_s)
        if peer.left:
            peer.bye, peer.bye_at_s = wire.Bye(name), now_s  # unless it stays
        if peer.unseen_s is not None:
            peer.unseen_s = peer.died_s = None
        peer.alive, peer.given_up, peer.left, peer.cut_short = True, False, False, []
        peer.tell_wait_s = 0.0
        self._views.saw(name)
        effects += self._tell(name, peer, now_s)
        if name in self.rows.records:  # it was absent, and its places are held
            self._routes.back(name, now_s)
            effects.append(ToPeer(name, self.beat()))
        told, peer.told = peer.told, None
        if told is not None:
            effects += self._on_interest(peer, told, now_s)
        elif peer.welcomed and name not in self.rows.records:
            # It may not know that it was given up here, and so would not tell its rows.
            effects.append(self._known(name, peer))
        return effects

    def peer_down(self, name: str, now_s: float) -> Effects:
        """A peer can no longer be seen: it keeps its place in our streams for a while."""
        effects = self._notice_freeze(now_s)
        peer = self.peers.get(name)
        if peer is None or not peer.alive:
            return effects
        peer.alive, peer.heard_at_s, peer.unseen_s = False, now_s, now_s
        self._views.lost(name)
        if peer.bye is not None:
            return effects + self._leave(peer, peer.bye, now_s)
        self._streams.cut_short(peer, now_s, self.terms.idle_beat_s)
        if peer.died_s is not None:
            return effects + self._forget_rows(name, peer)
        if name in self.rows.records:
            self._routes.away(name)
        return effects

    def say_died(self, name: str, now_s: float) -> Effects:
        """This node knows that a peer has died, and tells everyone: nobody need wait for it."""
        return [ToAll(wire.Died(self.name, name)), *self._note_died(name, now_s)]

    def replaced(self, name: str, now_s: float) -> Effects:
        """Another life of what a peer was has begun, under another name.

        What was held back of the earlier one is handed over now, and nothing of it later: it would
        come after what is newer. Nothing happens to a peer that can still be seen.
        """
        peer = self.peers.get(name)
        if peer is None or peer.alive or peer.left:
            return []
        effects = [] if peer.given_up else self._streams.sender_lost(name, peer, now_s)
        peer.given_up = peer.left = True
        return [*effects, *self._forget_rows(name, peer)]

    def take(self, message: wire.Message, now_s: float) -> Effects:
        """Take in a frame."""
        if message.sender == self.name:
            return []
        effects = self._notice_freeze(now_s)
        peer = self._heard(message.sender, now_s)
        if peer is None or peer.left:
            return effects
        peer.heard_at_s, peer.given_up = now_s, False
        if isinstance(message, _BETWEEN_TWO) and is_astray(message, self.name):
            # Places, versions and welcomes of another node would set our streams back or forward.
            return [*effects, Complain(message.sender, ASTRAY)]
        return effects + _note_late(peer, _HANDLERS[type(message)](self, peer, message, now_s))

    def take_next(self, data: wire.Data, size: int) -> Effects | None:
        """The steady state: take a frame of `size` bytes that is just the next one of its stream.

        Its events are to be handed over as they are, and what is returned is to be carried out:
        mostly nothing, sometimes acknowledgements. None says that the frame is not the next one,
        or brings more than events: then it is as if nothing had been asked, and `take` is for it.
        It says the same as this, and confirms later.
        """
        peer = self.peers.get(data.sender)
        if peer is None or data.descriptors or data.parted or not peer.alive:
            return None
        receiver = peer.receivers.get(data.lane)
        if receiver is None or not receiver.accept(data.first, len(data.items.bodies)):
            return None
        receiver.unacked_bytes += size
        receiver.last_s = data.items.times[-1]
        terms = self.terms
        if (
            data.first - receiver.acked < terms.ack_count
            and receiver.unacked_bytes < terms.ack_bytes
        ) or self.is_held(data.sender, data.lane):
            return _NOTHING
        return self.acks(data.sender, peer)

    def reduced(self, reduction: Reduction, filters: list[str], now_s: float) -> Effects:
        """Some filters of this node have been reduced to few."""
        return self._tell_everyone(now_s) if self.own.reduced(reduction, filters) else []

    def refuse(self, name: str) -> None:
        """A peer cannot be understood, so nothing is to be expected from it."""
        if (peer := self._heard(name, float("inf"))) is not None:
            peer.refused = True

    def note_silent(self, version: int) -> list[str]:
        """Wait no more for those that have not answered to rows of `version`, until they do."""
        late = [n for n, p in self.peers.items() if p.is_awaited and p.confirmed < version]
        for name in late:
            self.peers[name].silent = True
        return late

    def tick(self, now_s: float) -> Effects:
        """Time has passed: repeat what was not answered, confirm what came, give up the late."""
        effects = self._notice_freeze(now_s)
        self._freezing.ticked_at_s = now_s
        for name, peer in self.peers.items():
            if (not peer.alive and not peer.given_up) or peer.unsure:
                effects += self._miss(name, peer, now_s)
            if peer.alive or now_s - peer.heard_at_s < self.terms.give_up_s:
                effects += _note_late(peer, self._serve(name, peer, now_s))
            elif not peer.given_up:
                peer.given_up = True
                effects += self._forget_rows(name, peer)
                effects += _note_late(peer, self._streams.sender_lost(name, peer, now_s))
                effects += self._miss(name, peer, now_s)  # what was held came only now
        reduction = self.own.next_reduction(now_s)
        if reduction is not None:
            effects.append(Reduce(reduction))
        effects += [self._seen(name) for name in self._views.to_ask(now_s)]
        return effects + self._routes.tick(now_s) + self._beat(now_s)

    def leave(self) -> Effects:
        """This node closes on purpose."""
        given_up = [n for n, p in self.peers.items() if p.welcomed and n not in self.rows.records]
        return [ToAll(wire.Bye(self.name, self.beat().nexts, given_up))]

    def acks(self, name: str, peer: Peer) -> Effects:
        """Confirm to `peer` what has come, except on lanes that are held on purpose."""
        return self._streams.acks(name, peer, self.is_held, self._freezing.ticked_at_s)

    def nudge(self, names: Iterable[str], lanes: Collection[str] | None = None) -> Effects:
        """Confirm one more event of these peers, on lanes that are held: they are not stuck."""
        effects: Effects = []
        for name in names:
            if (peer := self.peers.get(name)) is not None:
                among = peer.receivers if lanes is None else lanes
                effects += self._streams.nudge(name, peer, among)
        return effects

    def pause(self, lane: str, paused: bool, now_s: float) -> Effects:
        """Take nothing in on `lane` for lack of room, or take it up again."""
        return self._streams.pause(self.peers, lane, paused, now_s)

    def place(self, sender: str, lane: str) -> int | None:
        """The number that is due next on a peer's lane; None if nothing of it is expected now."""
        peer = self.peers.get(sender)
        if peer is None or peer.is_gone or peer.given_up:
            return None
        return self._streams.place(peer, lane)

    def beat(self) -> wire.Beat:
        """The heartbeat, with the next number of every route not wholly confirmed."""
        return wire.Beat(self.name, _WIRE, self.own.version, self._routes.ends(), *self._views.view)

    # Frames.

    def _on_data(self, peer: Peer, data: wire.Data, now_s: float) -> Effects:
        effects: Effects = [Learn(data.descriptors, data.sender)] if data.descriptors else []
        if data.parted and self._streams.is_parted(peer, data):
            # What follows may be told by anyone, so it is asked for; until then nothing goes on.
            self._streams.suspend(peer, now_s)
            peer.doubt_version = self.own.version
            self.own.version += 1
            effects += self._tell_everyone(now_s)
        return effects + self._streams.on_data(peer, data, now_s)

    def _on_ack(self, peer: Peer, ack: wire.Ack, now_s: float) -> Effects:
        if self._routes.on_ack(ack, now_s) or ack.sender not in self.rows.records:
            return []
        # Somebody has sent to it in this node's name: from now on it would miss events.
        return self._begin_anew(ack.sender, peer, "has events that were never sent")

    def _on_ask(self, peer: Peer, ask: wire.Ask, now_s: float) -> Effects:
        answer = self._routes.on_ask(ask)
        return [self._known(ask.sender, peer)] if answer is None else answer

    def _on_gone(self, peer: Peer, gone: wire.Gone, now_s: float) -> Effects:
        return self._streams.on_gone(peer, gone, now_s)

    def _on_beat(self, peer: Peer, beat: wire.Beat, now_s: float) -> Effects:
        effects: Effects = []
        if self._views.on_beat(beat.sender, (beat.seen_count, beat.seen_hash), now_s):
            effects.append(self._seen(beat.sender))
        record = self.rows.records.get(beat.sender)
        if record is None or record.version != beat.interest:
            effects.append(self._known(beat.sender, peer))
        effects += self._streams.ends(beat.sender, peer, beat.nexts, now_s)
        if peer.confirmed > peer.doubt_version:
            peer.doubt_version = 0  # it knows us, and has told how far its routes have got
        for lane in beat.nexts:
            receiver = peer.receivers.get(lane)
            if receiver is not None and receiver.next is not None:
                receiver.acked = min(receiver.acked, receiver.next - 1)  # confirm once more
        return effects + self.acks(beat.sender, peer)

    def _on_interest(self, peer: Peer, told: wire.Interest, now_s: float) -> Effects:
        name = told.sender
        peer.application = told.application
        peer.tells_seen = told.wire[1] >= _SEEN_SINCE
        peer.refused = told.depth != self.terms.depth
        if peer.refused:
            differs = f"channel depth {told.depth}, this node {self.terms.depth}"
            return [Complain(name, f"has {differs}: set the same on the whole bus")]
        try:
            for pattern in told.added:
                check_pattern(pattern)
        except BadSubject as error:
            return [Complain(name, f"wants something malformed: {error}")]
        if not peer.alive:
            peer.told = told if len(told.added) <= _TOLD_COUNT_MAX else None
            return [self._known(name, peer)] if peer.welcomed else []
        effects: Effects = []
        if differs := self.requests.difference(told):
            effects.append(Complain(name, f"has {differs}: others go as the default one"))
        held = self.rows.records.get(name)
        if held is not None and held.version == told.disowned > told.version:
            return effects + self._begin_anew(name, peer, "did not tell the rows held of it")
        if name in self.rows.records or peer.welcomed in (0, told.welcome):
            if not peer.welcomed:
                self._new_welcome(peer)
            record = self.rows.records.get(name)
            before = 0 if record is None else record.version
            if record is None:
                self._routes.parted.discard(name)  # it has our welcome, and so knows
            changes = (told.since, told.version, told.rows(), told.removed, told.dropped)
            if self.rows.update(name, *changes):
                self.requests.take(told)
                effects.append(InterestChanged())
                left = {lane for lane, version in told.left.items() if version > before}
                self._routes.rows_changed(name, left, now_s)
                if self.rows.records[name].is_over_limit:
                    what = "tells too many rows; it is sent more than it wants"
                    effects.append(Complain(name, what))
        effects.append(self._known(name, peer))
        if not peer.welcome and now_s >= peer.tell_at_s:
            effects += self._tell(name, peer, now_s)
        return effects

    def _on_known(self, peer: Peer, known: wire.Known, now_s: float) -> Effects:
        effects: Effects = [Learn(known.descriptors, known.sender)] if known.descriptors else []
        is_late = (known.welcome, known.version) < (peer.welcome, peer.confirmed)
        if known.welcome < peer.welcome and known.version > peer.welcome_version:
            # Welcomes grow. This one answers to rows that are newer than the last one, so that
            # one was never given.
            effects.append(Complain(known.sender, "never gave the welcome that came in its name"))
        elif is_late:
            return effects + self._ask_again(peer, known, now_s)
        if known.version > self.own.version:
            return effects + self._disown(peer, known, now_s)
        if peer.welcome not in (0, known.welcome):
            # We were given up. What it sends now is not meant for us until it has our rows.
            self._streams.break_off(peer)
            peer.tell_at_s, peer.tell_wait_s = now_s, 0.0
        if peer.welcome != known.welcome:
            peer.welcome_version, peer.welcome_at_s = self.own.version, now_s
        peer.silent = False
        if known.welcome != peer.welcome or known.version > peer.doubt_version:
            peer.unsure = peer.unreachable = False  # else it may be from before it gave us up
        stale = self._streams.stale(peer, known)
        peer.welcome = known.welcome
        peer.confirmed = min([known.version, *(since - 1 for since in stale.values())])
        effects += self._streams.baselines(peer, known, stale, now_s)
        unasked = [c for c, since in stale.items() if peer.restarts.get(c, 0) < since]
        if unasked:
            self.own.version += 1
            peer.restarts |= dict.fromkeys(unasked, self.own.version)
            effects += self._tell_everyone(now_s)
        elif peer.confirmed < self.own.version and now_s >= peer.tell_at_s:
            effects += self._tell(known.sender, peer, now_s)
        return effects

    def _on_want_types(self, peer: Peer, want: wire.WantTypes, now_s: float) -> Effects:
        descriptors = self._describe_types(want.types)
        if not descriptors:
            return []
        return [ToPeer(want.sender, wire.Types(self.name, descriptors), bulk=True)]

    def _on_types(self, peer: Peer, types: wire.Types, now_s: float) -> Effects:
        return [Learn(types.descriptors, types.sender)]

    def _on_bye(self, peer: Peer, bye: wire.Bye, now_s: float) -> Effects:
        if not peer.alive:
            return self._leave(peer, bye, now_s)
        peer.bye, peer.bye_at_s = bye, now_s
        return []

    def _on_died(self, peer: Peer, died: wire.Died, now_s: float) -> Effects:
        return self._note_died(died.node, now_s)

    def _on_seen(self, peer: Peer, seen: wire.Seen, now_s: float) -> Effects:
        what = f"is seen by {seen.sender} and not by this node: nothing comes from one to the other"
        missed = self._views.on_seen(seen.sender, seen.nodes, now_s)
        effects: Effects = [Complain(name, what) for name in missed]
        if peer.alive and not seen.is_answer:
            effects.append(self._seen(seen.sender, is_answer=True))
        return effects

    def _on_want_rows(self, peer: Peer, want: wire.WantRows, now_s: float) -> Effects:
        peer.wants_rows = True  # told at the next tick: all rows may be many
        return []

    # Helpers.

    def _notice_freeze(self, now_s: float) -> Effects:
        """If this node stood still, doubt that its peers know it, and ask them."""
        if not self._freezing.is_over(now_s):
            return []
        self._freezing.doubt(self.peers.values(), self.own.version, now_s)
        self.own.version += 1  # an answer to this one cannot be from before
        return self._tell_everyone(now_s)

    def _heard(self, name: str, now_s: float) -> Peer | None:
        """A peer that may be heard before it is seen; None if there are too many of these.

        It counts as alive once it is seen. What it says before can be said again.
        """
        peer = self.peers.get(name)
        if peer is None:
            if len(self._strangers) >= self.terms.strangers_count_max:
                given_up = next((n for n in self._strangers if self.peers[n].given_up), None)
                if given_up is None:
                    return None
                del self.peers[given_up], self._strangers[given_up]
            peer = self._new_peer(name, now_s)
            self._strangers[name] = None
        return peer

    def _new_peer(self, name: str, now_s: float) -> Peer:
        for gone in make_room(self.peers, self.terms.peers_count_max):
            self._strangers.pop(gone, None)
        peer = self.peers[name] = self._freezing.new_peer(now_s)
        return peer

    def _leave(self, peer: Peer, bye: wire.Bye, now_s: float) -> Effects:
        """A peer said goodbye, and its token is gone."""
        places = self._streams.places(peer)  # which do not depend on what a liar says
        effects = self._streams.on_bye(peer, bye, now_s)
        effects += self._forget_rows(bye.sender, peer, is_parted=False)
        peer.nexts = places if len(places) <= _PLACES_COUNT_MAX else {}
        peer.unwanted, peer.best_effort, peer.restarts = set(), {}, {}
        peer.bye, peer.told, peer.given_up, peer.left = None, None, True, True
        return effects

    def _begin_anew(self, name: str, peer: Peer, why: str) -> Effects:
        """Meet a peer anew, which then reports a loss."""
        return [Complain(name, why), *self._forget_rows(name, peer), self._known(name, peer)]

    def _ask_again(self, peer: Peer, known: wire.Known, now_s: float) -> Effects:
        """An answer came under an older welcome: most likely it is late, but ask, to be sure."""
        is_older = known.welcome < peer.welcome and known.version == self.own.version
        is_asked = self.own.version > peer.welcome_version
        if not is_older or is_asked or now_s - peer.welcome_at_s < _TELL_WAIT_S_MAX:
            return []
        self.own.version += 1
        return self._tell_everyone(now_s)

    def _disown(self, peer: Peer, known: wire.Known, now_s: float) -> Effects:
        """A peer holds rows that this node never told: let it forget them."""
        if now_s < peer.tell_at_s:
            return []
        what = "holds rows that this node never told it; they are told anew"
        return [Complain(known.sender, what), *self._tell(known.sender, peer, now_s, known.version)]

    def _tell_less(self, now_s: float) -> Effects:
        for peer in self.peers.values():
            self._streams.forget_unwanted(peer)
        return self._tell_everyone(now_s)

    def _tell_everyone(self, now_s: float) -> Effects:
        effects: Effects = []
        for name, peer in self.peers.items():
            peer.unwanted.clear()
            peer.tell_at_s, peer.tell_wait_s = now_s, 0.0
            if peer.alive:
                effects += self._tell(name, peer, now_s)
        self.own.forget_removals(
            min((p.confirmed for p in self.peers.values() if p.alive), default=self.own.version)
        )
        return effects

    def _tell(self, name: str, peer: Peer, now_s: float, disowned: int = 0) -> Effects:
        peer.tell_wait_s = min(_TELL_WAIT_S_MAX, peer.tell_wait_s * 2 or self.terms.tell_s)
        peer.tell_at_s = now_s + peer.tell_wait_s
        held = 0 if peer.wants_rows else peer.confirmed
        peer.wants_rows = False
        since, rows, removed, dropped = self.own.since(held)
        filters = [where for _, where in rows]
        told = wire.Interest(
            self.name,
            _WIRE,
            self.terms.depth,
            since,
            self.own.version,
            [pattern for pattern, _ in rows],
            removed,
            peer.welcome,
            filters if any(filters) else [],
            dropped,
            *self.requests.told(),
            {lane: version for lane, version in peer.restarts.items() if version > held},
            disowned,
            self.application,
            name,
        )
        return [ToPeer(name, told, bulk=True)]

    def _known(self, name: str, peer: Peer) -> ToPeer[wire.Known]:
        record = self.rows.records.get(name)
        if record is None:
            return ToPeer(name, wire.Known(self.name, 0, peer.welcomed, to=name))
        starts, types = self._routes.starts(name)
        nexts = {lane: progress.next for lane, progress in starts.items()}
        joined = {lane: progress.joined for lane, progress in starts.items()}
        descriptors = self._describe_types(sorted(types))
        about = (record.version, peer.welcomed, nexts, descriptors, joined)
        known = wire.Known(self.name, *about, to=name)
        return ToPeer(name, known, bulk=bool(descriptors))

    def _new_welcome(self, peer: Peer) -> None:
        self._welcomes += 1
        peer.welcomed = self._welcomes

    def _forget_rows(self, name: str, peer: Peer, is_parted: bool = True) -> Effects:
        if name not in self.rows.records:
            return []
        self.rows.forget(name)
        self._new_welcome(peer)
        self._routes.leave(name)
        if is_parted:  # it may be there all the same, and must not hear what follows unaware
            self._routes.parted.add(name)
        return [InterestChanged()]

    def _note_died(self, name: str, now_s: float) -> Effects:
        """Somebody says that a peer has died, which counts once its token is gone, too."""
        peer = self.peers.get(name)
        if peer is None or peer.is_gone:
            return []
        peer.died_s = now_s
        return [] if peer.alive else self._forget_rows(name, peer)

    def _miss(self, name: str, peer: Peer, now_s: float) -> Effects:
        """A peer cannot be seen, or does not say whether it still knows us."""
        effects: Effects = []
        if peer.unseen_s is not None and now_s - peer.unseen_s >= self.terms.absent_s:
            effects = self._forget_rows(name, peer)
        since_s = peer.unsure_s if peer.alive else peer.heard_at_s
        is_told = peer.unreachable or peer.is_gone or not peer.welcome
        if is_told or now_s - since_s < self.terms.absent_s:
            return effects
        if lanes := self._streams.had(peer):
            peer.unreachable = True
            peer.cut_short.clear()  # one word is enough
            effects.append(Unreachable(name, lanes))
        return effects

    def _seen(self, name: str, is_answer: bool = False) -> ToPeer[wire.Seen]:
        return ToPeer(name, wire.Seen(self.name, list(self._views.seen), is_answer), bulk=True)

    def _serve(self, name: str, peer: Peer, now_s: float) -> Effects:
        effects: Effects = []
        is_behind = peer.confirmed < self.own.version or peer.unsure
        if peer.wants_rows or (is_behind and now_s >= peer.tell_at_s):
            effects += self._tell(name, peer, now_s)
        if peer.bye is not None and now_s - peer.bye_at_s >= self.terms.give_up_s:
            peer.bye = None
            effects.append(Complain(name, "is still here, though a goodbye came in its name"))
        if peer.alive and peer.died_s is not None and now_s - peer.died_s >= self.terms.give_up_s:
            peer.died_s = None
            effects.append(Complain(name, "is still here, though somebody said that it has died"))
        record = self.rows.records.get(name)
        if record is not None and record.is_missed and now_s >= peer.ask_rows_at_s:
            peer.ask_rows_at_s = now_s + _TELL_WAIT_S_MAX
            effects.append(ToPeer(name, wire.WantRows(self.name)))
        return effects + self._streams.tick(name, peer, now_s) + self.acks(name, peer)

    def _beat(self, now_s: float) -> Effects:
        silent_s = now_s - self._beat_sent_s
        if silent_s < self.terms.beat_s:
            return []
        beat = self.beat()
        idle_s = max(self.terms.idle_beat_s, (beat.seen_count - 1) / _BEATS_PER_S)
        if not beat.nexts and silent_s < idle_s:
            return []
        self._beat_sent_s = now_s
        return [ToAll(beat)]


def _note_late(peer: Peer, effects: Effects) -> Effects:
    """Events of a peer out of reach are late: that it is silent has to be told once more."""
    if peer.unreachable and not peer.alive and any(isinstance(one, Events) for one in effects):
        peer.unreachable = False
    return effects


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
    wire.WantRows: Node._on_want_rows,
    wire.Died: Node._on_died,
    wire.Seen: Node._on_seen,
}

# What two nodes say about each other, and a third one must not take for its own.
_BETWEEN_TWO = (wire.Known, wire.Interest, wire.Ack, wire.Gone)

MESSAGES = frozenset(_HANDLERS)
"""The kinds of messages that a node takes; others are for other machines."""
