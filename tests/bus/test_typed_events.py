"""What a type checker knows of an event's object."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
from dataclasses import dataclass

import infobus


@dataclass
class Order:
    total: int


def typed(event: infobus.Event[Order]) -> None:
    print(event.data.total, event.data.totl)


def untyped(event: infobus.Event) -> None:
    print(event.data.anything)


with infobus.connect("typed") as bus:
    sub = bus.subscribe("a", type=Order, where="total > 1")
    print(sub.receive(1).data.total, sub.receive(1).data.totl)
    for event in sub:
        print(event.data.totl)
    bus.subscribe("a", typed, type=Order)
    bus.subscribe("a", untyped)
    print(next(bus.subscribe("a")).data.anything)
    print(next(bus.subscribe("a", type=Order | str)).data.anything)
"""


def test_a_type_checker_knows_the_object_of_a_typed_subscription(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program],
        cwd=SOURCE.parent,  # with the settings and the cache of the project
        env={"MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    wrong = [number for number, line in enumerate(PROGRAM.split("\n"), 1) if "data.totl" in line]
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in found] == wrong, done.stdout + done.stderr
    assert all('"Order" has no attribute "totl"' in line for line in found)
