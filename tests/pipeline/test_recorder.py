"""The journal's consumer: what is published is in the journal, and guaranteed events are once."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import infobus
from infobus import DataObject
from infobus.errors import StoreFull
from infobus.pipeline.recorder import Recorder
from infobus.stores.journal.journal import Journal, JournalWriter
from tests.cli.running import Shell
from tests.objects.worlds import another_process

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "20"))


class Tick(DataObject, name="recorder.Tick"):
    n: int


class Tock(Tick, name="recorder.Tock"):
    at: float = 0.0


class Clock(DataObject, name="recorder.Clock"):
    tock: Tick


@pytest.fixture
def bus(tmp_path):
    name = f"test-{uuid.uuid4().hex}"
    with infobus.connect(name, engine="memory", home=tmp_path / "home") as bus:
        yield bus


@contextlib.contextmanager
def recording(bus, folder, *patterns, **options):
    """Record while the block runs; afterwards everything is in the journal."""
    recorder = Recorder(bus, patterns or ["ticks.>"], folder, linger_s=0.01, **options)
    thread = threading.Thread(target=recorder.run)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.stop()
        thread.join(60)


def wait_for(recorder, count):
    deadline_s = time.monotonic() + 60
    while recorder.progress.events < count:
        assert time.monotonic() < deadline_s, recorder.progress
        time.sleep(0.005)


def numbers(folder) -> list[int]:
    return [one.data.n if isinstance(one.data, Tick) else one.data["n"] for one in read(folder)]


def read(folder):
    return list(Journal.open(folder).select().events())


def test_what_is_published_is_in_the_journal_in_order(bus, tmp_path):
    with recording(bus, tmp_path / "j") as recorder:
        bus.publish_many(("ticks.a", Tick(n=n)) for n in range(500))
        bus.publish("other.a", Tick(n=-1))
        wait_for(recorder, 500)
    assert numbers(tmp_path / "j") == list(range(500))


def test_guaranteed_events_are_there_once_although_they_come_twice(bus, tmp_path):
    with recording(bus, tmp_path / "j") as recorder:
        for n in range(0, 20, 2):
            bus.publish("ticks.a", Tick(n=n), guaranteed=True)
            bus.publish("ticks.a", {"n": n + 1}, guaranteed=True)
        bus.publish_many([("ticks.b", Tick(n=n)) for n in range(20, 25)], guaranteed=True)
        bus.publish("ticks.a", {"n": 100})
        wait_for(recorder, 26)
    assert sorted(numbers(tmp_path / "j")) == [*range(25), 100]
    guaranteed = [one for one in read(tmp_path / "j") if one.sender != bus.node]
    assert [one.number for one in guaranteed] == list(range(1, 26))


def test_what_was_guaranteed_while_it_was_away_comes_when_it_is_back(bus, tmp_path):
    with recording(bus, tmp_path / "j") as recorder:
        bus.publish("ticks.a", {"n": 0}, guaranteed=True)
        wait_for(recorder, 1)
    bus.publish("ticks.a", {"n": 1}, guaranteed=True)
    bus.publish("ticks.a", {"n": 99})  # nobody listens
    with recording(bus, tmp_path / "j") as recorder:
        wait_for(recorder, 1)
    assert numbers(tmp_path / "j") == [0, 1]


def test_an_event_that_is_in_the_journal_but_not_acknowledged_is_not_added_again(
    bus, tmp_path, monkeypatch
):
    from infobus.bus.durable.subscription import DurableEvent

    with monkeypatch.context() as patch:
        patch.setattr(DurableEvent, "ack", lambda self: None)  # as if it had died just then
        with recording(bus, tmp_path / "j") as recorder:
            bus.publish("ticks.a", {"n": 0}, guaranteed=True)
            wait_for(recorder, 1)
    with recording(bus, tmp_path / "j") as recorder:
        bus.publish("ticks.a", {"n": 1}, guaranteed=True)
        wait_for(recorder, 1)
    assert numbers(tmp_path / "j") == [0, 1]


def test_the_parts_of_a_transaction_are_committed_together(bus, tmp_path):
    with recording(bus, tmp_path / "j", "ticks.>", "others.>") as recorder:
        for guaranteed in (False, True):
            with bus.transaction(guaranteed=guaranteed) as tx:
                tx.publish("ticks.a", Tick(n=1))
                tx.publish("others.a", {"n": 2})
                tx.publish("elsewhere.a", {"n": 3})
        wait_for(recorder, 4)
    assert sorted(numbers(tmp_path / "j")) == [1, 1, 2, 2]


@pytest.mark.parametrize("is_gone", [False, True])
def test_guaranteed_events_keep_their_class(tmp_path, is_gone):
    name, home = f"test-{uuid.uuid4().hex}", tmp_path / "home"
    with infobus.connect(name, engine="memory", home=home) as bus:
        with recording(bus, tmp_path / "j") as recorder:
            if not is_gone:
                publish_classes(bus)
                wait_for(recorder, 3)
        if is_gone:
            publish_classes(bus)
    if is_gone:
        with (
            infobus.connect(name, engine="memory", home=home) as bus,
            recording(bus, tmp_path / "j") as recorder,
        ):
            wait_for(recorder, 3)
    found = sorted((one.data["n"], one.priority) for one in read(tmp_path / "j"))
    assert found == [(0, "regular"), (1, "emergency"), (2, "business")]


def publish_classes(bus):
    bus.publish("ticks.a", {"n": 0}, guaranteed=True)
    bus.publish("ticks.a", {"n": 1}, guaranteed=True, priority="emergency")
    with bus.transaction(guaranteed=True, priority="business") as tx:
        tx.publish("ticks.a", {"n": 2})


def test_types_of_a_publisher_that_is_gone_are_known(tmp_path):
    name, home = f"test-{uuid.uuid4().hex}", tmp_path / "home"
    with infobus.connect(name, engine="memory", home=home) as bus:
        with recording(bus, tmp_path / "j"):
            pass
        bus.publish("ticks.a", Tick(n=0), guaranteed=True)
        bus.publish("ticks.a", Tock(n=1, at=2.0), guaranteed=True)
        with bus.transaction(guaranteed=True) as tx:
            tx.publish("ticks.a", Tock(n=2, at=3.0))
            tx.publish("ticks.a", Clock(tock=Tock(n=3)))
    with (
        another_process(),
        infobus.connect(name, engine="memory", home=home) as bus,
        recording(bus, tmp_path / "j") as recorder,
    ):
        wait_for(recorder, 4)
    with another_process():
        journal = Journal.open(tmp_path / "j")
        assert [one.data.n for one in journal.select("recorder.Tick").events()] == [0, 1, 2]
        assert [one.data.at for one in journal.select("recorder.Tock").events()] == [2.0, 3.0]
        (clock,) = journal.select("recorder.Clock").events()
        assert infobus.type_of(clock.data.tock).is_subtype_of("recorder.Tick")


def test_a_filter_and_test_events(bus, tmp_path):
    with recording(bus, tmp_path / "j", where="n > 1", test=True) as recorder:
        for n in range(4):
            bus.publish("ticks.a", {"n": n}, test=True)
        wait_for(recorder, 2)
    assert [(one.data["n"], one.test) for one in read(tmp_path / "j")] == [(2, True), (3, True)]


def test_without_room_it_waits_and_loses_nothing(bus, tmp_path, monkeypatch):
    append, refusals = JournalWriter.append, iter(range(3))

    def full(self, *arguments, **options):
        if next(refusals, None) is not None:
            raise StoreFull("no room", path="x")
        return append(self, *arguments, **options)

    monkeypatch.setattr(JournalWriter, "append", full)
    with recording(bus, tmp_path / "j", retry_s=0.01) as recorder:
        bus.publish("ticks.a", {"n": 0}, guaranteed=True)
        bus.publish("ticks.a", {"n": 1})
        wait_for(recorder, 2)
    assert sorted(numbers(tmp_path / "j")) == [0, 1]


PUBLISHER = """
import infobus, sys, time
with infobus.connect() as bus, open(sys.argv[1], "a", buffering=1) as accepted:
    number = int(sys.argv[2])
    while True:
        events = [("orders.new", {"n": number + i}) for i in range(3)]
        bus.publish_many(events, guaranteed=True)
        accepted.write(f"{number + 2}\\n")
        number += 3
        time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.timeout(90 + 15 * ROUNDS)
