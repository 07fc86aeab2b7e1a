"""`infobus bench guaranteed`: what is measured, judged and told."""

import json

import pytest
from typer.testing import CliRunner

from infobus.bench.common.engines import NATS, missing
from infobus.bench.common.rounds import Rounds
from infobus.bench.guaranteed import benchmark as guaranteed
from infobus.bench.guaranteed.benchmark import ALWAYS, BUS, DEFAULT, DISK, LEDGER, SQLITE
from infobus.bench.guaranteed.loads import BATCHES, LOADS, ONE, TASKS, THREADS
from infobus.cli import bench
from infobus.errors import EngineError


def test_all_loads_are_measured_in_one_run(tmp_path):
    found, left_out = guaranteed.measure(tmp_path, rounds=2, turn_s=0.01)
    wanted = {DISK: {ONE}, SQLITE: {ONE, BATCHES}, LEDGER: {ONE, THREADS, BATCHES}, BUS: {*LOADS}}
    if not missing(NATS):
        wanted |= {server: {ONE, TASKS, BATCHES} for server in (ALWAYS, DEFAULT)}
    measured = {engine: {one.load for one in found if one.engine == engine} for engine in wanted}
    assert measured == wanted
    assert all(len(one.values["rate"]) == 2 for one in found)
    assert all(min(one.values["rate"]) > 0 and one.median("p99_s") > 0 for one in found)
    assert bool(left_out) == bool(missing(NATS))


def kept(engine, load, *rates):
    return Rounds(load=load, engine=engine, values={"rate": [*rates], "p99_s": [0.01]})


def test_each_rate_of_the_bus_is_judged_against_single_syncs():
    found = [
        kept(DISK, ONE, 100.0, 50.0, 10.0),
        kept(BUS, ONE, 60.0, 40.0, 8.0),
        kept(BUS, THREADS, 400.0, 200.0, 40.0),
        kept(BUS, TASKS, 500.0, 250.0, 60.0),
    ]
    one, threads, tasks, batches = guaranteed.bars_of(found)
    assert (one.measured, one.spread, one.ok) == (0.8, (0.6, 0.8), True)
    assert (threads.measured, threads.ok) == (4.0, False)
    assert (tasks.measured, tasks.ok) == (5.0, True)
    assert (batches.measured, batches.ok) == (None, None)


@pytest.fixture
def canned(monkeypatch):
    def measure(folder, *, rounds, turn_s, on_step):
        on_step("disk", 0, 1)
        rates = {(DISK, ONE): 100.0, (BUS, ONE): 90.0, (BUS, BATCHES): 3000.0}
        found = [kept(engine, load, rate) for (engine, load), rate in rates.items()]
        return found, {"JetStream": "it cannot be run here"}

    monkeypatch.setattr(guaranteed, "measure", measure)


def test_the_command_prints_the_bars_and_what_was_left_out(canned, tmp_path):
    result = CliRunner().invoke(bench.app, ["guaranteed", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "30.00" in result.output
    assert "JetStream left out: it cannot be run here" in result.output
    numbers = json.loads((tmp_path / "new" / "guaranteed.json").read_text())
    assert [bar["measured"] for bar in numbers["bars"]] == [0.9, None, None, 30.0]


def test_a_server_that_does_not_start_is_left_out(tmp_path, monkeypatch):
    def broken(left_out):
        yield BUS, guaranteed.bus_loads
        yield ALWAYS, no_server

    def no_server(folder):
        raise EngineError("nats-server did not begin to listen")

    monkeypatch.setattr(guaranteed, "engines", broken)
    found, left_out = guaranteed.measure(tmp_path, rounds=1, turn_s=0.01)
    assert {one.engine for one in found} == {BUS}
    assert left_out == {ALWAYS: "nats-server did not begin to listen"}
