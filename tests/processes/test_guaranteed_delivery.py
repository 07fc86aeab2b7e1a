"""Real processes, killed at any moment: what `publish` accepted reaches the durable consumer."""

import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.helpers import wait_until
from tests.processes.programs.node import SOURCE

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "20"))

PUBLISHER = """
import infobus, sys
with infobus.connect() as bus, open(sys.argv[1], "a", buffering=1) as accepted:
    number = int(sys.argv[2])
    while True:
        bus.publish("orders.new", {"n": number}, guaranteed=True)
        accepted.write(f"{number}\\n")
        number += 1
"""

CONSUMER = """
import infobus, sys
with infobus.connect() as bus:
    orders = bus.subscribe("orders.>", durable="billing")
    with open(sys.argv[1], "a", buffering=1) as seen:
        for event in orders:
            seen.write(f"{event.sender} {event.number} {event.data['n']}\\n")
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[object]:
    """Start programs on a bus of the test's own; all are killed after it."""
    bus, started = f"test-{uuid.uuid4().hex}", []

    def run(code: str, home: str, *arguments: object) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *map(str, arguments)],
                env={
                    **os.environ,
                    "PYTHONPATH": str(SOURCE),
                    "INFOBUS_BUS": bus,
                    "INFOBUS_HOME": str(tmp_path / home),
                },
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def lines(path: Path) -> list[str]:
    """The whole lines of a file that somebody may be writing."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def wait_until_seen(path: Path, wanted: set[int]) -> list[list[str]]:
    deadline_s = time.monotonic() + 60
    while True:
        entries = [line.split() for line in lines(path)]
        if wanted <= {int(entry[2]) for entry in entries}:
            return entries
        missing = sorted(wanted - {int(entry[2]) for entry in entries})
        assert time.monotonic() < deadline_s, f"{len(missing)} are missing: {missing[:10]} ..."
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_nothing_accepted_is_missing_after_many_kills(run, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    accepted, seen = tmp_path / "accepted", tmp_path / "seen"
    consumer = run(CONSUMER, "office", seen)
    while not seen.exists():
        time.sleep(0.01)  # what is published before its registration is not its own
    publisher = run(PUBLISHER, "shop", accepted, 0)
    for number in range(1, ROUNDS + 1):
        time.sleep(draw.uniform(0.2, 1.2))
        victims = draw.choice(["publisher", "consumer", "both"])
        if victims != "consumer":
            publisher.kill()
            publisher.wait()
            publisher = run(PUBLISHER, "shop", accepted, 1_000_000 * number)
        if victims != "publisher":
            consumer.kill()
            consumer.wait()
            consumer = run(CONSUMER, "office", seen)
    publisher.kill()
    publisher.wait()
    # Somebody of the publisher's home must be there to serve its ledger.
    run("import infobus, time\nbus = infobus.connect()\ntime.sleep(600)", "shop")
    wanted = {int(line) for line in lines(accepted)}
    assert len(wanted) > ROUNDS
    entries = wait_until_seen(seen, wanted)
    for ledger in {entry[0] for entry in entries}:
        # What was not settled when the consumer died has come again; the rest is in order.
        firsts = dict.fromkeys(int(number) for one, number, _ in entries if one == ledger)
        assert list(firsts) == sorted(firsts)
    print(f"{len(wanted)} accepted, {len(entries)} deliveries")


ONE_ORDER = """
import infobus, os, sys
infobus.connect().publish("orders.new", {"n": int(sys.argv[1])}, guaranteed=True)
os._exit(0)
"""

FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
"""


def test_ledgers_of_many_dead_publishers_do_not_pile_up(run, tmp_path: Path) -> None:
    seen, home = tmp_path / "seen", tmp_path / "home"
    consumer = run(FEW_FILES + CONSUMER, "home", seen)
    while not seen.exists():
        time.sleep(0.01)
    for number in range(6):
        assert run(ONE_ORDER, "home", number).wait(60) == 0
        wait_until_seen(seen, {number})

    def another_makes_no_more() -> bool:
        before = len(list(home.rglob("ledgers/*.db")))
        assert run(ONE_ORDER, "home", 6).wait(60) == 0
        return len(list(home.rglob("ledgers/*.db"))) == before

    # A ledger is let go a while after its last event was settled, and the next publisher takes it.
    # How many were made until then depends on how quickly publishers follow each other.
    for _ in range(3):
        wait_until(another_makes_no_more, 60)
    assert consumer.poll() is None


FORKED = """
import infobus, os, sys
bus = infobus.connect()
sub = bus.subscribe("x", durable="d")
bus.publish("x", {"n": 1}, guaranteed=True)
child = os.fork()
if child == 0:
    for use in (lambda: bus.publish("x", {"n": 2}, guaranteed=True), sub.receive):
        try:
            use()
            os._exit(1)
        except infobus.BusClosed:
            pass
    with infobus.connect() as own:
        own.publish("x", {"n": 3}, guaranteed=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert {sub.receive(50).data["n"] for _ in range(2)} == {1, 3}
"""


def test_a_forked_child_has_neither_the_ledger_nor_the_name(run) -> None:
    assert run(FORKED, "home").wait(60) == 0
