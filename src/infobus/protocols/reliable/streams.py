"""What peers send: one numbered stream for each of their lanes that this node wants.

A stream begins where its sender says (or at 1, if it had no number yet when it took the rows),
pauses while there is no room, breaks off when the sender had given this node up, and is reduced
to one number when the sender is gone. One peer has a bounded number of them: what it sends on yet
another lane is dropped, which is complained about, and told to the subscriptions once.

On an open bus anyone can send in another's name. An event that comes under a number that was taken
is compared with the one that took it, as far as that is remembered: if their times differ, one of
them is not the sender's, and a loss is reported. The lie may be the one that was delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from msgspec import Struct, field

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import MARK
from infobus.protocols.frames.wire import Items
from infobus.protocols.interest.own_rows import OwnRows
from infobus.protocols.reliable.channel import AskAgain, Deliver, Effect, Receiver, ReportLoss
from infobus.protocols.reliable.effects import Effects, Events, Lost
from infobus.protocols.reliable.peer import Peer

_UNWANTED_COUNT_MAX = 10_000
_LATE_COUNT_MAX = 10_000  # a best-effort event this far back is no repetition: numbers have jumped


class Streams(Struct):
    """The incoming streams of node `name`, whose rows are `own`; their state is in the peers."""

    name: str
    own: OwnRows
    lanes_count_max: int
    paused: set[str] = field(default_factory=set)  # lanes

    def on_data(self, peer: Peer, data: wire.Data, now_s: float) -> Effects:
        """Take a frame of events."""
        if data.first == 0:
            return self._best_effort(peer, data)
        receiver = self._receiver(peer, data.lane, now_s)
        if receiver is None:
            return self._turn_away(data.sender, peer, data.lane)
        lies = self._lies(receiver, data) if data.first < (receiver.next or 0) else []
        effects = receiver.on_data(data.first, data.items, now_s)
        for effect in effects:
            if isinstance(effect, Deliver):
                receiver.last_s = effect.items.times[-1]  # type: ignore[attr-defined]
        return lies + self._lift(data.sender, data.lane, effects)

    def _lies(self, receiver: Receiver, data: wire.Data) -> Effects:
        """Report if the event before `next` has come a second time, and is another one."""
        assert receiver.next is not None
        at, times = receiver.next - 1 - data.first, data.items.times
        if receiver.last_s is None or at >= len(data.items):
            return []
        if times[at if len(times) > 1 else 0] == receiver.last_s:
            return []
        receiver.last_s = None  # which of them is true cannot be known; one report is enough
        what = "sent two events under one number, or somebody sends in its name"
        return [Complain(data.sender, what), Lost(data.sender, data.lane, 0, None)]

    def on_gone(self, peer: Peer, gone: wire.Gone, now_s: float) -> Effects:
        """Take the word that events are no longer kept."""
        receiver = peer.receivers.get(gone.lane)
        if receiver is None or gone.first > (receiver.next or 0):
            return []
        return self._lift(gone.sender, gone.lane, receiver.on_gone(gone.last, now_s))

    def on_bye(self, peer: Peer, bye: wire.Bye, now_s: float) -> Effects:
        """The peer has left: report what did not come."""
        if self.name in bye.given_up:
            peer.doubt_version = max(peer.doubt_version, peer.confirmed)
        else:
            peer.doubt_version, peer.unsure = 0, False  # it has waited for us to the end
        peer.cut_short.clear()
        effects = self.resume(bye.sender, peer, now_s)
        effects += self.ends(bye.sender, peer, bye.nexts, now_s)
        effects = [effect for effect in effects if not isinstance(effect, ToPeer)]  # too late
        return effects + self.sender_lost(bye.sender, peer, now_s)

    def ends(self, name: str, peer: Peer, nexts: dict[str, int], now_s: float) -> Effects:
        """Note how far the peer's routes have got."""
        effects: Effects = []
        for lane, number in nexts.items():
            receiver = self._receiver(peer, lane, now_s)
            if receiver is None:
                effects += self._turn_away(name, peer, lane)
            else:
                effects += self._lift(name, lane, receiver.on_end(number, now_s))
        return effects

    def tick(self, name: str, peer: Peer, now_s: float) -> Effects:
        """Ask again for what is overdue, or give it up."""
        effects: Effects = []
        for lane, receiver in peer.receivers.items():
            if receiver.ask_at_s is not None:
                effects += self._lift(name, lane, receiver.on_tick(now_s))
        return effects

    def pause(self, peers: dict[str, Peer], lane: str, paused: bool, now_s: float) -> Effects:
        """Take nothing in on `lane`, from whomever, or take it up again."""
        (self.paused.add if paused else self.paused.discard)(lane)
        effects: Effects = []
        for name, peer in peers.items():
            receiver = peer.receivers.get(lane)
            if receiver is not None and receiver.paused != paused:
                effects += self._lift(name, lane, receiver.on_pause(paused, now_s))
        return effects

    def stale(self, peer: Peer, known: wire.Known) -> dict[str, int]:
        """Return lanes that we left and joined again without the peer noticing.

        The values are the versions since which they are wanted again. A peer that got both
        changes at once has kept our old place, and would send what was published in between. It
        is asked for a new place, once.
        """
        found: dict[str, int] = {}
        for lane, joined in known.joined.items():
            if len(found) + len(peer.restarts) >= self.lanes_count_max:
                break  # no honest peer gets here
            since = self.own.version_that_touched(lane)
            # The peer knows of our return (`since <= known.version`), yet our place there dates
            # from before it (`joined < since`). If it does not know yet, its next answer tells.
            if since is None or not joined < since <= known.version:
                continue
            # Ask only once: when the peer holds the version in which we asked, its number is
            # accepted. A place that we already use stays as it is.
            asked = peer.restarts.get(lane, 0)
            if not (since <= asked <= known.version or self._has_begun(peer, lane)):
                found[lane] = since
        return found

    def baselines(
        self, peer: Peer, known: wire.Known, stale: Container[str], now_s: float
    ) -> Effects:
        """Start at the numbers that the peer has told; report where it had given us up.

        Streams that are suspended go on only if this is the word that they wait for.
        """
        effects: Effects = []
        for lane, number in known.nexts.items():
            version = self.own.version_that_touched(lane)
            if version is None or lane in stale:
                continue  # told for rows that have been taken back since
            receiver = peer.receivers.get(lane)
            if receiver is None and not self._has_room(peer, lane):
                effects += self._turn_away(known.sender, peer, lane)
                continue
            # Report a break where a stream begins, and only if we wanted the lane before the
            # break: a stream that goes on was not broken, and a newer wish missed nothing.
            is_new = lane not in peer.nexts if receiver is None else receiver.next is None
            was_cut = lane in peer.cut_lanes or version <= peer.cut_version
            if is_new and was_cut:
                broke_off_at = peer.cut_lanes.pop(lane, 0)
                effects.append(Lost(known.sender, lane, broke_off_at, None))
            # An answer to older rows says nothing about a lane that only newer rows want. Answers
            # may overtake each other, so the place never goes back.
            if (receiver is None or receiver.next is None) and version <= known.version:
                peer.nexts[lane] = max(number, peer.nexts.get(lane, 1))
        if known.version >= peer.cut_version:
            peer.cut_version = 0
            peer.cut_lanes.clear()
        # Data may have arrived before the answer; these receivers have waited for their beginning.
        # A lane that a confirming answer does not name had no number yet, so it begins at 1.
        for lane, receiver in () if peer.unsure else peer.receivers.items():
            version = self.own.version_that_touched(lane)
            if receiver.next is None and version is not None and version <= peer.confirmed:
                number = peer.nexts.pop(lane, 1)
                effects += self._lift(known.sender, lane, receiver.on_baseline(number, now_s))
        return effects

    def acks(
        self, name: str, peer: Peer, is_held: Callable[[str, str], bool], ticked_at_s: float
    ) -> Effects:
        """Confirm to `peer` what has come, except on lanes that are held on purpose.

        There one event is confirmed all the same, if none was: senders do not wait for long for
        a receiver that never confirmed anything.
        """
        nexts: dict[str, int] = {}
        held: dict[str, int] = {}
        for lane, receiver in peer.receivers.items():
            if receiver.next is not None and receiver.next != receiver.acked:
                if is_held(name, lane):
                    least = min(receiver.began + 1, receiver.next)
                    receiver.acked = max(receiver.acked, least)
                    held[lane] = receiver.acked
                else:
                    nexts[lane] = receiver.acked = receiver.next
                    receiver.unacked_bytes = 0
                    receiver.acked_s = ticked_at_s
        effects: Effects = []
        if nexts:
            effects.append(ToPeer(name, wire.Ack(self.name, nexts, to=name)))
        if held:
            effects.append(ToPeer(name, wire.Ack(self.name, held, True, name)))
        return effects

    def nudge(self, name: str, peer: Peer, lanes: Iterable[str]) -> Effects:
        """Confirm one event more on lanes that are held: their consumers move."""
        nexts: dict[str, int] = {}
        for lane in lanes:
            receiver = peer.receivers.get(lane)
            if receiver is not None and receiver.acked < (receiver.next or 0):
                receiver.acked += 1
                nexts[lane] = receiver.acked
        return [ToPeer(name, wire.Ack(self.name, nexts, True, name))] if nexts else []

    def forget_unwanted(self, peer: Peer) -> None:
        """Forget all about lanes that nobody wants any more."""
        notes = (peer.receivers, peer.nexts, peer.best_effort, peer.cut_lanes, peer.restarts)
        for noted in notes:
            for lane in [c for c in noted if self.own.version_that_touched(c) is None]:
                del noted[lane]
        peer.had = {c for c in peer.had if self.own.version_that_touched(c) is not None}

    def break_off(self, peer: Peer) -> None:
        """The peer had given us up: end all its streams, to begin anew where it says."""
        peer.cut_version = max(peer.cut_version, peer.confirmed, peer.doubt_version)
        peer.doubt_version = 0
        self._note_had(peer)
        peer.cut_lanes.update(peer.nexts)
        for lane, receiver in peer.receivers.items():
            if receiver.next is not None:
                peer.cut_lanes[lane] = receiver.next
        while len(peer.cut_lanes) > self.lanes_count_max:
            peer.cut_lanes.popitem()  # its loss is reported without a number
        peer.receivers.clear()
        peer.nexts.clear()

    def suspend(self, peer: Peer, now_s: float) -> None:
        """The peer is back, and may have given us up: deliver nothing before it says.

        Otherwise what it sends to others now would seem to follow on what came before, and the
        loss between them would be told too late.
        """
        peer.unsure, peer.unsure_s = True, now_s
        self._note_had(peer)
        for lane, receiver in peer.receivers.items():
            if receiver.next is not None:
                peer.nexts[lane], receiver.next = receiver.next, None

    def resume(self, name: str, peer: Peer, now_s: float) -> Effects:
        """No word will come: go on where each stream was suspended."""
        effects: Effects = []
        for lane, receiver in peer.receivers.items():
            if receiver.next is None and lane in peer.nexts:
                effects += self._lift(name, lane, receiver.on_baseline(peer.nexts.pop(lane), now_s))
        return effects

    def cut_short(self, peer: Peer, now_s: float, active_s: float) -> None:
        """The peer's token is gone: note on which lanes it was publishing just now."""
        peer.cut_short = [
            lane
            for lane, receiver in peer.receivers.items()
            if receiver.next is not None
            and (receiver.next != receiver.acked or now_s - receiver.acked_s < active_s)
        ]

    def had(self, peer: Peer) -> tuple[str, ...]:
        """The lanes on which any event of the peer has come."""
        now = [lane for lane, receiver in peer.receivers.items() if receiver.has_taken()]
        return tuple(dict.fromkeys([*peer.had, *now]))

    def is_parted(self, peer: Peer, data: wire.Data) -> bool:
        """Whether a frame names this node among those that its sender gave up before it."""
        if self.name not in data.parted or peer.unsure or not peer.welcome:
            return False
        receiver = peer.receivers.get(data.lane)
        if receiver is None:
            return self.own.version_that_touched(data.lane) is not None
        return data.first + len(data.items) > (receiver.next or 0)  # else it has come before

    def _note_had(self, peer: Peer) -> None:
        for lane in self.had(peer)[len(peer.had) :][: self.lanes_count_max - len(peer.had)]:
            peer.had.add(lane)

    def places(self, peer: Peer) -> dict[str, int]:
        """How far we are in each of the peer's streams."""
        places = dict(peer.nexts)
        for lane, receiver in peer.receivers.items():
            if receiver.next is not None:
                places[lane] = receiver.next
        return places

    def place(self, peer: Peer, lane: str) -> int | None:
        """The number that is due next on a lane, 0 if unknown yet; None if nothing is taken."""
        version = self.own.version_that_touched(lane)
        if version is None or lane in self.paused or peer.unsure:
            return None
        receiver = peer.receivers.get(lane)
        if receiver is not None:
            return receiver.next or 0
        return peer.nexts.get(lane, 1) if version <= peer.confirmed else 0

    def sender_lost(self, name: str, peer: Peer, now_s: float) -> Effects:
        """Report what is missing; of each lane only the place in the stream is remembered.

        A peer that was killed may have published more than anyone heard of: where it was
        publishing when its token went, a loss of unknown size is reported.
        """
        effects: Effects = []
        if peer.cut_version or peer.doubt_version or peer.unsure:
            # It goes on without us, so the break is reported again if we ever meet again.
            peer.doubt_version = 0
            peer.cut_short.clear()  # one word is enough
            effects.append(Lost(name, "", 0, None))
        effects += self.resume(name, peer, now_s)
        for lane, receiver in peer.receivers.items():
            effects += self._lift(name, lane, receiver.on_sender_lost(now_s))
            if receiver.next is not None:
                peer.nexts[lane] = receiver.next
                if lane in peer.cut_short:
                    effects.append(Lost(name, lane, receiver.next, None))
        self._note_had(peer)
        peer.receivers.clear()
        peer.cut_short, peer.unsure = [], False
        return effects

    def _best_effort(self, peer: Peer, data: wire.Data) -> Effects:
        # Two declarations of one node may overlap for a moment and bring a frame twice.
        items = data.items
        counted = data.lane
        if items.origins:  # then a frame has numbers of one sender elsewhere
            first_sender = next(iter(items.each_first_sender(data.sender)))
            counted = f"{data.lane}{MARK}{MARK}{first_sender}"
        last = peer.best_effort.get(counted, -1)
        if items and last - _LATE_COUNT_MAX < items.numbers[0] <= last:
            items = Items.of([item for item in items if item.number > last])
        if not items or self.own.version_that_touched(data.lane) is None:
            return []
        if last < 0 and len(peer.best_effort) >= self.lanes_count_max:
            if not items.origins:
                return self._turn_away(data.sender, peer, data.lane)
            del peer.best_effort[next(iter(peer.best_effort))]  # at worst something comes twice
        peer.best_effort[counted] = items.each_number()[-1]
        return [Events(data.sender, data.lane, 0, items)]

    def _receiver(self, peer: Peer, lane: str, now_s: float) -> Receiver | None:
        """The receiver of a peer's lane, made if the lane is wanted and there is room."""
        receiver = peer.receivers.get(lane)
        if receiver is not None or lane in peer.unwanted:
            return receiver
        version = self.own.version_that_touched(lane)
        if version is None:
            if len(peer.unwanted) >= _UNWANTED_COUNT_MAX:
                peer.unwanted.clear()
            peer.unwanted.add(lane)
            return None
        if not self._has_room(peer, lane):
            return None
        receiver = peer.receivers[lane] = Receiver(paused=lane in self.paused)
        if peer.confirmed >= version and not peer.unsure:
            # A lane that the peer did not name had no numbers yet: they start at 1.
            receiver.on_baseline(peer.nexts.pop(lane, 1), now_s)
        return receiver

    def _has_begun(self, peer: Peer, lane: str) -> bool:
        """Whether we know our place in the stream, which does not change while it is wanted."""
        receiver = peer.receivers.get(lane)
        return lane in peer.nexts or (receiver is not None and receiver.next is not None)

    def _has_room(self, peer: Peer, lane: str) -> bool:
        count = len(peer.receivers) + len(peer.nexts)
        return count < self.lanes_count_max or lane in peer.nexts

    def _turn_away(self, sender: str, peer: Peer, lane: str) -> Effects:
        """Drop what came on a lane without a stream; say so unless nobody wants it."""
        if lane in peer.unwanted:
            return []
        peer.refused_count += 1
        what = f"sends on more than {self.lanes_count_max} lanes; others are dropped"
        lost = [Lost(sender, "", 0, None)] if peer.refused_count == 1 else []
        return [Complain(sender, what), *lost]

    def _lift(self, sender: str, lane: str, effects: list[Effect]) -> Effects:
        """The effects of one route, as effects of the node."""
        lifted: Effects = []
        for effect in effects:
            match effect:
                case Deliver(first, items):
                    lifted.append(Events(sender, lane, first, items))  # type: ignore[arg-type]
                case AskAgain(first, last):
                    lifted.append(ToPeer(sender, wire.Ask(self.name, lane, first, last)))
                case ReportLoss(first, last):
                    lifted.append(Lost(sender, lane, first, last))
        return lifted
