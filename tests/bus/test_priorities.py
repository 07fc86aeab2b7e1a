"""Priority classes: what overtakes what, what is held, and what consumers may ask for."""

import asyncio
import math
import threading
import time

import pytest

import infobus
from infobus import Batch, Bus, Limits, QosRefused, UsageError
from infobus.protocols.frames import wire
from infobus.qos import Upgrade
from tests.bus.helpers import wait_until


def numbers(sub, count):
    return [sub.receive(timeout_s=20).data["n"] for _ in range(count)]


def frames_of(outlet):
    """A list of the frames that leave there from now on."""
    frames, put = [], outlet._put_frame
    outlet._put_frame = lambda frame: (frames.append(wire.decode(frame)), put(frame))
    return frames


@pytest.fixture(params=["here", "elsewhere"])
def consumer(request: pytest.FixtureRequest, bus: Bus) -> Bus:
    return bus if request.param == "here" else request.getfixturevalue("other")


class TestOrder:
    def test_higher_classes_overtake_and_each_class_keeps_its_order(self, bus, consumer):
        sub = consumer.subscribe("city.>")
        for n in range(300):
            bus.publish("city.library", {"n": n})
            if n % 100 == 50:
                bus.publish("city.order", {"n": 1000 + n}, priority="business")
                bus.publish("city.fire", {"n": 2000 + n}, priority="emergency")
        wait_until(lambda: sub.waiting_count == 306)
        assert numbers(sub, 3) == [2050, 2150, 2250]
        assert numbers(sub, 3) == [1050, 1150, 1250]
        assert numbers(sub, 300) == list(range(300))

    def test_an_event_says_its_class(self, bus, consumer):
        sub = consumer.subscribe("x")
        bus.publish("x", {"n": 1}, priority="business")
        bus.publish("x", {"n": 2}, priority="regular")
        assert sub.receive(20).priority == "business"
        assert sub.receive(20).priority == "regular"

    def test_what_the_consumer_has_at_hand_is_overtaken_and_then_gone_on_with(self, bus, consumer):
        sub = consumer.subscribe("x")
        bus.publish_many(("x", {"n": n}) for n in range(100))
        assert numbers(sub, 1) == [0]
        bus.publish("x", {"n": -1}, priority="business")
        wait_until(lambda: sub.waiting_in("business") == 1)
        bus.publish("x", {"n": -2}, priority="emergency")
        wait_until(lambda: sub.waiting_in("emergency") == 1)
        assert numbers(sub, 4) == [-2, -1, 1, 2]
        bus.publish("x", {"n": 100})
        assert numbers(sub, 98) == list(range(3, 101))

    def test_iterators_callbacks_and_coroutines_see_the_same_order(self, bus, consumer):
        began, gate, seen = threading.Event(), threading.Event(), []

        def handle(event):
            began.set()
            gate.wait(20)
            seen.append(event.data["n"])

        called = consumer.subscribe("x", handle)
        iterated = consumer.subscribe("x")
        awaited = consumer.subscribe("x")
        bus.publish("x", {"n": 0})
        for sub in (iterated, awaited):
            wait_until(lambda sub=sub: sub.waiting_count == 1)
        assert began.wait(20)
        bus.publish_many(("x", {"n": n}) for n in range(1, 50))
        bus.publish("x", {"n": -1}, priority="emergency")
        for sub in (called, iterated, awaited):
            wait_until(lambda sub=sub: sub.waiting_in("emergency") == 1)
        gate.set()
        wait_until(lambda: len(seen) == 51)
        assert seen == [0, -1, *range(1, 50)]
        assert [next(iterated).data["n"] for _ in range(51)] == [-1, *range(50)]

        async def take():
            return [(await anext(awaited)).data["n"] for _ in range(51)]

        assert asyncio.run(take()) == [-1, *range(50)]

    def test_a_transaction_has_a_class_of_its_own(self, bus, consumer):
        sub = consumer.subscribe("x")
        bus.publish("x", {"n": 0})
        with bus.transaction(priority="emergency") as tx:
            tx.publish("x", {"n": 1})
            tx.publish("x", {"n": 2})
        wait_until(lambda: sub.waiting_count >= 2)
        first = sub.receive(20)
        assert [event.data["n"] for event in first.data] == [1, 2]
        assert first.priority == "emergency"
        assert numbers(sub, 1) == [0]

    def test_a_class_that_nobody_has_heard_of_is_refused(self, bus):
        with pytest.raises(UsageError, match="emergency, business, regular"):
            bus.publish("x", {}, priority="urgent")
        with pytest.raises(UsageError, match="emergency, business, regular"):
            bus.subscribe("x", priority="urgent")

    def test_a_bus_may_have_other_classes_below_the_default_one(self, connect):
        one, other = (connect(classes=["alarm", "regular", "bulk"]) for _ in range(2))
        sub = other.subscribe("x")
        for n, priority in enumerate(["bulk", "regular", "alarm", "bulk", "regular"]):
            one.publish("x", {"n": n}, priority=priority)
        wait_until(lambda: sub.waiting_count == 5)
        assert numbers(sub, 5) == [2, 1, 4, 0, 3]

    def test_nodes_with_other_classes_get_everything_in_some_class_and_say_so(self, bus, connect):
        before = bus.subscribe("x")
        bus.publish("x", {"n": -1}, priority="emergency")
        stranger = connect(classes=["high", "business"])  # here, business is the default
        sub = stranger.subscribe("x")
        for n, priority in enumerate(["regular", "business", "emergency", "regular"]):
            bus.publish("x", {"n": n}, priority=priority)
        for n, priority in enumerate(["business", "high"], 4):
            stranger.publish("x", {"n": n}, priority=priority)
        wait_until(lambda: sub.waiting_count == 6 and before.waiting_count == 7)
        came = numbers(sub, 6)
        assert came[0] == 5
        assert sorted(came[1:], key=[0, 1, 2, 3].__contains__) == [4, 0, 1, 2, 3], "as usual there"
        assert [n for n in numbers(before, 7) if n < 4] == [-1, 2, 1, 0, 3]
        wait_until(lambda: stranger.node in bus.stats().complaints)
        assert "classes high, business" in bus.stats().complaints[stranger.node]

    def test_a_class_has_its_lane_again_when_those_who_did_not_know_it_are_gone(self, bus, connect):
        stranger, sub = connect(classes=["high", "low"]), connect().subscribe("x")
        wait_until(lambda: stranger.node in bus.stats().complaints)
        bus.publish("x", {"n": 0}, priority="emergency")
        assert sub.receive(20).seq == 1, "as the first on the lane of the default class"
        stranger.close()
        wait_until(lambda: stranger.node not in bus.stats().peers)
        bus.publish("x", {"n": 1}, priority="emergency")
        assert sub.receive(20).seq == 1, "as the first on a lane of its own"


