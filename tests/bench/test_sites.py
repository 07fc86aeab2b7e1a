"""What the benchmark of sites makes of its measurements; the measuring itself needs root."""

from __future__ import annotations

from pathlib import Path

import pytest

from infobus.bench.common.rounds import ignore_step
from infobus.bench.sites import benchmark
from infobus.bench.sites.measures import (
    DIRECT,
    FROZEN,
    KILLED,
    ChainRate,
    FailoverPause,
    InterestDelay,
    SiteTraffic,
    SiteTrip,
)


def traffic(interested: int, quick: bool) -> list[SiteTraffic]:
    return [
        SiteTraffic(
            interested=interested, links=interested, bytes_per_event=90.0 * interested, load=1
        )
    ]


def rate(routers: int, quick: bool) -> list[ChainRate]:
    where = f"chain of {routers} routers" if routers else DIRECT
    cpu_us = {0: 0.0, 2: 10.0, 5: 5.0}[routers]
    return [ChainRate(where=where, events_per_s=20_000.0, cpu_us_per_router=cpu_us, load=1)]


def trips(routers: int, quick: bool) -> list[SiteTrip]:
    return [SiteTrip(where=str(routers), p50_ms=0.25 + routers, p99_ms=9.0, load=1)]


def reach(routers: int, quick: bool) -> list[InterestDelay]:
    return [InterestDelay(routers=routers, p50_ms=20.0, most_ms=200.0, load=1)]


def failover(count: int, quick: bool) -> list[FailoverPause]:
    found = (KILLED, 90.0), (FROZEN, 1_500.0)
    return [FailoverPause(how=how, count=4, p50_ms=40.0, p95_ms=ms, load=1) for how, ms in found]


def test_bars_are_those_of_sites_joined_by_routers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for measure in (traffic, rate, trips, reach, failover):
        monkeypatch.setattr(benchmark, measure.__name__, measure)
    found = benchmark.run(True, tmp_path, ignore_step)
    assert [(bar.measured, bar.ok) for bar in found.bars] == [
        (0.0, True),  # bytes without interest
        (1.0, True),  # links for one interested site
        (20_000.0, False),  # events/s
        (2.0, False),  # there and back, more than direct
        (0.5, True),  # processor time, five routers to two
        (20.0, True),  # interest
        (90.0, True),  # killed
        (1_500.0, False),  # frozen
    ]
    assert found.tables[0].row_count == 4 + 5 + 4 + 2 + 4
