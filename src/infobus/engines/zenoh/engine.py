"""The engine that connects processes: Eclipse Zenoh, embedded, with its traps closed.

It adds to the library: by default only the host itself can connect; data blocks instead of
vanishing; opening returns when the neighbours are met; a process that forgets to close still exits;
a forked child cannot use its parent's session but can open its own.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.engines.base import (
    Declaration,
    Guarded,
    abandon_in_forked_child,
    closed_error,
)
from infobus.engines.zenoh.library import (
    call_at_exit_of_child,
    few_threads,
    in_daemon_thread,
    join_callback_threads,
    keep_freed_memory,
    never_free,
    start_callback_thread,
    zenoh_library,
)
from infobus.engines.zenoh.links import LinkKeeper
from infobus.engines.zenoh.rendezvous import Rendezvous
from infobus.engines.zenoh.settings import (
    STALL_PART_OF_LEASE,
    extra_settings,
    merged,
    session_id,
    session_settings,
)
from infobus.errors import BadValue, EngineError, UsageError
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.waiters import Changed

# Tokens that are known here are listed at once: to wait for them for long is of no use.
_TOKENS_PART_OF_HANDSHAKE = 0.5
_CLOSE_PATIENCE_S = 1.5
_EXIT_PATIENCE_S = 1.0
_DATA_PRIORITIES = ("BACKGROUND", "DATA_LOW", "DATA", "DATA_HIGH", "INTERACTIVE_LOW")
# Wildcards do not match elements that begin with `@`, so no user of the engine meets these.
_HELLO = "@hello"

_engines_to_close_at_exit: set[ZenohEngine] = set()


class ZenohEngine:
    """Carries the frames of one node to other processes; see `Engine` for the promises.

    Args:
        bus: Any non-empty name. Nodes of different buses neither connect nor hear each other.
        listen: Further endpoints to be reached at, such as `tcp/0.0.0.0:7500`.
        must_listen: Opening fails if one of these is taken; otherwise it continues without it.
        connect: Further endpoints to reach, such as `tcp/10.0.0.7:7500`; tried for ever.
        multicast: `loopback`, `off`, or the network interface on which to find nodes of other
            hosts (and to be found: this opens a port on that interface).
        patience: Who is silent for its `lease_s` is taken for dead; who is slow to open a link, or
            to be found, is waited for as it says.
        bounds: How many frames of one key may wait, and how many keys are remembered.
        config: Settings of Zenoh itself that override ours: a map, or a JSON5 file's path.
    """

    def __init__(
        self,
        bus: str,
        *,
        listen: Iterable[str] = (),
        must_listen: bool = True,
        connect: Iterable[str] = (),
        multicast: str = "loopback",
        patience: Patience = DEFAULT_PATIENCE,
        bounds: Bounds = DEFAULT_BOUNDS,
        config: Mapping[str, Any] | str | Path | None = None,
    ) -> None:
        if not bus:
            raise BadValue("the name of a bus must not be empty", path="bus")
        if patience.lease_s < 0.1:
            what = f"lease_s: expected at least 0.1, got {patience.lease_s}"
            raise BadValue(what, path="lease_s")
        self._bus = bus
        self._listen = tuple(listen)
        self._must_listen = must_listen
        self._connect = tuple(connect)
        self._multicast = multicast
        self._patience = patience
        self._bounds = bounds
        self._lease_ms = round(1000 * patience.lease_s)
        self._tokens_s = _TOKENS_PART_OF_HANDSHAKE * patience.handshake_s
        self._extra = extra_settings(config)
        self._rendezvous = Rendezvous(bus)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._session: Any = None
        self._keeper: LinkKeeper | None = None
        self._zenoh: Any = None
        self._zid = ""
        self._was_opened = self._is_forked = False
        # Everything that the library returned is held here and nowhere else, so that a
        # forked child can leave it behind as one piece.
        self._entities: dict[int, Any] = {}
        self._own_tokens: set[str] = set()
        # From key to the `put` of a declared publisher. Empty unless open, so that the fast
        # path needs no check of its own.
        self._data_puts: dict[str, Callable[[bytes], None]] = {}
        self._control_puts: dict[str, Callable[[bytes], None]] = {}

    def open(self, node: str) -> None:
        """Join the bus; returns when the other nodes on this host can be reached.

        Alone that takes 0.2 s, otherwise some 10 ms, and at most about 1 s when another node is
        frozen. `node` is not shown to others: announce it.
        """
        if self._was_opened:
            raise UsageError(f"the engine of {node!r} was opened before: make a new one")
        interfaces = ["loopback", "off", *(name for _, name in socket.if_nameindex())]
        if self._multicast not in interfaces:
            raise EngineError(
                f"bus {self._bus!r}: cannot multicast on {self._multicast!r}: expected one of "
                + ", ".join(interfaces)
            )
        self._zenoh = zenoh_library()
        keep_freed_memory()
        with self._rendezvous.gate(self._patience.handshake_s), _reserved_port() as port:
            self._zid = zid = session_id(time.time_ns(), secrets.randbits(63))
            neighbours = self._rendezvous.neighbours()
            self._session = self._open_session(zid, port, neighbours.values())
            self._was_opened = True
            _engines_to_close_at_exit.add(self)
            call_at_exit_of_child(_close_at_exit)
            abandon_in_forked_child(self)
            self._add(self._session.liveliness().declare_token(f"{_HELLO}/{zid}"))
            self._rendezvous.enter(zid, f"tcp/127.0.0.1:{port}")
        self._keeper = LinkKeeper(
            self._session,
            self._greeters,
            stall_ms_max=int(self._lease_ms * STALL_PART_OF_LEASE),
            period_s=self._lease_ms / 1000,
        )
        self._meet(set(neighbours))

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key`. Data waits 3/4 of the lease for a full link, control 1 ms."""
        try:
            send = self._control_puts[key] if control else self._data_puts[key]
        except KeyError:
            send = self._publisher(key, control, urgency)
        try:
            send(payload)
        except Exception as error:
            raise self._translated(error, key) from error

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

        guarded = Guarded(key).wrap(changed)
        declared = self._declared(
            key,
            lambda session: session.liveliness().declare_subscriber(key, guarded, history=True),
        )
        # Only the subscriber reports, so that no late answer can revive a token that is
        # gone. The tokens listed here are only those that the subscriber is expected to
        # report.
        there = self._tokens(key)
        somebody_seen.wait_for(lambda: there <= seen, self._tokens_s)
        return declared

    def close(self) -> None:
        """Leave the bus; frames that were put are flushed first."""
        with self._lock:
            session, self._session = self._session, None
            self._data_puts, self._control_puts = {}, {}
            keeper, self._keeper = self._keeper, None
        _engines_to_close_at_exit.discard(self)
        self._rendezvous.leave()
        if keeper is not None:
            keeper.stop()
        if session is not None:
            entities, self._entities = self._entities, {}
            for _, silence in entities.values():
                silence()
            # Closing flushes, in about a millisecond. But it may wait up to 10 s for a
            # handshake with a frozen node, which then continues without us.
            with contextlib.suppress(self._zenoh.ZError):
                in_daemon_thread(session.close, _CLOSE_PATIENCE_S)

    def abandon(self) -> None:
        """In a forked child: forget the session, which lives on in the parent."""
        never_free(self._session, self._keeper, self._entities, self._data_puts, self._control_puts)
        self._session, self._keeper, self._entities = None, None, {}
        self._data_puts, self._control_puts = {}, {}
        self._lock = threading.Lock()
        self._rendezvous.abandon()
        self._is_forked = True
        _engines_to_close_at_exit.discard(self)

    def _open_session(self, zid: str, port: int, neighbours: Iterable[str]) -> Any:
        def attempt(*, shared_memory: bool) -> Any:
            settings = session_settings(
                self._bus,
                zid=zid,
                own_port=port,
                listen=self._listen,
                must_listen=self._must_listen,
                connect=self._connect,
                neighbours=neighbours,
                multicast=self._multicast,
                lease_ms=self._lease_ms,
                handshake_ms=max(1, round(1000 * self._patience.handshake_s)),
                shared_memory=shared_memory,
            )
            config = zenoh.Config.from_json5(json.dumps(merged(settings, self._extra)))
            with few_threads():
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
                f"bus {self._bus!r}: no Zenoh session could be opened: {error}"
            ) from error

    def _meet(self, neighbours: set[str]) -> None:
        """Wait until the declarations of all `neighbours` (or of any stranger) are known here."""
        is_somebody_there = neighbours or self._connect
        patience = self._patience
        patience_s = patience.handshake_s if is_somebody_there else patience.search_s
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            met = self._greeters()
            if met and met >= neighbours:
                return
            time.sleep(0.002)

    def _greeters(self) -> set[str]:
        """Return the sessions of the other nodes whose declarations have arrived here."""
        tokens = self._tokens(f"{_HELLO}/*")
        return {token.removeprefix(f"{_HELLO}/") for token in tokens} - {self._zid}

    def _tokens(self, key: str) -> set[str]:
        replies = self._checked_session().liveliness().get(key, timeout=self._tokens_s)
        return {str(reply.ok.key_expr) for reply in replies if reply.ok is not None}

    def _publisher(self, key: str, control: bool, urgency: int) -> Callable[[bytes], None]:
        session, zenoh = self._checked_session(), self._zenoh
        data = getattr(zenoh.Priority, _DATA_PRIORITIES[2 + min(max(urgency, -2), 2)])
        if "*" in key:
            raise UsageError(f"key {key!r} is a pattern; frames are put on one key")
        with self._lock:
            puts = self._control_puts if control else self._data_puts
            if len(puts) >= self._bounds.keys_count_max:
                # These are inboxes of nodes long gone. Those still in use are
                # declared anew.
                puts.clear()
            try:
                publisher = session.declare_publisher(
                    key,
                    congestion_control=(
                        zenoh.CongestionControl.DROP if control else zenoh.CongestionControl.BLOCK
                    ),
                    priority=zenoh.Priority.INTERACTIVE_HIGH if control else data,
                    allowed_destination=zenoh.Locality.REMOTE,
                )
            except zenoh.ZError as error:
                raise self._translated(error, key) from error
            send: Callable[[bytes], None] = publisher.put
            puts[key] = send
            return send

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
            return EngineError(f"key {key!r}: {error}")
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
    join_callback_threads(_EXIT_PATIENCE_S)


# Ordinary threads of the program have ended by then, so nobody is cut off.
atexit.register(_close_at_exit)
