"""`infobus bench` as a user runs it, with the measuring replaced by canned numbers."""

import pytest
import typer
from typer.testing import CliRunner

from infobus.bench.pubsub import benchmark
from infobus.cli.bench import command
from tests.bench.canned import canned_run


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(
        benchmark, "measure", lambda scenario, repetition, seconds: canned_run(scenario, repetition)
    )
    monkeypatch.setattr(benchmark, "import_seconds", lambda: 0.1)
    app = typer.Typer()
    app.command()(command)
    return app


def test_a_quick_run_prints_the_bars_and_writes_the_numbers(app, tmp_path):
    result = CliRunner().invoke(app, ["--quick", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "Bars" in result.output
    assert (tmp_path / "new" / "bench.json").exists()


def test_each_thing_is_measured_as_often_as_asked(app, tmp_path, monkeypatch):
    heard = []

    def measure(scenario, repetition, seconds):
        heard.append((scenario, repetition))
        return canned_run(scenario, repetition)

    monkeypatch.setattr(benchmark, "measure", measure)
    result = CliRunner().invoke(app, ["--quick", "--repeat", "2", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(heard) == len(set(heard))
    assert {repetition for _, repetition in heard} == {0, 1}
