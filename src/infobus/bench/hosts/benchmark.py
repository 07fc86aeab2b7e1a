"""`infobus bench hosts`: what it costs that programs are on several hosts. Needs root.

The hosts are network namespaces of this machine (`infobus.testing.hosts`), so bytes are what real
hosts would send, and times lack the cables. Everything is measured without daemons, where each
program has a link to each other one, and with a daemon on each host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import LIGHT, OURS, canvas
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import table_of
from infobus.bench.hosts.measures import PLACES, Idle, Spread, Trip, idle, spread, trips
from infobus.bench.hosts.site import DAEMONS, KINDS, MESH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUBSCRIBERS = (1, 14)
"""On the other host."""
PROGRAMS = (5, 10, 20, 40)
"""On one host, for what they cost while nothing happens."""
COPIES_MAX = 1.1
"""With daemons, many subscribers on a host cost its wire hardly more than one."""
TRIP_MS_MORE = 0.25
"""What a daemon may add to the way there and back between programs of one host."""

_COLORS = {MESH: LIGHT, DAEMONS: OURS}
_NAMES = {MESH: "without daemons", DAEMONS: "with daemons"}

Measured = TypeVar("Measured")
Value = Callable[[Any], float]


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure each thing once, or three times."""
    rounds = 1 if quick else 3
    programs = PROGRAMS[:2] if quick else PROGRAMS
    measures: list[tuple[str, Callable[..., Any], str, int]] = []
    for kind in KINDS:
        measures += [(f"1 to {n}, {_NAMES[kind]}", spread, kind, n) for n in SUBSCRIBERS]
        measures += [(f"there and back, {_NAMES[kind]}", trips, kind, 0)]
        measures += [(f"{n} idle, {_NAMES[kind]}", idle, kind, n) for n in programs]
    found: list[Any] = []
    for done, (what, measure, kind, count) in enumerate(measures * rounds):
        on_step(what, done, rounds * len(measures))
        found += measure(kind, count, quick)
    spreads = [one for one in found if isinstance(one, Spread)]
    idles = [one for one in found if isinstance(one, Idle)]
    round_trips = [one for one in found if isinstance(one, Trip)]
    return Findings(
        name="hosts",
        tables=[_spread_table(spreads), _trip_table(round_trips), _idle_table(idles)],
        values={"spreads": spreads, "trips": round_trips, "idle": idles},
        bars=_bars(spreads, round_trips),
        drawings={
            "hosts-wire": lambda: _wire_figure(spreads),
            "hosts-idle": lambda: _idle_figure(idles),
        },
    )


def _grouped(
    found: Sequence[Measured], key: Callable[[Measured], tuple[str, int | str]]
) -> dict[tuple[str, int | str], list[Measured]]:
    groups: dict[tuple[str, int | str], list[Measured]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return groups


def _middle(found: Sequence[Any], value: Value) -> float:
    return median(value(one) for one in found)


def _rows(
    groups: dict[tuple[str, int | str], list[Any]], *values: tuple[Value, str]
) -> list[list[str]]:
    """A row for each group: its names, and the median of each value in its format."""
    return [
        [_NAMES[kind], str(what), *(format(_middle(ones, of), form) for of, form in values)]
        for (kind, what), ones in groups.items()
    ]


def _spread_table(spreads: Sequence[Spread]) -> Table:
    return table_of(
        "One publisher, and subscribers on another host",
        ["", "subscribers"],
        ["events/s, each", "bytes sent per event"],
        _rows(
            _grouped(spreads, lambda one: (one.kind, one.subscribers)),
            (lambda one: one.events_per_s, ",.0f"),
            (lambda one: one.bytes_per_event, ",.0f"),
        ),
    )


def _trip_table(round_trips: Sequence[Trip]) -> Table:
    return table_of(
        "There and back",
        ["", "between programs of"],
        ["p50 ms", "p99 ms"],
        _rows(
            _grouped(round_trips, lambda one: (one.kind, one.where)),
            (lambda one: one.p50_ms, ".2f"),
            (lambda one: one.p99_ms, ".2f"),
        ),
    )


def _idle_table(idles: Sequence[Idle]) -> Table:
    return table_of(
        "Programs of one host while nothing happens",
        ["", "programs"],
        ["% of a core, all together"],
        _rows(
            _grouped(idles, lambda one: (one.kind, one.programs)),
            (lambda one: 100 * one.cores, ".1f"),
        ),
    )


def _bars(spreads: Sequence[Spread], round_trips: Sequence[Trip]) -> list[Bar]:
    one, many = SUBSCRIBERS
    sent = _grouped(spreads, lambda found: (found.kind, found.subscribers))
    trip = _grouped(round_trips, lambda found: (found.kind, found.where))
    copies = [
        other.bytes_per_event / single.bytes_per_event
        for single, other in zip(sent[DAEMONS, one], sent[DAEMONS, many], strict=True)
    ]
    rates = [
        ours.events_per_s / mesh.events_per_s
        for ours, mesh in zip(sent[DAEMONS, many], sent[MESH, many], strict=True)
    ]
    more_ms = [
        ours.p50_ms - mesh.p50_ms
        for ours, mesh in zip(trip[DAEMONS, PLACES[0]], trip[MESH, PLACES[0]], strict=True)
    ]
    return [
        Bar.over_rounds(f"bytes for {many}, to those for 1", copies, COPIES_MAX, at_least=False),
        Bar.over_rounds(f"events/s, 1 to {many}, daemons to none", rates, 1.0),
        Bar.over_rounds(
            "there and back on a host, more by a daemon",
            more_ms,
            TRIP_MS_MORE,
            at_least=False,
            unit="ms",
        ),
    ]


def _wire_figure(spreads: Sequence[Spread]) -> Figure | None:
    figure = canvas(5.4, 3.4)
    axes = figure.subplots()
    groups = _grouped(spreads, lambda one: (one.kind, one.subscribers))
    for place, kind in enumerate(KINDS):
        heights = [_middle(groups[kind, n], lambda one: one.bytes_per_event) for n in SUBSCRIBERS]
        places = [at + 0.38 * place for at in range(len(SUBSCRIBERS))]
        axes.bar(places, heights, width=0.36, color=_COLORS[kind], label=_NAMES[kind])
    axes.set_xticks(
        [at + 0.19 for at in range(len(SUBSCRIBERS))], [f"1 to {n}" for n in SUBSCRIBERS]
    )
    axes.set_ylabel("bytes that the publisher's host sends per event")
    axes.legend()
    return figure


def _idle_figure(idles: Sequence[Idle]) -> Figure | None:
    figure = canvas(5.4, 3.4)
    axes = figure.subplots()
    groups = _grouped(idles, lambda one: (one.kind, one.programs))
    for kind in KINDS:
        counts = [n for of, n in groups if of == kind]
        cores = [100 * _middle(groups[kind, n], lambda one: one.cores) for n in counts]
        axes.plot(counts, cores, "o-", color=_COLORS[kind], label=_NAMES[kind])
    axes.set_xlabel("programs of one host")
    axes.set_ylabel("% of a core, all together, idle")
    axes.legend()
    return figure