class TestWatermarks:
    def test_a_full_class_holds_its_senders_and_no_other(self, connect, consumer, bus):
        bus.send_timeout_s = 0.3
        sub = consumer.subscribe("x", when_full="block", queue_count_max=8)
        with pytest.raises(infobus.Backpressure):
            for n in range(100_000):
                bus.publish("x", {"n": n})
        bus.publish("x", {"n": -1}, priority="emergency")
        wait_until(lambda: sub.waiting_in("emergency") == 1)
        assert numbers(sub, 1) == [-1]

    def test_a_class_above_its_mark_takes_no_new_subscription_until_there_is_room(self, bus):
        full = bus.subscribe("x", when_full="block", queue_count_max=8)
        for n in range(5):
            bus.publish("x", {"n": n}, priority="business")
        with pytest.raises(QosRefused, match="'business' takes no new subscription"):
            bus.subscribe("y", priority="business")
        bus.subscribe("y", priority="emergency")
        numbers(full, 5)
        bus.subscribe("y", priority="business")

    def test_the_oldest_of_a_full_class_go_with_a_report(self, bus, consumer):
        sub = consumer.subscribe("x", when_full="drop_oldest", queue_count_max=4, on_loss="ignore")
        goes_on = consumer.subscribe("x")
        bus.publish("x", {"n": -1}, priority="emergency")
        for n in range(20):
            bus.publish("x", {"n": n}, priority="business")
        numbers(goes_on, 21)
        assert consumer.stats().dropped_by_queue >= 16
        assert numbers(sub, 1) == [-1]
        left = numbers(sub, sub.waiting_count)
        assert 1 <= len(left) <= 4
        assert left == list(range(20 - len(left), 20))
        assert sub.lost == 1

    def test_a_starving_class_is_raised_for_a_while(self, connect):
        bus = connect(upgrade=Upgrade(after_s=0.1, period_s=0.1))
        sub = bus.subscribe("x", when_full="block", queue_count_max=8)
        bus.publish("x", {"n": 0})  # regular
        seen: list[str] = []

        def moves():
            bus.publish("x", {"n": -1}, priority="business")
            seen.append(sub.receive(20).priority)
            return "regular" in seen

        assert not moves()
        for n in range(1, 5):
            bus.publish("x", {"n": n})  # now it is above its mark
        wait_until(moves)  # although there is always something of a higher class


