"""`infobus bench sites`: what it costs that sites are joined by routers. Needs root.

The sites are network namespaces of this machine (`infobus.testing.hosts`), each with a bus and a
router of its own. All of them share its processors, so a rate through a chain is that of the whole
chain on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import table_of
from infobus.bench.sites.measures import (
    ChainRate,
    FailoverPause,
    InterestDelay,
    SiteTraffic,
    SiteTrip,
    failover,
    rate,
    reach,
    traffic,
    trips,
)

CHAIN = 5
REACH = 6
"""Routers in a row: the last one is five away from the first."""
RATE_MIN, TRIP_MS_MORE, CPU_MAX, REACH_MS_MAX, GAP_MS_MAX = 50_000.0, 1.0, 1.1, 100.0, 1_000.0

One = TypeVar("One")


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure each thing once; the load of the machine stands beside each."""
    measures: list[tuple[str, Callable[..., Any], int]] = [
        ("nobody interested", traffic, 0),
        ("one site of ten", traffic, 1),
        ("events, direct", rate, 0),
        ("events, two routers", rate, 2),
        (f"events, {CHAIN} routers", rate, CHAIN),
        ("there and back, direct", trips, 0),
        ("there and back, two routers", trips, 2),
        ("interest", reach, REACH),
        ("a transit fails", failover, 4),
    ]
    found: list[Any] = []
    for done, (what, measure, count) in enumerate(measures):
        on_step(what, done, len(measures))
        found += measure(count, quick)
    return Findings(
        name="sites",
        tables=[
            table_of(
                "Sites joined by routers",
                ["what", "where"],
                ["found", "load"],
                [row for one in found for row in _rows(one)],
            )
        ],
        values={"found": found},
        bars=_bars(found),
        notes=["load: programs of this machine that had work, in the minute before."],
    )


def _rows(one: Any) -> list[list[str]]:
    match one:
        case SiteTraffic():
            where = f"{one.interested} of 10 sites interested"
            rows = [
                ["links that carry events", where, str(one.links)],
                ["bytes per event, on all links", where, f"{one.bytes_per_event:,.0f}"],
            ]
        case ChainRate():
            rows = [["events/s", one.where, f"{one.events_per_s:,.0f}"]]
            if one.cpu_us_per_router:
                cpu = f"{one.cpu_us_per_router:,.1f}"
                rows.append(["us of a processor, per event and router", one.where, cpu])
        case SiteTrip():
            rows = [["there and back, p50 ms", one.where, f"{one.p50_ms:.2f}"]]
            rows.append(["there and back, p99 ms", one.where, f"{one.p99_ms:.2f}"])
        case InterestDelay():
            where = f"{one.routers - 1} routers away"
            rows = [
                ["interest is known, p50 ms", where, f"{one.p50_ms:.1f}"],
                ["interest is known, at most, ms", where, f"{one.most_ms:.1f}"],
            ]
        case FailoverPause():
            where = f"a transit {one.how}, {one.count} times"
            rows = [
                ["pause, p50 ms", where, f"{one.p50_ms:,.0f}"],
                ["pause, p95 ms", where, f"{one.p95_ms:,.0f}"],
            ]
        case _:
            raise TypeError(f"no rows for {one!r}")
    return [[*row, f"{one.load:.1f}"] for row in rows]


def _bars(found: Sequence[Any]) -> list[Bar]:
    nobody, one_site = _of(found, SiteTraffic)
    _, two, chain = _of(found, ChainRate)
    direct, by_routers = _of(found, SiteTrip)
    [reached] = _of(found, InterestDelay)
    cpu = chain.cpu_us_per_router / two.cpu_us_per_router
    more_ms = by_routers.p50_ms - direct.p50_ms
    return [
        _at_most("bytes of events, nobody interested", nobody.bytes_per_event, 0.0, "B"),
        _at_most("links with events, one site of ten interested", one_site.links, 1.0, ""),
        Bar(what="by two routers", measured=two.events_per_s, bar=RATE_MIN, unit="events/s"),
        _at_most("there and back, more by two routers", more_ms, TRIP_MS_MORE, "ms"),
        _at_most(f"processor per event and router, {CHAIN} to 2", cpu, CPU_MAX, "x"),
        _at_most("interest, five routers away", reached.p50_ms, REACH_MS_MAX, "ms"),
        *(
            _at_most(f"pause when a transit is {one.how}, p95", one.p95_ms, GAP_MS_MAX, "ms")
            for one in _of(found, FailoverPause)
        ),
    ]


def _of(found: Sequence[Any], kind: type[One]) -> list[One]:
    return [one for one in found if isinstance(one, kind)]


def _at_most(what: str, measured: float, bar: float, unit: str) -> Bar:
    return Bar(what=what, measured=measured, bar=bar, at_least=False, unit=unit)
