"""The ways that a node can take, and an engine for each: Zenoh, as a client or as a peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infobus.engines.attached.engine import AttachedEngine, Carrier
from infobus.engines.attached.ways import EMBEDDED, Way
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.rendezvous import find_daemon
from infobus.engines.zenoh.settings import CLIENT
from infobus.patience import Patience


def attached_engine(
    bus: str, attach: tuple[str, ...] = (), *, patience: Patience, **options: Any
) -> AttachedEngine:
    """Return an engine that is on `bus` by the daemon at `attach`, or else by that of this host.

    When there is none, it is on the bus by itself, with the `options` of a `ZenohEngine`; one that
    is about to begin is waited for. If `attach` names endpoints, one of them must answer when it
    opens, unless `patience.reach_s` is 0.
    """

    def make(way: Way) -> Carrier:
        if not way.is_attached:
            return ZenohEngine(bus, patience=patience, **options)
        return ZenohEngine(
            bus,
            role=CLIENT,
            connect=way.endpoints,
            patience=patience,
            bounds=options["bounds"],
            config=options["config"],
        )

    return AttachedEngine(
        make,
        _named(attach) if attach else lambda: _of_host(bus),
        must_attach=bool(attach) and patience.reach_s > 0,
        prepare=lambda: None if attach else find_daemon(bus, patience.reach_s),
        bounds=options["bounds"],
        patience=patience,
    )


def _named(endpoints: tuple[str, ...]) -> Callable[[], tuple[Way, ...]]:
    return lambda: (Way(endpoints), EMBEDDED)


def _of_host(bus: str) -> tuple[Way, ...]:
    shown = find_daemon(bus)
    return (EMBEDDED,) if shown is None else (Way(shown.attach), EMBEDDED)
