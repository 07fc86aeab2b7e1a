"""Age limits: nothing is delivered late, and what grew too old is counted and told."""

import time

import pytest

from infobus import Batch, Bus, UsageError
from tests.bus.helpers import wait_until


@pytest.fixture(params=["here", "elsewhere"])
def consumer(request: pytest.FixtureRequest, bus: Bus) -> Bus:
    return bus if request.param == "here" else request.getfixturevalue("other")


def expired_count(*nodes: Bus) -> int:
    """How many events grew too old: on their way out, or where they were to be taken."""
    return sum(node.stats().expired for node in {*nodes})


def test_an_event_in_time_is_delivered(bus, consumer):
    sub = consumer.subscribe("x")
    bus.publish("x", {"n": 1}, max_age=60)
    assert sub.receive(20).data == {"n": 1}


def test_what_is_too_old_leaves_from_the_middle_of_the_queue(bus, consumer):
    expired = []
    for node in {bus, consumer}:
        node.on_expired(lambda event: expired.append(event.data["n"]))
    sub = consumer.subscribe("x")
    bus.publish("x", {"n": 1})
    bus.publish("x", {"n": 2}, max_age=0.2)
    bus.publish("x", {"n": 3})
    wait_until(lambda: expired == [2])
    assert [sub.receive(20).data["n"] for _ in range(2)] == [1, 3]
    assert expired_count(bus, consumer) == 1


def test_nothing_is_delivered_late_to_a_slow_consumer(bus, consumer):
    sub = consumer.subscribe("x")
    bus.publish_many((("x", {"n": n}) for n in range(50)), max_age=0.3)
    bus.publish("x", {"n": 50})
    taken = []
    while 50 not in taken:
        asked_s = time.time()  # what comes was not too old then, whenever this thread sees it
        event = sub.receive(20)
        assert event.data["n"] == 50 or asked_s - event.time < 0.3 + 0.01  # two clocks
        taken.append(event.data["n"])
        time.sleep(0.02)
    assert taken == sorted(taken)
    assert len(taken) < 50
    wait_until(lambda: expired_count(bus, consumer) == 51 - len(taken))
    assert sub.waiting_count == 0


def test_the_smaller_of_the_two_limits_counts(bus, consumer):
    patient = consumer.subscribe("x", max_age=60)
    hasty = consumer.subscribe("x", max_age=0.1)
    bus.publish("x", {"n": 1}, max_age=60)
    bus.publish("x", {"n": 2})
    wait_until(lambda: consumer.stats().expired == 2)
    assert hasty.waiting_count == 0
    wait_until(lambda: patient.waiting_count == 2)
    hasty.close()
    bus.publish("x", {"n": 3}, max_age=0.1)
    bus.publish("x", {"n": 4})
    wait_until(lambda: expired_count(bus, consumer) == 3)
    assert [patient.receive(20).data["n"] for _ in range(3)] == [1, 2, 4]


def test_what_grows_too_old_before_it_leaves_is_never_sent(connect):
    slow, other = connect(batch=Batch(ms=300)), connect()
    expired = []
    slow.on_expired(lambda event: expired.append(event.data["n"]))
    sub = other.subscribe("x")
    slow.publish("x", {"n": 1}, max_age=0.05)
    slow.publish("x", {"n": 2})
    event = sub.receive(20)
    assert event.data == {"n": 2}
    assert event.seq == 1  # no number was spent on the other
    wait_until(lambda: expired == [1])
    assert slow.stats().expired == 1


def test_expiry_makes_room_for_senders_that_wait(bus, consumer):
    bus.send_timeout_s = 10.0
    sub = consumer.subscribe("x", when_full="block", queue_count_max=4)
    for n in range(20):  # nobody takes anything
        bus.publish("x", {"n": n}, max_age=0.1)
    wait_until(lambda: expired_count(bus, consumer) >= 16)
    assert sub.waiting_count <= 4 + 1


def test_a_listener_that_raises_stops_nobody(bus, consumer, caplog):
    expired = []

    def bad(event):
        raise RuntimeError("no")

    consumer.on_expired(bad)
    consumer.on_expired(lambda event: expired.append(event.subject))
    consumer.subscribe("x", max_age=0.01)  # not the events': those might never leave
    for _ in range(2):
        bus.publish("x", {})
    wait_until(lambda: expired == ["x", "x"])
    assert "a listener for expired events raised" in caplog.text


@pytest.mark.parametrize("max_age", [0, -1, float("inf"), float("nan")])
def test_an_age_limit_must_be_a_time(bus, max_age):
    with pytest.raises(UsageError, match="max_age"):
        bus.publish("x", {}, max_age=max_age)
