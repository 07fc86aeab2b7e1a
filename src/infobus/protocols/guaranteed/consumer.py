"""Guaranteed delivery, consuming half: delivers each event of every ledger until it is settled.

A `DurableConsumer` is one use of a durable name. It introduces itself to all nodes, learns which
ledgers they serve, and asks each ledger for the events that follow its position (see `server`).
There is one open question per ledger; a lost question or answer is repeated.

* Events of a ledger are delivered in order, the next one when the one before is settled.
  An event that the application nacks is delivered again after a pause; later ones wait for it.
  With `ordered` false, up to `out_count_max` are out at once, and later ones do not wait.
* After `deliveries_max` deliveries, or past its age limit, an event goes to the dead-letter
  subject and is settled when it is safe there.
* An event of another site that two ledgers keep is delivered once (see `doubles`).
* A saved position never goes back. An event that was settled and saved is not delivered again.
  Numbers that a ledger no longer stores are reported.

Where a site has keepers (see `keeper`), it asks them first. So it begins where an earlier use of
the name has come to elsewhere, and hears at once if the name is in use. It tells them what it has
saved.

Effects are carried out in order. `Save` is done when it is on disk; only then may the effects after
it be carried out. So nobody hears of progress that a crash could undo, and a delivery that may
crash the process has been counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames.guaranteed import (
    ABOVE_TOLD_COUNT_MAX,
    BEYOND,
    IN_USE,
    LEDGERS_TOLD_COUNT_MAX,
    NOT_SERVED,
    UNKNOWN,
    Durable,
    Fetch,
    GuaranteedMessage,
    Kept,
    Ledgers,
    NamePlace,
    NameProgress,
    NameRefused,
    SiteName,
)
from infobus.protocols.guaranteed.doubles import Doubles
from infobus.protocols.guaranteed.effects import (
    EXPIRED,
    TOO_OFTEN,
    Bury,
    ConsumerEffects,
    ConsumerTerms,
    HandOver,
    LostForGood,
    Rewound,
    Save,
    UsedElsewhere,
)
from infobus.protocols.guaranteed.position import LedgerStream, Saved, is_sound

_OF_ALL = (UNKNOWN, IN_USE)  # refusals that are about all ledgers of the server


@dataclass(kw_only=True)
class DurableConsumer:
    """The consuming half; one for each use of a durable name.

    Attributes:
        session: Larger than that of any earlier use of the name by this home.
        registered_at: Wall clock of the first use of the name.
        saved: The state on disk, by ledger, as of the last `Save`.
        keepers: The nodes that keep places of durable names for the site, as far as they are known.
    """

    node: str
    name: str
    session: int
    patterns: list[str]
    registered_at: float
    where: str = ""
    test: bool = False
    ordered: bool = True
    terms: ConsumerTerms = field(default_factory=ConsumerTerms)
    saved: Mapping[str, Saved] = field(default_factory=dict)
    keepers: set[str] = field(default_factory=set)
    streams: dict[str, LedgerStream] = field(default_factory=dict)  # by ledger
    held_count: int = 0
    held_bytes: int = 0
    out_count: int = 0
    is_closed: bool = False
    _ready: dict[str, None] = field(default_factory=dict)  # ledgers that may hand over, in turn
    _refused_by: dict[str, tuple[float, str]] = field(default_factory=dict)  # since, holder
    _doubles: Doubles = field(default_factory=Doubles)
    _is_reported: bool = False
    _silent: set[str] = field(default_factory=set)  # keepers that are waited for
    _silent_until_s: float = 0.0
    _untold: dict[str, None] = field(
        default_factory=dict
    )  # ledgers of which keepers know too little
    _announce_at_s: float = 0.0
    _wall_ahead_s: float = 0.0

    # What the node does.

    def start(self, now_s: float, wall_s: float) -> ConsumerEffects:
        """Introduce the consumer to all nodes."""
        for ledger, saved in self.saved.items():
            self.streams[ledger] = LedgerStream.of(saved)
        self._silent, self._silent_until_s = set(self.keepers), now_s + self.terms.keepers_s
        return self.tick(now_s, wall_s)

    def close(self) -> ConsumerEffects:
        """This node no longer uses the name; unsettled events are delivered again next time.

        All later calls do nothing.
        """
        self.is_closed = True
        released = Durable(self.node, self.name, self.session, [])
        saved = self.save()
        return [*saved, *self._tell_keepers(), *self._last_words(), ToAll(released)]

    def _last_words(self) -> ConsumerEffects:
        """Tell the ledgers what is settled, or they would keep it for a consumer that has it."""
        return [
            ToPeer(
                stream.server,
                Fetch(self.node, self.name, self.session, id, stream.cursor, stream.position, 1, 1),
            )
            for id, stream in self.streams.items()
            if stream.server and not stream.is_refused and stream.position > stream.told
        ]

    def save(self) -> ConsumerEffects:
        """Save settled positions now, instead of at the next tick."""
        changed = [(id, stream) for id, stream in self.streams.items() if stream.is_changed]
        return [self._save(id, stream) for id, stream in changed]

    def _save(self, ledger: str, stream: LedgerStream) -> Save:
        self._untold[ledger] = None
        return Save(ledger, stream.save())

    def _tell_keepers(self) -> ConsumerEffects:
        """Tell the keepers of the site what is saved: all of it must be on disk by then."""
        if not (self.keepers and self._untold):
            return []
        told = [id for id in self._untold if id in self.streams][:LEDGERS_TOLD_COUNT_MAX]
        self._untold = {id: None for id in self._untold if id in self.streams and id not in told}
        places = {
            id: NamePlace(one.position, sorted(one.above)[:ABOVE_TOLD_COUNT_MAX])
            for id, one in ((id, self.streams[id]) for id in told)
        }
        progress = NameProgress(self.node, self.name, self.session, places)
        return [ToPeer(keeper, progress) for keeper in sorted(self.keepers)]

    def settled(self, ledger: str, number: int, now_s: float) -> ConsumerEffects:
        """The application has settled an event that was delivered."""
        stream = self._taken_back(ledger, number)
        return [] if stream is None else self._settle(ledger, stream, number, now_s)

    def nacked(self, ledger: str, number: int, now_s: float) -> ConsumerEffects:
        """The application could not use an event that was delivered: deliver it again."""
        stream = self._taken_back(ledger, number)
        if stream is None:
            return []
        deliveries = stream.held[number].deliveries
        stream.deliveries[number] = deliveries
        stream.is_changed = True
        if deliveries >= self.terms.deliveries_max:
            stream.retries[number] = now_s
        else:
            self._pause(stream, number, now_s)
        self._ready[ledger] = None
        return self._hand_over(now_s)

    def unusable(self, ledger: str, number: int, why: str, now_s: float) -> ConsumerEffects:
        """An event that was delivered can never be used: make it a dead letter now."""
        stream = self._taken_back(ledger, number)
        if stream is None:
            return []
        stream.dying.add(number)
        held = stream.held[number]
        return [Bury(ledger, held.entry, held.deliveries, why)]

    def dead_lettered(self, ledger: str, number: int, now_s: float) -> ConsumerEffects:
        """An event is safe at the dead-letter subject."""
        stream = self._dead(ledger, number)
        return [] if stream is None else self._settle(ledger, stream, number, now_s)

    def dead_letter_failed(self, ledger: str, number: int, now_s: float) -> ConsumerEffects:
        """An event could not become a dead letter: try again after a pause."""
        stream = self._dead(ledger, number)
        if stream is not None:
            self._pause(stream, number, now_s)
        return []

    # What the world does.

    def server_of(self, ledger: str) -> str | None:
        """The node that serves a ledger now."""
        stream = self.streams.get(ledger)
        return None if stream is None else stream.server

    def peer_up(self, node: str) -> ConsumerEffects:
        """A node can be seen (again)."""
        return [] if self.is_closed else [ToPeer(node, self._durable())]

    def peer_down(self, node: str) -> ConsumerEffects:
        """A node can no longer be seen; others may take over its ledgers."""
        self._refused_by.pop(node, None)
        self.keepers.discard(node)
        self._silent.discard(node)
        for stream in self.streams.values():
            if stream.server == node:
                stream.server = stream.asked = None
        return []

    def take(self, message: GuaranteedMessage, now_s: float) -> ConsumerEffects:
        """Process a message; messages for servers or other consumers are ignored."""
        match message:
            case _ if self.is_closed:
                return []
            case Ledgers():
                return self._on_ledgers(message, now_s)
            case Kept() if (message.name, message.session) == (self.name, self.session):
                return self._on_kept(message, now_s)
            case NameRefused() if (message.name, message.session) == (self.name, self.session):
                return self._on_refused(message, now_s)
            case SiteName() if (message.name, message.session) == (self.name, self.session):
                return self._on_site_name(message, now_s)
        return []

    def tick(self, now_s: float, wall_s: float) -> ConsumerEffects:
        """Time has passed: save, repeat unanswered questions, redeliver events that are due."""
        if self.is_closed:
            return []
        self._wall_ahead_s = wall_s - now_s
        if now_s >= self._silent_until_s:
            self._silent.clear()
        effects = [*self.save(), *self._tell_keepers()]
        if now_s >= self._announce_at_s:
            self._announce_at_s = now_s + self.terms.announce_s
            effects.append(ToAll(self._durable()))
        for ledger, stream in self.streams.items():
            if any(due_s <= now_s for due_s in stream.retries.values()):
                self._ready[ledger] = None
            effects += self._repeat(ledger, stream, now_s)
        for since_s, holder in self._refused_by.values():
            if now_s - since_s >= self.terms.patience_s and not self._is_reported:
                self._is_reported = True
                effects.append(UsedElsewhere(holder))
        return effects + self._hand_over(now_s)

    # Messages.

    def _on_ledgers(self, told: Ledgers, now_s: float) -> ConsumerEffects:
        self._refused_by.pop(told.sender, None)
        effects: ConsumerEffects = []
        for ledger in told.ledgers:
            stream = self.streams.get(ledger)
            if stream is None:
                if len(self.streams) >= self.terms.ledgers_count_max:
                    what = f"serves more ledgers than durable consumer {self.name!r} can follow"
                    return [*effects, Complain(told.sender, what)]
                stream = self.streams[ledger] = LedgerStream()
            if stream.server != told.sender or stream.is_refused:
                stream.server, stream.asked, stream.is_refused = told.sender, None, False
                effects += self._ask(ledger, stream, now_s)
        return effects

    def _on_kept(self, kept: Kept, now_s: float) -> ConsumerEffects:
        stream = self.streams.get(kept.ledger)
        if stream is None or (kept.sender, kept.after) != (stream.server, stream.asked):
            return []  # late, or asked for again meanwhile
        if not is_sound(kept):
            what = f"gives an answer about ledger {kept.ledger} that makes no sense"
            return [Complain(kept.sender, what)]
        stream.asked = None
        count, size = len(stream.held), stream.held_bytes
        # The share may have shrunk since the question, and other ledgers may have filled
        # the room.
        room_count = self.terms.held_count_max - self.held_count
        room_bytes = self.terms.held_bytes_max - self.held_bytes
        rooms = max(count + room_count, 1), max(size + room_bytes, 1)
        stream.take(kept, *rooms, self._doubles.is_double)
        self.held_count += len(stream.held) - count
        self.held_bytes += stream.held_bytes - size
        effects: ConsumerEffects = (
            [Learn(kept.descriptors, kept.sender)] if kept.descriptors else []
        )
        if kept.gone is not None:
            effects += [LostForGood(kept.ledger, *kept.gone), self._save(kept.ledger, stream)]
        self._ready[kept.ledger] = None
        return effects + self._hand_over(now_s) + self._ask(kept.ledger, stream, now_s)

    def _on_refused(self, refused: NameRefused, now_s: float) -> ConsumerEffects:
        sender = refused.sender
        for ledger, stream in self.streams.items():
            if stream.server == sender and (refused.ledger == ledger or refused.why in _OF_ALL):
                stream.is_refused = True  # until the server says that it serves the ledger
                if refused.why == NOT_SERVED:
                    stream.server = stream.asked = None
        if refused.why == UNKNOWN:
            return [ToPeer(sender, self._durable())]
        if refused.why == IN_USE:
            since_s, _ = self._refused_by.get(sender, (now_s, ""))
            self._refused_by[sender] = since_s, refused.detail
        if refused.why in (IN_USE, NOT_SERVED):
            return []
        if refused.why == BEYOND:
            return self._on_beyond(refused)
        what = f"refuses durable consumer {self.name!r} on ledger {refused.ledger!r}: "
        return [Complain(sender, what + (refused.detail or refused.why))]

    def _on_beyond(self, refused: NameRefused) -> ConsumerEffects:
        stream = self.streams.get(refused.ledger)
        if stream is None or stream.server != refused.sender or stream.is_rewound:
            return []
        stream.is_rewound = True
        return [Rewound(refused.ledger, stream.position, refused.detail)]

    def _on_site_name(self, told: SiteName, now_s: float) -> ConsumerEffects:
        if told.holder and told.holder != self.node:
            if self._is_reported:
                return []
            self._is_reported = True
            return [UsedElsewhere(told.holder)]
        if told.sender not in self.keepers and len(self.keepers) < self.terms.keepers_count_max:
            self.keepers.add(told.sender)
            self._untold |= dict.fromkeys(self.streams)
        for ledger, place in told.places.items():
            if ledger in self.streams or len(self.streams) < self.terms.ledgers_count_max:
                stream = self.streams.setdefault(ledger, LedgerStream())
                stream.catch_up(place.position, place.above)
        self._silent.discard(told.sender)
        effects = self.save()
        for ledger, stream in self.streams.items():
            effects += self._ask(ledger, stream, now_s)
        return effects

    # Questions.

    def _repeat(self, ledger: str, stream: LedgerStream, now_s: float) -> ConsumerEffects:
        if stream.asked is None:
            return self._ask(ledger, stream, now_s)
        if stream.is_refused:
            return []
        if now_s >= stream.repeat_at_s:
            stream.repeat_wait_s = min(stream.repeat_wait_s * 2, self.terms.repeat_s_max)
            stream.repeat_at_s = now_s + stream.repeat_wait_s
            return self._fetch(ledger, stream, now_s)
        if stream.position > stream.told and now_s >= stream.told_at_s + self.terms.tell_s:
            return self._fetch(ledger, stream, now_s)
        return []

    def _ask(self, ledger: str, stream: LedgerStream, now_s: float) -> ConsumerEffects:
        """Ask for more, unless an answer is outstanding or enough is held."""
        count, size = self._share()
        is_full = len(stream.held) > count // 2 or stream.held_bytes > size // 2
        # Settling what is held makes `above` smaller, and room that others have taken; with nothing
        # held, only more events can.
        is_full = is_full or (bool(stream.held) and self._has_no_room(stream))
        is_waiting = bool(self._silent) or stream.asked is not None
        if stream.server is None or is_waiting or stream.is_refused or is_full:
            return []
        stream.asked = stream.cursor
        stream.repeat_wait_s = self.terms.repeat_s
        stream.repeat_at_s = now_s + stream.repeat_wait_s
        return self._fetch(ledger, stream, now_s)

    def _has_no_room(self, stream: LedgerStream) -> bool:
        terms = self.terms
        return (
            self.held_count >= terms.held_count_max
            or self.held_bytes >= terms.held_bytes_max
            or len(stream.above) >= terms.above_count_max
        )

    def _fetch(self, ledger: str, stream: LedgerStream, now_s: float) -> ConsumerEffects:
        assert stream.asked is not None and stream.server is not None
        count, size = self._share()
        effects: ConsumerEffects = []
        if stream.is_changed:
            effects.append(self._save(ledger, stream))
        stream.told, stream.told_at_s = stream.position, now_s
        fetch = Fetch(
            self.node,
            self.name,
            self.session,
            ledger,
            stream.asked,
            stream.position,
            max(count - len(stream.held), 1),
            max(size - stream.held_bytes, 1),
        )
        return [*effects, ToPeer(stream.server, fetch)]

    def _share(self) -> tuple[int, int]:
        """Return how much of one ledger is held: one that is stuck must not stop the others."""
        parts = len(self.streams) + 1
        return max(self.terms.held_count_max // parts, 1), self.terms.held_bytes_max // parts

    def _durable(self) -> Durable:
        return Durable(
            self.node,
            self.name,
            self.session,
            self.patterns,
            self.where,
            self.registered_at,
            self.test,
        )

    # Events.

    def _hand_over(self, now_s: float) -> ConsumerEffects:
        """Deliver what is ready, one event of each ledger in turn."""
        handed: ConsumerEffects = []
        is_counted = False
        while self._ready and self.out_count < self.terms.out_count_max:
            ledger = next(iter(self._ready))
            del self._ready[ledger]
            stream = self.streams[ledger]
            number = stream.next_to_hand(now_s, self.ordered)
            if number is not None:
                self._ready[ledger] = None
                handed.append(self._hand(ledger, stream, number, now_s))
                is_counted = is_counted or number in stream.deliveries
        # A save that counts one delivery also saves everything settled before it: no event
        # may be counted again because a later one crashes the process.
        return [*self.save(), *handed] if is_counted else handed

    def _hand(
        self, ledger: str, stream: LedgerStream, number: int, now_s: float
    ) -> HandOver | Bury:
        held = stream.held[number]
        expires = held.entry.expires
        is_expired = expires is not None and expires <= now_s + self._wall_ahead_s
        if is_expired and not self.terms.hands_expired:
            stream.dying.add(number)
            return Bury(ledger, held.entry, held.deliveries, EXPIRED)
        if held.deliveries >= self.terms.deliveries_max:
            stream.dying.add(number)
            return Bury(ledger, held.entry, held.deliveries, TOO_OFTEN)
        held.deliveries += 1
        # Counting costs a write to the disk. So a first delivery is counted only in the
        # first moments of a stream, because events that were out at a crash are delivered
        # again then. An event that always crashes the process is therefore delivered at
        # most once more than `deliveries_max` says.
        if stream.careful_until_s is None:
            stream.careful_until_s = now_s + self.terms.careful_s
        if held.deliveries > 1 or now_s < stream.careful_until_s:
            stream.deliveries[number] = held.deliveries
            stream.is_changed = True
        stream.out.add(number)
        self.out_count += 1
        return HandOver(ledger, held.entry, held.deliveries)

    def _taken_back(self, ledger: str, number: int) -> LedgerStream | None:
        stream = self.streams.get(ledger)
        if self.is_closed or stream is None or number not in stream.out:
            return None
        stream.out.remove(number)
        self.out_count -= 1
        return stream

    def _dead(self, ledger: str, number: int) -> LedgerStream | None:
        stream = self.streams.get(ledger)
        if self.is_closed or stream is None or number not in stream.dying:
            return None
        stream.dying.remove(number)
        return stream

    def _settle(
        self, ledger: str, stream: LedgerStream, number: int, now_s: float
    ) -> ConsumerEffects:
        self.held_bytes -= stream.settle(number)
        self.held_count -= 1
        self._ready[ledger] = None
        return self._hand_over(now_s) + self._ask(ledger, stream, now_s)

    def _pause(self, stream: LedgerStream, number: int, now_s: float) -> None:
        held = stream.held[number]
        doublings = min(max(held.deliveries - 1, 0), 30)
        due_s = now_s + min(self.terms.pause_s * 2**doublings, self.terms.pause_s_max)
        if held.entry.expires is not None:
            due_s = min(due_s, max(held.entry.expires - self._wall_ahead_s, now_s))
        stream.retries[number] = due_s
