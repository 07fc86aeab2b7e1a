"""Joining a bus, and leaving it in time: also when nobody closes, and after a fork."""

from __future__ import annotations

import atexit
import os
import re
import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

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
    send_timeout_s: float = 10.0,
    sync_timeout_s: float = 2.0,
) -> Bus:
    """Join a bus; this process becomes a node of it. Nothing else needs to be started.

    Returning means that the nodes found on the bus and this one know each other's interests.
    What is not given is taken from the environment (`INFOBUS_BUS`, `INFOBUS_HOME`), then from
    `infobus.toml`, then the default.

    Args:
        bus: The bus's name. Buses of different names do not hear each other.
        home: The folder for what must survive this process; processes may share it.
        engine: `zenoh` (the default), `memory` (nodes of this process only), or an engine.
        listen: Further endpoints to be reached at, such as `tcp/0.0.0.0:7500`.
        connect: Further endpoints to reach, such as `tcp/10.0.0.7:7500`.
        multicast: `loopback` (default), `off`, or an interface on which to find other hosts.
        depth: How many elements of a subject name its channel; the same on the whole bus.
        batch: Gather small events for up to so many bytes or milliseconds. Off by default;
            events that are published faster than they can be sent are gathered anyway.
        test: True for a program under development: all that it publishes is marked as test, and
            its subscriptions receive such events, too. `INFOBUS_TEST=1` does the same.
        classes: The priority classes, highest first; the same on the whole bus. Events that name
            none are of class `regular`, or of the last one if there is no such class.
        upgrade: When a class that starves in a queue of this node is raised, and for how long.
        limits: What any one other node may send to this one; whoever sends more is slowed down.
        capacity: What publishers of this node may reserve in all; see `Bus.reserve`.
        group: The group of nodes whose policy this one keeps to; see `infobus.qos.QosManager`.
        send_timeout_s: How long `publish` waits for receivers that do not keep up.
        sync_timeout_s: How long to wait for answers of the nodes that were found.

    Raises:
        UsageError: A setting is wrong; the message says which.
        EngineError: The engine could not be opened.

    >>> with connect("doctest", engine="memory") as bus:
    ...     sub = bus.subscribe("greetings.*")
    ...     bus.publish("greetings.world", {"text": "hello"})
    ...     print(sub.receive(timeout_s=1).data["text"])
    hello
    """
    settings = load_settings(
        bus=bus,
        home=home,
        engine=engine if isinstance(engine, str) else None,
        listen=listen,
        connect=connect,
        multicast=multicast,
        depth=depth,
        test=test,
        classes=classes,
        upgrade=upgrade,
        limits=limits,
        capacity=capacity,
        group=group,
    )
    if batch is not None and not isinstance(batch, Batch):
        raise UsageError(f"batch must be an infobus.Batch, got {batch!r}")
    # All processes of a host may share a settings file, and only one of them gets a port.
    must_listen = listen is not None
    if engine is None or isinstance(engine, str):
        engine = _engine(settings, must_listen)
    name = _node_name()
    joined = Bus(
        engine,
        name=name,
        bus_name=settings.bus,
        home=settings.home,
        terms=Terms(
            depth=settings.depth,
            classes=settings.classes,
            upgrade=settings.upgrade,
            limits=settings.limits,
        ),
        batch=batch,
        patience=Patience(send_s=send_timeout_s, sync_s=sync_timeout_s),
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
                config=settings.zenoh,
            )
        case "memory":
            from infobus.engines.memory.engine import MemoryEngine, live_network

            return MemoryEngine(live_network(settings.bus))
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
