"""Joining a bus, and leaving it in time: also when nobody closes, and after a fork.

>>> with connect("doctest", engine="memory") as bus:
...     sub = bus.subscribe("greetings.*")
...     bus.publish("greetings.world", {"text": "hello"})
...     print(sub.receive(timeout_s=1).data["text"])
hello
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infobus.bounds import Bounds
from infobus.bus.bus import Bus
from infobus.bus.deliver.callbacks import forget_all, rest_at_exit
from infobus.bus.publish.outlet import Batch
from infobus.bus.settings import Settings, has_identity, load_settings, shut_home
from infobus.engines.base import Engine
from infobus.errors import UsageError
from infobus.patience import Patience
from infobus.protocols.qos.classes import Limits, Upgrade
from infobus.protocols.reliable.peer import Terms

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.security.identity import NodeIdentity
    from infobus.security.credential import Credential

_open_buses: weakref.WeakSet[Bus] = weakref.WeakSet()
_is_exit_registered = False


def connect(
    bus: str | None = None,
    *,
    name: str | None = None,
    home: str | Path | None = None,
    engine: str | Engine | None = None,
    listen: Iterable[str] | None = None,
    connect: Iterable[str] | None = None,
    multicast: str | None = None,
    insecure: bool | None = None,
    identity: str | Path | Credential | None = None,
    link: str | None = None,
    attach: str | Iterable[str] | None = None,
    depth: int | None = None,
    batch: Batch | None = None,
    test: bool | None = None,
    classes: Iterable[str] | None = None,
    upgrade: Upgrade | None = None,
    limits: Limits | None = None,
    capacity: Limits | None = None,
    group: str | None = None,
    patience: Patience | None = None,
    bounds: Bounds | None = None,
    send_timeout_s: float | None = None,
    sync_timeout_s: float | None = None,
) -> Bus:
    """Join a bus; this process becomes a node of it. Nothing else needs to be started.

    Returning means that the nodes found on the bus, and those that they see, and this one know each
    other's interests.
    What you leave out is taken from the environment (`INFOBUS_BUS`, `INFOBUS_NAME`, and so on),
    then from `infobus.toml`, then the default.

    Args:
        bus: The bus's name. Buses of different names do not hear each other.
        name: What others see this program as, such as `oven-3`; the same when it starts again.
        home: The folder for what must survive this process; processes may share it.
        engine: `zenoh` (the default), `memory` (nodes of this process only), or an engine.
        listen: Further endpoints to be reached at, such as `tcp/0.0.0.0:7500`.
        connect: Further endpoints to reach, such as `tcp/10.0.0.7:7500`; one must answer in time.
        multicast: `off` (default), an interface to other hosts, or `loopback` to other users.
        insecure: Let in anyone who can reach `listen` or `multicast`, without TLS.
        identity: A credential of a secured bus, or its file; by default that of the home, if any.
        link: `lan` (default), `wan` or `realtime`: how patient this node is with others.
        attach: `auto` (default), `never` or `direct` to the daemon of this host, or endpoints.
        depth: How many elements of a subject name its channel; the same on the whole bus.
        batch: Gather small events, also when there is time to send each at once.
        test: Mark all that is published as test, and receive such events: for development.
        classes: The priority classes, highest first; the default one is `regular`, or the last.
        upgrade: When a class that starves in a queue here is raised, and for how long.
        limits: What any one node may send to this one; a node that sends more is slowed down.
        capacity: What publishers of this node may reserve in all; see `Bus.reserve`.
        group: The group whose policy this node keeps to; see `infobus.qos.QosManager`.
        patience: How long it waits, and for what, instead of `link`; see `docs/limits.md`.
        bounds: How much it holds, and of what; see there.
        send_timeout_s, sync_timeout_s: These two of `patience`.

    Raises `UsageError` if a setting is wrong, and `EngineError` if the engine cannot be opened.
    """
    return _joined_as(**locals())


def _joined_as(
    *,
    engine: str | Engine | None,
    batch: Batch | None,
    identity: str | Path | Credential | None,
    send_timeout_s: float | None,
    sync_timeout_s: float | None,
    **given: Any,
) -> Bus:
    named = engine if isinstance(engine, str) else None
    settings = load_settings(engine=named, **given)
    settings = _with_timeouts(settings, send_s=send_timeout_s, sync_s=sync_timeout_s)
    own = _identity(settings, identity)
    if engine is None or isinstance(engine, str):
        engine = _engine(settings, given["listen"] is not None, own)
    return _joined(settings, engine, batch, own)


def _identity(settings: Settings, given: str | Path | Credential | None) -> NodeIdentity | None:
    """Whom this node acts for; None on an open bus, where nothing of this is loaded."""
    if given is None and not has_identity(settings.home, settings.bus):
        return None
    from infobus.bus.security.identity import NodeIdentity

    return NodeIdentity.of(settings, given)


def with_identity(settings: Settings) -> Settings:
    """The same settings; on a secured bus, with this home's credential on links to other hosts."""
    own = _identity(settings, None)
    return settings if own is None else own.with_tls(settings)


def _with_timeouts(settings: Settings, **given: float | None) -> Settings:
    told = {name: timeout_s for name, timeout_s in given.items() if timeout_s is not None}
    return replace(settings, patience=replace(settings.patience, **told)) if told else settings


