"""Events that come many in a frame are decoded a few at a time, which nobody can tell."""

import threading
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from infobus import Bus, DataObject
from infobus.bus.deliver.event import READ_COUNT, Reading, Run, events_of
from infobus.objects import codec
from infobus.protocols.frames.wire import Items, Qos
from tests.bus.helpers import wait_until

COUNT = READ_COUNT * 5 + 3


class Tick(DataObject):
    n: int
    note: str = ""


BODY = codec.encode(Tick(n=7))[1]
FINGERPRINT = Tick.__bus_plan__.fingerprint


@st.composite
def long_runs(draw):
    count = draw(st.integers(READ_COUNT + 1, READ_COUNT * 4))
    bodies = [codec.encode(Tick(n=n))[1] for n in range(count)]
    for place in draw(st.sets(st.integers(0, count - 1), max_size=5)):
        bodies[place] = draw(st.sampled_from([b"", b"\xc1", BODY[:-1], BODY + b"\0", b"\x80"]))
    places = range(count)
    numbers = [3] if draw(st.booleans()) else [2 * at for at in places]
    return Run(
        "node",
        draw(st.sampled_from(["x", "~test"])),
        range(10, 10 + count),
        Items(
            [f"x.s{at}" for at in places] if draw(st.booleans()) else ["x.s"],
            numbers,
            [float(at) for at in places] if draw(st.booleans()) else [1.5],
            [FINGERPRINT],
            bodies,
            {5: "another", count - 1: "id"} if draw(st.booleans()) else {},
            draw(st.sampled_from([[], [Qos(class_="business")], [Qos(kept=True)]])),
        ),
    )


@given(long_runs(), st.integers(0, 5))
def test_read_a_few_at_a_time_a_run_is_the_same_as_read_at_once(run, times):
    complaints, more_complaints = [], []
    expected = events_of(run, lambda *what: complaints.append(str(what)), "regular")
    reading = Reading(run, lambda *what: more_complaints.append(str(what)), "regular")
    events = []
    for _ in range(times):
        events += reading.read()
        assert reading.left_count <= max(0, len(run.items) - len(events))
    events += reading.read(None)
    assert reading.left_count == 0
    assert events == expected
    assert more_complaints == complaints


def test_an_emergency_goes_before_the_rest_of_a_long_run(bus: Bus, other: Bus) -> None:
    ticks = other.subscribe("x")
    bus.publish_many(("x", Tick(n=n)) for n in range(COUNT))
    assert [ticks.receive(20).data.n for _ in range(READ_COUNT + 1)] == list(range(READ_COUNT + 1))
    bus.publish("x", Tick(n=-1), priority="emergency")
    wait_until(lambda: ticks.waiting_in("emergency") == 1)
    rest = [ticks.receive(20).data.n for _ in range(COUNT - READ_COUNT)]
    assert rest == [-1, *range(READ_COUNT + 1, COUNT)]


def test_threads_share_a_long_run_and_none_of_it_is_lost_or_doubled(bus: Bus, other: Bus) -> None:
    ticks = other.subscribe("x")
    taken: list[int] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(event.data.n for event in ticks))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(20):
        bus.publish_many(("x", Tick(n=n)) for n in range(COUNT))
    bus.close()
    wait_until(lambda: ticks.is_empty())
    ticks.close()
    for thread in threads:
        thread.join(20)
    assert Counter(taken) == dict.fromkeys(range(COUNT), 20)


def test_a_callback_gets_all_of_a_long_run(bus: Bus, other: Bus) -> None:
    seen: list[int] = []
    other.subscribe("x", lambda event: seen.append(event.data.n))
    bus.publish_many(("x", Tick(n=n)) for n in range(COUNT))
    wait_until(lambda: len(seen) == COUNT)
    assert seen == list(range(COUNT))


def test_what_is_left_of_a_long_run_can_be_taken_after_closing(bus: Bus, other: Bus) -> None:
    ticks = other.subscribe("x")
    bus.publish_many(("x", Tick(n=n)) for n in range(COUNT))
    first = ticks.receive(20).data.n
    wait_until(lambda: ticks.queue.left_in("regular") == COUNT - 1)
    ticks.close()
    assert [first, *(event.data.n for event in ticks)] == list(range(COUNT))
