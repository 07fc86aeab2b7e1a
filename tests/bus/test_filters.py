"""Subscriptions with a filter get exactly what it is true of, and nobody sends the rest."""

import itertools
import threading
import time

import pytest

import infobus
from infobus import BadFilter, Bus, BusClosed, DataObject
from infobus.filters import compile
from tests.bus.conftest import Connect
from tests.bus.helpers import numbers_of, send, take, wait_until


class Trade(DataObject):
    symbol: str
    price: float
    alert: str | None = None


class Halt(Trade, name="trades.Halt"):
    reason: str = ""


EXPRESSION = 'symbol == "GMC" && (price > 40 || exists(alert))'
TRADES = [
    Trade(symbol="GMC", price=41.0),
    Trade(symbol="GMC", price=12.0),
    Trade(symbol="GMC", price=12.0, alert="news"),
    Trade(symbol="IBM", price=99.0),
    Halt(symbol="GMC", price=50.0, reason="limit"),
]
WANTED = [TRADES[0], TRADES[2], TRADES[4]]


def publish_trades(bus: Bus) -> None:
    for trade in TRADES:
        bus.publish("trades.x", trade)


class TestDelivery:
    def test_only_what_the_filter_is_true_of_is_delivered(self, bus: Bus, other: Bus) -> None:
        subs = [node.subscribe("trades.>", where=EXPRESSION) for node in (bus, other)]
        publish_trades(bus)
        bus.publish("trades.x", {"symbol": "GMC", "price": 77})
        for sub in subs:
            assert [event.data for event in take(sub, 4)] == [
                *WANTED,
                {"symbol": "GMC", "price": 77},
            ]
            assert sub.waiting_count == 0

    def test_a_compiled_filter_is_as_good_as_its_text(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("trades.>", where=compile(EXPRESSION))
        publish_trades(bus)
        assert [event.data for event in take(sub, 3)] == WANTED

    def test_each_of_many_subscriptions_of_a_node_gets_its_own(self, bus: Bus, other: Bus) -> None:
        subs = [other.subscribe("x.>", where=f"n % 7 == {rest}") for rest in range(7)]
        everything = other.subscribe("x.>")
        bus.publish_many((f"x.s{n % 3}", {"n": n}) for n in range(700))
        for rest, sub in enumerate(subs):
            assert numbers_of(take(sub, 100)) == list(range(rest, 700, 7))
        assert numbers_of(take(everything, 700)) == list(range(700))

    def test_one_with_several_patterns_gets_an_event_once(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe_many(["x.>", "x.y", "*.y"], where="n > 0")
        send(bus, "x.y", 0, 1, 2)
        send(bus, "z.y", 0, 3)
        assert sorted(numbers_of(take(sub, 3))) == [1, 2, 3]
        assert sub.waiting_count == 0

    def test_a_callback_and_an_event_loop_see_the_same(self, bus: Bus, other: Bus) -> None:
        seen: list[int] = []
        other.subscribe("x", lambda event: seen.append(event.data["n"]), where="n > 1")
        send(bus, "x", 1, 2, 0, 3)
        wait_until(lambda: seen == [2, 3])

    def test_subtypes_are_asked_for_by_the_name_of_a_type(self, bus: Bus, other: Bus) -> None:
        halts = other.subscribe("trades.>", where='isa("trades.Halt")')
        trades = other.subscribe("trades.>", where='isa("Trade") && price > 45')
        publish_trades(bus)
        assert halts.receive(20).data == TRADES[4]
        assert [event.data for event in take(trades, 2)] == [TRADES[3], TRADES[4]]

    def test_seq_tells_what_was_filtered_out(self, bus: Bus, other: Bus) -> None:
        sub, everything = other.subscribe("x", where="n % 2 == 0"), other.subscribe("x")
        send(bus, "x", *range(6))
        assert [event.seq for event in take(sub, 3)] == [1, 3, 5]
        assert [event.seq for event in take(everything, 6)] == [1, 2, 3, 4, 5, 6]

    def test_a_full_queue_holds_only_what_is_wanted(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe(
            "x", where="n % 1000 == 0", queue_count_max=10, when_full="disconnect"
        )
        everything = other.subscribe("x")
        bus.publish_many(("x", {"n": n}) for n in range(5000))
        take(everything, 5000)
        assert numbers_of(take(sub, 5)) == [0, 1000, 2000, 3000, 4000]

    def test_best_effort_is_filtered_too(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x", where="n > 1")
        for number in range(4):
            bus.publish("x", {"n": number}, quality="best_effort")
        assert numbers_of(take(sub, 2)) == [2, 3]

    def test_initial_state_is_filtered_too(self, bus: Bus, other: Bus) -> None:
        bus.initial_state("x", lambda: [("x", {"n": 1}), ("x", {"n": 5})])
        sub = other.subscribe("x", where="n > 3", on_loss="quit_and_recover")
        event = sub.receive(20)
        assert (event.data, event.initial) == ({"n": 5}, True)
        send(bus, "x", 2, 6)
        event = sub.receive(20)
        assert (event.data, event.initial) == ({"n": 6}, False)

    def test_closing_one_leaves_the_others(self, bus: Bus, other: Bus) -> None:
        first, second = (other.subscribe("x", where=f"n > {n}") for n in (0, 1))
        first.close()
        send(bus, "x", 1, 2)
        assert second.receive(20).data == {"n": 2}
        second.close()
        wait_until(lambda: bus.publish("x", {"n": 3}) or bus.stats().quenched > 1)


class TestQuench:
    def test_what_nobody_can_want_is_not_sent(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("trades.>", where=EXPRESSION)
        publish_trades(bus)
        take(sub, 3)
        stats = bus.stats()
        assert (stats.published, stats.quenched, stats.sent_events) == (5, 2, 3)

    def test_one_who_wants_everything_ends_it(self, bus: Bus, connect: Connect) -> None:
        subs = [connect().subscribe("trades.>", where=EXPRESSION), connect().subscribe("trades.x")]
        publish_trades(bus)
        assert [event.data for event in take(subs[1], 5)] == TRADES
        assert [event.data for event in take(subs[0], 3)] == WANTED
        assert bus.stats().quenched == 0

    def test_it_can_be_turned_off(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x", where="n > 3")
        bus.publish("x", {"n": 1}, quench=False)
        bus.publish_many([("x", {"n": 2}), ("y", {"n": 9}), ("x", {"n": 4})], quench=False)
        assert sub.receive(20).data == {"n": 4}
        stats = bus.stats()
        assert (stats.quenched, stats.sent_events) == (0, 4)
        assert other.stats().received_events == 3

    def test_nothing_published_after_subscribe_returned_is_quenched(
        self, bus: Bus, connect: Connect
    ) -> None:
        for number in range(20):
            with connect() as other:
                sub = other.subscribe("x", where=f"n == {number}")
                send(bus, "x", number, number + 1)
                assert sub.receive(20).data == {"n": number}
        assert bus.stats().quenched > 10

    def test_an_object_gets_its_id_all_the_same(self, bus: Bus, other: Bus) -> None:
        other.subscribe("x", where="n > 3")
        trade = Trade(symbol="GMC", price=1.0)
        bus.publish("x", trade)
        assert infobus.id_of(trade) is not None


class TestChanging:
    def test_other_events_are_delivered_from_then_on(self, bus: Bus, other: Bus) -> None:
        subs = [node.subscribe("x", where="n < 10") for node in (bus, other)]
        send(bus, "x", 1, 11)
        for sub in subs:
            sub.change_filter("n > 10")
        send(bus, "x", 2, 12)
        for sub in subs:
            sub.change_filter(None)
        send(bus, "x", 3, 13)
        for sub in subs:
            sub.change_filter("n > 100")
        send(bus, "x", 4, 104)
        for sub in subs:
            assert numbers_of(take(sub, 5)) == [1, 12, 3, 13, 104]

    def test_what_both_filters_let_through_is_neither_lost_nor_repeated(
        self, bus: Bus, other: Bus
    ) -> None:
        sub = other.subscribe("x", where="n % 2 == 0 && n >= 0")
        stop = threading.Event()
        numbers = itertools.count()

        def publish() -> None:
            while not stop.is_set():
                bus.publish("x", {"n": next(numbers)})
                time.sleep(1e-4)  # all nodes are threads of one process: let others have it, too

        thread = threading.Thread(target=publish)
        thread.start()
        seen: list[int] = []
        for change in range(40):
            sub.change_filter(f"n % {2 + 2 * (change % 2)} == 0 && n >= -{change}")
            # However long a change takes: a queue that nobody reads would fill, and then lose.
            seen += numbers_of(take(sub, sub.queue.left_in("regular")))
        stop.set()
        thread.join()
        last = next(numbers) - 1
        bus.publish("x", {"n": 4 * last})
        while not seen or seen[-1] != 4 * last:
            seen.append(sub.receive(20).data["n"])
        assert len(set(seen)) == len(seen)
        assert sorted(seen) == seen
        assert set(range(0, last, 4)) <= set(seen)
        assert all(n % 2 == 0 for n in seen)

    def test_a_bad_filter_changes_nothing(self, bus: Bus, other: Bus) -> None:
        sub = other.subscribe("x", where="n > 1")
        with pytest.raises(BadFilter):
            sub.change_filter("n >")
        send(bus, "x", 1, 2)
        assert sub.receive(20).data == {"n": 2}

    def test_a_closed_subscription_cannot_be_changed(self, other: Bus) -> None:
        sub = other.subscribe("x", where="n > 1")
        sub.close()
        with pytest.raises(BusClosed):
            sub.change_filter("n > 2")


class TestBadInput:
    def test_a_bad_filter_is_refused_with_its_place(self, bus: Bus) -> None:
        with pytest.raises(BadFilter) as refused:
            bus.subscribe("x", where="price > && symbol == 'GMC'")
        assert refused.value.position == 8
        assert bus.stats().subscriptions == 0

    def test_something_else_is_refused(self, bus: Bus) -> None:
        with pytest.raises(infobus.UsageError):
            bus.subscribe("x", where=5)  # type: ignore[arg-type]
