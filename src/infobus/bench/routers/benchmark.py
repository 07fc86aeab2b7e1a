"""`infobus bench routers`: what a backbone of many sites costs, in a simulation of the routers.

The machines are those that ship; time is virtual. Each site wants ten channels of its own and two
that all want. Numbers are of tables and greetings alone: events go where they are wanted.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from rich.table import Table

from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import GREY, OURS, THEIRS, canvas
from infobus.bench.common.rounds import OnStep, ignore_step
from infobus.bench.common.tables import table_of
from infobus.bench.routers.backbone import (
    DELAY_S,
    LOCAL_COUNT,
    SHARED_COUNT,
    TOPOLOGIES,
    Backbone,
)
from infobus.protocols.frames.routing import RouterTable, decode, encode
from infobus.protocols.routing.paths import Paths, links_of
from infobus.protocols.routing.router import Router
from infobus.protocols.routing.tables import Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SITES = (50, 100, 200, 1000)
QUICK_SITES = (25, 50)
COLD_SITES_MAX = 200
"""Larger backbones do not begin from nothing: each router is handed the tables of all others."""
_IDLE_S = 2.0


class Change(Struct, frozen=True):
    """What one change costs all routers together, and when the last one knows."""

    messages: int
    bytes: int
    seconds: float


class BackboneCost(Struct, frozen=True):
    """What one backbone costs."""

    topology: str
    sites: int
    links: int
    hops_max: int
    rows: int  # that each router holds
    memory: int  # bytes that they take
    paths_s: float  # processor time to find all paths anew, at one router
    idle_messages: float  # a second and router
    idle_bytes: float
    start: Change | None
    declared: Change
    link_cut: Change | None  # a tree has no other way
    router_died: Change


def run(quick: bool, out: Path, on_step: OnStep = ignore_step) -> Findings:
    """Measure all topologies in all sizes."""
    sizes = QUICK_SITES if quick else SITES
    plan = [(name, sites) for name in TOPOLOGIES for sites in sizes]
    costs = []
    for done, (name, sites) in enumerate(plan):
        on_step(f"{name}, {sites} sites", done, len(plan))
        costs.append(measure(name, sites))
    return Findings(
        name="routers",
        tables=[_standing_table(costs), _change_table(costs)],
        values={"costs": [msgspec.to_builtins(cost) for cost in costs]},
        notes=[
            f"Each site wants {LOCAL_COUNT} channels of its own and {SHARED_COUNT} that all want. "
            f"Links take {1000 * DELAY_S:.0f} ms one way. Seconds are virtual, except for paths."
        ],
        drawings={"routers": lambda: _figure(costs)},
    )


def measure(topology: str, sites: int) -> BackboneCost:
    """Let one backbone begin, rest, and change three times."""
    links = TOPOLOGIES[topology](sites)
    backbone = Backbone(sites, links)
    start = None
    if sites <= COLD_SITES_MAX:
        start = _counted(backbone, backbone.begin)
    else:
        backbone.begin_at_rest()
    backbone.advance(1.0)
    greeted, greeted_bytes = backbone.greetings, backbone.greeting_bytes
    backbone.advance(_IDLE_S)
    idle = (backbone.greetings - greeted) / _IDLE_S / sites
    idle_bytes = (backbone.greeting_bytes - greeted_bytes) / _IDLE_S / sites
    first = backbone.routers["site0"]
    rows = sum(len(held.entries) for held in first.tables.tables.values())
    memory = _memory(first)
    told = {name: held.neighbours for name, held in first.tables.tables.items()}
    began_s = time.process_time()
    paths = Paths("site0", links_of(told))
    paths_s = time.process_time() - began_s
    hops_max = max(max(router.paths.distances.values()) for router in backbone.routers.values())
    last = f"site{sites - 1}"
    declared = _counted(backbone, lambda: backbone.declare(last, "one/more"))
    link_cut = None
    if len(links) >= sites:
        link_cut = _counted(backbone, lambda: backbone.cut("site1", "site2"))
    router_died = _counted(backbone, lambda: backbone.remove(last))
    assert len(paths.distances) == sites
    return BackboneCost(
        *(topology, sites, len(links), hops_max, rows, memory, paths_s, idle, idle_bytes),
        *(start, declared, link_cut, router_died),
    )


def _memory(router: Router) -> int:
    """The bytes that the tables of a router take in a process of their own."""
    frames = [
        encode(held.as_frame("neighbour", origin))
        for origin, held in router.tables.tables.items()
        if origin != router.own
    ]
    gc.collect()
    tracemalloc.start()
    tables = Tables(router.own, "", "")
    for frame in frames:
        table = decode(frame)
        assert isinstance(table, RouterTable)
        tables.take(table, 0.0)
    del table
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return memory


def _counted(backbone: Backbone, act: Callable[[], None]) -> Change:
    messages, size = backbone.messages, backbone.bytes
    act()
    seconds = backbone.settle()
    backbone.advance(0.5)  # what is still under way tells nobody anything new
    return Change(backbone.messages - messages, backbone.bytes - size, seconds)


def _standing_table(costs: list[BackboneCost]) -> Table:
    return table_of(
        "Each router of a backbone, at rest",
        ("topology",),
        ("sites", "links", "hops at most", "rows", "MB", "ms to find paths", "messages/s", "kB/s"),
        [
            (
                cost.topology,
                f"{cost.sites:,}",
                f"{cost.links:,}",
                str(cost.hops_max),
                f"{cost.rows:,}",
                f"{cost.memory / 1e6:.2f}",
                f"{1000 * cost.paths_s:.1f}",
                f"{cost.idle_messages:.1f}",
                f"{cost.idle_bytes / 1000:.1f}",
            )
            for cost in costs
        ],
        grouped=True,
    )


def _change_table(costs: list[BackboneCost]) -> Table:
    rows = []
    for cost in costs:
        changes = {
            "all begin at once": cost.start,
            "one subscribes": cost.declared,
            "a link breaks": cost.link_cut,
            "a router dies": cost.router_died,
        }
        rows += [
            (
                f"{cost.topology}, {cost.sites:,}",
                what,
                f"{change.messages:,}",
                f"{change.bytes / 1000:,.0f}",
                f"{change.seconds:.3f}",
            )
            for what, change in changes.items()
            if change is not None
        ]
    return table_of(
        "What a change costs all routers together",
        ("backbone", "change"),
        ("messages", "kB", "s until all know"),
        rows,
        grouped=True,
    )


def _figure(costs: list[BackboneCost]) -> Figure:
    figure = canvas(7.2, 3.4)
    messages, seconds = figure.subplots(1, 2)
    for topology, colour in zip(TOPOLOGIES, (OURS, THEIRS, GREY), strict=True):
        of = [cost for cost in costs if cost.topology == topology]
        sites = [cost.sites for cost in of]
        messages.plot(sites, [c.declared.messages for c in of], "o-", color=colour, label=topology)
        seconds.plot(sites, [c.declared.seconds for c in of], "o-", color=colour)
    messages.set(xlabel="sites", ylabel="messages, all routers", title="One site subscribes")
    seconds.set(
        xlabel="sites", ylabel="s until all know", title=f"Links of {1000 * DELAY_S:.0f} ms"
    )
    messages.legend()
    return figure
