"""What is published reaches whoever subscribed: here, elsewhere, once, in order."""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import infobus
from infobus import BadSubject, BadValue, Batch, Bus, BusClosed, DataObject, UsageError
from infobus.engines.memory.engine import MemoryEngine, live_network
from tests.bus.conftest import Connect
from tests.bus.helpers import LossyEngine, numbers_of, send, take, wait_until
from tests.patience import PATIENT


class Tick(DataObject):
    symbol: str
    price: float = 0.0
    tags: list[str] = []  # noqa: RUF012 - each object gets its own


class FineTick(Tick):
    volume: int = 0


def let_threads_meet_everywhere() -> None:
    """Have this thread make way for others between any two steps of the interpreter.

    Some versions of Python do so at calls and loops only, which hides what is not counted safely.
    """

    def trace(frame: FrameType, what: str, arg: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = "/bus/" in frame.f_code.co_filename
        return trace

    sys.settrace(trace)


class TestWhoGetsWhat:
    def test_a_subscriber_on_the_same_node(self, bus: Bus) -> None:
        sub = bus.subscribe("floor.tick")
        bus.publish("floor.tick", Tick(symbol="GMC", price=41.5))
        assert sub.receive(20).data == Tick(symbol="GMC", price=41.5)

    def test_a_subscriber_on_another_node(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("floor.tick")
        bus.publish("floor.tick", FineTick(symbol="GMC", volume=3))
        data = sub.receive(20).data
        assert type(data) is FineTick
        assert data.volume == 3

    def test_a_dict_is_an_untyped_notification(self, bus: Bus, other: Bus) -> None:
        subs = [bus.subscribe("floor.>"), other.subscribe("floor.>")]
        bus.publish("floor.alarm", {"level": 3, "where": ["a", {"b": None}]})
        for sub in subs:
            event = sub.receive(20)
            assert event.data == {"level": 3, "where": ["a", {"b": None}]}
            assert event.type is None

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("news.*", ["news.a"]),
            ("news.>", ["news.a", "news.a.b"]),
            ("*.a", ["news.a", "sport.a"]),
            (">", ["news.a", "news.a.b", "sport.a"]),
            ("news.a.b", ["news.a.b"]),
        ],
    )
    def test_wildcards(self, bus: Bus, other: Bus, pattern: str, expected: list[str]) -> None:
        subs = [bus.subscribe(pattern), other.subscribe(pattern)]
        for subject in ("news.a", "news.a.b", "sport.a"):
            bus.publish(subject, {})
        for sub in subs:
            assert [event.subject for event in take(sub, len(expected))] == expected
            assert sub.waiting_count == 0

    def test_an_event_that_several_patterns_of_a_subscription_match_comes_once(
        self, bus: Bus, other: Bus
    ) -> None:
        subs = [node.subscribe_many(["x.a", "x.*", "y.>", "x.a"]) for node in (bus, other)]
        for subject in ("x.a", "z.a", "y.b.c", "x.b"):
            bus.publish(subject, {})
        for sub in subs:
            assert [event.subject for event in take(sub, 3)] == ["x.a", "y.b.c", "x.b"]
            assert sub.waiting_count == 0

    def test_only_what_is_published_after_subscribing(self, bus: Bus, other: Bus) -> None:
        first = other.subscribe("x.>")
        send(bus, "x.y", *range(10))
        assert numbers_of(take(first, 10)) == list(range(10))
        late = [node.subscribe("x.>") for node in (other, bus)]
        send(bus, "x.y", 10, 11)
        assert numbers_of(take(first, 2)) == [10, 11]
        for sub in late:
            assert numbers_of(take(sub, 2)) == [10, 11]

    def test_nothing_comes_after_the_subscription_was_closed(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x.y")
        send(bus, "x.y", 1)
        assert numbers_of(take(sub, 1)) == [1]
        sub.close()
        wait_until(lambda: bus.stats().peers == (other.node,))
        send(bus, "x.y", 2)
        assert list(sub) == []

    def test_names_keep_buses_apart(self, bus: Bus) -> None:
        with infobus.connect(bus.name + "-else", engine="memory", patience=PATIENT) as stranger:
            sub = stranger.subscribe(">")
            bus.publish("x.y", {})
            assert bus.stats().quenched == 1
            assert sub.waiting_count == 0

    def test_deep_channels(self, connect: Connect) -> None:
        one, two = connect(depth=2), connect(depth=2)
        sub = two.subscribe_many(["a.b.>", "a"])
        for subject in ("a.b.c", "a.c.d", "a"):
            one.publish(subject, {})
        assert sorted(event.subject for event in take(sub, 2)) == ["a", "a.b.c"]

    def test_more_channels_than_a_node_listens_to_one_by_one(self, bus: Bus, other: Bus) -> None:
        subjects = [f"c{number}.x" for number in range(40)]
        sub = other.subscribe_many(subjects)
        for subject in subjects:
            bus.publish(subject, {})
        assert sorted(event.subject for event in take(sub, 40)) == sorted(subjects)


class TestTheEvent:
    def test_is_the_same_for_everyone(self, bus: Bus, other: Bus) -> None:
        subs = [bus.subscribe("floor.*"), other.subscribe("floor.tick"), other.subscribe(">")]
        before = time.time()
        bus.publish("floor.tick", Tick(symbol="A"))
        bus.publish("floor.tick", FineTick(symbol="B"))
        ids = set()
        for sub in subs:
            first, second = take(sub, 2)
            assert (first.subject, first.sender, first.priority) == (
                "floor.tick",
                bus.node,
                "regular",
            )
            assert (first.type, second.type) == ("Tick", "FineTick")
            assert (first.seq, second.seq) == (1, 2)
            assert before - 1 <= first.time <= second.time <= time.time() + 1
            assert first.id != second.id
            assert infobus.id_of(first.data) == first.id
            ids.add((first.id, second.id))
        assert len(ids) == 1

    def test_ids_differ_between_senders(self, bus: Bus, other: Bus) -> None:
        sub = bus.subscribe("x")
        bus.publish("x", {})
        other.publish("x", {})
        first, second = take(sub, 2)
        assert first.id != second.id

    def test_an_object_keeps_its_id_when_it_is_published_again(self, bus: Bus, other: Bus) -> None:
        there = other.subscribe("one.x")
        back = [bus.subscribe("two.x"), other.subscribe("two.x")]
        tick = Tick(symbol="A")
        bus.publish("one.x", tick)
        received = there.receive(20).data
        assert infobus.id_of(received) == infobus.id_of(tick)
        other.publish("two.x", received)
        for sub in back:
            event = sub.receive(20)
            assert infobus.id_of(event.data) == infobus.id_of(tick)
            assert event.id != infobus.id_of(tick)

    def test_subscribers_do_not_share_objects(self, bus: Bus, other: Bus) -> None:
        subs = [node.subscribe("x") for node in (bus, bus, other, other)]
        tick = Tick(symbol="A", tags=["old"])
        bus.publish("x", tick)
        tick.tags.append("new")
        tick.symbol = "B"
        for sub in subs:
            data = sub.receive(20).data
            assert (data.symbol, data.tags) == ("A", ["old"])
            data.tags.append("mine")


class TestOrder:
    def test_each_threads_events_stay_in_order(self, bus: Bus, other: Bus) -> None:
        subs = [bus.subscribe("x.*"), other.subscribe("x.*")]

        def publish(thread: int) -> None:
            for number in range(300):
                bus.publish(f"x.t{thread}", {"n": number})

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for sub in subs:
            events = take(sub, 1200)
            for number in range(4):
                own = [event for event in events if event.subject == f"x.t{number}"]
                assert numbers_of(own) == list(range(300))
            assert [event.seq for event in events] == list(range(1, 1201))
        for thread in threads:
            thread.join()

    def test_threads_share_a_subscription_and_each_event_goes_to_one_of_them(
        self, bus: Bus, other: Bus
    ) -> None:
        sub = other.subscribe("x")
        seen: list[list[int]] = [[], [], [], []]

        def loop(own: list[int]) -> None:
            own.extend(event.data["n"] for event in sub)

        def receive(own: list[int]) -> None:
            with contextlib.suppress(BusClosed):
                while True:
                    own.append(sub.receive().data["n"])

        threads = [
            threading.Thread(target=consume, args=(own,))
            for consume, own in zip((loop, receive, loop, receive), seen, strict=True)
        ]
        for thread in threads:
            thread.start()
        for number in range(5000):
            bus.publish("x", {"n": number})
        bus.close()
        sub.close()
        for thread in threads:
            thread.join(20)
        assert sorted(itertools.chain(*seen)) == list(range(5000))
        assert all(own == sorted(own) for own in seen)

    def test_publish_many_keeps_the_order_and_needs_few_frames(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x.>")
        bus.publish_many((f"x.s{number % 7}", {"n": number}) for number in range(1000))
        assert numbers_of(take(sub, 1000)) == list(range(1000))
        assert bus.stats().sent_frames < 50

    def test_an_error_in_publish_many_leaves_those_before_it_sent(
        self, bus: Bus, other: Bus
    ) -> None:
        sub = other.subscribe("x.>")
        with pytest.raises(BadSubject):
            bus.publish_many([("x.a", {"n": 1}), ("x.b", {"n": 2}), ("x..c", {"n": 3})])
        assert numbers_of(take(sub, 2)) == [1, 2]

    def test_best_effort_arrives_in_order_when_nothing_is_wrong(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x")
        for number in range(100):
            bus.publish("x", {"n": number}, quality="best_effort")
        events = take(sub, 100)
        assert numbers_of(events) == list(range(100))
        assert {event.seq for event in events} == {0}

    def test_best_effort_of_many_threads_arrives(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x")

        def publish() -> None:
            for number in range(200):
                bus.publish("x", {"n": number}, quality="best_effort")

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(numbers_of(take(sub, 800))) == sorted(4 * list(range(200)))

    def test_best_effort_neither_repairs_nor_reports(self, bus_name: str, connect: Connect) -> None:
        engine = LossyEngine(bus_name)
        bus, other = connect(engine=engine), connect()
        sub = other.subscribe("x")
        engine.drop = {0}
        for number in range(3):
            bus.publish("x", {"n": number}, quality="best_effort")
        assert numbers_of(take(sub, 2)) == [1, 2]
        assert other.stats().asked_again == 0


class TestGathering:
    def test_channels_do_not_overtake_each_other(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe(">")
        for number in range(300):
            bus.publish(f"c{number % 7 // 3}.x", {"n": number})
        assert numbers_of(take(sub, 300)) == list(range(300))

    def test_a_batch_leaves_when_it_is_full_or_flushed(self, connect: Connect) -> None:
        bus, other = connect(batch=Batch(bytes=1000, ms=60_000)), connect()
        sub = other.subscribe("x")
        for number in range(30):
            bus.publish("x", {"n": number, "fill": "x" * 100})
        assert 1 <= bus.stats().sent_frames <= 5
        bus.flush()
        assert numbers_of(take(sub, 30)) == list(range(30))
        assert bus.stats().sent_frames <= 6

    def test_batches_of_many_channels_do_not_wait_for_each_other(self, connect: Connect) -> None:
        bus, other = connect(batch=Batch(ms=300)), connect()
        sub = other.subscribe(">")
        started_s = time.monotonic()
        for number in range(60):
            bus.publish(f"c{number}.x", {})
        take(sub, 60)
        assert time.monotonic() - started_s < 12  # one after the other it would be 18 s

    @pytest.mark.parametrize(
        "wrong",
        [{"bytes": 0}, {"ms": -1}, {"bytes": 10**9}, {"ms": 10**9}, {"bytes": "4k"}, {"ms": None}],
    )
    def test_impossible_batches_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(UsageError, match="batch"):
            Batch(**wrong)  # type: ignore[arg-type]


class TestQuench:
    def test_what_nobody_wants_is_neither_encoded_nor_sent(self, bus: Bus, other: Bus) -> None:
        other.subscribe("x.wanted")
        cyclic: dict[str, object] = {}
        cyclic["self"] = cyclic
        bus.publish("x.unwanted", cyclic)  # encoding it would fail
        stats = bus.stats()
        assert (stats.published, stats.quenched, stats.sent_frames) == (1, 1, 0)

    def test_it_ends_with_a_subscription_and_begins_when_that_is_closed(
        self, bus: Bus, other: Bus
    ) -> None:
        bus.publish("x", {})
        sub = other.subscribe("x")
        bus.publish("x", {})
        assert sub.receive(20).data == {}
        sub.close()

        def is_quenched() -> bool:
            before = bus.stats().quenched
            bus.publish("x", {})
            return bus.stats().quenched > before

        wait_until(is_quenched)

    def test_one_frame_per_node_however_many_of_its_subscriptions_match(
        self, bus_name: str, connect: Connect
    ) -> None:
        engine = LossyEngine(bus_name)
        bus, other = connect(engine=engine), connect()
        subs = [other.subscribe(pattern) for pattern in ("x.y", "x.*", ">", "x.>")]
        send(bus, "x.y", 1)
        for sub in subs:
            assert numbers_of(take(sub, 1)) == [1]
        assert engine.put_keys == ["c/x"]
        assert other.stats().received_events == 1


class TestWhatIsRefused:
    @pytest.mark.parametrize("subject", ["", ".", "a..b", "a.", "a.*", ">", "a\0b", "x" * 100_000])
    def test_malformed_subjects(self, bus: Bus, other: Bus, subject: str) -> None:
        sub = other.subscribe(">")
        with pytest.raises(BadSubject):
            bus.publish(subject, {})
        with pytest.raises(BadSubject):
            bus.publish_many([(subject, {})])
        send(bus, "a", 1)
        assert numbers_of(take(sub, 1)) == [1]

    @pytest.mark.parametrize("pattern", ["", "a..b", ">.a", "a.>.b"])
    def test_malformed_patterns(self, bus: Bus, pattern: str) -> None:
        with pytest.raises(BadSubject):
            bus.subscribe(pattern)
        with pytest.raises(BadSubject):
            bus.subscribe_many(["fine", pattern])
        with pytest.raises(BadSubject):
            bus.initial_state(pattern, list)
        assert bus.stats().subscriptions == 0

    def test_wrong_arguments_of_subscribe(self, bus: Bus) -> None:
        with pytest.raises(UsageError, match=r"list of patterns.*'a\.b'"):
            bus.subscribe_many("a.b")
        with pytest.raises(UsageError, match="no pattern"):
            bus.subscribe_many([])
        with pytest.raises(UsageError, match=r"on_loss='panic'.*'raise'"):
            bus.subscribe("a", on_loss="panic")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"when_full='explode'.*'pace'"):
            bus.subscribe("a", when_full="explode")  # type: ignore[arg-type]
        for wrong in (0, 2.5, "3"):
            with pytest.raises(UsageError, match="queue_count_max="):
                bus.subscribe("a", queue_count_max=wrong)  # type: ignore[arg-type]
        for wrong in (0, -1, "soon", float("nan"), float("inf")):
            with pytest.raises(UsageError, match="max_age="):
                bus.subscribe("a", max_age=wrong)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="max_rate="):
                bus.subscribe("a", max_rate=wrong)  # type: ignore[arg-type]
        for wrong in ("", 5):
            with pytest.raises(UsageError, match="durable="):
                bus.subscribe("a", durable=wrong)  # type: ignore[call-overload]
        with pytest.raises(BadSubject, match="got list"):
            bus.subscribe(["a", "b"])  # type: ignore[arg-type]
        assert bus.stats().subscriptions == 0

    @pytest.mark.parametrize("wrong", ["1", float("nan"), 1e20])
    def test_a_timeout_that_is_none(self, bus: Bus, wrong: float) -> None:
        sub = bus.subscribe("a")
        with pytest.raises(UsageError, match="timeout_s="):
            sub.receive(wrong)
        send(bus, "a", 1)
        assert sub.receive(20).data["n"] == 1

    def test_an_unknown_quality_reaches_nobody(self, bus: Bus, other: Bus) -> None:
        here, there = bus.subscribe("x"), other.subscribe("x")
        with pytest.raises(UsageError, match="quality='perfect'"):
            bus.publish("x", {}, quality="perfect")  # type: ignore[arg-type]
        assert (here.waiting_count, there.waiting_count) == (0, 0)

    def test_objects_that_cannot_be_sent_harm_nobody(self, bus: Bus, other: Bus) -> None:
        subs = [bus.subscribe("x"), other.subscribe("x")]
        cyclic: dict[str, object] = {}
        cyclic["self"] = cyclic
        for wrong in (cyclic, {"blob": b"x" * (17 << 20)}, {"f": print}, {1: 2}, 7, 1.5, None):
            with pytest.raises(BadValue):
                bus.publish("x", wrong)
        send(bus, "x", 1)
        for sub in subs:
            event = sub.receive(20)
            assert (event.data["n"], event.seq) == (1, 1)


class TestStatistics:
    def test_looking_changes_nothing(self, bus: Bus) -> None:
        ticks = [Tick(symbol=symbol) for symbol in ("GMC", "IBM")]
        bus.publish("x", ticks[0])
        assert bus.stats() == bus.stats()
        bus.publish("x", ticks[1])
        assert [infobus.id_of(tick) for tick in ticks] == [f"{bus.node}:0", f"{bus.node}:1"]
        assert bus.stats().published == 2

    def test_what_many_threads_publish_is_counted_exactly(self, bus: Bus) -> None:
        bus.subscribe("x", lambda event: None)
        threads, rounds = 8, 50

        def publish() -> None:
            let_threads_meet_everywhere()
            for _ in range(rounds):
                bus.publish("x", {})
                bus.publish("nobody", {})
                bus.publish("nobody", {}, test=True)
                bus.publish_many([("x", {}), ("nobody", {})])
                for test in (True, False):
                    with bus.transaction(test=test) as tx:
                        tx.publish("nobody", {})
                        tx.publish("nobody", {})
                bus.stats()

        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            running = [threading.Thread(target=publish) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
        finally:
            sys.setswitchinterval(interval_s)
        stats = bus.stats()
        assert (stats.published, stats.quenched) == (threads * rounds * 6, threads * rounds * 4)

    def test_test_events_that_are_refused_are_not_counted_either(self, bus: Bus) -> None:
        with pytest.raises(BadSubject):
            bus.publish("x..y", {}, test=True)
        with pytest.raises(BadSubject):
            bus.publish_many([("x..y", {})], test=True)
        assert bus.stats().published == 0

    def test_the_numbers_add_up(self, bus: Bus, other: Bus) -> None:
        here = bus.subscribe("x.>")
        there = [other.subscribe("x.>"), other.subscribe("x.y")]
        for number in range(10):
            bus.publish("x.y", {"n": number})
            bus.publish("nobody.wants", {})
        for sub in (here, *there):
            assert numbers_of(take(sub, 10)) == list(range(10))
        wait_until(lambda: bus.stats().unconfirmed == 0)
        sent, received = bus.stats(), other.stats()
        assert (sent.published, sent.quenched, sent.sent_events) == (20, 10, 10)
        assert 1 <= sent.sent_frames <= 10
        assert received.received_events == 10
        assert received.received_bytes >= sent.sent_bytes > 0
        assert received.received_frames >= sent.sent_frames
        assert (sent.node, sent.peers) == (bus.node, (other.node,))
        assert (sent.subscriptions, received.subscriptions) == (1, 2)
        for stats in (sent, received):
            assert (stats.waiting, stats.lost, stats.dropped_by_queue) == (0, 0, 0)
            assert (stats.asked_again, stats.replayed) == (0, 0)
            assert (stats.bad_frames, stats.bad_objects, stats.complaints) == (0, 0, {})

    def test_waiting_counts_what_was_not_taken(self, bus: Bus) -> None:
        sub = bus.subscribe("x")
        send(bus, "x", 1, 2, 3)
        assert (bus.stats().waiting, sub.waiting_count) == (3, 3)
        assert "3 waiting" in repr(sub)


@pytest.mark.parametrize("declarations_count_max", [16, 100])
def test_a_node_listens_to_single_channels_as_far_as_its_engine_likes(
    bus_name: str, connect: Connect, bus: Bus, declarations_count_max: int
) -> None:
    engine = MemoryEngine(live_network(bus_name))
    engine.declarations_count_max = declarations_count_max
    subscriptions = [connect(engine=engine).subscribe_many([f"c{n}.x" for n in range(50)])]
    keys = {one.key for one in engine.frames if one.key.startswith("c/")}
    assert keys == ({f"c/c{n}" for n in range(50)} if declarations_count_max > 50 else {"c/**"})
    send(bus, "c7.x", 1)
    assert numbers_of(take(subscriptions[0], 1)) == [1]
