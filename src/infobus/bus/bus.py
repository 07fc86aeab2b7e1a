"""The public face of a node: publish, subscribe, serve and call, and what goes with them.

A `Bus` holds the parts of a node and hands each call to one of them: `Publisher` and `Routing`
(`bus/publish`), `Subscriptions`, `Guaranteed`, `Services`, `InitialState`. They share the runtime,
which drives the protocols, and a `Lifetime`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.bus.clock import SYSTEM_CLOCK, Clock
from infobus.bus.deliver.audience import patterns_of
from infobus.bus.deliver.event import Data, Event
from infobus.bus.deliver.handlers import on
from infobus.bus.deliver.subscription import OnLoss, OnMismatch, Subscription, WhenFull
from infobus.bus.guaranteed import Guaranteed
from infobus.bus.initial_state import InitialState, StateFunction
from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.node_policy import NodePolicy
from infobus.bus.publish.outlet import Batch, Flusher
from infobus.bus.publish.publisher import ProducerKeys, Publication, Publisher, Quality
from infobus.bus.publish.routing import Routing
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.services import Services
from infobus.bus.statistics.reporter import Reporter
from infobus.bus.stats import Stats, snapshot
from infobus.bus.subscriptions import Subscriptions, classes_in
from infobus.bus.tags.tags import Tags
from infobus.bus.threads import SYSTEM_THREADS, Threads
from infobus.engines.base import Engine
from infobus.errors import BusClosed, BusError
from infobus.headers import HeaderValue
from infobus.objects import Type, all_types, find_type
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.protocols.qos.classes import Limits, Rate
from infobus.protocols.reliable.peer import NO_LIMITS, Terms
from infobus.subjects import TEST_SPACE, check_pattern

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.aio import AioBus
    from infobus.bus.border.interior import Interior
    from infobus.bus.deliver.event_keys import ConsumerKeyOptions, ConsumerKeys
    from infobus.bus.durable.options import DurableOptions, PlainOptions, SubscribeOptions
    from infobus.bus.durable.subscription import Acknowledge, DurableEvent, DurableSubscription
    from infobus.bus.membership.facade import Membership, OnMembers
    from infobus.bus.membership.health import AliveCheck
    from infobus.bus.membership.primary import Primary
    from infobus.bus.publish.event_keys import ProducerKeyOptions
    from infobus.bus.publish.reservation import Reservation, ReservedWay
    from infobus.bus.publish.transaction import TransactionBlock
    from infobus.bus.quench import Quench
    from infobus.filters import Filter
    from infobus.services import Found, Offered, ServiceClient, Watch
    from infobus.services.discovery import IAmHere
    from infobus.services.sessions import QoS, Session

log = logging.getLogger("infobus")


class Bus:
    """This process's node on the bus. Made by `infobus.connect`; use it as a context manager.

    All methods may be called from any thread. For `asyncio`, `bus.aio` holds an awaitable twin
    of each method that can wait, and subscriptions are async iterable.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        bus_name: str,
        application: str = "",
        home: Path,
        terms: Terms,
        batch: Batch | None = None,
        patience: Patience = DEFAULT_PATIENCE,
        bounds: Bounds = DEFAULT_BOUNDS,
        clock: Clock = SYSTEM_CLOCK,
        threads: Threads = SYSTEM_THREADS,
        test: bool = False,
        capacity: Limits = NO_LIMITS,
        group: str = "",
    ) -> None:
        self.node = name
        self.name = bus_name
        self.application = application  # what this program is called, if anything
        self.home = home
        self.principal = ""  # whom this program acts for, on a secured bus
        self.test = test  # a program under development
        self.patience = patience
        self.bounds = bounds
        self._group = group
        self._clock = clock
        self._lifetime = life = Lifetime()
        self._runtime = runtime = Runtime(name, terms, engine, clock, threads, patience, bounds)
        runtime.node.application = application
        self._policy = policy = NodePolicy(terms.classes, capacity)
        self._flusher = flusher = Flusher(f"infobus-{name}", batch, threads, bounds.gather_bytes)
        self._routing = routing = Routing(runtime, flusher, policy, life, clock, patience, bounds)
        runtime.watch_interest(routing.forget)
        self.tags = Tags(runtime, routing, life, application)
        self._guaranteed = Guaranteed(
            runtime, bus_name, home, life, self.publish, self.tags, test=test
        )
        self._publisher = Publisher(
            *(runtime, routing, flusher, policy, life, clock, self._guaranteed.keep),
            *(bus_name, home),
            test=test,
        )
        # The method is its implementation: to forward would cost 8 % of an event's time.
        self.publish = self._publisher.one  # type: ignore[method-assign]
        self._state = InitialState(
            runtime, routing.outlets, routing.outlet, self._publisher.state_item
        )
        self._subscriptions = Subscriptions(
            runtime, policy, self._state, life, self.tags, test=test
        )
        wish = self._publisher.wish
        self._services = Services(runtime, bus_name, home, life, patience, bounds, wish, test=test)
        Reporter(
            runtime, self._publisher, application, self.stats, self._services, self._guaranteed
        )

    @cached_property
    def aio(self) -> AioBus:
        """The same methods, for use in an event loop."""
        from infobus.bus.aio import AioBus  # late: most programs have no event loop

        return AioBus(self)

    @cached_property
    def members(self) -> Membership:
        """Who is there, by agreement: `bus.members()`, `bus.members.stable(timeout_s)`.

        Both raise `Unstable`, which says why, if there is no view, or no stable one, in time.
        """
        from infobus.bus.membership.facade import Membership  # late: most programs never ask

        return Membership(self._runtime, self._lifetime)

    # Publishing.

    def publish(
        self,
        subject: str,
        obj: Any,
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        **keys: Unpack[ProducerKeyOptions],
    ) -> None:
        """Send `obj` to everyone who has subscribed to `subject`.

        Returning means that the bus has taken the object over: subscribers running now get it
        in publication order, or are told what they missed. If no subscription's subject and
        filter can match, the object is neither encoded nor sent (`Stats.quenched` counts it).
        With `quality="best_effort"` nothing is repaired and nothing reported.

        Args:
            subject: A full name such as `plant.line4.oven.temperature`, without wildcards.
            obj: A `DataObject`, or a dict with string keys (an untyped notification). It is
                copied before this returns; later changes to it are not sent.
            quality: `reliable` or `best_effort`.
            quench: False sends it even if nobody is known to want it.
            test: It reaches only subscriptions that ask for test events, and is not counted.
            guaranteed: Returning means that it is on disk here, and that every durable consumer
                gets it, whatever is killed; other subscriptions get it as ever.
            priority: Its class (`emergency`, `business`, `regular`, or as the bus was set up).
                Events of a higher class overtake; order holds within a class.
            max_age: Seconds after which it is let go wherever it waits, and never delivered later
                (`Bus.on_expired` tells). A guaranteed one becomes a dead letter.
            headers: What is said beside the object, such as a trace's id: names with text,
                numbers, bools or bytes; at most 64, which take at most 8 KiB (`event.headers`).
            keys: `sign="desk"` signs it; `seal_to=["auditors"]` seals it for those who hold one of
                these keys, but for the attributes in `clear=["symbol"]`. See docs/event_keys.md.

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            BadValue: The object or a header cannot be sent, or a tag asks for another type.
            NoRight, NotAllowed: A tag, or the policy of the bus, does not allow it.
            Backpressure: Receivers did not keep up for `send_timeout_s`; nothing of this
                object was sent, so trying again later is safe.
            StoreFull: Only with `guaranteed`; nothing was kept or sent, try again later.
            BusClosed: The bus was closed, or belongs to the parent of a forked process.
        """
        self._publisher.one(
            subject,
            obj,
            quality=quality,
            quench=quench,
            test=test,
            guaranteed=guaranteed,
            priority=priority,
            max_age=max_age,
            headers=headers,
            **keys,
        )

    def publish_many(
        self,
        events: Iterable[Publication],
        *,
        quality: Quality = "reliable",
        quench: bool = True,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        **keys: Unpack[ProducerKeyOptions],
    ) -> None:
        """Publish (subject, object) pairs in order, gathered into few frames.

        The same promise as `publish` for each. An error leaves those before it sent; with
        `guaranteed`, none. One with headers of its own is a triple (subject, object, headers).
        """
        wish = self._publisher.wish(quality, quench, test, guaranteed, priority, max_age, headers)
        self._publisher.many(events, wish, ProducerKeys(**keys) if keys else None)

    def publish_nowait(self, subject: str, obj: Any, quality: Quality = "reliable") -> bool:
        """Publish unless that might have to wait; False if it might, and nothing was sent."""
        return quality == "reliable" and self._publisher.one_nowait(subject, obj)

    def transaction(
        self,
        *,
        test: bool = False,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
    ) -> TransactionBlock:
        """Publish several events as one: `with bus.transaction() as tx: tx.publish(...)`.

        Each subscription gets all of them that it asked for, in order and as one event (whose
        `data` is a `Transaction`), or none. They leave when the block ends; by an exception, none.
        They may have different subjects; if any of them is wanted somewhere, all of them go there.
        With `guaranteed`, durable consumers get it, too.
        """
        from infobus.bus.publish.transaction import TransactionBlock  # late: few programs need it

        wish = self._publisher.wish("reliable", True, test, guaranteed, priority, max_age)
        publish_group = partial(self._publisher.group, wish=wish)
        return TransactionBlock(publish_group, TEST_SPACE if wish.test else "")

    def reserve(
        self,
        events_per_s: float,
        bytes_per_s: float | None = None,
        *,
        name: str = "",
        **way: Unpack[ReservedWay],
    ) -> Reservation:
        """Reserve a steady rate: `with bus.reserve(100) as feed: feed.publish(...)`.

        With `subject`, also on every link to the sites that want it; see `ReservedWay`.

        Raises:
            QosRefused: This node was not given so much (`connect(capacity=...)`), or it is not
                free here, in its group, or on a hop to another site (`hop`, `toward`, `offer`).
        """
        from infobus.bus.publish.reservation import reserve  # late: most reserve nothing

        self._lifetime.check()
        node = (self._policy, self._services, self._publisher, self._lifetime, self._runtime)
        return reserve(Rate(events_per_s, bytes_per_s), name, way, *node, clock=self._clock)

    def flush(self) -> None:
        """Send now what was gathered for batching."""
        self._lifetime.check()
        self._routing.flush()

    @property
    def send_timeout_s(self) -> float:
        """How long `publish` waits for receivers that do not keep up."""
        return self._routing.send_timeout_s

    @send_timeout_s.setter
    def send_timeout_s(self, timeout_s: float) -> None:
        self._routing.send_timeout_s = timeout_s

    # Subscribing.

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callable[[Event[Data]], object] | None = None,
        *,
        type: type[Data],
        **options: Unpack[PlainOptions],
    ) -> Subscription[Data]: ...

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callable[[Event], object] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription: ...

    @overload
    def subscribe(
        self,
        pattern: str,
        callback: Callable[[DurableEvent], object] | None = None,
        *,
        durable: str,
        **options: Unpack[DurableOptions],
    ) -> DurableSubscription: ...

    def subscribe(
        self, pattern: str, callback: Any = None, *, durable: str | None = None, **options: Any
    ) -> Subscription | DurableSubscription:
        """Receive what is published under `pattern` from now on.

        Returning means that every live node this one can see knows of the subscription: what
        they publish after that is delivered in order, or reported as lost. Nodes that did not
        answer within `timeout_s` are named in a warning of the log.

        Args:
            pattern: `*` stands for one element, a last `>` for one or more.
            callback: Called with each event on a delivery thread, one event at a time. Without
                it, iterate over the subscription (also with `async for`).
            where: A filter over the attributes of the objects, such as
                `'symbol == "GMC" && price > 40'`; only what it is true of is delivered.
            test: Receive test events, too (`event.test`); without it none is delivered.
            on_loss: What to do about events that can no longer be had. `ignore` it; `warn` in
                the log; `raise` a `LossError` once, from the iterator or to `on_error`, then
                go on; `quit`: close the subscription; `quit_and_recover`: start anew, with
                initial state from the producers (which is also asked for at the beginning).
            on_mismatch: For an object of another type than here or in `type`: `raise` an error
                (durable: make it a dead letter), `skip` it, or get it as it was sent (`generic`).
            on_error: Called with errors that have no iterator to be raised from.
            when_full: What to do when the consumer falls behind. `pace` holds the senders for
                at most 2 s (0.5 s if it is stuck), then drops the oldest; `block` holds them for
                as long as it takes; `drop_oldest` drops at once; drops are reported as losses.
                `disconnect` closes the subscription with `SlowConsumer`.
            queue_count_max: How many events of 2 KiB may wait; senders are held from half of it.
            priority: The class in which this consumer gets its events; senders send them so, too.
            max_age: Seconds after which an event is let go here, if its supplier says no less.
            max_rate: At most so many events a second; others are counted, and left out.
            timeout_s: How long to wait for the nodes' answers; the patience of the node if None.
            type: The class, or union, that `event.data` is of; see `docs/payloads.md`.
            keys: `signed_by="desk"` takes only what that key has signed; `holds=["auditors"]` opens
                what is sealed for it; `tell_filter=True` tells others `where` all the same.
            narrow: On a secured bus, take what is allowed of the pattern; else all of it must be.

        Raises:
            QosRefused, NoRight, NotAllowed: A full class, a tag, or the policy does not allow it.

        With `durable="name"` it is a consumer of guaranteed events: its name and what it has
        settled outlive the process, and what is published while it is away waits.

        Args:
            durable: The consumer's name; one subscription at a time may use it.
            acknowledge: `automatic`: an event is settled when the callback returns or the next
                one is asked for; `explicit`: by `event.ack()`. `event.nack()` lets it come again.
            ordered: False lets events go past one that is to come again.
            deliveries_max: After so many deliveries in vain an event goes to the subject
                `dead_letters.<name>`, as an `infobus.DeadLetter`.
            live: Receive plain events, too, while this runs, each once; `event.guaranteed` tells.
        """
        if durable is not None:
            return self.subscribe_durable([pattern], callback, durable, **options)
        return self.subscribe_many([pattern], callback, **options)

    on = on

    def subscribe_many(
        self,
        patterns: Iterable[str],
        callback: Callable[[Event], object] | None = None,
        *,
        where: str | Filter | None = None,
        test: bool = False,
        on_loss: OnLoss = "raise",
        on_mismatch: OnMismatch = "raise",
        on_error: Callable[[BusError], object] | None = None,
        when_full: WhenFull = "pace",
        queue_count_max: int | None = None,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
        timeout_s: float | None = None,
        type: Any = None,
        narrow: bool = False,
        **keys: Unpack[ConsumerKeyOptions],
    ) -> Subscription:
        """Receive what is published under any of `patterns`, as one subscription.

        With one round of messages for all patterns. An event that several match comes once.
        """
        if queue_count_max is None:
            queue_count_max = self.bounds.queue_count_max
        return self._subscriptions.subscribe(
            patterns,
            callback,
            where=where,
            test=test,
            on_loss=on_loss,
            on_mismatch=on_mismatch,
            on_error=on_error,
            when_full=when_full,
            queue_count_max=queue_count_max,
            priority=priority,
            max_age=max_age,
            max_rate=max_rate,
            timeout_s=self.patience.subscribe_s if timeout_s is None else timeout_s,
            keys=self._consumer_keys(keys) if keys else None,
            type=type,
            narrow=narrow,
        )

    def subscribe_durable(
        self,
        patterns: Iterable[str],
        callback: Callable[[DurableEvent], object] | None,
        name: str,
        *,
        where: str | Filter | None = None,
        test: bool = False,
        on_mismatch: OnMismatch = "raise",
        on_error: Callable[[BusError], object] | None = None,
        acknowledge: Acknowledge = "automatic",
        ordered: bool = True,
        deliveries_max: int = 5,
        live: bool | Iterable[str] = False,
        type: Any = None,
        **keys: Unpack[ConsumerKeyOptions],
    ) -> DurableSubscription:
        """As `subscribe` with `durable`: one durable consumer of any of `patterns`.

        `live` may be other patterns.
        """
        patterns = patterns_of("subscribe_durable", patterns)
        subscription = self._guaranteed.subscribe(
            patterns,
            callback,
            name,
            where=where,
            test=test,
            on_mismatch=on_mismatch,
            on_error=on_error,
            acknowledge=acknowledge,
            ordered=ordered,
            deliveries_max=deliveries_max,
            keys=self._consumer_keys(keys) if keys else None,
            wanted=classes_in(type),
        )
        if live:
            try:
                also = patterns if live is True else live
                plain = self.subscribe_many(
                    also, where=where, test=test, on_mismatch=on_mismatch, type=type, **keys
                )
                subscription.join(plain)
            except BaseException:
                subscription.close()
                raise
        return subscription

    def _consumer_keys(self, told: ConsumerKeyOptions) -> ConsumerKeys:
        from infobus.bus.deliver.event_keys import consumer_keys  # late: few events have keys

        return consumer_keys(self.name, self.home, **told)

    def on_expired(self, listener: Callable[[Event], object]) -> None:
        """Call `listener` with each event that this node lets go because of its age.

        It is called on a thread of its own, in the order in which the events went.
        """
        self._lifetime.check()
        self._runtime.expiry.listen(listener)

    def quench(self, pattern: str) -> Quench:
        """What anyone wants of the subjects that `pattern` matches, for a producer to ask.

        `publish` does not send what nobody wants; this saves a producer the making of it.

        >>> import infobus
        >>> with infobus.connect("quench", engine="memory") as bus:
        ...     sub = bus.subscribe("trades.>", where='symbol == "GMC" && price > 40')
        ...     wanted = bus.quench("trades.>")
        ...     print(wanted.expression(), wanted.values("symbol"))
        price > 40 && symbol == "GMC" [[('==', 'GMC')]]
        """
        check_pattern(pattern)
        self._lifetime.check()
        from infobus.bus.quench import Quench  # late: most programs need none of it

        return Quench(self._runtime, pattern, self.home)

    def initial_state(self, pattern: str, function: StateFunction) -> None:
        """Give newcomers the present state of what this node publishes under `pattern`.

        `function` returns (subject, object) pairs. It is called between two publications, which
        wait for it: so it must neither publish, nor wait for a lock that a publishing thread holds.
        A subscription with `on_loss="quit_and_recover"` gets these first (marked `event.initial`),
        and then exactly the events that were published after the call.
        """
        check_pattern(pattern)
        self._lifetime.check()
        self._state.register(pattern, function)

    def adopt(self, *homes: Path) -> None:
        """Serve the ledgers of these homes that nobody owns, from now on; also this node's own.

        Any node does so for its own home; a host's daemon does it for programs that have gone.
        """
        self._guaranteed.adopt(homes)

    def keep_names(self, file: Path) -> None:
        """Keep in `file`, for the whole site, who uses a durable name and how far it has come.

        So a name can move to another home. A host's daemon does this. May raise `StoreError`.
        """
        self._guaranteed.keep_names(file)

    def served_ledgers(self) -> tuple[str, ...]:
        """The ledgers that this node serves now: its own, and others with work to do."""
        return self._guaranteed.served()

    # Services.

    def serve(self, subject: str, service: object, **options: Any) -> Offered:
        """Let everyone on the bus call the operations of `service`, an `infobus.Service`.

        Returning means that it is served: calls that wait for such a server come at once.

        Args:
            subject: What it is found by, such as `svc.keywords`.
            service: The object; its public methods that are fully annotated can be called.
            version: What it says about its version, for people and policies.
            tags: What else it says.
            info: A map of more such values.
            concurrency: How many calls may run at a time (64).
            queue_count_max: How many more may wait (100,000); the rest go to other servers.
            rule: How the servers of a subject share the calls among themselves: `elected`, each
                call has its server by lot; `balanced`, the least loaded has it; `primary`, the
                one of the highest `rank` (else the oldest) has all, and others stand by. Without
                a rule the callers choose.
            rank: See `rule`.

        Raises:
            UsageError: `service` has no operation, or an option is wrong.
        """
        return self._services.serve(subject, service, **options)

    def replace(self, subject: str, service: object, **options: Any) -> Offered:
        """Take over a subject, while calls are made, so that none of them fails.

        Calls that run are finished by the object that began them; all others go to `service`. Every
        other server of the subject retires. The options are those of `serve`; if this node serves
        the subject already, only `version` is allowed.
        """
        return self._services.replace(subject, service, **options)

    def service(self, subject: str, **options: Any) -> ServiceClient:
        """A service by its subject; its operations are the methods of what is returned.

        Nothing is sent before the first call, which also waits, within its time, for a server.

        Args:
            subject: What it is found by.
            policy: Which of several servers is called: the `first` one that answered, the
                `least_loaded`, `all` (the result is a list of `Answer`), or a function that gets
                a list of `Found` and returns one, or several of them, best first.
            timeout_s: How long each call may take, finding a server included, and each item of a
                stream; the patience of the node if not given.
            exactly_once: The call has an id under which the servers keep its reply, until this
                node has it; so it can be tried again, also after a crash, and still runs once.
                Give the id of an earlier call (`CallMayHaveRun.call_id`) to try that one again, or
                an id of your own: then the reply is kept for 7 days, for the same call only.
            headers: Said beside the arguments of each call, for `current_call().headers`.
            idempotent: The operations may run twice, so a call may go to another server when its
                own dies. Services may declare that themselves (`infobus.idempotent`).
        """
        return self._services.service(subject, **options)

    def who_is_out_there(
        self,
        pattern: str,
        timeout_s: float | None = None,
        *,
        role: str | None = "server",
        where: str = "",
    ) -> list[Found]:
        """Ask who serves subjects that `pattern` matches, or is there in another role.

        Returns when every node that can be seen has answered, or after `timeout_s`.

        Args:
            pattern: Of subjects; `>` asks for everyone.
            timeout_s: How long to wait for those who do not answer.
            role: `server`; `client` finds nodes whose calls wait for a server; None asks for all.
            where: A filter over what participants say of themselves, such as `'load < 5 &&
                version == "2"'`; it is decided by those who are asked.
        """
        return self._services.who_is_out_there(pattern, timeout_s, role, where)

    def watch(self, pattern: str, *, role: str | None = "server") -> Watch:
        """A live feed of who arrives, changes and departs; it begins with those who are there."""
        return self._services.watch(pattern, role)

    def i_am(self, subject: str, role: str, **info: Any) -> IAmHere:
        """Be found by `who_is_out_there` under `subject`, in a role of your own choice."""
        return self._services.i_am(subject, role, info)

    def offer_sessions(
        self,
        subject: str,
        converse: Callable[[Session], object],
        *,
        qos: QoS | None = None,
        **options: Any,
    ) -> Offered:
        """Be a supplier of sessions: private, two-way conversations with one consumer each.

        `converse` is called with each `Session`, on a thread of its own, and ends it by returning.
        `qos` limits what is agreed to. The options are those of `serve`.
        """
        return self._services.offer_sessions(self, subject, converse, qos, options)

    def open_session(
        self,
        subject: str,
        *,
        qos: QoS | None = None,
        choose: Callable[[list[Found]], Found] = lambda found: found[0],
        timeout_s: float | None = None,
    ) -> Session:
        """Begin a session with a supplier, at a quality of service that both agree to.

        Args:
            qos: What is wanted; `Session.qos` is what was agreed.
            choose: Picks one of those who answered; else it is the first.
            timeout_s: How long to wait for a supplier.

        Raises:
            NoServer: Nobody supplies it.
        """
        return self._services.open_session(self, subject, choose, qos, timeout_s)

    # The rest.

    def types(self, timeout_s: float | None = None) -> list[Type]:
        """The types that any node on the bus knows of, this one included, by name.

        Where nodes define a name differently, all definitions are there, this node's first.
        """
        told = self._runtime.learn_types(self.patience.types_s if timeout_s is None else timeout_s)
        own = all_types()
        others = {kind for fp in told if (kind := find_type(fp)) is not None}.difference(own)
        return sorted([*own, *others], key=lambda kind: kind.name)

    def on_members(self, callback: OnMembers) -> None:
        """Call `callback` with the present view of members, and with each new one, in order.

        None is left out, or an `ExcludedView` comes first. It is called on a thread of its own.
        """
        self.members.on_view(callback)

    def primary(self, service: str, *, rank: int = 0) -> Primary:
        """Offer to be the primary of `service`: `with bus.primary("svc.ledger") as role: ...`.

        `role.is_primary` is true in one program of the bus at most, and only while the members'
        view is stable; `role.changes()` iterates over what it becomes. When the primary is gone or
        hung, the candidate of the highest `rank` follows, of several the oldest.
        """
        return self.members.primary(service, rank=rank)

    def alive_while(
        self, check: Callable[[], object], every_s: float = 1.0, for_s: float = 5.0
    ) -> AliveCheck:
        """Call `check` every `every_s`; when it has not passed for `for_s`, this program is hung.

        It passes if it returns something true, or None. A program that is hung is announced by its
        daemon, and is no primary until its check passes again.
        """
        self.members.follow()
        return self.members.health.watch(check, every_s, for_s)

    def stats(self) -> Stats:
        """What this node has done since it connected: an immutable snapshot."""
        frames = sum(outlet.frames for outlet in list(self._routing.outlets.values()))
        published, quenched = self._publisher.counts()
        return snapshot(self._runtime, published, quenched, frames)

    def drain(self, timeout_s: float = 30.0) -> None:
        """Leave well, as `close(drain_s=timeout_s)` does."""
        self.close(drain_s=timeout_s)

    def close(self, timeout_s: float | None = None, *, drain_s: float | None = None) -> None:
        """Send what is gathered, wait (bounded) until receivers have confirmed it, and leave.

        Callbacks that run are waited for first, so what they publish is sent, too; one that takes
        too long is named in a warning of the log. Subscriptions end; what is in their queues can
        still be taken. It takes `timeout_s` at most, or the patience of the node. Idempotent.
        With `drain_s`, nothing new is taken in, and what waits for consumers is handled before, for
        `drain_s` at most. Guaranteed events that wait come again, wherever their name is used next.
        """
        if self._lifetime.over is not None:
            return
        if drain_s is not None:
            self._runtime.drain(drain_s)
        begun_s = self._clock.now_s()
        self._runtime.workers.rest(timeout_s)
        try:
            if timeout_s is None:
                self._close(self.patience.close_s)
            else:
                self._close(max(0.0, timeout_s - (self._clock.now_s() - begun_s)))
        finally:
            self._runtime.workers.resume()

    def _close(self, timeout_s: float) -> None:
        if self._lifetime.over is not None:
            return  # another thread was quicker
        deadline_s = self._clock.now_s() + timeout_s
        why = BusClosed(f"this node's connection to the bus {self.name!r} was closed")
        self._services.close(timeout_s)  # first: operations that still run may publish
        if "members" in self.__dict__:
            self.members.close()
        if self._policy.member is not None:
            self._policy.member.close()
        if self._runtime.policy is not None:
            self._runtime.policy.stop()  # it publishes
        self._end(why)
        self._runtime.wake()  # publishers that wait for room now give up
        self._routing.close(why, deadline_s)
        self._flusher.stop()
        self._state.close()
        self._guaranteed.close()
        if not self._runtime.confirm(max(0.0, deadline_s - self._clock.now_s())):
            log.warning("closing, though receivers have not confirmed all in %s s", timeout_s)
        self._runtime.close()

    def open(self) -> None:
        """Join the bus: called once, by `connect`."""
        self._runtime.open(self.patience.sync_s)
        self._flusher.start()
        self.tags.open(self.patience.sync_s)
        if self._group:
            from infobus.bus.qos_group import QosMember  # late: few nodes are in a group

            policy, forget = self._policy, self._routing.forget
            policy.member = QosMember(
                self, self._group, policy.admission, policy.classes, on_policy=forget
            )
        self._guaranteed.open()

    def abandon(self) -> None:
        """Become closed in a forked child, which must not use its parent's connection."""
        why = BusClosed(
            "this bus was connected before a fork and belongs to the parent process: connect "
            "again in the child, or start the child with the 'spawn' method"
        )
        self._end(why)
        self._runtime.abandon(why)
        self._services.abandon(why)
        self._routing.abandon()
        self._guaranteed.abandon(why)
        self.tags.abandon()

    def _end(self, why: BusClosed) -> None:
        self._lifetime.over = why
        self._routing.forget()

    def __enter__(self) -> Bus:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._lifetime.over else "open"
        return f"<Bus {self.name!r}: node {self.node}, {state}>"


def interior(bus: Bus) -> Interior:
    """The parts of a bus that is not closed, such as a daemon or a router needs them."""
    from infobus.bus.border.interior import Interior  # late: few programs need it

    bus._lifetime.check()
    parts = (bus._runtime, bus._routing, bus._lifetime, bus._guaranteed, bus._services)
    return Interior(*parts)
