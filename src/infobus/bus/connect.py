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
from typing import TYPE_CHECKING

from msgspec.structs import replace

from infobus.bounds import Bounds
from infobus.bus.bus import Bus
from infobus.bus.publish.outlet import Batch
from infobus.bus.settings import Settings, load_settings
from infobus.engines.base import Engine
from infobus.errors import UsageError
from infobus.patience import Patience
from infobus.protocols.qos.classes import Limits, Upgrade
from infobus.protocols.reliable.peer import Terms

if TYPE_CHECKING:
    from pathlib import Path

_open_buses: weakref.WeakSet[Bus] = weakref.WeakSet()
_is_exit_registered = False


def connect(
    bus: str | None = None,
    *,
    home: str | Path | None = None,
    engine: str | Engine | None = None,
    listen: Iterable[str] | None = None,
    connect: Iterable[str] | None = None,
    multicast: str | None = None,
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

    Returning means that the nodes found on the bus and this one know each other's interests.
    What you leave out is taken from the environment (`INFOBUS_BUS`, `INFOBUS_HOME`,
    `INFOBUS_TEST`), then from `infobus.toml`, then the default.

    Args:
        bus: The bus's name. Buses of different names do not hear each other.
        home: The folder for what must survive this process; processes may share it.
        engine: `zenoh` (the default), `memory` (nodes of this process only), or an engine.
        listen: Further endpoints to be reached at, such as `tcp/0.0.0.0:7500`.
        connect: Further endpoints to reach, such as `tcp/10.0.0.7:7500`.
        multicast: `loopback` (default), `off`, or an interface on which to find other hosts.
        depth: How many elements of a subject name its channel; the same on the whole bus.
        batch: Gather small events, also when there is time to send each at once.
        test: Mark all that is published as test, and receive such events: for development.
        classes: The priority classes, highest first; the same on the whole bus. The default
            class is `regular`, or the last one if there is no such class.
        upgrade: When a class that starves in a queue of this node is raised, and for how long.
        limits: What any one other node may send to this one; whoever sends more is slowed down.
        capacity: What publishers of this node may reserve in all; see `Bus.reserve`.
        group: The group whose policy this node keeps to; see `infobus.qos.QosManager`.
        patience: How long this node waits, and for what; see `docs/limits.md`.
        bounds: How much it holds, and of what; see there.
        send_timeout_s: How long `publish` waits for slow receivers; else `patience.send_s`.
        sync_timeout_s: How long to wait for the nodes that were found; else `patience.sync_s`.

    Raises `UsageError` if a setting is wrong, and `EngineError` if the engine cannot be opened.
    """
    where = {"bus": bus, "home": home, "listen": listen, "connect": connect, "depth": depth}
    how = {"multicast": multicast, "test": test, "classes": classes, "group": group}
    much = {"upgrade": upgrade, "limits": limits, "capacity": capacity, "bounds": bounds}
    named = engine if isinstance(engine, str) else None
    settings = load_settings(engine=named, patience=patience, **where, **how, **much)
    settings = _with_timeouts(settings, send_s=send_timeout_s, sync_s=sync_timeout_s)
    if engine is None or isinstance(engine, str):
        # All processes of a host may share a settings file, and only one of them gets a port.
        engine = _engine(settings, must_listen=listen is not None)
    return _joined(settings, engine, batch)


def _with_timeouts(settings: Settings, **given: float | None) -> Settings:
    told = {name: timeout_s for name, timeout_s in given.items() if timeout_s is not None}
    return replace(settings, patience=replace(settings.patience, **told)) if told else settings


def _joined(settings: Settings, engine: Engine, batch: Batch | None) -> Bus:
    if batch is not None and not isinstance(batch, Batch):
        raise UsageError(f"batch must be an infobus.Batch, got {batch!r}")
    if batch is not None and batch.bytes > settings.bounds.batch_bytes_max:
        raise UsageError(f"batch: bytes is {batch.bytes}, above the bound `batch_bytes_max`")
    joined = Bus(
        engine,
        name=_node_name(),
        bus_name=settings.bus,
        home=settings.home,
        terms=_terms(settings),
        batch=batch,
        patience=settings.patience,
        bounds=settings.bounds,
        test=settings.test,
        capacity=settings.capacity,
        group=settings.group,
    )
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
        # A sender that has filled its window waits for a confirmation: it must come before.
        ack_count=max(1, min(bounds.ack_count, bounds.window_count_max // 4)),
        ack_bytes=max(1, min(bounds.ack_bytes, bounds.window_bytes_max // 4)),
        beat_s=patience.beat_s,
        idle_beat_s=patience.idle_beat_s,
        tell_s=patience.tell_s,
        give_up_s=patience.give_up_s,
        freeze_s=patience.frozen_s,
        stranger_s=patience.stranger_s,
        peers_count_max=bounds.peers_count_max,
        lanes_count_max=bounds.lanes_count_max,
        rows_count_max=bounds.rows_count_max,
        filters_count_max=bounds.filters_count_max,
        spare_count_max=bounds.spare_count_max,
        classes=settings.classes,
        upgrade=settings.upgrade,
        limits=settings.limits,
    )


def _engine(settings: Settings, must_listen: bool) -> Engine:
    # Imported here because `import infobus` must not load the engine's library.
    match settings.engine:
        case "zenoh":
            from infobus.engines.zenoh.engine import ZenohEngine

            return ZenohEngine(
                settings.bus,
                listen=settings.listen,
                must_listen=must_listen,
                connect=settings.connect,
                multicast=settings.multicast,
                patience=settings.patience,
                bounds=settings.bounds,
                config=settings.zenoh,
            )
        case "memory":
            from infobus.engines.memory.engine import MemoryEngine, live_network

            return MemoryEngine(live_network(settings.bus), settings.patience)
        case unknown:
            raise UsageError(f"engine {unknown!r} is not known; choose 'zenoh' or 'memory'")


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


def _abandon_all() -> None:
    for bus in list(_open_buses):
        bus.abandon()
    _open_buses.clear()


os.register_at_fork(after_in_child=_abandon_all)
