"""The driver of a node: receives, asks the pure node what to do, does it, repeats.

One lock guards the node and everything the bus writes in subscriptions. Nothing waits for user
code or for a slow link while holding it: user code runs on delivery workers or the user's own
threads, and frames that may have to wait for a link leave on a thread of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from infobus.bus.crowd import Crowd
from infobus.bus.event import weight_of
from infobus.bus.post import Mail, Post
from infobus.bus.stats import Counters
from infobus.bus.subscription import Subscription
from infobus.bus.types import TYPE_WAIT_S, Types, all_descriptors
from infobus.bus.workers import Workers
from infobus.engines.base import Declaration, Engine
from infobus.errors import (
    BadFrame,
    BadSubject,
    BusClosed,
    BusError,
    DeliveryError,
    IncompatiblePeer,
    PeerError,
)
from infobus.objects import codec
from infobus.protocols import effects as effect
from infobus.protocols import wire
from infobus.protocols.effects import Effects
from infobus.protocols.node import Node
from infobus.protocols.peers import Terms
from infobus.protocols.wire import Data, Items
from infobus.subjects import SubjectTrie, channel_keys_of, check_subject

log = logging.getLogger("infobus")

TICK_S = 0.1

_ALL_KEY = "all"
_TYPES_KEY = "types"
_CHANNELS_KEY = "c/**"
_DECLARATIONS_MAX = 16
"""Past this many channels a node listens to all of them: each declaration costs a thread."""
_MATCHES_COUNT_MAX = 200_000
_COMPLAINTS_COUNT_MAX = 1_000
"""Sources of bad input that are told apart: their names, too, come from outside."""


class Hub:
    """Joins one `Node`, one engine and the subscriptions of this process."""

    def __init__(self, name: str, terms: Terms, engine: Engine) -> None:
        self.name = name
        self.node = Node(name, terms, codec.descriptors)
        self.engine = engine
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.counters = Counters()
        self.workers = Workers(f"infobus-{name}")
        self.crowd = Crowd(self.node, self.counters, self._unregister)
        self.node.held_channels = self.crowd.holds
        self.subscriptions: dict[Subscription, None] = {}
        self.types = Types()
        self.unknown_types = self.types.unknown
        self.on_interest_changed: Callable[[], None] = lambda: None
        self.on_state_wanted: Callable[[wire.WantState], None] = lambda message: None
        self.on_state_came: Callable[[wire.State], None] = lambda message: None
        self.on_recover: Callable[[Subscription], None] = lambda subscription: None
        self.on_tick: Callable[[float], None] = lambda now_s: None
        self._trie: SubjectTrie[Subscription] = SubjectTrie()
        self._matches: dict[str, tuple[Subscription, ...]] = {}
        self._keys: Counter[str] = Counter()  # engine keys that the subscriptions need
        self._declared: dict[str, Declaration] = {}
        self._late: Effects = []  # effects of dispatching, carried out after it
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
            self.engine.declare(key, self.on_frame)
        self.engine.answer(_TYPES_KEY, lambda question: all_descriptors(self.name))
        self.engine.announce(f"l/{self.name}")
        self.engine.watch("l/*", self._on_token)
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
        self.workers.stop()
        self.engine.close()

    def abandon(self, why: BusClosed) -> None:
        """Become closed in a forked child, where the parent's locks may be held for ever."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
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

    def wake(self) -> None:
        """Let everyone who waits look again at what they wait for."""
        with self.lock:
            self.changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something about the node is so; False if it was not in time."""
        with self.changed:
            return self.changed.wait_for(is_so, timeout_s)

    # Subscriptions.

    def subscribe(self, subscription: Subscription, timeout_s: float) -> list[str]:
        """Register; returns the live peers that have not said in time that they know."""
        with self.lock:
            if self._is_closed.is_set():
                raise BusClosed("the bus was closed meanwhile")
            self.subscriptions[subscription] = None
            for pattern in subscription.patterns:
                self._trie.add(pattern, subscription)
            self._keys.update(self._keys_of(subscription))
            self._forget_matches()
        self._declare_channels()
        with self.lock:
            effects = self.node.add_interest(subscription.patterns, time.monotonic())
            mail = self._carry_out(effects)
            version = self.node.own.version
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
        self._declare_channels()

    def relieved(self, subscription: Subscription) -> None:
        """A crowded subscription has room again."""
        with self.lock:
            mail = self._carry_out(self.crowd.relieve(subscription, time.monotonic()))
            self.changed.notify_all()
        self._post.send(mail)

    def recover(self, subscription: Subscription) -> None:
        """Start the subscription anew, with initial state from the producers."""
        self.on_recover(subscription)

    def on_bad_object(self, sender: str, error: BadFrame) -> None:
        """An object of `sender` cannot be read; its event is left out."""
        self.counters.bad_objects += 1
        self._complain(sender, f"sent an object that cannot be read: {error}")

    def wait_for_types(self, items: Items) -> None:
        """Wait, bounded, for the descriptors of the events' types."""
        wanted = self.unknown_types.intersection(items.types)
        # From when they were asked for: strangers' types must not add up to a long wait.
        left_s = self.types.asked_at_s + TYPE_WAIT_S - time.monotonic()
        if not self.wait_until(lambda: not wanted & self.unknown_types, max(0.0, left_s)):
            with self.lock:
                self.unknown_types.difference_update(wanted)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """The local subscriptions that want `subject`. Call it under the lock."""
        found = self._matches.get(subject)
        if found is None:
            if len(self._matches) >= _MATCHES_COUNT_MAX:
                self._matches.clear()
            try:
                check_subject(subject)
            except BadSubject:
                self.counters.bad_objects += 1
                return ()
            found = tuple(dict.fromkeys(self._trie.match(subject)))
            self._matches[subject] = found
        return found

    def _unregister(self, subscription: Subscription, error: DeliveryError | None) -> Effects:
        if self.subscriptions.pop(subscription, self) is self:
            return []
        for pattern in subscription.patterns:
            self._trie.remove(pattern, subscription)
        self._keys -= Counter(self._keys_of(subscription))
        self._forget_matches()
        now_s = time.monotonic()
        effects = self.node.remove_interest(subscription.patterns, now_s)
        effects += self.crowd.relieve(subscription, now_s)
        subscription.end(error)
        if subscription.callback is not None:
            self.workers.schedule(subscription)
        return effects

    def _forget_matches(self) -> None:
        self._matches = {}
        self.on_interest_changed()

    def _keys_of(self, subscription: Subscription) -> list[str]:
        depth = self.node.terms.depth
        return [channel_keys_of(pattern, depth) for pattern in subscription.channels]

    def _declare_channels(self) -> None:
        """Listen to the engine keys of all channels that are subscribed to."""
        with self.lock:
            if self._is_closed.is_set():
                return
            keys = set(self._keys)
            if len(keys) > _DECLARATIONS_MAX or any("*" in key for key in keys):
                keys = {_CHANNELS_KEY}
            for key in keys.difference(self._declared):
                self._declared[key] = self.engine.declare(key, self.on_frame)
            surplus = [self._declared.pop(key) for key in self._declared.keys() - keys]
        for declaration in surplus:
            declaration.undeclare()

    # What the engine calls.

    def on_frame(self, payload: bytes) -> None:
        """Take one frame in."""
        try:
            message = wire.decode(payload)
        except PeerError as error:
            self._on_bad_frame(error)
            return
        with self.lock:
            self.counters.received_frames += 1
            self.counters.received_bytes += len(payload)
            if message.__class__ is Data and self._is_next(message, len(payload)):
                if not self._late:
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
        receiver = peer.receivers.get(data.channel)
        if receiver is None or not receiver.accept(data.first, len(data.items)):
            return False
        receiver.unacked_bytes += size
        terms, unacked_count = self.node.terms, data.first - receiver.acked
        is_ack_due = unacked_count >= terms.ack_count or receiver.unacked_bytes >= terms.ack_bytes
        if is_ack_due and not self.crowd.holders:
            self._late += self.node.acks(data.sender, peer)
        self.dispatch(data.sender, data.channel, data.first, data.items)
        return True

    def _on_bad_frame(self, error: PeerError) -> None:
        self.counters.bad_frames += 1
        if isinstance(error, IncompatiblePeer):
            self._complain(error.sender, str(error))
            with self.lock:
                self.node.refuse(error.sender)
                self.changed.notify_all()
        else:
            self._complain(type(error).__name__, str(error))

    def _on_token(self, key: str, alive: bool) -> None:
        name = key.rpartition("/")[2]
        with self.lock:
            seen = self.node.peer_up if alive else self.node.peer_down
            mail = self._carry_out(seen(name, time.monotonic()))
            self.changed.notify_all()
        self._post.send(mail)

    # Doing what the node says.

    def dispatch(
        self, sender: str, channel: str, first: int, items: Items, initial: bool = False
    ) -> None:
        """Hand events to the subscriptions that want them, whole runs at a time."""
        self.counters.received_events += len(items)
        for type_ in items.types:
            if type_ not in self.types.known and self.types.must_ask_for(type_, time.monotonic()):
                self._late.append(effect.ToAll(wire.WantTypes(self.name, [type_])))
        matches = self._matches
        start, run_subscriptions = 0, None
        for at, subject in enumerate(items.subjects):
            subscriptions = matches.get(subject)
            if subscriptions is None:
                subscriptions = self.matching(subject)
            if run_subscriptions is None:
                run_subscriptions = subscriptions
            elif subscriptions != run_subscriptions:
                self.offer(run_subscriptions, sender, channel, first, start, items[start:at])
                start, run_subscriptions = at, subscriptions
        if run_subscriptions:
            rest = items[start:] if start else items
            self.offer(run_subscriptions, sender, channel, first, start, rest)

    def offer(
        self,
        subscriptions: Iterable[Subscription],
        sender: str,
        channel: str,
        first: int,
        start: int,
        items: Items,
    ) -> None:
        """Put a run of events into the queues of `subscriptions`."""
        run = (sender, channel, first + start if first else 0, items, False)
        for subscription in subscriptions:
            if subscription.staged is not None:
                subscription.staged.append(run)
                subscription.offered += weight_of(items)
            else:
                subscription.offer(run)
                if subscription.callback is not None:
                    self.workers.schedule(subscription)
            if subscription.offered - subscription.taken > subscription.high_count:
                self._late += self.crowd.look_at(subscription, channel, time.monotonic())

    def _carry_out(self, effects: Effects) -> Mail:
        """Do what the node says; what is to be sent is returned, to be posted without the lock."""
        mail: Mail = []
        effects, self._late = self._late + effects, []
        while effects:
            for one in effects:
                match one:
                    case effect.Events(sender, channel, first, items):
                        self.dispatch(sender, channel, first, items)
                    case effect.ToPeer(peer, message, bulk):
                        self._count(message)
                        frame = message if isinstance(message, bytes) else wire.encode(message)
                        mail.append((f"n/{peer}", frame, bulk))
                    case effect.ToAll(message):
                        mail.append((_ALL_KEY, wire.encode(message), False))
                    case effect.Lost(_, channel, _, _):
                        self._report(one, channel)
                    case effect.Learn(descriptors):
                        for descriptor in descriptors:
                            if error := self.types.learn(descriptor):
                                self.counters.bad_frames += 1
                                self._complain("descriptor", str(error))
                    case effect.InterestChanged():
                        self.on_interest_changed()
                    case effect.Complain(peer, what):
                        self._complain(peer, what)
                    case effect.StateWanted(message):
                        self.on_state_wanted(message)
                    case effect.StateCame(message):
                        self.on_state_came(message)
            effects, self._late = self._late, []
        return mail

    def _count(self, message: wire.Message | bytes) -> None:
        if isinstance(message, bytes):
            self.counters.replayed += 1
        elif isinstance(message, wire.Ask):
            self.counters.asked_again += 1

    def _report(self, lost: effect.Lost, channel: str) -> None:
        for subscription in self.subscriptions:
            if subscription.wants_channel(channel):
                self.counters.lost += 1
                subscription.wake_with(lost)
                if subscription.callback is not None:
                    self.workers.schedule(subscription)

    def learn_types(self, timeout_s: float) -> None:
        """Ask all nodes for the types they know."""
        for answer in self.engine.query(_TYPES_KEY, b"", timeout_s):
            self.on_frame(answer)

    def _complain(self, source: str, what: str) -> None:
        complaints, source = self.counters.complaints, source[:200]
        if source not in complaints:
            if len(complaints) >= _COMPLAINTS_COUNT_MAX:
                return
            log.warning("%s: %s (said once)", source, what)
        complaints[source] = what

    def send(self, mail: Mail) -> None:
        """Send frames, from any thread, never waiting for a slow link."""
        self._post.send(mail)

    def _on_engine_error(self, error: BusError) -> None:
        if not self._is_closed.is_set():
            self._complain("engine", str(error))

    def _tick_for_ever(self) -> None:
        while not self._is_closed.wait(TICK_S):
            try:
                self._tick(time.monotonic())
            except Exception:
                log.exception("the node goes on after an error of its own")

    def _tick(self, now_s: float) -> None:
        with self.lock:
            self.on_tick(now_s)
            mail = self._carry_out(self.node.tick(now_s) + self.crowd.expire(now_s))
            self.changed.notify_all()
        self._post.send(mail)
