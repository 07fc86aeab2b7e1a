"""What the benchmarks of membership make of their measurements; the measuring takes minutes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infobus.bench.common.rounds import ignore_step
from infobus.bench.membership import benchmark, calm, ports
from infobus.bench.membership.benchmark import MembershipCost, ToldFailure


def failures(kind: str, *heartbeats: float) -> list[ToldFailure]:
    return [ToldFailure(kind, one) for one in heartbeats]


def test_ports_that_go_down_count_as_members_that_fail_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        benchmark, "measure_cost", lambda n, h, _: [MembershipCost(n, h, True, 0.01, 400.0)]
    )
    monkeypatch.setattr(
        benchmark, "measure_failures", lambda count, _: failures("leader killed", 1.1, 1.2, 1.3)
    )
    monkeypatch.setattr(ports, "measure_ports", lambda count, _: failures("no port", 3.5))
    monkeypatch.setattr(benchmark, "what_is_missing", lambda: "")
    found = benchmark.run(True, tmp_path, ignore_step)
    assert [(bar.measured, bar.ok) for bar in found.bars] == [(0.75, False)]
    monkeypatch.setattr(benchmark, "what_is_missing", lambda: "network namespaces need root")
    found = benchmark.run(True, tmp_path, ignore_step)
    assert [bar.ok for bar in found.bars] == [True]
    assert list(found.left_out.values()) == ["network namespaces need root"]


def test_who_is_in_no_later_view_was_excluded() -> None:
    def worker(*views: tuple[str, ...]) -> Any:
        told = [(0.0, number, members) for number, members in enumerate(views)]
        return SimpleNamespace(ask=lambda order: told)

    calm_one = worker(("a#0",), ("a#0", "b#0"), ("a#0", "b#0", "c#0"))
    assert calm.excluded(SimpleNamespace(workers={"a": calm_one})) == 0
    lively = worker(("a#0", "b#0"), ("a#0",), ("a#0", "b#1"), ("b#1",))
    assert calm.excluded(SimpleNamespace(workers={"b": calm_one, "a": lively})) == 2
