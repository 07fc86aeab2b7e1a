"""What the benchmark of hosts makes of its measurements; the measuring itself needs root."""

from __future__ import annotations

from pathlib import Path

import pytest

from infobus.bench.common.rounds import ignore_step
from infobus.bench.hosts import benchmark
from infobus.bench.hosts.measures import Idle, Spread, Trip
from infobus.bench.hosts.site import DAEMONS, MESH


def spread(kind: str, count: int, quick: bool) -> list[Spread]:
    """With daemons one copy for each host, without them one for each program."""
    copies = count if kind == MESH else 1
    rate = 30_000.0 if kind == MESH else 33_000.0
    return [Spread(kind=kind, subscribers=count, events_per_s=rate, bytes_per_event=100.0 * copies)]


def trips(kind: str, count: int, quick: bool) -> list[Trip]:
    p50_ms = 0.2 if kind == MESH else 0.5
    return [Trip(kind=kind, where=where, p50_ms=p50_ms, p99_ms=2.0) for where in benchmark.PLACES]


def idle(kind: str, count: int, quick: bool) -> list[Idle]:
    return [Idle(kind=kind, programs=count, cores=0.001 * count)]


def test_bars_compare_daemons_with_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for measure in (spread, trips, idle):
        monkeypatch.setattr(benchmark, measure.__name__, measure)
    found = benchmark.run(True, tmp_path, ignore_step)
    assert [(round(bar.measured or 0.0, 2), bar.ok) for bar in found.bars] == [
        (1.0, True),  # copies
        (1.1, True),  # events
        (0.3, False),  # there and back
    ]
    assert [table.row_count for table in found.tables] == [4, 4, 4]
    assert all(draw() for draw in found.drawings.values())
    assert {one.kind for one in found.values["idle"]} == {MESH, DAEMONS}
