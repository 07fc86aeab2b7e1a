"""Guaranteed delivery as a node does it: its ledgers and its durable consumers, on one strand.

The pure halves (`protocols.guaranteed.server`, `.consumer`) are machines that the runtime drives on
a worker of their own, so reading and writing files holds up nobody else. This module carries out
what only they want done. Publishers write to the ledger on their own threads, and share a commit
when they are many.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import convert
from msgspec.structs import replace as changed

from infobus.bus.deliver.subscription import OnMismatch, loss_error
from infobus.bus.durable.feed import LedgerFeed
from infobus.bus.durable.names_in_use import (
    Judge,
    ServedLedger,
    Sink,
    Use,
    User,
    decode_kept,
    descriptors_in,
    rewound_error,
    saved_in,
)
from infobus.bus.durable.stores import KeptLedger, KeptPlaces, Stores
from infobus.bus.durable.subscription import DurableEvent
from infobus.bus.publish.publisher import MakeRecords
from infobus.bus.runtime.registration import Background, Part
from infobus.bus.runtime.runtime import Runtime, WhyNot
from infobus.errors import BadFrame, BusClosed, BusError, DurableInUse, LedgerInUse, StoreError
from infobus.headers import decode as decode_headers
from infobus.objects.codec import Mismatched
from infobus.protocols.frames import wire
from infobus.protocols.frames.guaranteed import Durable, Entry, GuaranteedMessage, Kept, NamePlace
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.guaranteed import effects as effect
from infobus.protocols.guaranteed.adoption import LedgerTurns
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import ConsumerTerms
from infobus.protocols.guaranteed.keeper import NameKeeper, SavePlaces
from infobus.protocols.guaranteed.ledger_port import subjects_of
from infobus.protocols.guaranteed.server import (
    LedgerFailed,
    LedgerServer,
    ServerEffects,
    ServerTerms,
)
from infobus.protocols.reliable.effects import Lost
from infobus.stores.ledger.record import Record, SourcePlace
from infobus.stores.ledger.retention import KEEP_BYTES, KEEP_S, PatientClock

if TYPE_CHECKING:
    from infobus.bus.rights.guard import Guard

log = logging.getLogger("infobus")

TAGS = (*range(20, 30), 71, 72)
"""Of the frames of guaranteed delivery; some are for later versions."""
_CALL_S_MAX = 5.0
_SERVER_TERMS, _CONSUMER_TERMS = ServerTerms(), ConsumerTerms()

_OFTEN = 1 << 62  # a router never gives an event up

_Saved = dict[str, dict[str, NamePlace]]

PublishDead = Callable[[str, effect.Bury], None]


class Guarantees:
    """The ledgers and durable consumers of one node."""

    def __init__(
        self,
        runtime: Runtime,
        stores: Stores,
        publish_dead: PublishDead,
        *,
        server_terms: ServerTerms = _SERVER_TERMS,
        consumer_terms: ConsumerTerms = _CONSUMER_TERMS,
        turns: LedgerTurns | None = None,
        keepers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._keepers = keepers  # those of the site, as far as they are known
        self._places: KeptPlaces | None = None
        self._stores = stores
        self._consumer_terms = consumer_terms
        self._runtime = runtime
        self._now_s, self._wall_s = runtime.clock.now_s, runtime.clock.wall_s
        self._publish_dead = publish_dead
        self.ledgers: dict[str, KeptLedger] = {}
        describe = partial(descriptors_in, self.ledgers)
        decode = partial(decode_kept, self.ledgers)
        self._server = LedgerServer(
            name=runtime.name, decode=decode, describe=describe, terms=server_terms
        )
        if runtime.guard is not None:
            self._server.may_want = runtime.guard.accepts_row
            self._server.may_have = runtime.guard.accepts_reading
        runtime.enders.append(self._end_what_may_not_go_on)
        self._own: KeptLedger | None = None  # the one that this node writes to
        self._opening = threading.RLock()  # the strand may bury, and so publish, meanwhile
        self._taking = threading.Lock()  # of ledgers that nobody owns, one after the other
        self._reached: dict[str, int] = {}  # how far sources have come, by this node
        self._knows_reached = ""  # the ledger that knows what all others of the home know of that
        self._watchers: dict[Callable[[Durable], object], None] = {}
        self._turns = turns or LedgerTurns()
        self._looks_afresh = True  # at ledgers that nobody owns
        self._uses: dict[User, Use] = {}
        # Later lives of the home begin with larger numbers, so others know which one is the last.
        self._sessions = itertools.count(max(1, int(1e6 * self._wall_s())))
        self._adopt_at_s = self._prune_at_s = 0.0
        self._clock = PatientClock(wall_s=self._wall_s(), now_s=self._now_s())
        self._is_called = False  # to look for commits
        self._is_closed = False
        self._part = Part("guaranteed delivery", self, self._do_served)
        self._strand = Background(
            runtime, f"infobus-{runtime.name}-guarantees", self._decode, after=self._catch_up
        )
        self._strand.parts[self._part] = None

    def start(self) -> None:
        """Begin: serve what dead processes of this home left behind."""
        self._runtime.register(self._strand, TAGS)
        self._strand.on_tick()

    def close(self) -> None:
        """Save everything, and let others have the ledgers and names."""
        with self._opening:  # what is being opened is closed with the rest, and no more is opened
            self._is_closed = True
        self._strand.do(self._end_all)  # on its own: the ledgers hear of it before they close
        self._strand.do(self._shut)
        self._strand.stop(_CALL_S_MAX)

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child: ledgers and names stay the parent's."""
        self._own, self._is_closed, self._opening = None, True, threading.RLock()
        for subscription in list(self._uses):
            subscription.abandon(why)

    # What publishers do, on their own threads.

    def append(self, make: MakeRecords) -> tuple[str, int]:
        """Keep events; returning means they are on disk. The ledger and the first number.

        Raises:
            StoreFull: There is no room: nothing was kept.
        """
        ledger = self._own or self._open_own()
        try:
            first = ledger.append_made(make)
        except StoreError:
            self._look_for_another(ledger)
            raise
        self._call_for(ledger)
        return ledger.id, first

    def append_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        types: Mapping[int, bytes],
        reached: Mapping[str, int],
    ) -> None:
        """Keep events that another ledger keeps, too; those that came before are left out.

        `reached` are sources that are raised to a number in the same transaction.

        Whichever ledger of this home kept them: a router that starts again may get another one.

        Raises:
            StoreFull: There is no room: nothing was kept.
        """
        ledger = self._own or self._open_own()
        try:
            if self._knows_reached != ledger.id:
                ledger.raise_sources(self.sources())
                self._knows_reached = ledger.id
            ledger.append_from(sources, records, types, now_s=self._wall_s(), reached=reached)
        except StoreError:
            self._look_for_another(ledger)
            raise
        self._reached.update((one.stream, one.number) for one in sources)
        self._reached.update(reached)
        self._call_for(ledger)

    def sources(self) -> Mapping[str, int]:
        """Up to which number the ledgers of the home keep the records of each source."""
        return {**self._stores.sources(), **self._reached}

    def _call_for(self, ledger: KeptLedger) -> None:
        """Have what was appended sent to who waits for it."""
        # Waking the thread costs as much as the rest; it looks by itself before it sleeps.
        if not self._is_called and self._server.is_awaited(ledger.id):
            self._is_called = True
            self._strand.do(self._heed_call)

    def _open_own(self) -> KeptLedger:
        with self._opening:
            self._check_open()
            if self._own is None:
                with self._taking:
                    able = filter(self._stores.takes_records, [*self.ledgers.values()])
                    ledger = next(able, None) or self._stores.open_free()
                # Before the first event: consumers that are known begin before it, whatever
                # the clocks say.
                if ledger.id not in self.ledgers:
                    serve = partial(self._serve, ledger)
                    self._call(lambda: self._strand.step_now(self._part, serve))
                self._own = ledger
            return self._own

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusClosed("the bus was closed meanwhile")

    def _look_for_another(self, ledger: KeptLedger) -> None:
        """After a failure: let the next event go elsewhere if this ledger takes no more."""
        if self._stores.takes_records(ledger):
            return
        with self._opening:
            if self._own is ledger:
                self._own = None
        last = ledger.next - 1
        self._strand.step(
            self._part,
            lambda now_s: (
                self._server.committed(ledger.id, last, now_s) if ledger.id in self.ledgers else []
            ),
        )

    def _call(self, job: Callable[[], None]) -> None:
        """Have a job done by the strand, and wait for that."""
        self._strand.call(job, _CALL_S_MAX)

    def _heed_call(self) -> None:
        self._is_called = False  # from now on, another call is needed

    def _catch_up(self) -> None:
        """After each step: look for commits, and go on with what can be answered."""
        self._strand.step_now(self._part, self._committed)
        while self._server.has_work:
            self._strand.step_now(self._part, self._server.work)

    def _committed(self, now_s: float) -> ServerEffects:
        own = self._own
        if own is None or own.id not in self.ledgers:
            return []
        return self._server.committed(own.id, own.next - 1, now_s)

    # What consumers do.

    def subscribe(
        self,
        subscription: Sink,
        where: str,
        *,
        test: bool,
        on_mismatch: OnMismatch = "raise",
        ordered: bool,
        deliveries_max: int,
        judge: Judge | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> Use:
        """Use a durable name.

        Raises:
            DurableInUse: Another subscription of this home uses it.
        """
        terms = replace(self._consumer_terms, deliveries_max=deliveries_max)
        since = self._wall_s()
        return self._use(
            subscription, where, test, on_mismatch, ordered, terms, since, judge, wanted
        )

    def feed(self, feed: LedgerFeed, where: str, since: float) -> Use:
        """Use a durable name for all events since then, whatever becomes of them.

        Raises:
            DurableInUse: Another subscription of this home uses it.
        """
        # A delivery that ends with the death of this process counts for nothing.
        terms = replace(self._consumer_terms, careful_s=0.0, hands_expired=True)
        terms = replace(terms, deliveries_max=_OFTEN)
        return self._use(feed, where, True, "raise", False, terms, since)

    def _use(
        self,
        subscription: User,
        where: str,
        test: bool,
        on_mismatch: OnMismatch,
        ordered: bool,
        terms: ConsumerTerms,
        since: float,
        judge: Judge | None = None,
        wanted: tuple[Any, ...] = (),
    ) -> Use:
        with self._opening:  # while closing, nothing is opened
            self._check_open()
            name, patterns = subscription.name, subscription.patterns
            store = self._stores.open_consumer(name, patterns, where, since)
            consumer = DurableConsumer(
                node=self._runtime.name,
                name=subscription.name,
                session=next(self._sessions),
                patterns=list(store.patterns),
                registered_at=store.registered_at,
                where=where,
                test=test,
                ordered=ordered,
                terms=terms,
                saved=saved_in(store),
                keepers=set(self._keepers()),
            )
            use = Use(consumer, store, subscription, self._wall_s, on_mismatch, judge, wanted)
            use.part = Part(f"durable consumer {subscription.name}", use, partial(self._do, use))

            def begin() -> None:
                self._uses[subscription] = use
                self._strand.parts[use.part] = None
                start = lambda now_s: consumer.start(now_s, self._wall_s())  # noqa: E731
                self._strand.step_now(use.part, start)

            self._strand.do(begin)
            return use

    def settle(self, feed: LedgerFeed, places: Sequence[tuple[str, int]]) -> None:
        """Settle events of a feed, by their ledgers and numbers."""
        use = self._uses.get(feed)
        if use is not None:
            settled = use.consumer.settled
            self._strand.step(
                use.part,
                lambda now_s: [one for place in places for one in settled(*place, now_s)],
            )

    def watch(self, watcher: Callable[[Durable], object]) -> Callable[[], None]:
        """Call `watcher` with what durable consumers of the bus say of themselves, again and again.

        It is called on the strand, so it must not wait. Returns what ends this.
        """
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    def registrations(self) -> Mapping[str, float]:
        """The durable consumers of the home, in use or not, and since when they are registered."""
        return self._stores.registrations()

    def release(self, subscription: User, error: BusError | None = None) -> None:
        """Use a durable name no longer; returns when everything is saved."""
        self._call(lambda: self._end(subscription, error))

    def _end_what_may_not_go_on(self, why_not: WhyNot) -> None:
        """Another policy counts: end the uses of names that it does not allow."""
        for subscription in list(self._uses):
            error = why_not(subscription.patterns, False)
            if error is not None:
                self._strand.do(partial(self._end, subscription, error))

    def _end(self, subscription: User, error: BusError | None) -> None:
        use = self._uses.pop(subscription, None)
        if use is not None:
            self._strand.step_now(use.part, lambda now_s: use.consumer.close())
            del self._strand.parts[use.part]
            try:
                use.store.close()
            except StoreError as full:  # what was settled last comes again
                log.error("%s", full)
            subscription.end(error)

    # What a keeper of the site does.

    def keep_names(self, places: KeptPlaces) -> None:
        """Keep the places of durable names for the site."""
        keeper = NameKeeper(node=self._runtime.name, saved=convert(places.load(), _Saved))
        part = Part("durable names of the site", keeper, self._save_places)

        def begin() -> None:
            self._places, self._strand.parts[part] = places, None
            for name, peer in list(self._runtime.node.peers.items()):
                if peer.alive:
                    self._strand.step_now(part, partial(keeper.peer_up, name))

        self._strand.do(begin)

    def _save_places(self, one: SavePlaces) -> None:
        assert self._places is not None
        self._places.save({one.name: one.places or None})

    # What the world does. This is the machine of the ledgers; each `Use` is one of its own.

    def _decode(self, payload: bytes) -> GuaranteedMessage | None:
        message = wire.decode(payload)
        if not isinstance(message, GuaranteedMessage):
            return None  # a newer minor version has added it
        guard = self._runtime.guard
        if guard is not None and isinstance(message, Durable):
            accepted = [one for one in message.patterns if guard.accepts_row(message.sender, one)]
            if len(accepted) < len(message.patterns):
                message = changed(message, patterns=[])  # it ends here what it may not have
        elif guard is not None and isinstance(message, Kept):
            entries = [one for one in message.entries if self._may_keep(guard, message.sender, one)]
            if len(entries) < len(message.entries):
                self._runtime.counters.denied += len(message.entries) - len(entries)
                message = changed(message, entries=entries)  # the others are as not for this node
        peer = self._runtime.node.peers.get(message.sender)
        return message if peer is not None and peer.alive else None  # unseen, not believed

    def _may_keep(self, guard: Guard, server: str, entry: Entry) -> bool:
        """Whether who serves a ledger may publish what an entry holds: it vouches for that."""
        try:
            subjects = subjects_of(entry)
        except BadFrame:
            return True  # nobody can read it: a dead letter says so
        return all(guard.accepts_event(server, one) for one in subjects)

    def take(self, message: GuaranteedMessage, now_s: float) -> ServerEffects:
        """Take in a message about ledgers."""
        if isinstance(message, Durable) and message.name not in self._server.sessions:
            self._adopt_at_s = 0.0  # it may lack something of ledgers that nobody owns
        if isinstance(message, Durable) and not message.patterns:
            self._prune_at_s = 0.0  # this saves what it has settled
        elif isinstance(message, Durable):
            for watcher in self._watchers.copy():
                watcher(message)
        # First what was committed meanwhile: a consumer that is new begins after all of that.
        return self._committed(now_s) + self._server.take(message, now_s)

    def peer_up(self, name: str, now_s: float) -> ServerEffects:
        """Who needs something of the ledgers asks by itself."""
        return []

    def peer_down(self, name: str, now_s: float) -> ServerEffects:
        """A node is gone: its ledgers may be free."""
        self._server.peer_down(name)
        self._adopt_at_s = 0.0
        return []

    def tick(self, now_s: float) -> ServerEffects:
        """Look for ledgers that nobody owns, prune those of this node, let go of others."""
        effects: ServerEffects = []
        old_s = self._clock.read(wall_s=self._wall_s(), now_s=now_s)
        if now_s >= self._adopt_at_s:
            self._adopt_at_s = now_s + self._runtime.patience.adopt_s
            effects += self._adopt(old_s - KEEP_S, now_s) + self._meet_registered(now_s)
        if now_s >= self._prune_at_s:
            self._prune_at_s = now_s + self._runtime.patience.prune_s
            self._looks_afresh = True
            for id, ledger in self.ledgers.items():
                try:
                    ledger.prune(old_s, keep_s=KEEP_S, keep_bytes=KEEP_BYTES)
                except StoreError as error:  # such as a full disk
                    self._runtime.counters.complain(f"ledger {id}", str(error))
        return effects + self._server.tick(now_s) + self._let_go(now_s)

    def look_for_ledgers(self) -> None:
        """Look for ledgers that nobody owns with the next tick."""
        self._adopt_at_s = 0.0

    def _adopt(self, old_s: float, now_s: float) -> ServerEffects:
        """Open ledgers of processes that are no more, as far as there is something to do there."""
        effects: ServerEffects = []
        with self._taking:
            try:
                found = self._stores.orphans(self._looks_afresh).items()
                self._looks_afresh = False
            except StoreError as error:
                self._runtime.counters.complain("ledgers", str(error))
                return []
            lacks = self._server.is_lacking
            wanted = (
                id
                for id, one in found
                if one is None or one.settled_at < old_s or lacks(one.last, one.positions)
            )
            for id in self._turns.choose([*wanted]):
                try:
                    ledger = self._stores.open_ledger(id)
                except LedgerInUse:
                    continue  # somebody was quicker
                except StoreError as error:
                    self._runtime.counters.complain(f"ledger {id}", str(error))
                    self._turns.closed(id, now_s)  # others come first now
                else:
                    self._turns.opened(id, now_s)
                    effects += self._serve(ledger, now_s)
        return effects

    def _meet_registered(self, now_s: float) -> ServerEffects:
        """Let the open ledgers know all consumers of the home, those that are away included."""
        try:
            registered = self._stores.registrations()
            # First what was committed meanwhile, as for a consumer that is met.
            return self._committed(now_s) + self._server.registered(registered)
        except StoreError as error:
            self._runtime.counters.complain("durable consumers", str(error))
            return []

    def _let_go(self, now_s: float) -> ServerEffects:
        """Close ledgers in which there is nothing to do, for others to have when they publish."""
        if not self._opening.acquire(blocking=False):
            return []  # one of them may be about to become this node's own
        effects: ServerEffects = []
        try:
            for id, ledger in list(self.ledgers.items()):
                if ledger is self._own:
                    self._turns.closed(id, now_s)
                elif ledger.is_removed and self._server.is_unsettled(id):
                    pass  # nobody could open it again for those who lack something of it
                elif (is_over := self._turns.is_over(id, now_s)) or not self._server.is_wanted(id):
                    self._close(id, now_s)
                    effects += self._server.closed(id)
                    if is_over:
                        self._adopt_at_s = 0.0
        finally:
            self._opening.release()
        return effects

    def _close(self, id: str, now_s: float) -> None:
        self._turns.closed(id, now_s)
        if (ledger := self.ledgers.pop(id, None)) is not None:
            if ledger is self._own:
                self._own = None  # the next event goes to another one
            ledger.close()

    def _serve(self, ledger: KeptLedger, now_s: float) -> ServerEffects:
        self._prune_at_s = 0.0  # nobody knows when it was pruned last
        self.ledgers[ledger.id] = ledger
        positions = {name: one.position for name, one in ledger.positions().items()}
        served = ServedLedger(ledger, self._wall_s)
        effects = self._server.opened(ledger.id, served, ledger.next - 1, positions, now_s)
        return effects + self._meet_registered(now_s)

    def _end_all(self) -> None:
        for subscription in list(self._uses):
            self._end(subscription, None)

    def _shut(self) -> None:
        self._end_all()
        self._own = None
        self._strand.parts.clear()  # a step that comes late would take ledgers over again
        for ledger in self.ledgers.values():
            ledger.close()
        self.ledgers.clear()
        if self._places is not None:
            self._places.close()

    # Doing what only guaranteed delivery wants done.

    def _do_served(self, one: LedgerFailed) -> None:
        assert isinstance(one, LedgerFailed), f"nobody does {one!r}"
        log.error("ledger %s is not served any more: %s", one.ledger, one.error)
        self._close(one.ledger, self._now_s())

    def _do(self, use: Use, one: effect.OwnEffect) -> None:
        match one:
            case effect.HandOver(id, entry, deliveries):
                if isinstance(use.subscription, LedgerFeed):
                    use.subscription.feed(id, entry)
                else:
                    self._deliver(use, use.subscription, id, entry, deliveries)
            case effect.Save(id, saved):
                use.store.note(id, saved.position, saved.above, saved.deliveries)
                use.store.flush()
            case effect.Bury():
                self._bury(use, one)
            case effect.LostForGood(id, first, last):
                use.subscription.lost += 1
                use.subscription.offer(loss_error(Lost(id, "", first, last)))
            case effect.Rewound():
                use.subscription.offer(rewound_error(use.subscription.name, one))
            case effect.UsedElsewhere(holder):
                name = use.subscription.name
                what = f"the durable name {name!r} is in use by node {holder}"
                in_use = DurableInUse(what, name=name)
                self._strand.do(partial(self._end, use.subscription, in_use))
            case _:
                assert_never(one)  # an effect that nobody does would be lost in silence

    def _deliver(
        self, use: Use, subscription: Sink, id: str, entry: Entry, deliveries: int
    ) -> None:
        is_answered = False

        def answer(is_settled: bool) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                settle = use.consumer.settled if is_settled else use.consumer.nacked
                self._strand.step(use.part, lambda now_s: settle(id, entry.number, now_s))

        if entry.expires is not None and entry.expires <= self._wall_s():
            answer(False)  # it has waited here for room on the disk; now it is a dead letter
            return
        signed_by = ""
        if not self._is_protected(id, entry):
            answer(True)
            return
        try:
            if use.judge is not None:
                if (judged := use.judge(id, entry, self._runtime)) is None:
                    answer(True)  # it is not for this consumer, as far as others could tell
                    return
                entry, signed_by = judged
            headers = decode_headers(entry.headers or b"")
            data = use.data(id, entry, self._runtime)
        except BadFrame as error:
            self._runtime.on_bad_object(id, error)
            answer(False)  # time and again, until it is a dead letter
            return
        except Mismatched as error:
            self._runtime.on_mismatch(id, error)
            if use.on_mismatch == "skip":
                answer(True)
                return
            why = str(error)
            unusable = use.consumer.unusable
            self._strand.step(use.part, lambda now_s: unusable(id, entry.number, why, now_s))
            return
        sender, number = entry.name_in(id)
        via = "" if entry.origin is None else id
        place = (sender, entry.number, entry.time, number, entry.priority, False, entry.test)
        marks = (True, headers, via, signed_by, self._principal(use, id), deliveries, answer)
        subscription.offer(DurableEvent(entry.subject, data, *place, *marks))

    def _is_protected(self, id: str, entry: Entry) -> bool:
        """Whether an event of a ledger is protected as the policy asks."""
        protection = self._runtime.protection
        level = None if protection is None else protection.of(entry.subject)
        if protection is None or level is None:
            return True
        from infobus.bus.deliver.event_keys import item_of

        if entry.type != GROUP and level.is_met_by(item_of(entry), protection.bus):
            return True
        self._runtime.counters.unprotected += 1
        self._runtime.counters.complain(id, "holds an event without what the policy asks: left out")
        return False

    def _principal(self, use: Use, ledger: str) -> str:
        """Who vouches for the events of a ledger: whoever is behind the node that serves it."""
        principal_of = self._runtime.delivery.principal_of
        server = use.consumer.server_of(ledger)
        return "" if principal_of is None or server is None else principal_of(server)

    def _bury(self, use: Use, dead: effect.Bury) -> None:
        """Publish an event that cannot be delivered on the dead-letter subject."""
        number = dead.entry.number
        try:
            self._publish_dead(use.subscription.name, dead)
        except BusError as error:
            log.error("a dead letter could not be published, it is tried again: %s", error)
            done = use.consumer.dead_letter_failed
        else:
            done = use.consumer.dead_lettered
        # Not at once: the effects of which this is one must be carried out before those of this.
        self._strand.step(use.part, lambda now_s: done(dead.ledger, number, now_s))
