"""`infobus bench call`: what is measured, judged and told."""

import json

import pytest
from typer.testing import CliRunner

from infobus.bench.calls import benchmark as calls
from infobus.bench.calls.benchmark import LOADS, OUTSTANDING, SINGLE
from infobus.bench.calls.peers import ENGINES
from infobus.bench.common.engines import GRPC, INFOBUS, NATS, ZENOH, missing
from infobus.bench.common.rounds import Rounds
from infobus.cli import bench


@pytest.mark.slow
def test_all_engines_are_measured_in_one_run():
    found, (held, held_s), left_out = calls.measure(rounds=1, turn_s=0.1, outstanding=100)
    engines = [engine for engine in ENGINES if not missing(engine)]
    expected = {(engine, load) for engine in engines for load in LOADS}
    assert {(one.engine, one.load) for one in found} == expected, left_out
    assert all(one.values["p50_s"][0] > 0 and one.values["rate"][0] > 0 for one in found)
    assert (held, held_s > 0) == (100, True)
    assert set(left_out) == set(ENGINES) - set(engines)


def found(engine, *p50s_s):
    values = {"p50_s": [*p50s_s], "p99_s": [*p50s_s], "rate": [1.0]}
    return Rounds(load=SINGLE, engine=engine, values=values)


def test_the_round_trip_is_judged_against_the_others_of_the_same_round():
    measured = [found(INFOBUS, 2.0, 4.0, 6.0), found(ZENOH, 2.0, 2.0, 6.0), found(NATS, 4, 4, 4)]
    zenoh, nats, grpc, held = calls.bars_of(measured, OUTSTANDING)
    assert (zenoh.measured, zenoh.spread, zenoh.ok) == (1.0, (1.0, 2.0), True)
    assert (nats.measured, nats.ok) == (1.0, True)
    assert (grpc.what, grpc.measured, grpc.ok) == (f"p50 of a call / {GRPC}", None, None)
    assert held.ok


def test_a_call_that_was_lost_fails_its_bar():
    assert calls.bars_of([], OUTSTANDING - 1)[-1].ok is False


def test_the_command_tells_and_writes_what_was_found(monkeypatch, tmp_path):
    def measure(*, rounds, turn_s, on_step):
        on_step("infobus", 0, 1)
        measured = [found(INFOBUS, 0.0003), found(ZENOH, 0.0004), found(NATS, 0.0005)]
        return measured, (OUTSTANDING, 2.0), {GRPC: "it is not installed"}

    monkeypatch.setattr(calls, "measure", measure)
    result = CliRunner().invoke(bench.app, ["call", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "10,000 calls were outstanding at once" in result.output
    assert "grpc left out: it is not installed" in result.output
    report = json.loads((tmp_path / "new" / "calls.json").read_bytes())
    assert report["bars"][0]["measured"] == pytest.approx(0.75)
    assert (tmp_path / "new" / "calls.svg").exists()
