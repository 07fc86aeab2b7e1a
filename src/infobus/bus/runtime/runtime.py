"""The driver of a node: receives, asks the pure node what to do, does it, repeats.

One lock guards the node and everything the bus writes in subscriptions. Nothing waits for user
code or for a slow link while holding it: user code runs on delivery workers or the user's own
threads, and frames that may have to wait for a link leave on a thread of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from infobus.bus.deliver.audience import filter_of, text_of
from infobus.bus.deliver.callbacks import Workers
from infobus.bus.deliver.dispatch import Delivery
from infobus.bus.deliver.expiry import Expiry
from infobus.bus.deliver.full_queue import Crowd
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.deliver.type_requests import TYPE_WAIT_S, Types, all_descriptors
from infobus.bus.runtime.clock import Clock
from infobus.bus.runtime.declarations import Listening
from infobus.bus.runtime.outbox import Mail, Post
from infobus.bus.runtime.peer_limits import Clients
from infobus.bus.runtime.threads import Threads
from infobus.bus.stats import Counters
from infobus.engines.base import Engine
from infobus.errors import (
    BadFrame,
    BusClosed,
    BusError,
    DeliveryError,
    IncompatiblePeer,
    PeerError,
)
from infobus.objects import codec
from infobus.patience import Patience
from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.wire import Data, Items
from infobus.protocols.guaranteed.frames import GuaranteedMessage
from infobus.protocols.interest.own_rows import Reduction, reduced_filters
from infobus.protocols.invocation.frames import is_service_frame
from infobus.protocols.reliable import effects as effect
from infobus.protocols.reliable.effects import Effects
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.peer import Terms
from infobus.waiters import Changed

if TYPE_CHECKING:
    from infobus.filters import Filter

log = logging.getLogger("infobus")

TICK_S = 0.1

_ALL_KEY = "all"
_TYPES_KEY = "types"


class Hub:
    """Joins one `Node`, one engine and the subscriptions of this process."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        engine: Engine,
        clock: Clock,
        threads: Threads,
        patience: Patience,
    ) -> None:
        self.name = name
        self.clock = clock
        self.threads = threads
        self.patience = patience
        self.node = Node(name, terms, codec.descriptors)
        self.engine = engine
        self.lock = threading.Lock()
        self.changed = Changed(self.lock)
        self.counters = Counters()
        self.workers = Workers(f"infobus-{name}")
        self.crowd = Crowd(self.node, self.counters, self._unregister)
        self.clients = Clients(terms.limits)
        self.node.is_held = self._is_held
        self.expiry = Expiry(name, self.counters, terms.classes.default)
        self.subscriptions: dict[Subscription, None] = {}
        self.types = Types()
        self.unknown_types = self.types.unknown
        self.interest_version = 0  # counts what anyone here or elsewhere changes
        self.on_interest_changed: Callable[[], None] = lambda: None
        self.on_state_wanted: Callable[[wire.WantState], None] = lambda message: None
        self.on_state_came: Callable[[wire.State], None] = lambda message: None
        self.on_recover: Callable[[Subscription], None] = lambda subscription: None
        self.on_tick: Callable[[float], None] = lambda now_s: None
        self.on_guaranteed: Callable[[GuaranteedMessage], None] = lambda message: None
        self.on_service: Callable[[bytes], None] = lambda payload: None
        self.on_peer: list[Callable[[str, bool], None]] = []
        self.delivery = Delivery(
            name,
            self.counters,
            self.workers,
            self.types,
            look_at_crowded=self.crowd.look_at,
            on_bad_object=self.on_bad_object,
        )
        self.audiences = self.delivery.audiences
        self._listening = Listening(engine, terms, self.on_frame)
        self._post = Post(f"infobus-{name}", engine, self._on_engine_error)
        self._is_closed = threading.Event()

    # Life.

    def open(self, sync_timeout_s: float) -> None:
        """Join the bus and meet the peers that are there."""
        self.engine.open(self.name)
        self._post.start()
        name = f"infobus-{self.name}-tick"
        threading.Thread(target=self._tick_for_ever, name=name, daemon=True).start()
        for key in (f"n/{self.name}", _ALL_KEY):
            self.engine.declare(key, self._on_mail)
        self.engine.answer(_TYPES_KEY, lambda question: all_descriptors(self.name))
        self.engine.announce(f"l/{self.name}")
        self.engine.watch("l/*", self._on_token)
        self._tick(time.monotonic())  # whoever is stopped right afterwards must notice that, too
        if not self.wait_until(self.node.is_synced, sync_timeout_s):
            log.warning("not every node found on the bus has answered in %s s", sync_timeout_s)

    def close(self) -> None:
        """Leave the bus."""
        with self.lock:
            mail = self._carry_out(self.node.leave())
            self._is_closed.set()
            for subscription in list(self.subscriptions):
                self._unregister(subscription, None)  # nobody needs to be told any more
            self.changed.notify_all()
        self._post.send(mail)
        self._post.stop()
        self.expiry.stop()
        self.workers.stop()
        self.engine.close()

    def abandon(self, why: BusClosed) -> None:
        """Become closed in a forked child, where the parent's locks may be held for ever."""
        self.lock = threading.Lock()
        self.changed = Changed(self.lock)
        self._is_closed.set()
        for subscription in self.subscriptions:
            subscription.abandon(why)
        self.subscriptions = {}

    def confirm(self, timeout_s: float) -> bool:
        """Wait until receivers have confirmed everything that was sent; False if they did not."""
        deadline_s = time.monotonic() + timeout_s
        is_confirmed = self.wait_until(self.node.is_confirmed, 0)
        while not is_confirmed and (left_s := deadline_s - time.monotonic()) > 0:
            with self.lock:
                beat = wire.encode(self.node.beat())  # receivers confirm at once when it comes
            self._post.put(_ALL_KEY, beat, control=True)
            is_confirmed = self.wait_until(self.node.is_confirmed, min(0.1, left_s))
        return is_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the node has left the bus."""
        return self._is_closed.is_set()

    def wake(self) -> None:
        """Let everyone who waits look again at what they wait for."""
        with self.lock:
            self.changed.notify_all()

    def wait_until(self, is_so: Callable[[], object], timeout_s: float | None) -> bool:
        """Wait until something about the node is so; False if it was not in time."""
        return self.changed.wait_for(is_so, timeout_s)

    # Subscriptions.

    def subscribe(self, subscription: Subscription, timeout_s: float) -> list[str]:
        """Register; returns the live peers that have not said in time that they know."""
        with self.lock:
            if self._is_closed.is_set():
                raise BusClosed("the bus was closed meanwhile")
            self.audiences.add(subscription)
            self.subscriptions[subscription] = None
            self._listening.add(subscription)
            self._note_interest_changed()
        self._listening.declare(self.lock, self._is_closed.is_set)
        with self.lock:
            where = text_of(subscription.where)
            now_s = time.monotonic()
            effects = self.node.request(subscription.requests(), True, now_s)
            effects += self.node.add_interest(subscription.told, now_s, where)
            mail = self._carry_out(effects)
            version = self.node.own.version
        return self._wait_until_known(mail, version, timeout_s)

    def change_filter(
        self, subscription: Subscription, where: str | Filter | None, timeout_s: float
    ) -> None:
        """Another filter for a subscription, from now on."""
        new = filter_of(where)
        with self.lock:
            if subscription not in self.subscriptions:
                raise BusClosed(f"{subscription!r} is closed")
            old = text_of(subscription.where)
            self.audiences.replace(subscription, new)
            effects = self.node.change_interest(
                [(pattern, text_of(new)) for pattern in subscription.told],
                [(pattern, old) for pattern in subscription.told],
                time.monotonic(),
            )
            self._note_interest_changed()
            mail = self._carry_out(effects)
            version = self.node.own.version
        silent = self._wait_until_known(mail, version, timeout_s)
        if silent:
            log.warning("%s: no answer in %s s from %s", subscription, timeout_s, ", ".join(silent))

    def _wait_until_known(self, mail: Mail, version: int, timeout_s: float) -> list[str]:
        """Tell the peers; those that are alive and have not answered in time are returned."""
        for key, frame, _ in mail:
            self.engine.put(key, frame)
        if self.wait_until(lambda: self.node.is_known(version), timeout_s):
            return []
        with self.lock:
            peers = self.node.peers.items()
            return [name for name, p in peers if p.alive and p.confirmed < version]

    def forget(self, subscription: Subscription) -> None:
        """Close a subscription."""
        with self.lock:
            mail = self._carry_out(self._unregister(subscription, None))
            self.changed.notify_all()
        self._post.send(mail)
        self._listening.declare(self.lock, self._is_closed.is_set)

    def relieved(self, subscription: Subscription) -> None:
        """A crowded subscription has room again."""
        with self.lock:
            mail = self._carry_out(self.crowd.look_again(subscription, time.monotonic()))
            self.changed.notify_all()
        self._post.send(mail)

    def recover(self, subscription: Subscription) -> None:
        """Start the subscription anew, with initial state from the producers."""
        self.on_recover(subscription)

    def on_bad_object(self, sender: str, error: BadFrame) -> None:
        """An object of `sender` cannot be read; its event is left out."""
        self.counters.bad_objects += 1
        self.counters.complain(sender, f"sent an object that cannot be read: {error}")

    def wait_for_types(self, items: Items) -> None:
        """Wait, bounded, for the descriptors of the events' types."""
        wanted = self.unknown_types.intersection(items.types)
        # From when they were asked for: strangers' types must not add up to a long wait.
        left_s = self.types.asked_at_s + TYPE_WAIT_S - time.monotonic()
        if not self.wait_until(lambda: not wanted & self.unknown_types, max(0.0, left_s)):
            with self.lock:
                self.unknown_types.difference_update(wanted)

    def _unregister(self, subscription: Subscription, error: DeliveryError | None) -> Effects:
        if self.subscriptions.pop(subscription, self) is self:
            return []
        self.audiences.remove(subscription)
        self._listening.drop(subscription)
        self._note_interest_changed()
        now_s = time.monotonic()
        where = text_of(subscription.where)
        effects = self.node.remove_interest(subscription.told, now_s, where)
        effects += self.node.request(subscription.requests(), False, now_s)
        effects += self.crowd.relieve(subscription, now_s)
        self.delivery.classed.pop(subscription, None)
        self.counters.thinned += subscription.thinned
        subscription.end(error)
        if subscription.callback is not None:
            self.workers.schedule(subscription)
        return effects

    def _note_interest_changed(self) -> None:
        self.interest_version += 1
        self.on_interest_changed()
        self.changed.notify_all()

    # What the engine calls.

    def _on_mail(self, payload: bytes) -> None:
        """Take a frame in that is no event: those of services come this way, too."""
        (self.on_service if is_service_frame(payload) else self.on_frame)(payload)

    def on_frame(self, payload: bytes) -> None:
        """Take one frame in."""
        try:
            message = wire.decode(payload)
        except PeerError as error:
            self._on_bad_frame(error)
            return
        if message.__class__ is not Data and isinstance(message, GuaranteedMessage):
            peer = self.node.peers.get(message.sender)
            if peer is not None and peer.alive:  # whom nobody sees is not believed
                self.on_guaranteed(message)
            return
        with self.lock:
            self.counters.received_frames += 1
            self.counters.received_bytes += len(payload)
            if self.clients.has_limits and message.__class__ is Data:
                self.clients.note(message.sender, len(message.items), len(payload))
            if message.__class__ is Data and self._is_next(message, len(payload)):
                if not self.delivery.late:
                    return
                effects: Effects = []
            elif message is None:  # a kind that a newer minor version has added
                return
            else:
                effects = self.node.take(message, time.monotonic())
                self.changed.notify_all()
            mail = self._carry_out(effects)
        self._post.send(mail)

    def _is_next(self, data: Data, size: int) -> bool:
        """The steady state: dispatch a frame that is just the next one of its route."""
        peer = self.node.peers.get(data.sender)
        if peer is None or data.descriptors:
            return False
        receiver = peer.receivers.get(data.lane)
        if receiver is None or not receiver.accept(data.first, len(data.items.bodies)):
            return False
        receiver.unacked_bytes += size
        terms, unacked_count = self.node.terms, data.first - receiver.acked
        is_ack_due = unacked_count >= terms.ack_count or receiver.unacked_bytes >= terms.ack_bytes
        if is_ack_due and not self.crowd.holds:
            self.delivery.late += self.node.acks(data.sender, peer)
        self.delivery.dispatch(data.sender, data.lane, data.first, data.items)
        return True

    def _is_held(self, peer: str, lane: str) -> bool:
        return self.crowd.holds_lane(lane) or self.clients.is_throttled(peer)

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors that came with a guaranteed event."""
        with self.lock:
            self.types.learn_all(descriptors, self._on_bad_descriptor)

    def _on_bad_descriptor(self, error: BadFrame) -> None:
        self.counters.bad_frames += 1
        self.counters.complain("descriptor", str(error))

    def _on_bad_frame(self, error: PeerError) -> None:
        self.counters.bad_frames += 1
        if isinstance(error, IncompatiblePeer):
            self.counters.complain(error.sender, str(error))
            with self.lock:
                self.node.refuse(error.sender)
                self.changed.notify_all()
        else:
            self.counters.complain(type(error).__name__, str(error))

    def _on_token(self, key: str, alive: bool) -> None:
        name = key.rpartition("/")[2]
        with self.lock:
            seen = self.node.peer_up if alive else self.node.peer_down
            mail = self._carry_out(seen(name, time.monotonic()))
            self.changed.notify_all()
        self._post.send(mail)
        for watcher in self.on_peer:
            watcher(name, alive)

    # Doing what the node says.

    def _carry_out(self, effects: Effects) -> Mail:
        """Do what the node says; what is to be sent is returned, to be posted without the lock."""
        mail: Mail = []
        effects, self.delivery.late = self.delivery.late + effects, []
        while effects:
            for one in effects:
                match one:
                    case effect.Events(sender, lane, first, items):
                        self.delivery.dispatch(sender, lane, first, items)
                    case ToPeer(peer, message, bulk):
                        self._count(message)
                        frame = message if isinstance(message, bytes) else wire.encode(message)
                        mail.append((f"n/{peer}", frame, bulk))
                    case ToAll(message):
                        mail.append((_ALL_KEY, wire.encode(message), False))
                    case effect.Lost(_, lane, _, _):
                        self._report(one, lane)
                    case Learn(descriptors):
                        self.types.learn_all(descriptors, self._on_bad_descriptor)
                    case effect.InterestChanged():
                        self._note_interest_changed()
                    case effect.Reduce(reduction):
                        name = f"infobus-{self.name}-reduce"
                        threading.Thread(
                            target=self._reduce, args=(reduction,), name=name, daemon=True
                        ).start()
                    case Complain(peer, what):
                        self.counters.complain(peer, what)
                    case effect.StateWanted(message):
                        self.on_state_wanted(message)
                    case effect.StateCame(message):
                        self.on_state_came(message)
                    case _:
                        assert_never(one)  # an effect that nobody does would be lost in silence
            effects, self.delivery.late = self.delivery.late, []
        return mail

    def _reduce(self, reduction: Reduction) -> None:
        """Find few rows for many filters, without the lock: that may take seconds."""
        filters = reduced_filters(reduction)
        with self.lock:
            mail = self._carry_out(self.node.reduced(reduction, filters, time.monotonic()))
        self._post.send(mail)

    def _count(self, message: object) -> None:
        if isinstance(message, bytes):
            self.counters.replayed += 1
        elif isinstance(message, wire.Ask):
            self.counters.asked_again += 1

    def _report(self, lost: effect.Lost, lane: str) -> None:
        for subscription in self.subscriptions:
            if subscription.wants_lane(lane):
                self.counters.lost += 1
                subscription.wake_with(lost)
                if subscription.callback is not None:
                    self.workers.schedule(subscription)

    def learn_types(self, timeout_s: float) -> None:
        """Ask all nodes for the types they know."""
        for answer in self.engine.query(_TYPES_KEY, b"", timeout_s):
            self.on_frame(answer)

    def send(self, mail: Mail) -> None:
        """Send frames, from any thread, never waiting for a slow link."""
        self._post.send(mail)

    def _on_engine_error(self, error: BusError) -> None:
        if not self._is_closed.is_set():
            self.counters.complain("engine", str(error))

    def _tick_for_ever(self) -> None:
        while not self._is_closed.wait(TICK_S):
            try:
                self._tick(time.monotonic())
            except Exception:
                log.exception("the node goes on after an error of its own")

    def _tick(self, now_s: float) -> None:
        with self.lock:
            self.on_tick(now_s)
            effects = self.node.tick(now_s) + self.crowd.expire(now_s)
            for subscription in self.delivery.classed:
                for run in subscription.tick(now_s):
                    self.expiry.note(run)
                effects += self.crowd.look_again(subscription, now_s)
            mail = self._carry_out(effects)
            self.changed.notify_all()
        self._post.send(mail)
