"""`infobus bench qos`: what is measured, judged, drawn and told."""

import json

import pytest
from typer.testing import CliRunner

from infobus.bench.qos import benchmark as qos
from infobus.bench.qos.benchmark import FloodTimes
from infobus.bench.qos.workers import FloodLoad
from infobus.cli import bench


@pytest.mark.parametrize("load", qos.LOADS, ids=lambda load: load.name)
def test_every_emergency_arrives_and_is_timed(load, monkeypatch):
    monkeypatch.setattr(qos, "SETTLE_S", 0.2)
    found = qos.measure(load, seconds=0.6)
    assert found.missing == 0
    assert len(found.calm_s) == len(found.flood_s) == 60
    assert len(found.busy_s) == (0 if load.slow else 60)
    assert min(found.calm_s + found.flood_s + found.regular_s) > 0
    assert found.regular_per_s > 0


def canned(load, calm_s, flood_s, missing=0):
    times = {"calm_s": [calm_s] * 10, "busy_s": [], "flood_s": [flood_s] * 10}
    return FloodTimes(load=load, **times, regular_s=[1.0], regular_per_s=500.0, missing=missing)


def test_the_bar_is_three_times_the_calm_p99_or_20_ms():
    quick, slow = FloodLoad(together=False, slow=False), FloodLoad(together=False, slow=True)
    found = [
        canned(quick, 0.002, 0.019),
        canned(quick, 0.002, 0.021),
        canned(quick, 0.002, 0.018),
        canned(slow, 0.010, 0.031),
    ]
    relative, absolute, arrived = (*reversed(qos.bars_of(found)[:2]), qos.bars_of(found)[2])
    assert (absolute.measured, absolute.bar, absolute.ok) == (19.0, 20.0, True)
    assert absolute.spread == (18.0, 21.0)
    assert not absolute.is_sure
    assert (relative.measured, relative.bar, relative.ok) == (31.0, 30.0, False)
    assert (arrived.measured, arrived.ok) == (0, True)


def test_an_emergency_that_is_missing_breaks_a_bar():
    found = [canned(qos.LOADS[0], 0.001, 0.001, missing=1)]
    assert [bar.ok for bar in qos.bars_of(found)] == [True, False]


def test_the_command_prints_the_bars_and_writes_numbers_and_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(qos, "measure", lambda load, *, seconds: canned(load, 0.001, 0.005))
    out = tmp_path / "new"
    result = CliRunner().invoke(bench.app, ["qos", "--quick", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "1.0 / 1.0" in result.output
    assert "5.0 / 5.0" in result.output
    numbers = json.loads((out / "qos.json").read_text())
    assert len(numbers["found"]) == len(qos.LOADS)
    assert (out / "qos-latency.svg").stat().st_size > 1000


def test_nothing_measured_is_not_drawn():
    assert qos.latency_figure([]) is None
