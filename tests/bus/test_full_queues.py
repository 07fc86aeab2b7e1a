"""Consumers that fall behind: each policy bounds its queue, and nobody else is harmed."""

import contextlib
import threading
import time

import pytest
from msgspec.structs import replace

from infobus import Backpressure, Bounds, Bus, BusClosed, Event, LossError, SlowConsumer
from infobus.bus.deliver import full_queue
from infobus.bus.deliver.subscription import WhenFull
from infobus.patience import Patience
from tests.bus.conftest import Connect
from tests.bus.helpers import account, numbers_of, send, take, wait_until
from tests.patience import PATIENT

WINDOW_COUNT = 32
FRAME_COUNT = 512  # as many tiny events as fit the 32 KiB of a gathered frame


Spans = dict[str, float]


def full_queues_hold(**spans: float) -> pytest.MarkDecorator:
    """How long the full queues of both nodes hold their senders."""
    return pytest.mark.parametrize("spans", [spans], ids=[""])


@pytest.fixture
def spans() -> Spans:
    return {}


@pytest.fixture
def slow(spans: Spans) -> dict[str, object]:
    """Small windows, and nodes that wait for their receivers longer than a machine stalls."""
    patience = replace(PATIENT, stall_s=60.0, send_s=60.0, **spans)
    return {"patience": patience, "bounds": Bounds(window_count_max=WINDOW_COUNT)}


@pytest.fixture
def slow_bus(connect: Connect, slow: dict[str, object]) -> Bus:
    return connect(**slow)


@pytest.fixture(params=["here", "elsewhere"])
def consumer(
    request: pytest.FixtureRequest, slow_bus: Bus, connect: Connect, slow: dict[str, object]
) -> Bus:
    """The node of the slow subscription: that of the publisher, or another one."""
    return slow_bus if request.param == "here" else connect(**slow)


def publish_until_refused(bus: Bus) -> tuple[int, Backpressure]:
    """Publish n = 0, 1, ... until that fails; how many were taken, and the error."""
    for number in range(5000):
        try:
            bus.publish("x", {"n": number})
        except Backpressure as error:
            return number, error
    raise AssertionError("never refused")


