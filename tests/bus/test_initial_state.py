"""`on_loss="quit_and_recover"`: the state first, then exactly the events that followed it."""

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from infobus import Bus, Event, Subscription
from tests.bus.conftest import Connect
from tests.bus.helpers import LossyEngine, numbers_of, send, take, wait_until


class Producer:
    """Counts on a subject, and hands out its last count as state."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.bus, self.subject, self.last = bus, subject, 0
        bus.initial_state(subject, lambda: [(subject, {"n": self.last})])

    def count(self, times: int) -> None:
        for _ in range(times):
            self.last += 1
            send(self.bus, self.subject, self.last)


def recovering(bus: Bus, pattern: str = "x.>") -> Subscription:
    return bus.subscribe(pattern, on_loss="quit_and_recover")


def test_a_newcomer_gets_the_state_and_then_what_follows(bus: Bus, other: Bus) -> None:
    producer = Producer(bus, "x.y")
    first = other.subscribe("x.y")
    producer.count(5)
    take(first, 5)
    for node in (other, bus):
        sub = recovering(node)
        state = sub.receive(20)
        assert (state.initial, state.data["n"], state.sender) == (True, producer.last, bus.node)
        producer.count(2)
        events = take(sub, 2)
        assert numbers_of(events) == [producer.last - 1, producer.last]
        assert not any(event.initial for event in events)
    later = recovering(other)
    state, event = later.receive(20), None
    producer.count(1)
    event = later.receive(20)
    assert event.seq == state.seq + 1


def test_state_and_events_fit_together_while_the_producer_goes_on(bus: Bus, other: Bus) -> None:
    producer = Producer(bus, "x.y")
    bus.subscribe("x.y", lambda event: None)
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.is_set():
            producer.count(1)
            time.sleep(1e-4)  # else a queue would fill while this machine stalls its consumer

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for node in (other, other, bus, other):
            sub = recovering(node)
            events = take(sub, 20)
            assert [event.initial for event in events] == [True] + [False] * 19
            # The state may contain one event that is just being published.
            start = events[0].data["n"]
            assert numbers_of(events[1:]) in (
                list(range(start + 1, start + 20)),
                list(range(start, start + 19)),
            )
    finally:
        is_over.set()
        thread.join()


def test_after_a_loss_it_starts_anew(bus_name: str, connect: Connect) -> None:
    engine = LossyEngine(bus_name)
    bus, other = connect(engine=engine), connect()
    producer = Producer(bus, "x.y")
    sub = recovering(other)
    assert sub.receive(20).data["n"] == 0
    engine.lose = {2}
    producer.count(3)
    events: list[Event] = []
    while not (events and events[-1].initial):
        events.append(sub.receive(20))
    assert numbers_of(events[:-1]) == list(range(1, len(events)))
    assert events[-1].data["n"] == 3
    producer.count(1)
    assert numbers_of(take(sub, 1)) == [4]
    assert sub.waiting_count == 0
    assert sub.lost >= 1


def test_an_event_of_before_the_state_that_is_repaired_later_is_in_the_state(
    bus_name: str, connect: Connect
) -> None:
    engine = LossyEngine(bus_name)
    bus, other = connect(engine=engine), connect()
    producer = Producer(bus, "x.y")
    early = other.subscribe("x.y")
    engine.drop = {2}
    producer.count(2)
    sub = recovering(other)
    state = sub.receive(20)
    assert (state.initial, state.data["n"]) == (True, 2)
    producer.count(1)
    assert numbers_of(take(early, 3)) == [1, 2, 3]
    assert numbers_of(take(sub, 1)) == [3]


def test_with_a_callback(bus_name: str, connect: Connect) -> None:
    engine = LossyEngine(bus_name)
    bus, other = connect(engine=engine), connect()
    producer = Producer(bus, "x.y")
    seen: list[tuple[bool, int]] = []

    def note(event: Event) -> None:
        seen.append((event.initial, event.data["n"]))

    other.subscribe("x.>", note, on_loss="quit_and_recover")
    wait_until(lambda: seen == [(True, 0)])
    engine.lose = {2}
    producer.count(3)
    # The state comes anew: after the loss, so before or after the third is published.
    wait_until(lambda: seen[-1][1] == 3 and any(initial for initial, _ in seen[1:]))
    producer.count(1)
    wait_until(lambda: seen[-1] == (False, 4))


def test_several_producers(connect: Connect) -> None:
    producers = [Producer(connect(), f"x.p{number}") for number in range(3)]
    stateless = connect()
    consumer = connect()
    for producer in producers:
        producer.bus.subscribe(producer.subject)
        producer.count(3)
    sub = recovering(consumer)
    states = take(sub, 3)
    assert {(event.subject, event.data["n"]) for event in states} == {
        (producer.subject, 3) for producer in producers
    }
    assert all(event.initial for event in states)
    send(stateless, "x.other", 7)
    for producer in producers:
        producer.count(1)
    assert sorted(numbers_of(take(sub, 4))) == [4, 4, 4, 7]


def test_nobody_has_state(bus: Bus, other: Bus) -> None:
    sub = recovering(other)
    send(bus, "x.y", 1, 2)
    events = take(sub, 2)
    assert numbers_of(events) == [1, 2]
    assert not any(event.initial for event in events)


def broken_in_the_middle() -> list[tuple[str, object]]:
    raise RuntimeError("no state today")


@pytest.mark.parametrize(
    "function",
    [
        broken_in_the_middle,
        lambda: [("x..y", {"n": 1})],
        lambda: [("x.y", object())],
        lambda: [("x.y",)],
        lambda: None,
    ],
    ids=["raises", "malformed subject", "unsendable object", "no pair", "nothing"],
)
def test_a_function_that_fails_leaves_out_its_state_only(
    bus: Bus, other: Bus, function: Callable[[], list[tuple[str, object]]]
) -> None:
    bus.initial_state("x.bad", function)
    bus.initial_state("x.good", lambda: [("x.good", {"n": 7})])
    for _ in range(2):  # the next newcomer is served as well
        sub = recovering(other)
        assert numbers_of(take(sub, 1)) == [7]
        send(bus, "x.y", 8)
        assert numbers_of(take(sub, 1)) == [8]


def test_only_wanted_subjects_are_handed_out(bus: Bus, other: Bus) -> None:
    bus.initial_state("x.>", lambda: [("x.a", {"n": 1}), ("x.b", {"n": 2})])
    sub = other.subscribe("x.b", on_loss="quit_and_recover")
    assert numbers_of(take(sub, 1)) == [2]
    send(bus, "x.b", 3)
    assert numbers_of(take(sub, 1)) == [3]


def test_closing_while_state_is_awaited_ends_the_iteration(bus: Bus, other: Bus) -> None:
    release = threading.Event()

    def slow() -> list[tuple[str, object]]:
        release.wait(20)
        return [("x.y", {"n": 1})]

    bus.initial_state("x.y", slow)
    sub = recovering(other)
    sub.close()
    assert list(itertools.islice(sub, 1)) == []
    release.set()


def test_the_first_event_of_a_channel_is_in_the_state_or_after_it_never_both(bus: Bus) -> None:
    called, go_on = threading.Event(), threading.Event()

    def state() -> list[tuple[str, object]]:
        called.set()
        go_on.wait(20)
        return []

    bus.initial_state("x.y", state)
    sub = recovering(bus, "x.y")
    assert called.wait(20)
    publisher = threading.Thread(target=send, args=(bus, "x.y", 1))
    publisher.start()
    publisher.join(0.05)
    assert publisher.is_alive(), "it waits until the state has been taken"
    go_on.set()
    assert sub.receive(20).data["n"] == 1
    publisher.join(20)