class TestUpgradesOnTheWire:
    def test_what_starved_at_its_sender_says_so_and_the_next_queue_goes_on(self, connect):
        sender = connect(upgrade=Upgrade(after_s=0.5, period_s=1000), batch=Batch(ms=1))
        never = Upgrade(after_s=1000, period_s=1000)  # by itself the consumer raises nothing
        consumer = connect(upgrade=never, limits=Limits(queue_count_max=16))
        sub = consumer.subscribe("x", when_full="block", queue_count_max=8, max_age=1000)
        sender.send_timeout_s, count, seen = 20, 600, []
        thread = threading.Thread(
            target=lambda: [sender.publish("x", {"n": n}) for n in range(count)]
        )
        thread.start()
        wait_until(lambda: "x" in sender._routing.outlets)
        frames = frames_of(sender._routing.outlets["x"])
        upgrade = sender._routing.outlets["x"]._upgrade
        # A full lane stays full: nobody takes anything.
        wait_until(lambda: time.time() > (upgrade.since_s or math.inf) + 0.5)
        while not any(frame.items.raised_until() for frame in frames):
            seen += numbers(sub, 1)
        wait_until(lambda: sub.queue.classed._queues.state()["regular"].raised)
        for n in range(2):
            sender.publish("x", {"n": -1 - n}, priority="business")
        wait_until(lambda: sub.waiting_in("business") == 2)
        came = numbers(sub, 3)
        assert any(n >= 0 for n in came[:2]), "a raised one took its turn"
        seen += came
        seen += numbers(sub, count + 2 - len(seen))
        thread.join()
        assert [n for n in seen if n >= 0] == list(range(count))

    def test_where_nothing_starves_nothing_is_said(self, bus, other):
        sub = other.subscribe("x")
        bus.publish("x", {"n": 0})
        frames = frames_of(bus._routing.outlets["x"])
        bus.publish("x", {"n": 1})
        assert numbers(sub, 2) == [0, 1]
        assert [frame.items.qos for frame in frames] == [[]]


class TestConsumersChoose:
    def test_the_same_event_has_another_class_for_another_consumer(self, bus, consumer):
        hasty = consumer.subscribe(">", priority="emergency")
        calm = consumer.subscribe(">")
        bus.publish("x", {"n": 1}, priority="business")
        bus.publish("y", {"n": 2})
        bus.publish("x", {"n": 3}, priority="business")
        for sub in (hasty, calm):
            wait_until(lambda sub=sub: sub.waiting_count == 3)
        assert sorted(numbers(hasty, 3)) == [1, 2, 3]
        assert numbers(calm, 3) == [1, 3, 2]

    def test_senders_send_what_is_asked_for_urgently_in_that_class(self, bus, other):
        other.subscribe("news.>", priority="emergency")
        calm = other.subscribe("news.>")
        bus.publish("news.a", {"n": 1})
        event = calm.receive(20)
        assert event.priority == "regular"
        assert "news\x1femergency" in bus._routing.outlets  # it went that way
        assert "news" not in bus._routing.outlets

    def test_what_is_asked_for_ends_with_the_subscription(self, bus, other):
        calm = other.subscribe("news.>")
        other.subscribe("news.>", priority="emergency").close()
        wait_until(lambda: not any(r.requests for r in bus._runtime.node.rows.records.values()))
        bus.publish("news.a", {"n": 1})
        calm.receive(20)
        assert "news" in bus._routing.outlets

    def test_more_than_a_consumers_rate_is_left_out_and_counted(self, bus, consumer):
        sub = consumer.subscribe("x", max_rate=100)
        for n in range(200):
            bus.publish("x", {"n": n})
        wait_until(lambda: sub.waiting_count + sub.thinned == 200)
        assert 5 <= sub.waiting_count < 200
        assert consumer.stats().thinned == sub.thinned
        sub.close()
        assert consumer.stats().thinned == sub.thinned

    @pytest.mark.parametrize("wrong", [{"max_rate": 0}, {"max_age": -1}, {"max_age": float("nan")}])
    def test_nonsense_is_refused(self, bus, wrong):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            bus.subscribe("x", **wrong)


class TestClients:
    def test_only_the_client_that_sends_too_much_is_slowed_down(self, connect):
        server = connect(limits=Limits(events_per_s=20, queue_count_max=4))
        greedy, modest = connect(), connect()
        sub = server.subscribe("x")
        greedy.send_timeout_s = modest.send_timeout_s = 0.5
        with pytest.raises(infobus.Backpressure, match=server.node):
            for n in range(1000):
                greedy.publish("x", {"n": n})
        modest.publish("x", {"n": -1})
        seen = {sub.receive(20).sender for _ in range(sub.waiting_count)}
        wait_until(
            lambda: (
                seen.update(sub.receive(20).sender for _ in range(sub.waiting_count))
                or modest.node in seen
            )
        )

    def test_a_reservation_keeps_its_pace_and_its_place(self, connect):
        bus = connect(capacity=Limits(events_per_s=1000))
        sub = bus.subscribe("x")
        with bus.reserve(800, name="feed") as feed:
            with pytest.raises(QosRefused, match="only 200 of 1000 are free"):
                bus.reserve(300)
            with pytest.raises(UsageError, match="'feed'"):
                bus.reserve(1, name="feed")
            for n in range(100):
                feed.publish("x", {"n": n})
        times = [sub.receive(20).time for _ in range(100)]
        assert times[-1] - times[0] >= 0.02 * 0.9  # 100 events, less a burst of 0.1 s
        bus.reserve(300)
        with pytest.raises(UsageError, match="given back"):
            feed.publish("x", {"n": 0})
