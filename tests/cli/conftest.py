"""Commands in this process, and nodes that do not take each other for dead when they are slow."""

import io
import sys
import uuid

import pytest

import infobus
from infobus.cli.main import main
from tests.patience import make_programs_patient


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    make_programs_patient(monkeypatch)


@pytest.fixture
def bus(tmp_path):
    """A node on a bus of the test's own, in this process."""
    with infobus.connect(f"test-{uuid.uuid4().hex}", home=tmp_path) as bus:
        yield bus


@pytest.fixture
def run(bus, monkeypatch, capsys):
    """Run a command on the bus, in this process; returns exit code, standard output and error."""
    monkeypatch.setenv("INFOBUS_BUS", bus.name)
    monkeypatch.setenv("INFOBUS_HOME", str(bus.home))
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["infobus", *arguments])
        piped = io.TextIOWrapper(io.BytesIO(stdin.encode())) if stdin else io.StringIO()
        monkeypatch.setattr(sys, "stdin", piped)
        with pytest.raises(SystemExit) as exit:
            main()
        return exit.value.code or 0, *capsys.readouterr()

    return run
