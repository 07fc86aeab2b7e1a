"""Waiting for guaranteed events: with timeouts, from any thread or task, many at a time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infobus import Bus
from infobus.bus.durable.subscription import DurableSubscription
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S


@pytest.fixture
def node(connect: Connect, tmp_path: Path) -> Bus:
    return connect(home=tmp_path)


def publish(bus: Bus, *numbers: int, subject: str = "x.a") -> None:
    for number in numbers:
        bus.publish(subject, {"n": number}, guaranteed=True)


async def awaited(sub: DurableSubscription) -> int:
    return int((await asyncio.wait_for(anext(sub), PATIENCE_S)).data["n"])


def test_each_event_may_be_awaited_by_a_task_of_its_own(node: Bus) -> None:
    """`asyncio.wait_for` makes one for each call."""
    sub = node.subscribe("x.>", durable="c")
    publish(node, 0, 1, 2)

    async def main() -> list[int]:
        return [await asyncio.create_task(awaited(sub)) for _ in range(3)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_each_event_may_be_received_by_a_thread_of_its_own(node: Bus) -> None:
    sub = node.subscribe("x.>", durable="c")
    publish(node, 0, 1, 2)
    taken = []
    for _ in range(3):
        with ThreadPoolExecutor(1) as fresh:
            taken.append(fresh.submit(sub.receive, PATIENCE_S).result().data["n"])
    assert taken == [0, 1, 2]


def test_a_cancelled_wait_swallows_no_event(node: Bus) -> None:
    sub = node.subscribe("x.>", durable="c")

    async def main() -> list[int]:
        taken = []
        for number in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(sub)
            await node.aio.publish("x.a", {"n": number}, guaranteed=True)
            taken.append(await awaited(sub))
        return taken

    assert asyncio.run(main()) == [0, 1, 2]


def test_asking_settles_what_was_taken_before_also_if_nothing_comes(
    node: Bus, connect: Connect
) -> None:
    with node.subscribe("x.>", durable="c") as sub:
        publish(node, 0)
        assert sub.receive(PATIENCE_S).data["n"] == 0
        with ThreadPoolExecutor(1) as fresh, pytest.raises(TimeoutError):
            fresh.submit(sub.receive, 0.01).result()
    with node.subscribe("x.>", durable="c") as again:
        publish(node, 1)
        assert again.receive(PATIENCE_S).data["n"] == 1


def test_what_was_taken_last_comes_again_if_nobody_asked_for_more(node: Bus) -> None:
    with node.subscribe("x.>", durable="c") as sub:
        publish(node, 0, 1)
        sub.receive(PATIENCE_S), sub.receive(PATIENCE_S)
    with node.subscribe("x.>", durable="c") as again:
        assert again.receive(PATIENCE_S).data["n"] == 1


def test_idle_consumers_occupy_no_threads(node: Bus) -> None:
    """Neither those of the loop's executor, which others need, nor any of their own."""

    async def main() -> None:
        subs = [node.subscribe(f"c{number}", durable=f"d{number}") for number in range(40)]
        before = threading.active_count()
        waiting = [asyncio.create_task(awaited(sub)) for sub in subs]
        for _ in range(5):  # all of them have begun
            await asyncio.sleep(0)
        assert threading.active_count() <= before
        for number in range(40):
            publish(node, number, subject=f"c{number}")
        assert await asyncio.gather(*waiting) == list(range(40))

    asyncio.run(main())


def test_idle_callbacks_occupy_no_threads(node: Bus) -> None:
    taken: list[int] = []

    def take(event: Any) -> None:
        taken.append(event.data["n"])

    node.subscribe("c0", take, durable="d0")
    before = threading.active_count()
    for number in range(1, 20):
        node.subscribe(f"c{number}", take, durable=f"d{number}")
    assert threading.active_count() <= before  # one of another test may have ended
    for number in range(20):
        publish(node, number, subject=f"c{number}")
    wait_until(lambda: sorted(taken) == list(range(20)))


def test_tasks_that_work_at_the_same_time_settle_for_themselves(node: Bus) -> None:
    sub = node.subscribe("x.>", durable="c", acknowledge="explicit", ordered=False)
    publish(node, *range(6))

    async def main() -> list[int]:
        taken = []

        async def work() -> None:
            event = await anext(sub)
            taken.append(event.data["n"])
            if event.data["n"] % 2:
                event.ack()

        await asyncio.gather(*(work() for _ in range(6)))
        return sorted(taken)

    assert asyncio.run(main()) == list(range(6))
    sub.close()
    with node.subscribe("x.>", durable="c") as again:
        assert [again.receive(PATIENCE_S).data["n"] for _ in range(3)] == [0, 2, 4]
