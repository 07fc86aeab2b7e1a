"""Frames get lost on the way: repaired in silence, or reported as the consumer chose."""

import logging
import threading

import pytest

from infobus import Bus, BusClosed, LossError
from tests.bus.conftest import Connect
from tests.bus.helpers import LossyEngine, account, numbers_of, send, take, wait_until


@pytest.fixture
def engine(bus_name: str) -> LossyEngine:
    return LossyEngine(bus_name)


@pytest.fixture
def bus(engine: LossyEngine, connect: Connect) -> Bus:
    """The node whose frames get lost."""
    return connect(engine=engine)


def lose_the_second_of_three(bus: Bus, engine: LossyEngine, subject: str = "x.y") -> None:
    """Publish n = 1 to 3 of which 2 is lost for good; works once per test."""
    engine.lose = {2}
    send(bus, subject, 1, 2, 3)


class TestRepair:
    def test_a_dropped_frame_is_had_again_in_order_and_nothing_is_reported(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub = other.subscribe("x.y")
        engine.drop = {2, 3, 7}
        send(bus, "x.y", *range(1, 11))
        events = take(sub, 10)
        assert numbers_of(events) == [event.seq for event in events] == list(range(1, 11))
        assert sub.lost == other.stats().lost == 0
        assert other.stats().asked_again >= 2
        assert bus.stats().replayed >= 3

    def test_a_lost_tail_is_found_by_the_heartbeat(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub = other.subscribe("x.y")
        engine.drop = {3, 4}
        send(bus, "x.y", 1, 2, 3, 4)
        assert numbers_of(take(sub, 4)) == [1, 2, 3, 4]

    def test_closing_waits_for_the_repair(self, bus: Bus, engine: LossyEngine, other: Bus) -> None:
        sub = other.subscribe("x.y")
        engine.drop = {1, 2, 3}
        send(bus, "x.y", 1, 2, 3)
        bus.close()
        assert numbers_of(take(sub, 3)) == [1, 2, 3]
        assert other.stats().lost == 0


class TestReactions:
    def test_raise_surfaces_once_with_the_numbers_and_goes_on(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub = other.subscribe("x.y")
        lose_the_second_of_three(bus, engine)
        assert numbers_of(take(sub, 1)) == [1]
        with pytest.raises(LossError, match="events 2 to 2") as caught:
            sub.receive(20)
        loss = caught.value
        assert (loss.sender, loss.channel, loss.first, loss.last) == (bus.node, "x", 2, 2)
        assert not loss.retry_is_safe
        assert numbers_of(take(sub, 1)) == [3]
        send(bus, "x.y", 4)
        assert numbers_of(take(sub, 1)) == [4]
        assert (sub.lost, other.stats().lost) == (1, 1)

    def test_a_loss_names_channel_and_class_apart(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub = other.subscribe("news.>")
        engine.lose = {1}
        for n in (1, 2):
            bus.publish("news.fire", {"n": n}, priority="emergency")
            bus.flush()
        # The second is there, and must not overtake the word of the loss.
        wait_until(lambda: other.stats().received_events == 1)
        with pytest.raises(LossError) as caught:
            sub.receive(20)
        loss = caught.value
        assert (loss.channel, loss.priority) == ("news", "emergency")
        assert str(loss) == (
            f"events 1 to 1 of {bus.node} on channel 'news' (class emergency) are lost"
        )

    def test_a_loss_of_the_default_class_names_it_like_an_event(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub = other.subscribe("x.y")
        lose_the_second_of_three(bus, engine)
        (event,) = take(sub, 1)
        with pytest.raises(LossError) as caught:
            sub.receive(20)
        assert caught.value.priority == event.priority == "regular"
        assert str(caught.value) == f"events 2 to 2 of {bus.node} on channel 'x' are lost"

    def test_raise_from_a_loop(self, bus: Bus, engine: LossyEngine, other: Bus) -> None:
        sub = other.subscribe("x.y")
        lose_the_second_of_three(bus, engine)
        seen = []
        with pytest.raises(LossError):
            for event in sub:
                seen.append(event.data["n"])
        for event in sub:
            seen.append(event.data["n"])
            break
        assert seen == [1, 3]

    def test_raise_goes_to_the_error_handler_of_a_callback(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        account: list[object] = []
        other.subscribe("x.y", lambda e: account.append(e.data["n"]), on_error=account.append)
        lose_the_second_of_three(bus, engine)
        wait_until(lambda: len(account) == 3)
        assert (account[0], account[2]) == (1, 3)
        assert isinstance(account[1], LossError)

    def test_without_an_error_handler_it_is_logged(
        self, bus: Bus, engine: LossyEngine, other: Bus, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[int] = []
        other.subscribe("x.y", lambda event: seen.append(event.data["n"]))
        lose_the_second_of_three(bus, engine)
        wait_until(lambda: seen == [1, 3])
        assert "events 2 to 2" in caplog.text

    def test_ignore(
        self, bus: Bus, engine: LossyEngine, other: Bus, caplog: pytest.LogCaptureFixture
    ) -> None:
        sub = other.subscribe("x.y", on_loss="ignore")
        lose_the_second_of_three(bus, engine)
        assert numbers_of(take(sub, 2)) == [1, 3]
        assert "lost" not in caplog.text
        assert sub.loss is not None
        assert (sub.loss.first, sub.loss.last) == (2, 2)

    def test_warn(
        self, bus: Bus, engine: LossyEngine, other: Bus, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "infobus")
        sub = other.subscribe("x.y", on_loss="warn")
        lose_the_second_of_three(bus, engine)
        assert numbers_of(take(sub, 2)) == [1, 3]
        assert caplog.text.count("events 2 to 2") == 1

    def test_quit_closes_the_subscription(self, bus: Bus, engine: LossyEngine, other: Bus) -> None:
        sub = other.subscribe("x.y", on_loss="quit")
        goes_on = other.subscribe("x.y", on_loss="ignore")
        lose_the_second_of_three(bus, engine)
        assert numbers_of(take(goes_on, 2)) == [1, 3]
        assert numbers_of(list(sub)) == [1]
        assert sub.is_closed
        assert list(sub) == []
        with pytest.raises(BusClosed):
            sub.receive(20)
        assert sub.loss is not None
        send(bus, "x.y", 4)
        assert numbers_of(take(goes_on, 1)) == [4]

    def test_quit_ends_a_callback(self, bus: Bus, engine: LossyEngine, other: Bus) -> None:
        seen: list[int] = []
        sub = other.subscribe("x.y", lambda e: seen.append(e.data["n"]), on_loss="quit")
        goes_on = other.subscribe("x.y", on_loss="ignore")
        lose_the_second_of_three(bus, engine)
        take(goes_on, 2)
        wait_until(lambda: sub.is_closed)
        assert seen == [1]

    def test_only_subscriptions_to_the_channel_are_told(
        self, bus: Bus, engine: LossyEngine, other: Bus
    ) -> None:
        sub, everything = other.subscribe("quiet.y"), other.subscribe(">")
        lose_the_second_of_three(bus, engine)
        assert account(everything, 3) == ([1, 3], [(2, 2)])
        send(bus, "quiet.y", 5)
        assert numbers_of(take(sub, 1)) == [5]
        assert sub.lost == 0


def test_a_consumer_that_waits_is_woken_by_a_loss(
    bus: Bus, engine: LossyEngine, other: Bus
) -> None:
    sub = other.subscribe("x.y")
    outcome: list[object] = []

    def consume() -> None:
        try:
            outcome.append(next(sub).data["n"])
            next(sub)
        except LossError as loss:
            outcome.append(loss.first)

    thread = threading.Thread(target=consume)
    thread.start()
    lose_the_second_of_three(bus, engine)
    thread.join(20)
    assert outcome == [1, 2]