def _joined(
    settings: Settings, engine: Engine, batch: Batch | None, own: NodeIdentity | None
) -> Bus:
    if batch is not None and not isinstance(batch, Batch):
        raise UsageError(f"batch must be an infobus.Batch, got {batch!r}")
    if batch is not None and batch.bytes > settings.bounds.batch_bytes_max:
        raise UsageError(f"batch: bytes is {batch.bytes}, above the bound `batch_bytes_max`")
    shut_home(settings.home)
    name = _node_name()
    if own is not None:
        engine, name = own.sealed(engine, name.rpartition("-")[0], settings.patience.handshake_s)
    joined = Bus(
        engine,
        name=name,
        bus_name=settings.bus,
        application=settings.name,
        home=settings.home,
        terms=_terms(settings),
        batch=batch,
        patience=settings.patience,
        bounds=settings.bounds,
        test=settings.test,
        capacity=settings.capacity,
        group=settings.group,
    )
    if own is not None:
        own.bind(joined)
    try:
        joined.open()
    except BaseException:  # also Ctrl-C: others must not see a node that nobody has
        joined.close(timeout_s=0)
        raise
    _close_in_time(joined)
    return joined


def _terms(settings: Settings) -> Terms:
    """The numbers of reliable delivery, out of what the node bears and how long it waits."""
    bounds, patience = settings.bounds, settings.patience
    return Terms(
        depth=settings.depth,
        window_count_max=bounds.window_count_max,
        window_bytes_max=bounds.window_bytes_max,
        stall_s=patience.stall_s,
        hold_s=patience.hold_s,
        # A sender that has filled its window waits for a confirmation: it must come before.
        ack_count=max(1, min(bounds.ack_count, bounds.window_count_max // 4)),
        ack_bytes=max(1, min(bounds.ack_bytes, bounds.window_bytes_max // 4)),
        beat_s=patience.beat_s,
        idle_beat_s=patience.idle_beat_s,
        tell_s=patience.tell_s,
        absent_s=patience.absent_s,
        give_up_s=patience.given_up_s,
        freeze_s=patience.frozen_s,
        stranger_s=patience.stranger_s,
        peers_count_max=bounds.peers_count_max,
        strangers_count_max=bounds.strangers_count_max,
        lanes_count_max=bounds.lanes_count_max,
        rows_count_max=bounds.rows_count_max,
        filters_count_max=bounds.filters_count_max,
        spare_count_max=bounds.spare_count_max,
        classes=settings.classes,
        upgrade=settings.upgrade,
        limits=settings.limits,
    )


def _engine(settings: Settings, must_listen: bool, own: NodeIdentity | None) -> Engine:
    # Imported here because `import infobus` must not load the engine's library.
    match settings.engine:
        case "zenoh":
            if own is not None:
                settings = own.with_tls(settings)
            return _zenoh_engine(settings, must_listen)
        case "memory":
            from infobus.engines.memory.engine import MemoryEngine, live_network

            return MemoryEngine(live_network(settings.bus), settings.patience)
        case unknown:
            raise UsageError(f"engine {unknown!r} is not known; choose 'zenoh' or 'memory'")


def _zenoh_engine(settings: Settings, must_listen: bool) -> Engine:
    from infobus.engines.attached.daemons import attached_engine
    from infobus.engines.zenoh.endpoints import AUTO, NEVER
    from infobus.engines.zenoh.engine import ZenohEngine

    attach = settings.attach
    options: dict[str, Any] = {
        "listen": settings.listen,
        # All processes of a host may share a settings file, and only one of them gets a port.
        "must_listen": must_listen,
        "connect": settings.connect,
        "multicast": settings.multicast,
        "insecure": settings.insecure,
        "patience": settings.patience,
        "bounds": settings.bounds,
        "config": settings.zenoh,
    }
    named = settings.listen or settings.connect or {"listen", "connect"} & settings.zenoh.keys()
    goes_out_itself = bool(named) or settings.multicast != "off"
    if goes_out_itself and attach not in (AUTO, NEVER):
        raise UsageError(
            f"attach={attach!r} leaves other hosts to a daemon, so `listen`, `connect` and "
            "`multicast` belong into the daemon's settings"
        )
    if isinstance(attach, tuple):
        return attached_engine(settings.bus, attach, **options)
    if attach == AUTO and not goes_out_itself:
        return attached_engine(settings.bus, **options)
    return ZenohEngine(settings.bus, **options)


def _node_name() -> str:
    """A name that no other node has or will have: host, process, incarnation."""
    host = re.sub(r"[^A-Za-z0-9_-]", "_", os.uname().nodename)[:40] or "host"
    return f"{host}-{os.getpid()}-{os.urandom(6).hex()}"


def _close_in_time(bus: Bus) -> None:
    # Registered only now: what is registered later runs earlier, and the buses must be
    # closed before their engines, which registered themselves when they were imported.
    global _is_exit_registered
    if not _is_exit_registered:
        _is_exit_registered = True
        atexit.register(_close_all)
    if "multiprocessing" in sys.modules:
        from infobus.engines.zenoh.library import call_at_exit_of_child

        call_at_exit_of_child(_close_all)
    _open_buses.add(bus)


def _close_all() -> None:
    for bus in list(_open_buses):
        bus.close()
    rest_at_exit()  # those of buses that were closed before


def _abandon_all() -> None:
    for bus in list(_open_buses):
        bus.abandon()
    _open_buses.clear()
    forget_all()


os.register_at_fork(after_in_child=_abandon_all)