class TestBlock:
    def test_the_publisher_waits_then_hears_who_is_behind_and_loses_nothing(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        sub = consumer.subscribe("x", when_full="block", queue_count_max=16)
        slow_bus.send_timeout_s = 0.3
        started_s = time.monotonic()
        taken, error = publish_until_refused(slow_bus)
        assert time.monotonic() - started_s >= 0.3
        assert error.retry_is_safe
        who = repr(sub) if consumer is slow_bus else consumer.node
        assert [name.split(":")[0] for name in error.waiting_for] == [who.split(":")[0]]
        assert sub.waiting_count <= 16 + WINDOW_COUNT + FRAME_COUNT
        received = numbers_of(take(sub, taken))
        assert received == list(range(taken))
        slow_bus.send_timeout_s = 60.0
        slow_bus.publish("x", {"n": taken})  # trying again is safe, and now there is room
        assert numbers_of(take(sub, 1)) == [taken]
        assert sub.lost == 0

    def test_the_publisher_goes_on_as_soon_as_there_is_room(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        sub = consumer.subscribe("x", when_full="block", queue_count_max=4)

        def publish() -> None:
            for number in range(500):
                slow_bus.publish("x", {"n": number})

        thread = threading.Thread(target=publish)
        thread.start()
        assert numbers_of(take(sub, 500)) == list(range(500))
        thread.join(20)
        assert not thread.is_alive()

    def test_a_queue_of_one(self, slow_bus: Bus, consumer: Bus) -> None:
        seen: list[int] = []
        consumer.subscribe(
            "x",
            lambda event: seen.append(event.data["n"]),
            when_full="block",
            queue_count_max=1,
        )
        for number in range(300):
            slow_bus.publish("x", {"n": number})
        wait_until(lambda: len(seen) == 300)
        assert seen == list(range(300))

    def test_nothing_is_delivered_here_when_others_have_no_room(
        self, slow_bus: Bus, connect: Connect
    ) -> None:
        connect().subscribe("x", when_full="block", queue_count_max=16)
        here = slow_bus.subscribe("x")
        slow_bus.send_timeout_s = 0.3
        taken, _ = publish_until_refused(slow_bus)
        assert numbers_of(take(here, taken)) == list(range(taken))
        assert here.waiting_count == 0

    def test_another_channel_is_not_held(self, slow_bus: Bus, connect: Connect) -> None:
        connect().subscribe("x", when_full="block", queue_count_max=16)
        quick = connect().subscribe("y")

        def publish() -> None:
            with contextlib.suppress(BusClosed):
                publish_until_refused(slow_bus)

        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(lambda: slow_bus.stats().unconfirmed >= WINDOW_COUNT)
        slow_bus.publish_many(("y", {"n": number}) for number in range(20))
        for number in range(20, 40):
            slow_bus.publish("y", {"n": number})  # too quick one after the other: gathered
        assert numbers_of(take(quick, 40)) == list(range(40))
        assert thread.is_alive()  # it still waits
        slow_bus.close(0.2)
        thread.join(20)
        assert not thread.is_alive()

    def test_closing_does_not_wait_for_a_blocked_publisher(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        consumer.subscribe("x", when_full="block", queue_count_max=16)
        outcome: list[BaseException] = []

        def publish() -> None:
            try:
                publish_until_refused(slow_bus)
            except Exception as error:
                outcome.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        before = -1
        while (now := slow_bus.stats().published) != before:  # until it waits
            before = now
            time.sleep(0.05)
        started_s = time.monotonic()
        slow_bus.close(0.3)
        thread.join(20)
        assert time.monotonic() - started_s < 30
        assert [type(error).__name__ for error in outcome] == ["BusClosed"]


class TestPace:
    @full_queues_hold(pace_s=0.3, stuck_s=60.0)
    def test_senders_are_held_for_a_bounded_time_then_the_oldest_go(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        sub = consumer.subscribe("x", queue_count_max=16)
        started_s = time.monotonic()
        for number in range(3000):
            slow_bus.publish("x", {"n": number})
        held_s = time.monotonic() - started_s
        assert 0.25 < held_s < 30
        assert sub.waiting_count <= 16 + FRAME_COUNT
        received, losses = account(sub, until=2999)
        assert received == sorted(set(received))
        assert losses
        missing = set(range(3000)) - set(received)
        reported = {n - 1 for first, last in losses for n in range(first, last + 1)}
        assert missing == reported
        assert consumer.stats().dropped_by_queue == len(missing)
        # It has caught up: the next time it is waited for again.
        assert not sub.queue.watched

    @full_queues_hold(pace_s=60.0, stuck_s=0.3)
    def test_nobody_waits_long_for_a_consumer_that_takes_nothing(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        consumer.subscribe("x", queue_count_max=16)
        started_s = time.monotonic()
        for number in range(3000):
            slow_bus.publish("x", {"n": number})
        assert 0.25 < time.monotonic() - started_s < 30

    @full_queues_hold(pace_s=60.0)
    def test_a_slow_consumer_is_waited_for_while_it_moves(
        self, slow_bus: Bus, consumer: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[int] = []

        class Hold(full_queue.Hold):
            """Of a clock that stands still when the consumer is stalled by the machine."""

            def is_over(self, left_count: int, now_s: float, patience: Patience) -> bool:
                return super().is_over(left_count, clock_s(), patience)

        def clock_s() -> float:
            return 0.01 * len(seen)

        monkeypatch.setattr(
            full_queue, "Hold", lambda since_s, moved_s, left: Hold(clock_s(), clock_s(), left)
        )

        def slowly(event: Event) -> None:
            time.sleep(0.01)
            seen.append(event.data["n"])

        sub = consumer.subscribe("x", slowly, queue_count_max=16)
        for number in range(200):  # takes it four times as long as one that is stuck may take
            slow_bus.publish("x", {"n": number})
        wait_until(lambda: len(seen) == 200)
        assert seen == list(range(200))
        assert sub.lost == 0

    @full_queues_hold(pace_s=60.0, stuck_s=60.0)
    def test_a_consumer_that_keeps_up_loses_nothing(self, slow_bus: Bus, consumer: Bus) -> None:
        # It keeps up even if the machine stalls it for a while.
        sub = consumer.subscribe("x", queue_count_max=8)
        received: list[int] = []

        def consume() -> None:
            for event in sub:
                received.append(event.data["n"])
                if event.data["n"] == 499:
                    break

        thread = threading.Thread(target=consume)
        thread.start()
        for number in range(500):
            slow_bus.publish("x", {"n": number})
        thread.join(20)
        assert received == list(range(500))


class TestDropOldest:
    def test_the_newest_stay_and_the_numbers_of_the_others_are_reported(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        sub = consumer.subscribe("x", when_full="drop_oldest", queue_count_max=16)
        goes_on = consumer.subscribe("x")
        for number in range(400):
            slow_bus.publish("x", {"n": number})
        assert numbers_of(take(goes_on, 400)) == list(range(400))
        assert 1 <= sub.waiting_count <= 16
        with pytest.raises(LossError) as caught:
            sub.receive(20)
        loss = caught.value
        received, further = account(sub, until=399)
        assert (loss.sender, loss.channel, loss.first) == (slow_bus.node, "x", 1)
        assert further == []
        assert received == list(range(loss.last or 0, 400))
        assert consumer.stats().dropped_by_queue == loss.last

    def test_a_frame_larger_than_the_queue_leaves_its_end(
        self, slow_bus: Bus, connect: Connect
    ) -> None:
        consumer = connect()
        sub = consumer.subscribe("x", when_full="drop_oldest", queue_count_max=10)
        goes_on = consumer.subscribe("x")
        slow_bus.publish_many(("x", {"n": number}) for number in range(100))
        take(goes_on, 100)
        received, losses = account(sub, until=99)
        assert losses == [(1, 100 - len(received))]
        assert 5 <= len(received) <= 10

    def test_best_effort_events_go_without_report(self, slow_bus: Bus, connect: Connect) -> None:
        consumer = connect()
        sub = consumer.subscribe("x", when_full="drop_oldest", queue_count_max=4)
        goes_on = consumer.subscribe("x")
        for number in range(50):
            slow_bus.publish("x", {"n": number}, quality="best_effort")
        take(goes_on, 50)
        received, losses = account(sub, until=49)
        assert (len(received) <= 4, losses) == (True, [])

    def test_quit_at_the_first_drop(self, slow_bus: Bus, consumer: Bus) -> None:
        sub = consumer.subscribe("x", when_full="drop_oldest", queue_count_max=4, on_loss="quit")
        goes_on = consumer.subscribe("x")
        send(slow_bus, "x", *range(20))
        take(goes_on, 20)
        assert list(sub) == []
        assert sub.is_closed
        assert list(sub) == []


class TestDisconnect:
    def test_the_queue_can_be_drained_then_the_reason_is_raised(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        sub = consumer.subscribe("x", when_full="disconnect", queue_count_max=16)
        goes_on = consumer.subscribe("x")
        send(slow_bus, "x", *range(100))
        assert numbers_of(take(goes_on, 100)) == list(range(100))
        assert sub.is_closed
        received: list[int] = []
        with pytest.raises(SlowConsumer, match="queue_count_max=16"):
            while True:
                received.append(sub.receive(20).data["n"])
        assert received == list(range(17))
        assert list(sub) == []
        assert consumer.stats().subscriptions == 1

    def test_a_callback_hears_of_it(self, slow_bus: Bus, consumer: Bus) -> None:
        release = threading.Event()
        errors: list[Exception] = []
        consumer.subscribe(
            "x",
            lambda event: release.wait(30),
            on_error=errors.append,
            when_full="disconnect",
            queue_count_max=4,
        )
        send(slow_bus, "x", *range(20))
        wait_until(lambda: consumer.stats().subscriptions == 0)
        release.set()
        wait_until(lambda: bool(errors))
        assert [type(error) for error in errors] == [SlowConsumer]

    def test_the_publisher_hears_that_nobody_wants_it_any_more(
        self, slow_bus: Bus, consumer: Bus
    ) -> None:
        consumer.subscribe("x", when_full="disconnect", queue_count_max=4)
        send(slow_bus, "x", *range(20))

        def is_quenched() -> bool:
            before = slow_bus.stats().quenched
            slow_bus.publish("x", {})
            return slow_bus.stats().quenched > before

        wait_until(is_quenched)


@pytest.mark.parametrize("when_full", ["pace", "drop_oldest", "disconnect"])
@full_queues_hold(pace_s=0.2)
def test_another_consumer_on_the_node_gets_everything(
    slow_bus: Bus, consumer: Bus, when_full: WhenFull
) -> None:
    seen: list[int] = []
    release = threading.Event()

    def stuck(event: Event) -> None:
        release.wait(30)

    consumer.subscribe("x", stuck, when_full=when_full, queue_count_max=8, on_error=lambda e: 0)
    consumer.subscribe("x", lambda event: seen.append(event.data["n"]))
    try:
        for number in range(300):
            slow_bus.publish("x", {"n": number})
        wait_until(lambda: len(seen) == 300)
        assert seen == list(range(300))
    finally:
        release.set()


def test_large_events_fill_a_queue_by_their_size(connect: Connect) -> None:
    bus, other = connect(send_timeout_s=0.3), connect()
    sub = other.subscribe("x", when_full="block", queue_count_max=4096)  # that is 8 MiB
    with pytest.raises(Backpressure):
        for number in range(200):
            bus.publish("x", {"n": number, "fill": b"x" * 1024 * 1024})
    assert sum(len(sub.receive(20).data["fill"]) for _ in range(4)) == 4 * 1024 * 1024
