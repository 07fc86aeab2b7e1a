"""The programs in `examples/` run, each as its page shows it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.world


class Programs:
    """Examples that run on a bus of their own."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            **os.environ,
            "INFOBUS_BUS": f"example-{uuid.uuid4().hex}",
            "INFOBUS_HOME": str(home),
        }
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *command: str, ready: str = "ready") -> subprocess.Popen[str]:
        """Start a program, and wait until it says that it is ready."""
        program = subprocess.Popen(
            [sys.executable, *command],
            cwd=EXAMPLES,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.running.append(program)
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith(ready):
                return program
        raise AssertionError(f"{command} ended before it was ready")

    def run(self, *command: str) -> str:
        """Run a program to its end, and return what it printed."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=EXAMPLES,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    for program in made.running:
        program.kill()
        program.communicate()


def test_objects_of_your_own_classes_arrive_in_another_process(programs: Programs) -> None:
    receiver = programs.start("payload_receiver.py")
    programs.run("payload_sender.py")
    shown, _ = receiver.communicate(timeout=PATIENCE_S)
    order, tick, notes = shown.splitlines()
    assert order.startswith("Order(number=1, side=<Side.BUY: 'buy'>, lines=[Line(sku='bolt', ")
    assert "price=Decimal('1.10')" in order and "tags={'rush'}" in order
    assert tick == "GM Decimal('41.50')" and notes == "hello b'\\x00\\x01'"


def test_an_async_worker_handles_what_waits_when_it_is_told_to_stop(programs: Programs) -> None:
    worker = programs.start("async_worker.py")
    publish = (
        "import infobus\n"
        "with infobus.connect() as bus:\n"
        "    for n in range(5): bus.publish('jobs.new', {'number': n})\n"
    )
    programs.run("-c", publish)
    assert worker.stdout is not None and worker.stdout.readline() == "done 0\n"
    worker.terminate()
    shown, _ = worker.communicate(timeout=PATIENCE_S)
    assert shown.splitlines() == [*(f"done {n}" for n in range(1, 5)), "drained"]
    assert worker.returncode == 0
