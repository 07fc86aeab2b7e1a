"""The engine that connects processes: Eclipse Zenoh, embedded, with its traps closed.

It adds to the library: by default only programs of the same user on the same host can connect;
data blocks instead of vanishing; opening returns when the neighbours are met; endpoints that do not
answer are told; a process that forgets to close still exits; a forked child cannot use its parent's
session but can open its own.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.engines.base import (
    DECLARATIONS_COUNT_MAX,
    Declaration,
    Guarded,
    Links,
    abandon_in_forked_child,
    closed_error,
    log,
)
from infobus.engines.zenoh.endpoints import (
    UNIX,
    address_of,
    check_endpoint,
    check_security,
    host_and_port,
    is_secured,
    open_to_anyone,
    protocol_of,
)
from infobus.engines.zenoh.library import (
    call_at_exit_of_child,
    in_daemon_thread,
    keep_freed_memory,
    never_free,
    plain_text,
    start_callback_thread,
    threads_of_session,
    wait_for_library_threads,
    zenoh_library,
)
from infobus.engines.zenoh.links import LinkKeeper
from infobus.engines.zenoh.reach import (
    LINKED,
    LISTENING,
    Reach,
    first_to_answer,
    is_local,
    is_own,
    no_link_at,
    why_not_listening,
)
from infobus.engines.zenoh.rendezvous import FOLDER_VARIABLE, Rendezvous
from infobus.engines.zenoh.settings import (
    CLIENT,
    PEER,
    ROLES,
    ROUTER,
    STALL_PART_OF_LEASE,
    extra_settings,
    listeners,
    merged,
    own_listeners,
    scouts_at,
    session_id,
    session_settings,
    tls_settings,
    unknown_settings,
    with_protocols,
)
from infobus.errors import BadValue, BusClosed, EngineError, UsageError
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.waiters import Changed

# Tokens that are known here are listed at once: to wait for them for long is of no use.
_TOKENS_PART_OF_HANDSHAKE = 0.5
_CLOSE_PATIENCE_S = 1.5
_EXIT_PATIENCE_S = 2.0
_DATA_PRIORITIES = ("BACKGROUND", "DATA_LOW", "DATA", "DATA_HIGH", "INTERACTIVE_LOW")
# Wildcards do not match elements that begin with `@`, so no user of the engine meets these.
_HELLO = "@hello"
# A key that a session declares takes one of 65,535 numbers. Then the library begins at the front,
# also with those in use: frames come under other keys. So inboxes are not declared, which come and
# go with nodes.
_INBOXES = "n/"
_LOOK_S = 0.05  # between looks whether those that are waited for are still there
_NOT_NEEDED = "not needed"
_NO_LINK = "Unable to connect"  # as Zenoh says it

_engines_to_close_at_exit: set[ZenohEngine] = set()


class ZenohEngine:
    """Carries the frames of one node to other processes; see `Engine` for the promises.

    Args:
        bus: Any non-empty name. Nodes of different buses neither connect nor hear each other.
        role: `peer` links with every other peer and router that it finds. `router` also forwards
            between those that are linked with it. `client` is linked with one router of `connect`
            alone, and when that is lost, with the next; nobody links to it.
        listen: Further endpoints to be reached at, such as `tcp/0.0.0.0:7500`.
        must_listen: Opening fails if one of these is taken; otherwise it continues without it.
        connect: Further endpoints to reach, such as `tcp/10.0.0.7:7500`; tried for ever. Opening
            fails if none of them answers within `patience.reach_s`. Those at which this node
            listens are left out, and if there were any, none of the others needs to answer.
        multicast: `off`, or the network interface on which to find nodes of other hosts (and to be
            found: this opens a port on that interface), or `loopback` to find other users' nodes
            on this host. With TLS set up, this port is for those with a certificate.
        insecure: Listen on a network even without TLS, and let anyone in.
        patience: Who is silent for its `lease_s` is taken for dead; who is slow to open a link, or
            to be found, is waited for as it says.
        bounds: How many frames of one key may wait, and how many keys are remembered.
        config: Settings of Zenoh itself that override ours: a map, or a JSON5 file's path.
    """

    declarations_count_max = DECLARATIONS_COUNT_MAX

    def __init__(
        self,
        bus: str,
        *,
        role: str = PEER,
        listen: Iterable[str] = (),
        must_listen: bool = True,
        connect: Iterable[str] = (),
        multicast: str = "off",
        insecure: bool = False,
        patience: Patience = DEFAULT_PATIENCE,
        bounds: Bounds = DEFAULT_BOUNDS,
        config: Mapping[str, Any] | str | Path | None = None,
    ) -> None:
        if not bus:
            raise BadValue("the name of a bus must not be empty", path="bus")
        if patience.lease_s < 0.1:
            what = f"lease_s: expected at least 0.1, got {patience.lease_s}"
            raise BadValue(what, path="lease_s")
        if role not in ROLES:
            raise BadValue(f"role: expected one of {', '.join(ROLES)}, got {role!r}", path="role")
        self._bus, self._role = bus, role
        self._listen, self._must_listen = tuple(listen), must_listen
        self._connect = tuple(connect)
        self._multicast = multicast
        self._patience = patience
        self._bounds = bounds
        self._lease_ms = round(1000 * patience.lease_s)
        self._tokens_s = self._watch_s = _TOKENS_PART_OF_HANDSHAKE * patience.handshake_s
        if role == CLIENT:
            # Its router has to be asked, and may be busy. Who began to publish without knowing the
            # others would publish to nobody.
            self._watch_s = max(self._watch_s, patience.reach_s)
        self._extra = extra_settings(config)
        self._check_role()
        self._open_to_anyone = self._checked_endpoints(insecure)
        self._rendezvous = Rendezvous(bus)
        self._reach: Reach | None = None
        self._listen_states: dict[str, str] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._session: Any = None
        self._keeper: LinkKeeper | None = None
        self._zenoh: Any = None
        self._zid = ""
        self.on_links: Callable[[], None] = lambda: None
        """Called whenever a link comes or goes."""
        self.own_endpoint = ""
        """Where nodes of this host reach it, once it is open."""
        self._was_opened = self._is_forked = False
        self._is_named = False  # in `connect`, and so listens at one of these endpoints
        # Everything that the library returned is held here and nowhere else, so that a
        # forked child can leave it behind as one piece.
        self._entities: dict[int, Any] = {}
        self._own_tokens: set[str] = set()
        # From key to the `put` of a declared publisher. Empty unless open, so that the fast
        # path needs no check of its own.
        self._data_puts: dict[tuple[str, int], Callable[[bytes], None]] = {}
        self._control_puts: dict[str, Callable[[bytes], None]] = {}

    def open(self, node: str) -> None:
        """Join the bus; returns when the other nodes on this host can be reached.

        Alone that takes no time, otherwise some 10 ms, and at most about 1 s when another node is
        frozen; longer if `connect` names endpoints that do not answer. `node` is not shown to
        others: announce it.
        """
        if self._was_opened:
            raise UsageError(f"the engine of {node!r} was opened before: make a new one")
        interfaces = ["off", "loopback", *(name for _, name in socket.if_nameindex())]
        if self._multicast not in interfaces:
            raise EngineError(
                f"bus {self._bus!r}: cannot multicast on {self._multicast!r}: expected one of "
                + ", ".join(interfaces)
            )
        self._look_at_listeners()
        self._leave_out_own_endpoints()
        if self._open_to_anyone:
            where = ", ".join(self._open_to_anyone)
            log.warning("bus %r is insecure: whoever reaches %s is let in", self._bus, where)
        self._zenoh = zenoh_library(forwards=self._role == ROUTER)
        keep_freed_memory()
        if self._role == CLIENT:
            neighbours = self._open_at_router()
        else:
            neighbours = self._open_among_neighbours()
        self._keeper = LinkKeeper(
            self._session,
            self._greeters,
            self._rendezvous,
            stall_ms_max=int(self._lease_ms * STALL_PART_OF_LEASE),
            period_s=self._lease_ms / 1000,
            on_change=lambda: self.on_links(),
            gone=self._zenoh.SampleKind.DELETE,
            scouts_at=scouts_at(self._bus) if self._multicast != "off" else None,
        )
        self._reach_endpoints()
        self._meet(neighbours)
        if self._role == CLIENT and not self._greeters():
            (router,) = [one for one, state in self.endpoints().items() if state == LINKED] or [""]
            self.close()
            raise EngineError(
                f"bus {self._bus!r}: what listens at {router or 'the router'} did not greet within "
                f"{self._patience.handshake_s:g} s: is it a daemon of this bus?"
            )

    def _open_among_neighbours(self) -> set[str]:
        """Open where the nodes of this host meet; return the sessions that are there already."""
        has_sockets = self._prepare_sockets()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._rendezvous.gate(self._patience.handshake_s))
            self._zid = zid = session_id(time.time_ns(), secrets.randbits(63))
            if has_sockets:
                own = f"{UNIX}/{self._rendezvous.socket(zid)}"
            else:
                protocol = "tls" if self._is_secured else "tcp"
                own = f"{protocol}/127.0.0.1:{stack.enter_context(_reserved_port())}"
            self.own_endpoint = own
            neighbours = self._rendezvous.neighbours()
            endpoints = [neighbour.endpoint for neighbour in neighbours.values()]
            self._use(self._open_session(zid, own, self._connect, endpoints))
            self._enter(zid, own)
        return set(neighbours)

    def _open_at_router(self) -> set[str]:
        """Open with a link to the first router that answers; return its session."""
        self._zid = session_id(time.time_ns(), secrets.randbits(63))
        reach_s, knock_s = self._patience.reach_s, self._patience.handshake_s
        began_s = time.monotonic()
        first, states = first_to_answer(self._connect, reach_s, knock_s)
        if first is None:
            raise self._unreached(states)
        # Zenoh tries the first one until its time is over, and only then looks at the others.
        order = [first, *(one for one in self._connect if one != first)]
        left_s = max(knock_s, began_s + reach_s - time.monotonic())
        try:
            self._use(self._open_session(self._zid, "", order, (), reach_s=left_s))
        except EngineError as error:
            if _NO_LINK not in str(error):
                raise
            raise self._unreached({**states, first: no_link_at(first)}) from None
        return {str(zid) for zid in self._session.info.routers_zid()}

    def _use(self, session: Any) -> None:
        self._session = session
        self._was_opened = True
        _engines_to_close_at_exit.add(self)
        call_at_exit_of_child(_close_at_exit)
        abandon_in_forked_child(self)
        self._add(session.liveliness().declare_token(f"{_HELLO}/{self._zid}"))

    @property
    def is_linked(self) -> bool:
        """Whether a client has its router; others need nobody."""
        if self._role != CLIENT:
            return True
        try:
            return bool(self._checked_session().info.routers_zid())
        except (BusClosed, self._zenoh.ZError):
            return False

    def retire(self) -> None:
        """Call nobody any more; what was put before is still sent when it is closed."""
        for _, silence in list(self._entities.values()):
            silence()

    def endpoints(self) -> dict[str, str]:
        """What became of each endpoint that was given: `listening`, `linked`, or why not.

        Of a client, one is `linked`, and the others are `not needed`.
        """
        if self._role == CLIENT and self._session is not None:
            there = {address_of(link.dst) for link in self._session.info.links()}
            names = [(one, address_of(one) in there) for one in self._connect]
            return {one: LINKED if is_linked else _NOT_NEEDED for one, is_linked in names}
        reach = self._reach
        return {**self._listen_states, **(reach.states if reach is not None else {})}

    def links(self) -> Links:
        """Which sessions this node's own one is linked with now."""
        session, zenoh = self._session, self._zenoh
        try:
            found = () if session is None else {str(link.zid) for link in session.info.links()}
        except zenoh.ZError:  # the session is being closed
            found = ()
        return Links(self._role, self._zid, tuple(sorted(found)))

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key`. Data waits 3/4 of the lease for a full link, control 1 ms."""
        try:
            send = self._control_puts[key] if control else self._data_puts[key, urgency]
        except KeyError:
            send = self.sender(key, control=control, urgency=urgency)
        try:
            send(payload)
        except Exception as error:
            raise self._translated(error, key) from error

    def sender(self, key: str, *, control: bool, urgency: int) -> Callable[[bytes], None]:
        """Return what `put` calls for frames on `key`."""
        session, zenoh = self._checked_session(), self._zenoh
        data = getattr(zenoh.Priority, _DATA_PRIORITIES[2 + min(max(urgency, -2), 2)])
        if "*" in key:
            raise UsageError(f"key {key!r} is a pattern; frames are put on one key")
        with self._lock:
            for puts in (self._control_puts, self._data_puts):
                if len(puts) >= self._bounds.keys_count_max:
                    # These are inboxes of nodes long gone. Those still in use are
                    # declared anew.
                    puts.clear()
            quality = {
                "congestion_control": (
                    zenoh.CongestionControl.DROP if control else zenoh.CongestionControl.BLOCK
                ),
                "priority": zenoh.Priority.INTERACTIVE_HIGH if control else data,
                "allowed_destination": zenoh.Locality.REMOTE,
            }
            send: Callable[[bytes], None]
            try:
                if key.startswith(_INBOXES):
                    send = partial(session.put, zenoh.KeyExpr(key), **quality)
                else:
                    send = session.declare_publisher(key, **quality).put
            except zenoh.ZError as error:
                raise self._translated(error, key) from error
            if control:
                self._control_puts[key] = send
            else:
                self._data_puts[key, urgency] = send
            return send

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        guard = Guarded(key)

        def listen(samples: Any) -> None:
            for sample in samples:
                # Waiting for the next frame releases the interpreter's lock;
                # looking for one does not.
                while sample is not None:
                    try:
                        on_frame(sample.payload.to_bytes())
                    except Exception as error:
                        guard.report(error)
                    sample = look(samples)

        def look(samples: Any) -> Any:
            try:
                return samples.try_recv()
            except self._zenoh.ZError:  # The declaration has ended.
                return None

        def declare(session: Any) -> Any:
            # Frames of one key that may wait for their turn. Beyond that, Zenoh stops reading
            # the link, and then frames of other keys wait behind them, however urgent. Zenoh's
            # own 256 are soon reached; the default is a window of a sender, in which each event
            # may be a frame.
            channel = self._zenoh.handlers.FifoChannel(self._bounds.frames_count_max)
            subscriber = session.declare_subscriber(key, channel)
            start_callback_thread(listen, subscriber.handler)
            return subscriber

        # Frames may still wait when the declaration ends; nobody wants them any more.
        def silence() -> None:
            nonlocal on_frame
            on_frame = _ignore

        return self._declared(key, declare, silence)

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer queries on `key`. A handler that raises leaves its query without an answer."""

        def reply(query: Any) -> None:
            with query:
                payload = query.payload
                query.reply(query.key_expr, handler(b"" if payload is None else payload.to_bytes()))

        guarded = Guarded(key).wrap(reply)
        return self._declared(key, lambda session: session.declare_queryable(key, guarded))

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key`; returns at the timeout at the latest."""
        session, zenoh = self._checked_session(), self._zenoh
        try:
            replies = session.get(
                key,
                payload=payload,
                timeout=timeout_s,
                target=zenoh.QueryTarget.ALL,
                # Otherwise answers on the same key replace each other.
                consolidation=zenoh.ConsolidationMode.NONE,
                allowed_destination=zenoh.Locality.REMOTE,
            )
            return [reply.ok.payload.to_bytes() for reply in replies if reply.ok is not None]
        except zenoh.ZError as error:
            raise self._translated(error, key) from error

    def announce(self, key: str) -> Declaration:
        """Show a token on `key` until it is undeclared, or this process ends or freezes."""
        self._own_tokens.add(key)
        return self._declared(
            key,
            lambda session: session.liveliness().declare_token(key),
            lambda: self._own_tokens.discard(key),
        )

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens on `key`. A killed node's token disappears in milliseconds, a frozen
        one's within the lease.
        """
        self._checked_session()
        seen: set[str] = set()
        alive: set[str] = set()
        lock = threading.Lock()
        somebody_seen = Changed(lock)
        put = self._zenoh.SampleKind.PUT

        def changed(sample: Any) -> None:
            token, is_alive = str(sample.key_expr), sample.kind == put
            try:
                if token not in self._own_tokens and is_alive != (token in alive):
                    (alive.add if is_alive else alive.remove)(token)
                    on_change(token, is_alive)
            finally:
                with lock:
                    seen.add(token)
                    somebody_seen.notify_all()

        # Only the subscriber reports, so that no late answer can revive a token that is
        # gone. The tokens listed here are only those that the subscriber is expected to
        # report. Listed first: once there is a subscriber, a client's list is only what that has
        # been told so far, and its router may be busy.
        there = self._tokens(key, self._watch_s) - self._own_tokens
        guarded = Guarded(key).wrap(changed)
        declared = self._declared(
            key,
            lambda session: session.liveliness().declare_subscriber(key, guarded, history=True),
        )
        somebody_seen.wait_for(lambda: there <= seen, self._watch_s)
        return declared

    def close(self) -> None:
        """Leave the bus; frames that were put are flushed first."""
        with self._lock:
            session, self._session = self._session, None
            self._data_puts, self._control_puts = {}, {}
            keeper, self._keeper = self._keeper, None
            reach, self._reach = self._reach, None
        if reach is not None:
            reach.stop()
        _engines_to_close_at_exit.discard(self)
        if keeper is not None:
            keeper.stop()  # before leaving: it would show this node again
        self._rendezvous.leave()
        if session is not None:
            entities, self._entities = self._entities, {}
            for _, silence in entities.values():
                silence()
            # Closing flushes, in about a millisecond. But it may wait up to 10 s for a
            # handshake with a frozen node, which then continues without us.
            with contextlib.suppress(self._zenoh.ZError):
                try:
                    in_daemon_thread(session.close, _CLOSE_PATIENCE_S)
                except RuntimeError:  # no more threads can be started
                    session.close()

    def abandon(self) -> None:
        """In a forked child: forget the session, which lives on in the parent."""
        never_free(self._session, self._keeper, self._reach)
        never_free(self._entities, self._data_puts, self._control_puts)
        self._session, self._keeper, self._reach, self._entities = None, None, None, {}
        self._data_puts, self._control_puts = {}, {}
        self._lock = threading.Lock()
        self._rendezvous.abandon()
        self._is_forked = True
        _engines_to_close_at_exit.discard(self)

    def _checked_endpoints(self, insecure: bool) -> list[str]:
        """Refuse what cannot be meant; return what lets in anyone who can reach it."""
        for name, endpoints in (("listen", self._listen), ("connect", self._connect)):
            for endpoint in endpoints:
                check_endpoint(name, endpoint)
        tls = tls_settings(self._extra)
        listen = (*self._listen, *own_listeners(self._extra))
        check_security(listen, self._connect, tls)
        self._is_secured = is_secured(listen, self._connect, tls)
        found = open_to_anyone(listen, "off" if self._is_secured else self._multicast)
        if found and not insecure:
            setting = "multicast" if found[0] == self._multicast else "listen"
            raise BadValue(
                f"{setting}: {found[0]!r} lets in whoever reaches it, and this bus has no way to "
                "ask who that is. Set up TLS ([zenoh.transport.link.tls]), or say that you want "
                "it: insecure=True, --insecure, or insecure = true in infobus.toml",
                path=setting,
            )
        return found

    def _check_role(self) -> None:
        if "mode" in self._extra:
            raise BadValue(
                f"zenoh: mode is {self._extra['mode']!r}; a session's role is not set there. Use "
                "connect(attach=...): 'auto' attaches to the daemon of this host, "
                "['tcp/HOST:PORT'] to that one, and 'never' to none",
                path="mode",
            )
        if self._role == CLIENT and not self._connect:
            raise BadValue("connect: a client needs the endpoint of a router", path="connect")
        if self._role == CLIENT and (self._listen or self._multicast != "off"):
            raise BadValue("a client neither listens nor looks for others", path="listen")

    def _look_at_listeners(self) -> None:
        """Learn beforehand at which endpoints nobody can listen: Zenoh does not say why."""
        for endpoint in self._listen:
            why = why_not_listening(endpoint)
            self._listen_states[endpoint] = why or LISTENING
            if why and self._must_listen:
                raise EngineError(f"bus {self._bus!r}: cannot listen at {endpoint}: {why}")
            if why:
                # Of the processes that share a settings file, one gets the port.
                is_usual = why == os.strerror(errno.EADDRINUSE).lower()
                log.log(
                    logging.INFO if is_usual else logging.WARNING,
                    "bus %r does not listen at %s: %s",
                    self._bus,
                    endpoint,
                    why,
                )

    def _leave_out_own_endpoints(self) -> None:
        """Of those to reach: hosts may share a list on which each of them is, too."""
        here = [one for one, state in self._listen_states.items() if state == LISTENING]
        others = tuple(one for one in self._connect if not is_own(one, here))
        self._is_named = others != self._connect
        self._connect = others

    def _prepare_sockets(self) -> bool:
        """Whether nodes of this host are to reach this one by a socket in a private folder."""
        if not hasattr(socket, "AF_UNIX"):
            return False
        try:
            self._rendezvous.prepare()
        except OSError as error:
            if self._multicast == "loopback":
                return False
            raise self._no_folder(error) from error
        return True

    def _enter(self, zid: str, own: str) -> None:
        try:
            self._rendezvous.enter(zid, own, self._listen)
        except OSError as error:
            if protocol_of(own) == UNIX:
                self.close()
                raise self._no_folder(error) from error

    def _no_folder(self, error: OSError) -> EngineError:
        return EngineError(
            f"bus {self._bus!r}: there is no private folder in which nodes of this host can meet: "
            f"{error}. Name one of your own in the environment variable {FOLDER_VARIABLE}, or set "
            "multicast='loopback' to meet at a port that every user of this host can reach"
        )

    def _reach_endpoints(self) -> None:
        """Wait until one endpoint of `connect` is linked.

        Raises:
            EngineError: None was, for as long as this node is patient.
        """
        if not self._connect or self._role == CLIENT:
            return
        self._reach = Reach(
            self._connect,
            self._session.info.links,
            self._is_neighbour,
            period_s=self._lease_ms / 1000,
            knock_s=self._patience.handshake_s,
        )
        reach_s = self._patience.reach_s
        is_linked = self._reach.wait_for_one(reach_s, must_be=not self._is_named)
        # A node that is named itself may be the first of all.
        if reach_s and not is_linked and not self._is_named:
            states = dict(self._reach.states)
            self.close()
            raise self._unreached(states)

    def _unreached(self, states: Mapping[str, str]) -> EngineError:
        told = "; ".join(f"{name}: {state}" for name, state in states.items())
        what = "no router" if self._role == CLIENT else "nothing that `connect` names"
        whom = "daemon" if self._role == CLIENT else "node"
        hint = (
            ""
            if self._role == CLIENT
            else "; with patience.reach_s = 0, this node would go on without it and keep trying"
        )
        return EngineError(
            f"bus {self._bus!r}: {what} was reached in {self._patience.reach_s:g} s: {told}. "
            f"Correct it, or start a {whom} that listens there{hint}"
        )

    def _is_neighbour(self, endpoint: str) -> bool:
        """Whether a node of this user on this host listens there: it is linked by its socket."""
        where = host_and_port(endpoint)
        if where is None:
            return False
        told = chain.from_iterable(one.listen for one in self._rendezvous.neighbours().values())
        ports = {there[1] for there in map(host_and_port, told) if there is not None}
        return where[1] in ports and is_local(where[0])

    def _open_session(
        self,
        zid: str,
        own: str,
        connect: Iterable[str],
        neighbours: Iterable[str],
        reach_s: float = 0.0,
    ) -> Any:
        free = {one for one, state in self._listen_states.items() if state == LISTENING}

        def attempt(*, shared_memory: bool) -> Any:
            settings = session_settings(
                self._bus,
                role=self._role,
                zid=zid,
                own=own,
                on_loopback=self._multicast == "loopback" or protocol_of(own) != UNIX,
                is_secured=self._is_secured,
                listen=listeners(self._listen, free, must_listen=self._must_listen),
                connect=connect,
                neighbours=neighbours,
                multicast=self._multicast,
                lease_ms=self._lease_ms,
                handshake_ms=max(1, round(1000 * self._patience.handshake_s)),
                reach_ms=max(1, round(1000 * reach_s)),
                shared_memory=shared_memory,
            )
            settings = with_protocols(merged(settings, self._extra))
            config = zenoh.Config.from_json5(json.dumps(settings))
            unknown = list(unknown_settings(json.loads(str(config)), settings))
            if unknown:
                raise BadValue(f"zenoh: this version of it has no setting {', '.join(unknown)}")
            with threads_of_session(forwards=self._role == ROUTER):
                return zenoh.open(config)

        zenoh = self._zenoh
        try:
            try:
                return attempt(shared_memory=True)
            except zenoh.ZError as error:
                # Frames from 3 KiB on travel through shared memory, several times faster. When
                # it runs out while running, Zenoh copies instead; but if /dev/shm is missing,
                # read-only or full at the start, the session does not open at all.
                if "shm" not in str(error):
                    raise
                return attempt(shared_memory=False)
        except Exception as error:
            raise EngineError(
                f"bus {self._bus!r}: no Zenoh session could be opened: {plain_text(error)}"
            ) from error

    def _meet(self, neighbours: set[str]) -> None:
        """Wait until the declarations of all `neighbours` (or of any stranger) are known here."""
        if not neighbours and not self._connect and self._multicast == "off":
            return  # nobody can come but by the rendezvous
        is_somebody_there = neighbours or LINKED in self.endpoints().values()
        patience = self._patience
        patience_s = patience.handshake_s if is_somebody_there else patience.search_s
        began_s = looked_at_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + patience_s:
            met = self._greeters()
            if met and met >= neighbours:
                return
            if neighbours and self._role != CLIENT and now_s - looked_at_s > _LOOK_S:
                looked_at_s = now_s
                neighbours &= self._rendezvous.neighbours().keys()
                if not neighbours:
                    return  # they have left meanwhile
            time.sleep(0.002)

    def _greeters(self) -> set[str]:
        """Return the sessions of the other nodes whose declarations have arrived here.

        A client asks for its router's alone: those of others come with it.
        """
        tokens = set[str]()
        if self._role == CLIENT:
            for zid in self._checked_session().info.routers_zid():
                tokens |= self._tokens(f"{_HELLO}/{zid}")
        else:
            tokens = self._tokens(f"{_HELLO}/*")
        return {token.removeprefix(f"{_HELLO}/") for token in tokens} - {self._zid}

    def _tokens(self, key: str, patience_s: float | None = None) -> set[str]:
        timeout_s = self._tokens_s if patience_s is None else patience_s
        replies = self._checked_session().liveliness().get(key, timeout=timeout_s)
        return {str(reply.ok.key_expr) for reply in replies if reply.ok is not None}

    def _declared(
        self, key: str, declare: Callable[[Any], Any], silence: Callable[[], None] = lambda: None
    ) -> _Declared:
        session = self._checked_session()
        try:
            entity = in_daemon_thread(lambda: declare(session))
        except self._zenoh.ZError as error:
            raise self._translated(error, key) from error
        return self._add(entity, silence)

    def _add(self, entity: Any, silence: Callable[[], None] = lambda: None) -> _Declared:
        number = next(self._numbers)
        self._entities[number] = entity, silence
        return _Declared(self, number)

    def remove(self, number: int) -> None:
        """Undeclare one entity; for `Declaration.undeclare`."""
        entity, silence = self._entities.pop(number, (None, None))
        if entity is not None:
            silence()
            with contextlib.suppress(self._zenoh.ZError):  # The session was closed meanwhile.
                entity.undeclare()

    def _checked_session(self) -> Any:
        session = self._session
        if session is None:
            raise closed_error(forked=self._is_forked, opened=self._was_opened)
        return session

    def _translated(self, error: Exception, key: str) -> Exception:
        if self._session is None:
            return closed_error(forked=self._is_forked, opened=self._was_opened)
        if isinstance(error, self._zenoh.ZError):
            return EngineError(f"key {key!r}: {plain_text(error)}")
        return error


def _ignore(_: bytes) -> None:
    """Discard a frame that arrived too late."""


class _Declared:
    def __init__(self, engine: ZenohEngine, number: int) -> None:
        self._engine = engine
        self._number = number

    def undeclare(self) -> None:
        self._engine.remove(self._number)


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a free port until Zenoh listens on it, so that its number is known beforehand."""
    with socket.socket() as placeholder:
        # Linux lets two such sockets share a port as long as only one listens.
        placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        placeholder.bind(("127.0.0.1", 0))
        yield placeholder.getsockname()[1]


def _close_at_exit() -> None:
    for engine in list(_engines_to_close_at_exit):
        engine.close()
    wait_for_library_threads(_EXIT_PATIENCE_S)


# Ordinary threads of the program have ended by then, so nobody is cut off.
atexit.register(_close_at_exit)
