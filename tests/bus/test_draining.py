"""Leaving well: what waits is handled, or given back, before a node leaves."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import Bus, BusClosed, Event
from tests.bus.helpers import numbers_of, wait_until
from tests.patience import PATIENCE_S


@pytest.fixture
def bus(tmp_path: Path) -> Any:
    with infobus.connect("draining", engine="memory", home=str(tmp_path)) as bus:
        yield bus


def test_callbacks_handle_all_that_waits(bus: Bus) -> None:
    go, handled = threading.Event(), []

    def handle(event: Event) -> None:
        assert go.wait(PATIENCE_S)
        handled.append(event.data["n"])

    bus.subscribe("a", handle)
    for n in range(20):
        bus.publish("a", {"n": n})
    threading.Timer(0.1, go.set).start()
    bus.drain(PATIENCE_S)
    assert handled == list(range(20))
    with pytest.raises(BusClosed):
        bus.publish("a", {"n": 20})


def test_an_iterator_gets_what_waits_and_then_ends(bus: Bus) -> None:
    sub, got = bus.subscribe("a"), []
    for n in range(5):
        bus.publish("a", {"n": n})
    reader = threading.Thread(target=lambda: got.extend(numbers_of(list(sub))))
    threading.Timer(0.1, reader.start).start()
    bus.close(drain_s=PATIENCE_S)
    wait_until(lambda: got == list(range(5)))


def test_it_does_not_wait_longer_than_it_was_told(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.subscribe("a")
    bus.publish("a", {"n": 1})
    bus.drain(0.05)
    assert "was not drained in 0.05 s" in caplog.text


def test_guaranteed_events_that_wait_come_again(bus: Bus, tmp_path: Path) -> None:
    first, release = threading.Event(), threading.Event()

    def handle(event: Event) -> None:
        first.set()
        assert release.wait(PATIENCE_S)

    bus.subscribe("a", handle, durable="d")
    for n in range(3):
        bus.publish("a", {"n": n}, guaranteed=True)
    assert first.wait(PATIENCE_S)
    threading.Timer(0.1, release.set).start()
    bus.drain(PATIENCE_S)
    with infobus.connect("draining", engine="memory", home=str(tmp_path)) as again:
        sub = again.subscribe("a", durable="d")
        left = sub.receive(PATIENCE_S).data["n"]
        assert left >= 1  # the one that was handled was settled


def test_coroutines_handle_events_one_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        handled: list[int] = []
        running = 0

        async def handle(event: Event) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1
            if event.data["n"] == 3:
                raise ValueError("three")  # is logged, and the next ones come all the same
            handled.append(event.data["n"])

        async with infobus.aio.connect("draining-aio", engine="memory", home=str(tmp_path)) as bus:
            await bus.subscribe("a", handle)
            await bus.subscribe("g", handle, durable="d")
            for n in range(10):
                await bus.publish("a", {"n": n})
            for n in range(10, 15):
                await bus.publish("g", {"n": n}, guaranteed=True)
            while 14 not in handled:
                await asyncio.sleep(0.01)
            await bus.drain(PATIENCE_S)
        assert [n for n in handled if n < 10] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert [n for n in handled if n >= 10] == [10, 11, 12, 13, 14]

    asyncio.run(main())


def test_events_can_be_awaited_singly_and_many_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        bus = await infobus.aio.connect("draining-aio", engine="memory", home=str(tmp_path))
        sub = await bus.subscribe("a")
        for n in range(8):
            await bus.publish("a", {"n": n})
        assert (await bus.receive(sub, PATIENCE_S)).data["n"] == 0
        assert numbers_of(await bus.receive_many(sub, 3, PATIENCE_S)) == [1, 2, 3]
        assert numbers_of(sub.receive_many(timeout_s=PATIENCE_S)) == [4, 5, 6, 7]
        with pytest.raises(TimeoutError):
            await bus.receive(sub, 0.01)
        await bus.publish("a", {"n": 9})
        assert (await bus.receive(sub, PATIENCE_S)).data["n"] == 9  # nothing was swallowed
        await bus.close()
        with pytest.raises(BusClosed):
            await bus.receive(sub, 1)

    asyncio.run(main())
