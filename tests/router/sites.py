"""Sites in one process: a bus and a router each, linked as a graph says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import msgspec

import infobus
from infobus import Bounds, Bus, Patience
from infobus.bus.bus import interior
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.router.router import Router
from infobus.router.settings import AgreementSettings, NeighbourSettings, RouterSettings
from infobus.subjects import matches

PATIENCE_S = 90.0

# A machine that has much else to do stops this process for a second now and then, and then the
# nodes in it rightly report losses. These tests are not about that.
_TIMES = {"lease_s": 20.0, "sync_s": 20.0, "subscribe_s": 20.0}
_PATIENCE = Patience(**_TIMES)

CHAIN = ["ab", "bc"]
RING = ["ab", "bc", "cd", "da"]
DOUBLE_RING = [*RING, "ef", "fg", "gh", "he", "ae", "bf", "cg", "dh"]
FULL = ["ab", "ac", "ad", "bc", "bd", "cd"]
TREE = ["ab", "ac", "bd", "be", "cf"]


def eventually(is_so: Callable[[], Any], what: str = "") -> None:
    """Wait until something is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, what or "it did not happen"
        time.sleep(0.01)


class Sites:
    """Sites `a`, `b`, ... of which those named by a pair are neighbours."""

    def __init__(self, links: Iterable[str], bytes_per_s: float | None = None) -> None:
        self.bytes_per_s = bytes_per_s
        self.links = list(links)
        self.run = uuid.uuid4().hex[:8]
        self.ends = ExitStack()
        self.routers: dict[str, Router] = {}
        self.buses: dict[str, Bus] = {}

    def __enter__(self) -> Sites:
        return self

    def __exit__(self, *exception: object) -> None:
        self.ends.close()

    def names(self) -> list[str]:
        return sorted({name for pair in self.links for name in pair})

    def neighbours(self, name: str) -> list[str]:
        pairs = [pair for pair in self.links if name in pair]
        return sorted(pair.replace(name, "", 1) for pair in pairs)

    def settings(self, name: str, *agreements: dict[str, Any], **more: Any) -> RouterSettings:
        return RouterSettings(
            name=self.called(name),
            inside=f"{self.run}-{name}",
            backbone=f"{self.run}-backbone",
            listen=("tcp/127.0.0.1:0",),  # not used: these links are in memory
            neighbour=tuple(
                NeighbourSettings(self.called(one), bytes_per_s=self.bytes_per_s)
                for one in self.neighbours(name)
            ),
            agreement=tuple(msgspec.convert(one, AgreementSettings) for one in agreements),
            patience=_TIMES,
            **more,
        )

    def called(self, name: str) -> str:
        return f"{name}-{self.run}"

    def bus(self, name: str, **options: Any) -> Bus:
        """A program on the bus of a site."""
        options = {"engine": "memory", "patience": _PATIENCE, **options}
        bus = infobus.connect(f"{self.run}-{name}", **options)
        return self.ends.enter_context(bus)

    def start(
        self,
        name: str,
        *agreements: dict[str, Any],
        site: str = "",
        bounds: Bounds | None = None,
        **more: Any,
    ) -> Router:
        """Start a router, on the bus of its own site or of another one."""
        inside = self.bus(site or name, bounds=bounds)
        links = MemoryEngine(live_network(f"{self.run}-links"))
        router = Router(self.settings(name, *agreements, **more), inside=inside, links=links)
        self.routers[name] = self.ends.enter_context(router)
        self.buses[name] = self.bus(site or name)
        return router

    def start_all(self, *agreements: dict[str, Any]) -> None:
        """The same agreements everywhere."""
        for name in self.names():
            self.start(name, *agreements)
        self.until_linked()

    def until_linked(self) -> None:
        """Until each router knows all others."""
        for router in self.routers.values():
            eventually(lambda r=router: len(r.status().routers) == len(self.routers) - 1)

    def until_wanted(self, name: str, subject: str, by: str) -> None:
        """Until exactly these sites want a subject of this one, and its programs know."""
        router, program = self.routers[name], interior(self.buses[name]).runtime
        expected = [self.called(one) for one in sorted(by)]
        eventually(
            lambda: sorted(one.name for one in router.paths(subject).wanted_by) == expected,
            f"{subject} is not wanted by {by}",
        )

        def is_told() -> bool:
            with program.lock:
                record = program.node.rows.records.get(router.inside.node)
                rows = [] if record is None else record.all_rows()
            return any(matches(pattern, subject) for pattern, _ in rows) == bool(by)

        eventually(is_told, f"{subject} is not wanted on the bus")


def received(subscription: Any, count: int) -> list[Any]:
    """The data of so many events."""
    return [subscription.receive(timeout_s=PATIENCE_S).data for _ in range(count)]


def is_quiet(subscription: Any) -> bool:
    """Whether nothing more comes for a moment."""
    try:
        subscription.receive(timeout_s=0.2)
    except TimeoutError:
        return True
    return False
