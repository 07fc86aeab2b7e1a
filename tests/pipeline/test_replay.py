"""Replays: history back onto the bus, in order, when it is due, and marked."""

import shutil
import threading
import uuid

import pytest

import infobus
from infobus import Event, UsageError, id_of
from infobus.filters.language.values import attributes_of
from infobus.objects.data import attribute_values
from infobus.pipeline import register
from infobus.pipeline.jobs import replay
from tests.cli.running import Shell
from tests.stores.journals import NOW_S, Source, Story, Wire, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLASSES = ("emergency", "business", "regular")


def made():
    """Events of two senders. The clock of the second jumps back, and the journal has mixed them."""
    events = []
    for n in range(30):
        kind = Wire if n % 2 else Story
        story = kind(headline=f"h{n}", n=n, source=Source(name="r"), value={"deep": [n]})
        data = story if n % 5 else {"n": n}
        jump = -8.0 if n >= 20 and n % 2 else 0.0
        more = {"priority": CLASSES[n % 3], "test": n == 7}
        events.append(
            Event(f"news.s{n % 3}", data, f"sender{n % 2}", n, NOW_S + n * 0.5 + jump, n, **more)
        )
    return events[1:15:2] + events[0:15:2] + events[15:]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return write(tmp_path_factory.mktemp("replay") / "j", made())


class Time:
    """A clock that moves when somebody waits."""

    def __init__(self):
        self.now_s = 1000.0
        self.waits = []

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now_s += seconds


def replayed(spark, journal, **options):
    """What a subscriber gets, and the clock afterwards."""
    register(spark)
    chosen = replay.ReplayOptions(journal=str(journal.folder), **options)
    events = spark.read.format("infobus").option("journal", str(journal.folder)).load()
    result = replay.transform(events, chosen)
    clock, got, all_there = Time(), [], threading.Event()

    def take(event):
        got.append((event, clock.now_s - 1000.0))
        if len(got) == 30:
            all_there.set()

    with infobus.connect(f"test-{uuid.uuid4().hex}", engine="memory") as bus:
        bus.subscribe("news.>", take, test=True)
        assert replay.publish(bus, result, chosen, clock=clock) == 30
        assert all_there.wait(60)
    return [event for event, _ in got], clock


def test_replayed_events_are_the_same_in_order_and_marked(spark, journal):
    events, clock = replayed(spark, journal, speed=2.0)
    originals = {one.id: one for one in journal.select().events()}
    marks = [_mark(event) for event in events]
    assert len({mark["id"] for mark in marks}) == 30
    for event, mark in zip(events, marks, strict=True):
        original = originals[mark["id"]]
        assert (event.subject, event.priority, event.test) == (
            original.subject,
            original.priority,
            original.test,
        )
        assert mark["sender"] == original.sender and mark["offset"] == original.offset
        assert mark["time"].timestamp() == pytest.approx(original.time)
        if isinstance(original.data, dict):
            assert {k: v for k, v in event.data.items() if k != replay.MARK} == original.data
        else:
            assert type(event.data) is type(original.data)
            assert attribute_values(event.data) == attribute_values(original.data)
            assert id_of(event.data) == original.object_id
    # Within a class nothing overtakes, so the order of each sender shows there.
    for sender in ("sender0", "sender1"):
        for class_ in CLASSES:
            numbers = [
                originals[mark["id"]].number
                for event, mark in zip(events, marks, strict=True)
                if mark["sender"] == sender and event.priority == class_
            ]
            assert numbers == sorted(numbers) and numbers
    # Twenty-eight events lie between the first and the last of the right clock, half a second each.
    assert sum(clock.waits) == pytest.approx(28 * 0.5 / 2)
    assert max(clock.waits) == pytest.approx(0.5)


def test_full_speed_waits_for_nothing(spark, journal):
    events, clock = replayed(spark, journal, speed="full")
    assert len(events) == 30 and clock.waits == []


def _mark(event):
    return attributes_of(event.data)[replay.MARK]


def test_a_speed_that_makes_no_sense_is_refused():
    for speed in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="a number above 0, or full"):
            replay.ReplayOptions(speed=speed)


def test_the_command(quick_java, journal, tmp_path):
    shell = Shell(tmp_path)
    try:
        listener = shell.listen("news.>", "--where", "exists(replayed)", "--json", "--count", "29")
        process = shell.start(
            "replay", "--journal", str(journal.folder), "--speed", "100", "--spark"
        )
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        out, _ = listener.communicate(timeout=60)
        assert len(out.splitlines()) == 29  # all but the test event
        assert err.startswith("30 events replayed")  # and nothing of what Spark has to say
        code, _, err = shell.run("replay", "--journal", str(journal.folder), "--speed", "fast")
        assert code == 2 and "or full" in err
        code, _, err = shell.run("replay", "--journal", str(journal.folder), "--subject", "a..b")
        assert (code, "an empty element" in err) == (2, True)
        code, _, err = shell.run("replay", "--journal", str(tmp_path / "none"))
        assert code == 1 and "none" in err
        segment = journal.manifest.segments[0]
        shutil.copytree(journal.folder, tmp_path / "damaged")
        (tmp_path / "damaged" / segment.path).write_bytes(b"?")
        process = shell.start("replay", "--journal", "damaged", "--speed", "full", "--spark")
        _, err = process.communicate(timeout=300)
        assert process.returncode == 1
        assert err.startswith("infobus: segment ") and err.count("\n") == 1
        assert "infobus journal repair" in err
    finally:
        shell.close()