def test_killed_at_any_moment_no_guaranteed_event_is_lost_or_doubled(tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    shell = Shell(tmp_path)
    folder, accepted = tmp_path / "journal", tmp_path / "accepted"

    def record():
        process = shell.start("journal", "orders.>", "--to", str(folder), "--linger-s", "0.02")
        # Before that it may tell of a file that was not listed yet when it was killed.
        said = iter(process.stderr.readline, "")
        assert any(line.startswith("keeping orders.>") for line in said)
        return process

    recorder = record()
    publisher = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(accepted), "0"],
        env=shell.environment,
    )
    try:
        while not (accepted.exists() and accepted.read_text()):
            assert publisher.poll() is None
            time.sleep(0.01)
        for _ in range(max(ROUNDS // 4, 3)):
            time.sleep(draw.uniform(0.1, 0.8))
            recorder.kill()
            recorder.communicate()
            recorder = record()
        publisher.terminate()
        publisher.wait()
        last = int(accepted.read_text().split()[-1])
        deadline_s = time.monotonic() + 60
        while (latest := max(numbers(folder), default=-1)) < last:
            assert time.monotonic() < deadline_s, f"{latest} of {last}"
            time.sleep(0.2)
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=60)
    finally:
        publisher.kill()
        publisher.wait()
        shell.close()
    found = numbers(folder)
    assert sorted(found) == list(range(max(found) + 1))
    assert max(found) >= last > 0
    assert Path(folder, "recording.txt").exists() is False
