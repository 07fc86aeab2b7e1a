"""A durable subscription that is live: guaranteed and plain events, each once."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from infobus import Bus, BusClosed, LossError
from infobus.bus.durable.subscription import DurableSubscription
from infobus.protocols.reliable.effects import Lost
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S


@pytest.fixture
def shop(connect: Connect, tmp_path: Path) -> Bus:
    return connect(home=tmp_path / "shop")


@pytest.fixture
def office(shop: Bus, connect: Connect, tmp_path: Path) -> Bus:
    return connect(home=tmp_path / "office")


def publish(bus: Bus, *numbers: int, **options: Any) -> None:
    """Even numbers are guaranteed, odd ones are not."""
    for number in numbers:
        bus.publish("x.a", {"n": number}, guaranteed=number % 2 == 0, **options)
    bus.flush()


def take(sub: DurableSubscription, count: int) -> list[int]:
    """Take so many events, each of which tells rightly whether it is guaranteed."""
    numbers = []
    for _ in range(count):
        event = sub.receive(PATIENCE_S)
        assert event.guaranteed == (event.data["n"] % 2 == 0)
        event.ack()
        numbers.append(event.data["n"])
    return numbers


def is_over(sub: DurableSubscription) -> bool:
    with pytest.raises(TimeoutError):
        sub.receive(0.01)
    return True


@pytest.mark.parametrize("acknowledge", ["automatic", "explicit"])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_each_event_comes_once(shop: Bus, office: Bus, where: str, acknowledge: Any) -> None:
    node = shop if where == "here" else office
    sub = node.subscribe("x.>", durable="c", live=True, acknowledge=acknowledge)
    publish(shop, *range(20))
    numbers = take(sub, 20)
    assert sorted(numbers) == list(range(20))
    assert [n for n in numbers if n % 2] == list(range(1, 20, 2))  # in order, each kind
    assert [n for n in numbers if n % 2 == 0] == list(range(0, 20, 2))
    assert is_over(sub)


def test_only_what_is_guaranteed_waits_while_it_is_away(shop: Bus, office: Bus) -> None:
    with office.subscribe("x.>", durable="c", live=True) as sub:
        publish(shop, 0, 1)
        assert sorted(take(sub, 2)) == [0, 1]
    publish(shop, 2, 3)
    with office.subscribe("x.>", durable="c", live=True) as sub:
        publish(shop, 5)
        assert sorted(take(sub, 2)) == [2, 5]


def test_without_live_plain_events_do_not_come(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c")
    publish(shop, 1, 3, 4)
    assert take(sub, 1) == [4]


def test_a_callback_gets_both_one_at_a_time(shop: Bus, office: Bus) -> None:
    numbers: list[int] = []
    running = threading.Lock()

    def take_one(event: Any) -> None:
        assert running.acquire(blocking=False)
        numbers.append(event.data["n"])
        running.release()

    office.subscribe("x.>", take_one, durable="c", live=True)
    publish(shop, *range(50))
    wait_until(lambda: sorted(numbers) == list(range(50)))


def test_a_task_awaits_both(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True)

    async def main() -> list[int]:
        numbers = []
        for number in range(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await anext(sub)
            publish(shop, number)
            numbers.append((await asyncio.wait_for(anext(sub), PATIENCE_S)).data["n"])
        return numbers

    assert asyncio.run(main()) == list(range(10))


def test_a_backlog_of_one_kind_does_not_keep_the_other_waiting(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True, acknowledge="explicit", ordered=False)
    publish(shop, *range(0, 200, 2))
    publish(shop, *range(1, 200, 2))
    wait_until(lambda: sub._mail.qsize() >= 100)
    wait_until(lambda: sub._live is not None and sub._live.waiting_count == 200)
    first = take(sub, 20)
    assert 8 <= sum(number % 2 for number in first) <= 12


def test_filter_and_test_events_hold_for_both(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True, where="n > 3", test=True)
    publish(shop, *range(6))
    publish(shop, 6, 7, test=True)
    assert sorted(take(sub, 4)) == [4, 5, 6, 7]


def test_a_transaction_comes_once(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True)
    for guaranteed in (True, False):
        with shop.transaction(guaranteed=guaranteed) as transaction:
            transaction.publish("x.a", {"n": 1})
            transaction.publish("x.b", {"n": 2})
    events = [sub.receive(PATIENCE_S) for _ in range(2)]
    assert sorted(event.guaranteed for event in events) == [False, True]
    assert all(len(event.data) == 2 for event in events)
    assert is_over(sub)


def test_what_came_before_it_was_closed_can_still_be_taken(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True)
    publish(shop, 1, 3, 5)
    wait_until(lambda: sub._live is not None and sub._live.waiting_count == 3)
    sub.close()
    assert take(sub, 3) == [1, 3, 5]
    with pytest.raises(BusClosed):
        sub.receive(0)
    assert office.stats().subscriptions == 0


def test_the_live_part_can_end_before_the_other(shop: Bus, office: Bus) -> None:
    sub = office.subscribe("x.>", durable="c", live=True)
    publish(shop, 1)
    wait_until(lambda: sub._live is not None and sub._live.waiting_count == 1)
    sub.stop_live()
    publish(shop, 3, 4)
    assert sorted(take(sub, 2)) == [1, 4]
    assert is_over(sub)


def test_a_loss_is_raised_and_the_rest_comes(shop: Bus, office: Bus) -> None:
    lossy = office.subscribe("x.>", durable="c", live=True)
    publish(shop, 1)
    wait_until(lambda: lossy._live is not None and lossy._live.waiting_count == 1)
    assert lossy._live is not None
    lossy._live.wake_with(Lost("somebody", "", 1, 3))
    publish(shop, 3, 4)
    assert take(lossy, 1) == [1]
    numbers: list[int] = []
    losses = 0
    while len(numbers) < 2:
        try:
            numbers += take(lossy, 1)
        except LossError as loss:
            losses += 1
            assert (loss.first, loss.last) == (1, 3)
    assert sorted(numbers) == [3, 4] and losses == lossy.lost == 1


def test_if_it_cannot_be_live_the_name_is_free_again(office: Bus) -> None:
    with pytest.raises(Exception, match="no pattern"):
        office.subscribe_durable(["x"], None, "c", live=iter(()))
    office.subscribe("x", durable="c").close()
