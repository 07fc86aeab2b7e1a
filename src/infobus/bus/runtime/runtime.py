"""The runtime of a node: receives, asks the machines what to do, does it, repeats.

Machines are registered with the tags of the frames that are for them, and with a strand on which
their steps run (see `registration`). One loop carries out what all machines may want: frames to
peers, types to learn, complaints. What only one of them wants is done by the handler that it was
registered with. An effect that neither knows is a failure, never silence.

One lock guards the reliable node and everything the bus writes in subscriptions. Nothing waits for
user code or for a slow link while holding it: user code runs on delivery workers or the user's own
threads, and frames that may have to wait for a link leave on a worker of their own.

Clock, threads and patience come in as arguments, so a simulation runs this very code.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.bus.clock import Clock
from infobus.bus.deliver.audience import filter_of
from infobus.bus.deliver.callbacks import Workers
from infobus.bus.deliver.dispatch import Delivery
from infobus.bus.deliver.expiry import Expiry
from infobus.bus.deliver.full_queue import Crowd
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.deliver.type_requests import TypeRequests, all_descriptors
from infobus.bus.runtime.declarations import Listening
from infobus.bus.runtime.filter_compiler import FilterCompiler
from infobus.bus.runtime.outbox import Mail, Post
from infobus.bus.runtime.peer_limits import Clients
from infobus.bus.runtime.registration import Do, Heard, Locked, Strand
from infobus.bus.stats import Counters
from infobus.bus.threads import Threads, Worker
from infobus.engines.base import Engine
from infobus.errors import (
    BadFrame,
    BusClosed,
    BusError,
    IncompatiblePeer,
    PeerError,
)
from infobus.objects import codec
from infobus.objects.codec import Mismatched
from infobus.patience import Patience
from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.node_names import ASTRAY, addressed, bad_name, is_astray, is_node_name
from infobus.protocols.frames.wire import SECURITY_TAGS, Data, Items
from infobus.protocols.interest.own_rows import Reduction, Row, channel_pattern, reduced_filters
from infobus.protocols.reliable.effects import (
    Effects,
    Events,
    InterestChanged,
    Lost,
    OwnEffect,
    Reduce,
    Unreachable,
)
from infobus.protocols.reliable.node import MESSAGES, Node
from infobus.protocols.reliable.peer import Terms
from infobus.waiters import Changed

if TYPE_CHECKING:
    from infobus.bus.deliver.protection import Protections
    from infobus.bus.rights.guard import Guard
    from infobus.bus.runtime.policy_driver import PolicyDriver
    from infobus.filters import Filter

log = logging.getLogger("infobus")

ALL_KEY = "all"
_TYPES_KEY = "types"
WhyNot = Callable[[Sequence[str], bool], BusError | None]
"""Why a subscription to some patterns, perhaps narrowed ones, may not go on; None if it may."""

_READ_AT_ONCE_BYTES = 4096  # of a descriptor; longer ones take milliseconds


class Runtime:
    """Joins the machines of one node, one engine, and the subscriptions of this process."""

    guard: Guard | None = None
    """On a secured bus, what keeps this node and others to the policy."""
    policy: PolicyDriver | None = None

    def __init__(
        self,
        name: str,
        terms: Terms,
        engine: Engine,
        clock: Clock,
        threads: Threads,
        patience: Patience,
        bounds: Bounds = DEFAULT_BOUNDS,
    ) -> None:
        self.name = name
        self.node = Node(name, terms, codec.descriptors)
        self.engine = engine
        self.clock = clock
        self.threads = threads
        self.patience = patience
        self.lock = threading.Lock()
        self.changed = Changed(self.lock)
        self.counters = Counters(complaints_count_max=bounds.complaints_count_max)
        self.workers = Workers(f"infobus-{name}", patience.handlers_s)
        self.crowd = Crowd(self.node, self.counters, self._unregister, patience)
        self.clients = Clients(terms.limits)
        self.enders: list[Callable[[WhyNot], None]] = []  # of what is like a subscription
        self.node.is_held = self._is_held
        self.expiry = Expiry(name, self.counters, terms.classes.default)
        self.subscriptions: dict[Subscription, None] = {}
        self.types = TypeRequests(bounds.types_count_max)
        self.unknown_types = self.types.unknown
        self.protection: Protections | None = None  # what the policy asks of events, if any
        self.interest_version = 0  # counts what anyone here or elsewhere changes
        self._undone: dict[tuple[str, str], int] = {}  # where events begin that are due to be done
        self.delivery = Delivery(
            name,
            self.counters,
            self.workers,
            self.types,
            self._place,
            look_at_crowded=self.crowd.look_at,
            on_bad_object=self.on_bad_object,
            clock=clock,
        )
        self.audiences = self.delivery.audiences
        self.audiences.found_count_max = bounds.audiences_count_max
        self._now_s = clock.now_s
        self._interest_watchers: list[Callable[[], None]] = []
        self._recoverers: list[Callable[[Subscription], None]] = []
        self._reliable = _Reliable(self, self.node, self._do, wire.decode)
        self._strands: dict[Strand, None] = {self._reliable: None}
        self._by_tag: dict[bytes, Callable[[bytes], None]] = {}
        self._listening = Listening(engine, terms, self.on_frame)
        self._post = Post(f"infobus-{name}", engine, threads, self._on_engine_error)
        self._type_reader: Worker | None = None
        self._unread_bytes_max = bounds.unread_bytes_max
        self._unread_bytes = 0  # of descriptors that it has not read yet
        self._is_closed = threading.Event()
        for tag in SECURITY_TAGS:
            self._by_tag[bytes([tag])] = self._on_secured
        self.compiler = FilterCompiler(self, self._note_interest_changed)
        self._stop_ticking: Callable[[], None] = lambda: None

    # Machines.

    def register(self, strand: Strand, tags: Iterable[int]) -> None:
        """From now on, frames with these tags are for the machines on `strand`.

        They also hear of peers that come and go, and that time passes.
        """
        for tag in tags:
            self._by_tag[bytes([tag])] = strand.on_frame
        self._strands[strand] = None

    def register_late(self, begin: Callable[[], object], tags: Iterable[int]) -> None:
        """The first frame with one of these tags calls `begin`, which registers for them."""

        def on_frame(payload: bytes) -> None:
            begin()
            if (known := self._by_tag.get(payload[1:2])) is not on_frame and known is not None:
                known(payload)

        for tag in tags:
            self._by_tag[bytes([tag])] = on_frame

    def use_guard(self, guard: Guard) -> None:
        """From now on, this node and what it accepts of others are kept to a policy."""
        self.guard = self.delivery.guard = self.audiences.guard = guard

    def watch_interest(self, watcher: Callable[[], None]) -> None:
        """Call `watcher`, under the lock, whenever anyone wants something else, here or not."""
        self._interest_watchers.append(watcher)

    def unwatch_interest(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` no more."""
        with self.lock:
            self._interest_watchers.remove(watcher)

    def recover_by(self, recoverer: Callable[[Subscription], None]) -> None:
        """Call `recoverer` with each subscription that is to start anew."""
        self._recoverers.append(recoverer)

    # Life.

    def open(self, sync_timeout_s: float) -> None:
        """Join the bus and meet the peers that are there."""
        self.join()
        if not self.wait_until(self.node.is_synced, sync_timeout_s):
            log.warning("not every node found on the bus has answered in %s s", sync_timeout_s)
            self._note_silent(self.node.own.version, sync_timeout_s)
        # Some may be known only to those that were met: what is published at once is theirs, too.
        self._reliable.step(lambda now_s: self.node.ask_around())
        self.wait_until(self.node.has_met_all, min(sync_timeout_s, self.patience.handshake_s))

    def join(self) -> None:
        """Join the bus; the peers that are there are met as they answer."""
        self.engine.open(self.name)
        self._stop_ticking = self.threads.every(
            self.patience.tick_s, self._tick, f"infobus-{self.name}-tick"
        )
        for key in (f"n/{self.name}", ALL_KEY):
            self.engine.declare(key, self.on_frame)
        self.engine.answer(_TYPES_KEY, lambda question: all_descriptors(self.name))
        self.engine.announce(f"l/{self.name}")
        self.engine.watch("l/*", self._on_token)
        self._tick()  # a node that is stopped right afterwards must notice that, too

    def close(self) -> None:
        """Leave the bus."""
        mail: Mail = []
        with self.lock:
            self.carry_out(self._do, self.node.leave(), mail, is_locked=True)
            self._is_closed.set()
            for subscription in list(self.subscriptions):
                self._unregister(subscription, None)  # nobody needs to be told any more
            self.changed.notify_all()
        self._stop_ticking()
        self._post.send(mail)
        self._post.stop()
        if self._type_reader is not None:
            self._type_reader.stop()
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
        deadline_s = self._now_s() + timeout_s
        is_confirmed = self.wait_until(self.node.is_confirmed, 0)
        while not is_confirmed and (left_s := deadline_s - self._now_s()) > 0:
            with self.lock:
                beat = wire.encode(self.node.beat())  # receivers confirm at once when it comes
            self._post.put(ALL_KEY, beat, control=True)
            is_confirmed = self.wait_until(self.node.is_confirmed, min(0.1, left_s))
        return is_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the node has left the bus."""
        return self._is_closed.is_set()

    def say_died(self, node: str) -> None:
        """Tell everyone that a node has died, so that nobody waits for it to come back."""
        self._reliable.step(lambda now_s: self.node.say_died(node, now_s))

    def say_replaced(self, node: str) -> None:
        """Another life of a node has begun: wait no more for what is missing of the earlier one."""
        self._reliable.step(lambda now_s: self.node.replaced(node, now_s))

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
            self.delivery.gate.open()  # what waits was meant for those who were here before
            self.audiences.add(subscription)
            self.subscriptions[subscription] = None
            self._listening.add(subscription)
            self._note_interest_changed()
        self._listening.declare(self.lock, self._is_closed.is_set)
        with self.lock:
            where = subscription.row_text(subscription.where)
            now_s, mail = self._now_s(), Mail()
            effects = self.node.request(subscription.requests(), True, now_s)
            effects += self.node.add_interest(subscription.told, now_s, where)
            self.carry_out(self._do, effects, mail, is_locked=True)
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
            old = subscription.row_text(subscription.where)
            text = subscription.row_text(new)
            self.delivery.gate.open()
            self.audiences.replace(subscription, new)
            effects = self.node.change_interest(
                [(pattern, text) for pattern in subscription.told],
                [(pattern, old) for pattern in subscription.told],
                self._now_s(),
            )
            self._note_interest_changed()
            mail: Mail = []
            self.carry_out(self._do, effects, mail, is_locked=True)
            version = self.node.own.version
        silent = self._wait_until_known(mail, version, timeout_s)
        if silent:
            log.warning("%s: no answer in %s s from %s", subscription, timeout_s, ", ".join(silent))

    def protect(self, protection: Protections | None) -> None:
        """Ask this of events from now on: of those of this node, and of those that come."""
        with self.lock:
            self.protection = self.audiences.protection = protection
            self.audiences.forget()
            self._note_interest_changed()

    def change_rows(
        self, subscription: Subscription, added: Collection[Row], removed: Collection[Row]
    ) -> None:
        """Other rows for a subscription that has some of its own; the peers are being told.

        Its `rows` has them already.
        """
        wanted = tuple(dict.fromkeys(pattern for pattern, _ in subscription.rows()))
        # First all, old and new: what is new is listened to before anyone is told.
        self._listen_to(subscription, tuple(dict.fromkeys([*subscription.told, *wanted])))
        with self.lock:
            effects = self.node.change_interest(added, removed, self._now_s())
            mail: Mail = []
            self.carry_out(self._do, effects, mail, is_locked=True)
        self._post.send(mail)
        if len(wanted) < len(subscription.told):
            self._listen_to(subscription, wanted)

    def _listen_to(self, subscription: Subscription, patterns: tuple[str, ...]) -> None:
        depth = self.node.terms.depth
        channels = frozenset(channel_pattern(one, depth) for one in patterns)
        with self.lock:
            if subscription not in self.subscriptions:
                raise BusClosed(f"{subscription!r} is closed")
            before = subscription.told
            self._listening.drop(subscription)
            subscription.told = subscription.patterns = patterns
            subscription.channels = channels
            self._listening.add(subscription)
            self.audiences.change(subscription, before)
            self._note_interest_changed()
        self._listening.declare(self.lock, self._is_closed.is_set)

    def _wait_until_known(self, mail: Mail, version: int, timeout_s: float) -> list[str]:
        """Tell the peers; those that are alive and have not answered in time are returned."""
        for key, frame, _, _ in mail:
            self.engine.put(key, frame)
        if self.wait_until(lambda: self.node.is_known(version), timeout_s):
            return []
        return self._note_silent(version, timeout_s)

    def _note_silent(self, version: int, timeout_s: float) -> list[str]:
        """Those that have not answered. If they had time to, they are not waited for again."""
        with self.lock:
            peers = self.node.peers.items()
            late = [name for name, p in peers if p.alive and p.confirmed < version]
            if timeout_s >= self.patience.handshake_s:
                for name in self.node.note_silent(version):
                    what = f"has not answered in {timeout_s} s; not waited for until it does"
                    self.counters.complain(name, what)
        return late

    def forget(self, subscription: Subscription) -> None:
        """Close a subscription."""
        self._reliable.step(lambda now_s: self._unregister(subscription, None))
        self._listening.declare(self.lock, self._is_closed.is_set)

    def drain(self, timeout_s: float) -> None:
        """Take no more events in, and wait until consumers have taken those that wait."""
        some = [one for one in list(self.subscriptions) if isinstance(one, Subscription)]
        for subscription in some:
            subscription.close()
        self.workers.finish(some, timeout_s)

    def end_subscriptions(self, why_not: WhyNot) -> None:
        """Close the subscriptions that may not go on, each with its reason."""

        def end(now_s: float) -> Effects:
            effects: Effects = []
            self.audiences.forget()
            for one in list(self.subscriptions):
                error = why_not(one.patterns, one.is_narrow)
                if error is not None:
                    effects += self._unregister(one, error)
            self._note_interest_changed()
            return effects

        self._reliable.step(end)
        self._listening.declare(self.lock, self._is_closed.is_set)
        for ender in self.enders:
            ender(why_not)

    def relieved(self, subscription: Subscription) -> None:
        """A crowded subscription has room again."""
        self._reliable.step(lambda now_s: self.crowd.look_again(subscription, now_s))

    def recover(self, subscription: Subscription) -> None:
        """Start the subscription anew, with initial state from the producers."""
        for recoverer in self._recoverers:
            recoverer(subscription)

    def on_mismatch(self, sender: str, error: Mismatched) -> None:
        """An object of `sender` does not fit its type here."""
        self.counters.mismatched += 1
        self.counters.complain(sender, f"has another definition of a type: {error}")

    def on_forged(self, sender: str, why: str) -> None:
        """An event of `sender` has a signature that does not count; it is left out."""
        self.counters.forged += 1
        self.counters.complain(sender, why)

    def on_bad_object(self, sender: str, error: BadFrame | Mismatched) -> Any:
        """An object of `sender` cannot be read; its event is left out.

        Filters are asked about an object that does not fit its type here as it was sent.
        """
        if isinstance(error, Mismatched):
            return error.object
        self.counters.bad_objects += 1
        self.counters.complain(sender, f"sent an object that cannot be read: {error}")
        return None

    def wait_for_types(self, items: Items) -> None:
        """Wait, bounded, for the descriptors of the events' types."""
        wanted = self.unknown_types.intersection(items.types)
        wait_s = self.types.wait_s(self.patience.type_s, self._now_s())
        if not self.wait_until(lambda: not wanted & self.unknown_types, wait_s):
            with self.lock:
                self.types.give_up(wanted)

    def _unregister(self, subscription: Subscription, error: BusError | None) -> Effects:
        if self.subscriptions.pop(subscription, self) is self:
            return []
        self.audiences.remove(subscription)
        self._listening.drop(subscription)
        self._note_interest_changed()
        now_s = self._now_s()
        effects = self.node.change_interest([], subscription.rows(), now_s)
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
        for watcher in self._interest_watchers:
            watcher()
        self.changed.notify_all()

    # What the engine calls.

    def on_frame(self, payload: bytes) -> None:
        """Take one frame in: by the machine registered for its tag, else by reliable delivery."""
        registered = self._by_tag.get(payload[1:2])
        if registered is not None:
            registered(payload)
            return
        # Here and not in a method of its own: every frame of events comes this way.
        try:
            message = wire.decode(payload)
        except PeerError as error:
            self.on_bad_frame(error)
            return
        size = len(payload)
        with self.lock:
            counters = self.counters
            counters.received_frames += 1
            counters.received_bytes += size
            effects: Effects | None = None
            if message.__class__ is Data:
                if self.clients.has_limits:
                    self.clients.note(message.sender, len(message.items), size, self._now_s())
                effects = self.node.take_next(message, size)
                if effects is not None:
                    delivery = self.delivery
                    delivery.dispatch(message.sender, message.lane, message.first, message.items)
                    if not (effects or delivery.late):
                        return
                    effects = effects + self._late()
            elif message is None or message.__class__ not in MESSAGES:
                return  # a newer minor version has added it, or nobody here is registered for it
            if effects is None:
                if self.guard is not None and message.__class__ is wire.Interest:
                    message = _accepted_interest(self.guard, message)
                effects = self.node.take(message, self._now_s())
                self.changed.notify_all()
            mail: Mail = []
            self._note_undone(effects)
            self.carry_out(self._do, effects, mail, is_locked=True)
            if self.delivery.gate.lanes:  # another lane may have come on
                self.delivery.gate.look_again(self._now_s())
                self.carry_out(self._do, self._late(), mail, is_locked=True)
        self._post.send(mail)

    def tick_reliable(self, now_s: float) -> Effects:
        """Time has passed for the node and for the queues of its subscriptions."""
        effects = self.node.tick(now_s) + self.crowd.expire(now_s)
        self._note_undone(effects)
        if self.delivery.gate.lanes:
            self.delivery.gate.look_again(now_s)
            effects += self._late()
        if self.clients.has_limits:
            effects += self.node.nudge(self.clients.must_nudge(self.patience.hold_s, now_s))
        for subscription in self.delivery.classed:
            for run in subscription.tick(now_s):
                self.expiry.note(run)
            effects += self.crowd.look_again(subscription, now_s)
        return effects

    def _place(self, sender: str, lane: str) -> int | None:
        """The number that is due next on a peer's lane; None if nothing of it is expected now."""
        first = self._undone.get((sender, lane))
        return self.node.place(sender, lane) if first is None else first

    def _note_undone(self, effects: Effects) -> None:
        """Lanes count as far as their events are delivered, not as what is about to be."""
        for one in effects:
            if isinstance(one, Events) and one.first:
                self._undone.setdefault((one.sender, one.lane), one.first)

    def _is_held(self, peer: str, lane: str) -> bool:
        if self.crowd.holds_lane(lane):
            return True
        return self.clients.has_limits and self.clients.is_throttled(peer, self._now_s())

    def learn(self, descriptors: list[bytes], peer: str = "") -> None:
        """Take in descriptors of types that a peer has sent."""
        learned = self._read_types(descriptors, peer)  # may take long, so without the lock
        with self.lock:
            self.types.note_known(learned)
            self.changed.notify_all()

    def _learn_soon(self, descriptors: list[bytes], peer: str) -> None:
        """Take in descriptors, under the lock; long ones are read by a worker, without it."""
        short = [one for one in descriptors if len(one) <= _READ_AT_ONCE_BYTES]
        self.types.note_known(self._read_types(short, peer))
        size = sum(map(len, descriptors)) - sum(map(len, short))
        if not size:
            return
        if self._unread_bytes + size > self._unread_bytes_max:
            self.counters.complain(peer, "sends more long descriptors of types than can be read")
            return
        self._unread_bytes += size

        def read() -> None:
            self.learn([one for one in descriptors if len(one) > _READ_AT_ONCE_BYTES], peer)
            with self.lock:
                self._unread_bytes -= size

        if self._type_reader is None:
            self._type_reader = self.threads.worker(f"infobus-{self.name}-types")
        self._type_reader.do(read)

    def _read_types(self, descriptors: list[bytes], peer: str) -> list[int]:
        learned: list[int] = []
        for descriptor in descriptors:
            try:
                learned.append(codec.learn(descriptor, peer))
            except BadFrame as error:
                self.counters.bad_frames += 1
                self.counters.complain("descriptor", str(error))
        return learned

    def on_bad_frame(self, error: PeerError) -> None:
        """Count and note a frame that cannot be read."""
        self.counters.bad_frames += 1
        if isinstance(error, IncompatiblePeer):
            self.counters.complain(error.sender, str(error))
            with self.lock:
                self.node.refuse(error.sender)
                self.changed.notify_all()
        else:
            self.counters.complain(type(error).__name__, str(error))

    def _on_secured(self, payload: bytes) -> None:
        """A frame has come that only nodes of a secured bus put, and this node has none below."""
        self.counters.bad_frames += 1
        self.counters.complain(
            "bus",
            "is secured, and this program has no credential for it: it hears nothing, and is not "
            "heard. `infobus keys install FILE` makes a credential that of this home",
        )

    def is_for_us(self, message: Any) -> bool:
        """Whether a frame is for this node; if not, that is complained of.

        The reliable node looks itself.
        """
        if is_astray(message, self.name):
            self.counters.complain(message.sender, ASTRAY)
            return False
        return True

    def _on_token(self, key: str, alive: bool) -> None:
        name = key.rpartition("/")[2]
        if not is_node_name(name):
            self.on_bad_frame(bad_name(name))
            return
        for strand in list(self._strands):
            strand.on_peer(name, alive)

    # Doing what the machines say.

    def carry_out(
        self,
        do: Do,
        effects: Iterable[Any],
        mail: Mail,
        *,
        heard: Heard | None = None,
        hears_all: bool = False,
        is_locked: bool = False,
    ) -> None:
        """Do what a machine says, in order; what is to be sent is added to `mail`.

        What it says to its own node is added to `heard`, with `hears_all` also what it says to
        all. `do` carries out what only this machine knows. `is_locked` says that the caller holds
        the lock.
        """
        while effects:
            more: list[Any] = []
            for one in effects:
                kind = one.__class__
                if kind is ToPeer:
                    if one.peer == self.name and heard is not None:
                        heard.append(one.message)
                    else:
                        frame = self._frame(one.message, one.peer)
                        mail.append((f"n/{one.peer}", frame, one.bulk, one.urgency))
                elif kind is ToAll:
                    if hears_all and heard is not None:
                        heard.append(one.message)
                    mail.append((ALL_KEY, wire.encode(one.message), False, 0))
                elif kind is Learn:
                    (self._learn_soon if is_locked else self.learn)(one.descriptors, one.peer)
                elif kind is Complain:
                    self.counters.complain(one.peer, one.what)
                elif further := do(one):
                    more += further
            effects = more

    def _do(self, one: OwnEffect) -> Effects:
        """Do what only reliable delivery wants done."""
        match one:
            case Events(sender, lane, first, items):
                self._undone.pop((sender, lane), None)
                self.delivery.dispatch(sender, lane, first, items)
                return self._late()
            case Lost(lane=lane):
                self.report(one, (lane,))
            case Unreachable(sender, lanes):
                self.counters.unreachable += 1
                self.report(Lost(sender, "", 0, None, "unreachable"), lanes)
            case InterestChanged():
                self._note_interest_changed()
            case Reduce(reduction):
                worker = self.threads.worker(f"infobus-{self.name}-reduce")
                worker.do(lambda: self._reduce(reduction))
                worker.stop()
            case _:
                assert_never(one)  # an effect that nobody does would be lost in silence
        return []

    def _late(self) -> Effects:
        """What dispatching wants done after it."""
        late, self.delivery.late = self.delivery.late, []
        return late

    def _frame(self, message: Any, peer: str) -> bytes:
        if isinstance(message, bytes):
            self.counters.replayed += 1
            return message
        if message.__class__ is wire.Ask:
            self.counters.asked_again += 1
        return wire.encode(addressed(message, peer))

    def _reduce(self, reduction: Reduction) -> None:
        """Find few rows for many filters, without the lock: that may take seconds."""
        filters = reduced_filters(reduction)
        self._reliable.step(lambda now_s: self.node.reduced(reduction, filters, now_s))

    def report(
        self, lost: Lost, lanes: tuple[str, ...], *, but: Subscription | None = None
    ) -> None:
        """Tell a loss to the subscriptions that want any of the lanes. Call it under the lock."""
        gate = self.delivery.gate
        for lane in lanes if gate.lanes else ():
            gate.open_for(lost.sender, lane)
        for subscription in self.subscriptions:
            if subscription is not but and any(map(subscription.wants_lane, lanes)):
                self.counters.lost += 1
                subscription.wake_with(lost)
                if subscription.queue.classed is not None:
                    # The word of a loss may be the first that needs classes, and turn all that
                    # waits into classes: from now on it must be looked at with every tick.
                    self.delivery.classed[subscription] = None
                if subscription.callback is not None:
                    self.workers.schedule(subscription)
        if gate.lanes:
            gate.look_again(self._now_s())

    def learn_types(self, timeout_s: float) -> set[int]:
        """Ask all nodes for the types they know; returns which these are."""
        told: set[int] = set()
        for answer in self.engine.query(_TYPES_KEY, b"", timeout_s):
            self.on_frame(answer)
            with suppress(PeerError):
                if isinstance(message := wire.decode(answer), wire.Types):
                    told.update(codec.learn(one, message.sender) for one in message.descriptors)
        return told

    def send(self, mail: Mail) -> None:
        """Send frames, from any thread, never waiting for a slow link."""
        self._post.send(mail)

    def _on_engine_error(self, error: BusError) -> None:
        if not self._is_closed.is_set():
            self.counters.complain("engine", str(error))

    def _tick(self) -> None:
        errors: list[Exception] = []
        for strand in list(self._strands):
            try:
                strand.on_tick()
            except Exception as error:  # the others go on, whatever is wrong with this one
                errors.append(error)
        if errors:
            raise errors[0]


def _accepted_interest(guard: Guard, told: wire.Interest) -> wire.Interest:
    """A node's interest without the rows that it may not have."""
    if all(guard.accepts_row(told.sender, pattern) for pattern in told.added):
        return told
    rows = [row for row in told.rows() if guard.accepts_row(told.sender, row[0])]
    patterns, filters = [row[0] for row in rows], [row[1] for row in rows]
    return replace(told, added=patterns, filters=filters)


class _Reliable(Locked):
    """The strand of the reliable node, which alone has a steady state."""

    def on_tick(self) -> None:
        self.step(self.runtime.tick_reliable)
