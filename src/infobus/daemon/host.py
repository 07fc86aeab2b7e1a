"""The daemon of a host and bus: a node with more roles switched on.

It is a way in: it holds the well-known endpoint of the host, links the host with other daemons, and
lets the programs of its user find it. It stays: it serves the ledgers of its homes when their
programs have gone, and describes types when nobody else knows them. Events do not pass through
Python: the session of the engine forwards them.

It uses only public parts of a node, so any process can embed a daemon.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import infobus
from infobus.bus.bus import interior
from infobus.bus.connect import with_identity
from infobus.bus.membership.role import MembershipRole, checked_terms
from infobus.bus.settings import Settings, daemon_folder, load_settings
from infobus.daemon.homes import KeptHomes
from infobus.daemon.programs import LocalPrograms
from infobus.daemon.status import TOKEN, DaemonStatus
from infobus.daemon.types import KeptTypes
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.rendezvous import DaemonFile, ShownDaemon, find_daemon
from infobus.engines.zenoh.settings import ROUTER
from infobus.errors import BusClosed, BusError, EngineError, UsageError
from infobus.protocols.frames.wire import WIRE_MAJOR, WIRE_MINOR
from infobus.protocols.membership.terms import Mode

log = logging.getLogger("infobus.daemon")

_STAY_S = 30.0  # between two signs that the file is in use
_LEARN_S = 0.5  # between two rounds of questions for types, while nodes come
_LEARN_AGAIN_S = 30.0  # and while none comes: they may have defined new ones
_TYPES_S = 0.5  # for the answers


class HostDaemon:
    """The daemon of this host for one bus; a host has at most one for each bus.

    Use it as a context manager, in a process of its own (`infobus daemon run`) or in any other.
    What you leave out is taken from where `infobus.connect` takes it.

    Args:
        bus: The bus's name.
        listen: Endpoints at which other hosts reach this one, such as `tcp/0.0.0.0:7447`.
        join: Endpoints of other daemons. They are tried for ever, and those that are this
            daemon's own are skipped, so all hosts may have the same list.
        insecure: Let in anyone who can reach `listen`, without TLS.
        homes: The homes that it looks after. The first is its own, for what it must remember.
        heartbeat_s: The pace of the membership; the same for all daemons of the bus.
        founders: Names of hosts of which a majority begins the membership; see `MembershipRole`.
        membership: With `any`, those that are left go on without a majority; see there.
        is_program: The daemon is all that this process does; then `infobus daemon stop` may end it.
    """

    def __init__(
        self,
        bus: str | None = None,
        *,
        listen: Iterable[str] | None = None,
        join: Iterable[str] | None = None,
        insecure: bool | None = None,
        homes: Sequence[str | Path] = (),
        heartbeat_s: float = 1.0,
        founders: Iterable[str] = (),
        membership: Mode = "majority",
        is_program: bool = False,
    ) -> None:
        given = {"bus": bus, "listen": listen, "connect": join, "insecure": insecure}
        settings = load_settings(home=homes[0] if homes else None, **given)
        if settings.engine != "zenoh":
            raise UsageError(
                f"engine {settings.engine!r}: a daemon links hosts, which only 'zenoh' does"
            )
        self._settings = replace(
            with_identity(settings),
            # Other hosts may be started later: a daemon does not wait for them.
            patience=replace(settings.patience, reach_s=0.0),
        )
        terms = checked_terms(heartbeat_s, tuple(founders), membership)
        self._group: dict[str, Any] = {
            "heartbeat_s": terms.heartbeat_s,
            "founders": terms.founders,
            "mode": terms.mode,
        }
        self._is_program = is_program
        self._since = time.time()
        self._place = DaemonFile(settings.bus)
        self._homes = KeptHomes([settings.home, *map(Path, homes[1:])], settings.bus)
        self._types = KeptTypes(daemon_folder(settings.home, settings.bus) / "types")
        self._engine = _engine(self._settings)
        self._bus: infobus.Bus | None = None
        self._member: MembershipRole | None = None
        self._programs: LocalPrograms | None = None
        self._daemons: set[str] = set()
        self._nodes_came = threading.Event()
        self._is_ending = threading.Event()
        self._ends = ExitStack()

    # Life.

    def open(self) -> None:
        """Become the daemon of this host.

        Returning means that programs of this host find it, that it listens at its endpoints, and
        that it serves the ledgers of its homes. Other daemons may still be out of reach.

        Raises:
            EngineError: This host has a daemon for this bus already, or an endpoint is taken.
            StoreError: A home is kept by another daemon, or cannot be written to.
        """
        with ExitStack() as ends:
            self._claim()
            ends.callback(self._place.leave)
            self._homes.take(f"process {os.getpid()}")
            ends.callback(self._homes.release)
            self._types.load()
            bus = self._bus = infobus.connect(
                self._settings.bus,
                home=self._settings.home,
                engine=self._engine,
                patience=self._settings.patience,
            )
            ends.callback(bus.close)
            self._programs = LocalPrograms(bus.node, self._on_death)
            ends.callback(self._programs.close)
            bus.adopt(*self._homes.homes)
            folder = daemon_folder(self._settings.home, bus.name)
            bus.keep_names(folder / "names.db")
            self._engine.answer(f"{TOKEN}/{bus.node}", lambda _: msgspec.json.encode(self.status()))
            self._engine.watch(f"{TOKEN}/*", self._on_daemon)
            self._engine.watch("l/*", self._on_node)
            tags = bus.tags.hold()
            # This shows the token `d/<node>`, by which others find daemons.
            self._member = member = MembershipRole(
                bus, state=folder / "membership", table=tags.table, **self._group
            )
            ends.callback(member.close)
            tags.begin(lambda: member.id, member.propose)
            ends.callback(tags.close)
            self._place.show(self._shown(bus))
            ends.callback(self._place.hide)
            keeper = threading.Thread(target=self._run, name="infobus-daemon", daemon=True)
            keeper.start()
            ends.callback(keeper.join, 2.0)
            ends.callback(self._stop)
            self._ends = ends.pop_all()

    def close(self) -> None:
        """End in order: be found no more, leave the bus, save, let go of the homes. Idempotent."""
        self._ends.close()

    def __enter__(self) -> HostDaemon:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def bus(self) -> infobus.Bus:
        """The daemon's own node."""
        if self._bus is None:
            raise BusClosed("the daemon is not open yet")
        return self._bus

    def status(self) -> DaemonStatus:
        """What it is doing now."""
        bus, settings = self.bus, self._settings
        stats, member = bus.stats(), self._member
        return DaemonStatus(
            node=bus.node,
            host=os.uname().nodename,
            pid=os.getpid(),
            bus=settings.bus,
            version=infobus.__version__,
            wire=(WIRE_MAJOR, WIRE_MINOR),
            since=self._since,
            endpoints=stats.endpoints,
            homes=tuple(map(str, self._homes.homes)),
            ledgers=bus.served_ledgers(),
            programs=() if self._programs is None else self._programs.names(),
            peers=stats.peers,
            daemons=tuple(sorted(self._daemons)),
            member="" if member is None else member.id,
            members=() if member is None else member.members,
            unstable="" if member is None else member.why_unstable,
            types=self._types.count,
            sent_events=stats.sent_events,
            sent_bytes=stats.sent_bytes,
            received_events=stats.received_events,
            received_bytes=stats.received_bytes,
            lost=stats.lost,
            complaints=dict(stats.complaints),
        )

    # Parts of it.

    def _claim(self) -> None:
        name = self._settings.bus
        try:
            if self._place.claim():
                return
        except OSError as error:
            what = f"bus {name!r}: the daemon cannot show itself to programs of this host: {error}"
            raise EngineError(what) from error
        shown = find_daemon(name)
        who = "" if shown is None else f": node {shown.node}, process {shown.pid}"
        raise EngineError(
            f"bus {name!r} has a daemon on this host already{who}. Programs use that one; to "
            f"replace it, stop it first: infobus daemon stop --bus {name}"
        )

    def _shown(self, bus: infobus.Bus) -> ShownDaemon:
        return ShownDaemon(
            node=bus.node,
            pid=os.getpid(),
            bus=bus.name,
            version=infobus.__version__,
            wire=(WIRE_MAJOR, WIRE_MINOR),
            since=self._since,
            attach=(self._engine.own_endpoint,),
            endpoints=self._settings.listen,
            is_program=self._is_program,
        )

    def _on_daemon(self, token: str, is_alive: bool) -> None:
        node = token.rpartition("/")[2]
        if is_alive:
            self._daemons.add(node)
            log.info("daemon %s is linked", node)
        else:
            self._daemons.discard(node)
            log.info("daemon %s is gone", node)

    def _on_node(self, token: str, is_alive: bool) -> None:
        node = token.rpartition("/")[2]
        programs = self._programs
        assert programs is not None
        if is_alive:
            programs.came(node)
            self._nodes_came.set()
        else:
            programs.went(node)

    def _on_death(self, node: str) -> None:
        bus = self._bus
        if bus is not None and not self._is_ending.is_set():
            interior(bus).runtime.say_died(node)

    def _stop(self) -> None:
        self._is_ending.set()
        self._nodes_came.set()

    def _run(self) -> None:
        stay_at_s = time.monotonic() + _STAY_S
        while not self._is_ending.is_set():
            self._nodes_came.wait(_LEARN_AGAIN_S)
            self._nodes_came.clear()
            if self._is_ending.is_set():
                return
            self._learn_types()
            if time.monotonic() >= stay_at_s:
                stay_at_s = time.monotonic() + _STAY_S
                self._place.stay()
            self._is_ending.wait(_LEARN_S)

    def _learn_types(self) -> None:
        try:
            self.bus.types(_TYPES_S)
        except BusError as error:
            log.warning("types of other nodes could not be learned: %s", error)
        else:
            self._types.save()


def _engine(settings: Settings) -> ZenohEngine:
    """The engine of a daemon's node, whose session forwards for others."""
    return ZenohEngine(
        settings.bus,
        role=ROUTER,
        listen=settings.listen,
        must_listen=True,
        connect=settings.connect,
        multicast=settings.multicast,
        insecure=settings.insecure,
        patience=settings.patience,
        bounds=settings.bounds,
        config=settings.zenoh,
    )
