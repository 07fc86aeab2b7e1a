"""Callbacks run on the bus's own threads, each subscription in order, none in another's way."""

import asyncio
import threading

import pytest

from infobus import Bus, Event, UsageError
from tests.bus.helpers import send, wait_until


def test_events_come_one_at_a_time_and_in_order(bus: Bus, other: Bus) -> None:
    seen: list[int] = []
    inside = threading.Lock()

    def note(event: Event) -> None:
        assert inside.acquire(blocking=False), "two at once"
        seen.append(event.data["n"])
        inside.release()

    bus.subscribe("x", note)
    other.publish_many(("x", {"n": number}) for number in range(2000))
    wait_until(lambda: len(seen) == 2000)
    assert seen == list(range(2000))


def test_a_slow_callback_delays_nobody_else(bus: Bus, other: Bus) -> None:
    release = threading.Event()
    seen: list[int] = []
    for _ in range(8):
        bus.subscribe("x", lambda event: release.wait(30))
    bus.subscribe("x", lambda event: seen.append(event.data["n"]))
    try:
        for number in range(50):
            send(other, "x", number)
            wait_until(lambda: len(seen) == number + 1)  # noqa: B023 - waited for at once
    finally:
        release.set()


def test_callbacks_that_become_slow_at_the_same_moment(bus: Bus) -> None:
    """All workers are idle when several callbacks get their event at once."""
    release = threading.Event()
    seen: list[int] = []

    def slow_or_not(event: Event) -> None:
        if event.data["n"] == 2:
            release.wait(30)

    for _ in range(4):
        bus.subscribe("x", slow_or_not)
    bus.subscribe("x", lambda event: seen.append(event.data["n"]))
    try:
        send(bus, "x", 1)
        wait_until(lambda: seen == [1])
        send(bus, "x", 2)
        wait_until(lambda: seen == [1, 2])
    finally:
        release.set()


def test_a_callback_that_raises_gets_the_next_event(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def fail(event: Event) -> None:
        seen.append(event.data["n"])
        raise RuntimeError("on purpose")

    bus.subscribe("x", fail)
    send(bus, "x", 1, 2, 3)
    wait_until(lambda: seen == [1, 2, 3])
    assert "on purpose" in caplog.text


def test_an_error_handler_that_raises_stops_nothing(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    release, seen = threading.Event(), []

    def note(event: Event) -> None:
        release.wait(30)
        seen.append(event.data["n"])

    def fail(error: Exception) -> None:
        raise RuntimeError("on purpose")

    bus.subscribe("x", note, on_error=fail, when_full="drop_oldest", queue_count_max=4)
    send(bus, "x", *range(20))
    release.set()
    wait_until(lambda: bool(seen) and seen[-1] == 19)
    assert "on purpose" in caplog.text


def test_a_callback_may_publish(bus: Bus, other: Bus) -> None:
    seen: list[int] = []

    def pass_on(event: Event) -> None:
        bus.publish("y", {"n": event.data["n"] + 100})

    bus.subscribe("x", pass_on)
    other.subscribe("y", lambda event: seen.append(event.data["n"]))
    send(other, "x", *range(100))
    wait_until(lambda: len(seen) == 100)
    assert seen == list(range(100, 200))


def test_a_callback_may_answer_itself(bus: Bus) -> None:
    seen: list[int] = []

    def count_down(event: Event) -> None:
        seen.append(event.data["n"])
        if event.data["n"]:
            bus.publish("x", {"n": event.data["n"] - 1})

    bus.subscribe("x", count_down)
    bus.publish("x", {"n": 100})
    wait_until(lambda: bool(seen) and seen[-1] == 0)
    assert seen == list(range(100, -1, -1))


def test_a_callback_may_subscribe_and_close(bus: Bus, other: Bus) -> None:
    seen: list[int] = []

    def replace(event: Event) -> None:
        first.close()
        bus.subscribe("x", lambda event: seen.append(event.data["n"]))
        other.publish("x", {"n": 2})

    first = bus.subscribe("x", replace)
    other.publish("x", {"n": 1})
    # The other node may never see the break, and then what was on its way comes, too.
    wait_until(lambda: seen[-1:] == [2])


def test_what_is_queued_when_the_bus_closes_is_still_delivered(bus: Bus) -> None:
    release, seen = threading.Event(), []

    def note(event: Event) -> None:
        release.wait(30)
        seen.append(event.data["n"])

    bus.subscribe("x", note)
    bus.publish_many(("x", {"n": number}) for number in range(2000))
    bus.close(0.1)  # the first one still runs
    release.set()
    wait_until(lambda: len(seen) == 2000)


def test_many_callbacks_need_few_threads(bus: Bus) -> None:
    seen: list[int] = []
    before = threading.active_count()
    for _ in range(200):
        bus.subscribe("x", lambda event: seen.append(1))
    for number in range(20):
        send(bus, "x", number)
    wait_until(lambda: len(seen) == 4000)
    assert threading.active_count() - before <= 64


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callback_that_tries_to_end_its_thread_goes_on(
    bus: Bus, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def note(event: Event) -> None:
        seen.append(event.data["n"])
        if event.data["n"] == 1:
            raise error

    bus.subscribe("x", note)
    send(bus, "x", 0, 1, 2)
    wait_until(lambda: seen == [0, 1, 2])
    assert "the callback for x raised" in caplog.text


def test_a_coroutine_function_is_refused_as_a_callback(bus: Bus) -> None:
    async def note(event: Event) -> None: ...

    with pytest.raises(UsageError, match="async for"):
        bus.subscribe("x", note)
    with pytest.raises(UsageError, match="callback must be a function, got 5"):
        bus.subscribe("x", 5)  # type: ignore[arg-type]
