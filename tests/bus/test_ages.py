"""Age limits: nothing is delivered late, and what grew too old is counted and told."""

import time

import pytest

from infobus import Batch, Bus, UsageError
from tests.bus.helpers import wait_until


@pytest.fixture(params=["here", "elsewhere"])
def consumer(request: pytest.FixtureRequest, bus: Bus) -> Bus:
    return bus if request.param == "here" else request.getfixturevalue("other")


def test_an_event_in_time_is_delivered(bus, consumer):
    sub = consumer.subscribe("x")
    bus.publish("x", {"n": 1}, max_age=60)
    assert sub.receive(5).data == {"n": 1}


def test_what_is_too_old_leaves_from_the_middle_of_the_queue(bus, consumer):
    expired = []
    consumer.on_expired(lambda event: expired.append(event.data["n"]))
    sub = consumer.subscribe("x")
    bus.publish("x", {"n": 1})
    bus.publish("x", {"n": 2}, max_age=0.2)
    bus.publish("x", {"n": 3})
    wait_until(lambda: expired == [2])
    assert [sub.receive(5).data["n"] for _ in range(2)] == [1, 3]
    assert consumer.stats().expired == 1


def test_nothing_is_delivered_late_to_a_slow_consumer(bus, consumer):
    sub = consumer.subscribe("x")
    bus.publish_many((("x", {"n": n}) for n in range(50)), max_age=0.3)
    ages = []
    while (wait := sub.waiting_count) or not ages:
        try:
            event = sub.receive(0.5)
        except TimeoutError:
            break
        ages.append(time.time() - event.time)
        time.sleep(0.02)
    assert wait < 50
    assert max(ages) < 0.3 + 0.1  # it takes a moment until this line sees it
    assert 0 < len(ages) < 50


def test_the_smaller_of_the_two_limits_counts(bus, consumer):
    patient = consumer.subscribe("x", max_age=60)
    hasty = consumer.subscribe("x", max_age=0.1)
    bus.publish("x", {"n": 1}, max_age=1)
    bus.publish("x", {"n": 2})
    wait_until(lambda: patient.waiting_count == 2)
    wait_until(lambda: hasty.waiting_count == 0)
    assert patient.waiting_count == 2
    wait_until(lambda: patient.waiting_count == 1)
    assert patient.receive(5).data == {"n": 2}


def test_what_grows_too_old_before_it_leaves_is_never_sent(connect):
    slow, other = connect(batch=Batch(ms=300)), connect()
    expired = []
    slow.on_expired(lambda event: expired.append(event.data["n"]))
    sub = other.subscribe("x")
    slow.publish("x", {"n": 1}, max_age=0.05)
    slow.publish("x", {"n": 2})
    event = sub.receive(5)
    assert event.data == {"n": 2}
    assert event.seq == 1  # no number was spent on the other
    wait_until(lambda: expired == [1])
    assert slow.stats().expired == 1


def test_expiry_makes_room_for_senders_that_wait(bus, consumer):
    bus.send_timeout_s = 10.0
    sub = consumer.subscribe("x", when_full="block", queue_count_max=4)
    for n in range(20):  # nobody takes anything
        bus.publish("x", {"n": n}, max_age=0.1)
    wait_until(lambda: consumer.stats().expired >= 16)
    assert sub.waiting_count <= 4 + 1


def test_a_listener_that_raises_stops_nobody(bus, consumer, caplog):
    expired = []

    def bad(event):
        raise RuntimeError("no")

    consumer.on_expired(bad)
    consumer.on_expired(lambda event: expired.append(event.subject))
    consumer.subscribe("x")
    for _ in range(2):
        bus.publish("x", {}, max_age=0.01)
    wait_until(lambda: expired == ["x", "x"])
    assert "a listener for expired events raised" in caplog.text


@pytest.mark.parametrize("max_age", [0, -1, float("inf"), float("nan")])
def test_an_age_limit_must_be_a_time(bus, max_age):
    with pytest.raises(UsageError, match="max_age"):
        bus.publish("x", {}, max_age=max_age)
