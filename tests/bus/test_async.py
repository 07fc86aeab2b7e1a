"""The bus in event loops: the same promises, nothing blocks, nothing is left behind."""

import asyncio
import contextlib
import threading

import pytest

from infobus import Backpressure, Bus, BusClosed, LossError
from tests.bus.conftest import Connect
from tests.bus.helpers import LossyEngine, numbers_of, send, take, wait_until


def test_publish_and_subscribe(bus: Bus, other: Bus) -> None:
    async def main() -> list[int]:
        sub = await other.aio.subscribe("x.*")
        for number in range(50):
            await bus.aio.publish("x.y", {"n": number})
        await bus.aio.publish_many([("x.z", {"n": 50}), ("x.z", {"n": 51})])
        seen = []
        async for event in sub:
            seen.append(event.data["n"])
            if event.data["n"] == 51:
                return seen
        raise AssertionError("ended early")

    assert asyncio.run(main()) == list(range(52))


def test_every_waiting_call_has_a_twin(bus: Bus) -> None:
    async def main() -> None:
        sub = await bus.aio.subscribe_many(["x", "y"])
        await bus.aio.publish("x", {}, quality="best_effort")
        await bus.aio.flush()
        assert (await anext(sub)).subject == "x"
        assert isinstance(await bus.aio.types(0.1), list)
        await bus.aio.close()
        with pytest.raises(StopAsyncIteration):
            await anext(sub)
        with pytest.raises(BusClosed):
            await bus.aio.publish("x", {})

    asyncio.run(main())


def test_the_loop_goes_on_while_a_publication_waits(connect: Connect) -> None:
    bus = connect(send_timeout_s=60)
    sub = bus.subscribe("x", when_full="block", queue_count_max=2)

    async def publish() -> None:
        for _ in range(10):
            await bus.aio.publish("x", {})

    async def main() -> None:
        publishing = asyncio.create_task(publish())
        while not sub.queue.holding:
            await asyncio.sleep(0.01)
        for _ in range(5):
            await asyncio.sleep(0.01)
            assert not publishing.done()
        for _ in range(10):  # so there is room: only if this loop comes to it
            await anext(sub)
        await publishing
        bus.send_timeout_s = 0.05
        with pytest.raises(Backpressure):
            await publish()

    asyncio.run(main())


def test_cancelled_waiting_leaves_nothing_behind_and_loses_nothing(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x")

    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(30):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(sub), 0.001)
            if number % 10 == 0:
                await bus.aio.publish("x", {"n": number})
                seen.append((await anext(sub)).data["n"])
        return seen

    assert asyncio.run(main()) == [0, 10, 20]
    assert not sub.queue.mail.sleepers
    send(bus, "x", 99)
    assert numbers_of(take(sub, 1)) == [99]


def test_a_cancelled_subscribe_leaves_no_subscription(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, may_go_on = bus.subscribe, threading.Event()

    def slow(pattern: str) -> object:
        may_go_on.wait(20)
        return subscribe(pattern)

    monkeypatch.setattr(bus, "subscribe", slow)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bus.aio.subscribe("x"), 0.05)
        may_go_on.set()

    asyncio.run(main())
    wait_until(lambda: bus.stats().subscriptions == 0)


def test_tasks_share_a_subscription(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x")

    async def main() -> list[int]:
        seen: list[int] = []

        async def consume() -> None:
            async for event in sub:
                seen.append(event.data["n"])
                await asyncio.sleep(0)
                if len(seen) == 200:
                    sub.close()

        tasks = [asyncio.create_task(consume()) for _ in range(5)]
        await bus.aio.publish_many([("x", {"n": number}) for number in range(200)])
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        return seen

    assert sorted(asyncio.run(main())) == list(range(200))


def test_loops_of_several_threads_share_a_subscription(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x")
    seen: list[int] = []

    async def consume() -> None:
        async for event in sub:
            seen.append(event.data["n"])

    threads = [threading.Thread(target=asyncio.run, args=(consume(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        bus.publish("x", {"n": number})
    wait_until(lambda: len(seen) == 300)
    sub.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(seen) == list(range(300))


def test_a_subscription_outlives_a_loop_that_waited_for_it(bus: Bus) -> None:
    sub = bus.subscribe("x")

    async def give_up() -> None:
        async def wait() -> None:
            await anext(sub)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(give_up())
    send(bus, "x", 1)
    assert numbers_of(take(sub, 1)) == [1]


def test_losses_are_raised_in_the_loop(bus_name: str, connect: Connect) -> None:
    engine = LossyEngine(bus_name)
    bus, other = connect(engine=engine), connect()
    sub = other.subscribe("x")
    engine.lose = {2}

    async def main() -> list[object]:
        seen: list[object] = []
        while len(seen) < 3:
            try:
                async for event in sub:
                    seen.append(event.data["n"])
                    if len(seen) == 3:
                        break
            except LossError as loss:
                seen.append(loss.first)
        return seen

    send(bus, "x", 1, 2, 3)
    assert asyncio.run(asyncio.wait_for(main(), 20)) == [1, 2, 3]


def test_a_full_queue_does_not_starve_the_rest_of_the_loop(bus: Bus) -> None:
    async def main() -> int:
        sub, ticks = bus.subscribe("x"), 0
        bus.publish_many(("x", {"n": number}) for number in range(1000))

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for _ in range(1000):
            await anext(sub)
        ticking.cancel()
        return ticks

    assert asyncio.run(main()) >= 10


def test_a_wait_that_is_cancelled_while_others_run_swallows_no_event(bus: Bus) -> None:
    """A task that finds a full queue lets others run now and then, and may be cancelled there."""
    sub = bus.subscribe("x")
    bus.publish_many([("x", {"n": number}) for number in range(200)])

    async def main() -> list[int]:
        seen: list[int] = []
        while len(seen) < 200:
            waiting = asyncio.create_task(anext(sub))
            await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                seen.append((await waiting).data["n"])
        return seen

    assert asyncio.run(main()) == list(range(200))
