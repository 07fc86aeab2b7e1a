"""Guaranteed events: on disk before `publish` returns, delivered until they are settled."""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import Backpressure, BadSubject, Bus, BusClosed, DataObject, UsageError
from infobus.bus.durable.driver import Guarantees
from infobus.bus.durable.homes import Homes
from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
from infobus.bus.settings import ledgers_folder
from infobus.errors import DurableInUse, StoreError, StoreFull
from infobus.protocols.frames import guaranteed as guaranteed_wire
from infobus.protocols.frames import wire
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.folder import ledger_ids
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.sqlite.database import Facts
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S


class Order(DataObject):
    item: str
    count: int = 1


Join = Callable[..., Bus]


@pytest.fixture
def join(connect: Connect, tmp_path: Path) -> Join:
    """Connect a process that has a home of its own, or that of the name given."""
    homes = itertools.count()

    def join(home: str = "", **options: Any) -> Bus:
        return connect(home=tmp_path / (home or f"home{next(homes)}"), **options)

    return join


@pytest.fixture
def shop(join: Join) -> Bus:
    return join("shop")


@pytest.fixture
def office(shop: Bus, join: Join) -> Bus:
    return join("office")


def place(bus: Bus, *counts: int, **options: Any) -> None:
    for count in counts:
        bus.publish("orders.new", Order(item="valve", count=count), guaranteed=True, **options)


def counts(sub: DurableSubscription, number: int) -> list[int]:
    """Take so many events, and settle them."""
    found = []
    for _ in range(number):
        event = sub.receive(20)
        found.append(event.data.count)
        event.ack()
    return found


def no_room(*_: object) -> None:
    raise StoreFull("no room", path="store")


class TestDelivery:
    @pytest.mark.parametrize("where", ["here", "elsewhere"])
    def test_a_durable_consumer_gets_them_in_order(
        self, shop: Bus, office: Bus, where: str
    ) -> None:
        sub = (shop if where == "here" else office).subscribe("orders.>", durable="billing")
        place(shop, 1, 2)
        shop.publish_many(
            [("orders.new", Order(item="pipe", count=n)) for n in range(3, 9)], guaranteed=True
        )
        assert counts(sub, 8) == list(range(1, 9))

    def test_others_get_them_as_ever_under_the_same_object_id(self, shop: Bus, office: Bus) -> None:
        durable, plain = office.subscribe("orders.>", durable="billing"), office.subscribe(">")
        order = Order(item="valve")
        shop.publish("orders.new", order, guaranteed=True)
        kept, sent = durable.receive(20), plain.receive(20)
        assert kept.data == sent.data == order
        assert infobus.id_of(kept.data) == infobus.id_of(sent.data) == infobus.id_of(order)
        assert kept.id == infobus.id_of(order)

    def test_what_nobody_listens_to_is_counted_and_kept(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        for _ in range(2):
            place(shop, 1, 2)
            shop.publish_many([("orders.new", Order(item="pipe", count=3))], guaranteed=True)
        assert (shop.stats().published, shop.stats().quenched) == (6, 6)
        assert counts(sub, 6) == [1, 2, 3] * 2

    def test_what_is_published_while_it_is_away_waits(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        place(shop, 1)
        assert counts(sub, 1) == [1]
        sub.close()
        place(shop, 2, 3)
        with office.subscribe("orders.>", durable="billing") as sub:
            assert counts(sub, 2) == [2, 3]

    def test_one_that_the_publisher_never_met_gets_all_since_its_registration(
        self, join: Join
    ) -> None:
        with join("shop") as shop:
            place(shop, 1)
        with join("office") as office:
            office.subscribe("orders.>", durable="billing").close()
        with join("shop") as shop:
            place(shop, 2, 3)
        # The ledger is taken up again by a process of that home that publishes nothing itself.
        join("shop")
        sub = join("office").subscribe("orders.>", durable="billing")
        assert counts(sub, 2) == [2, 3]

    def test_subjects_and_filters_choose(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.*", durable="billing", where='isa("Order") && count > 5')
        place(shop, 1, 9)
        shop.publish("stock.out", Order(item="valve", count=10), guaranteed=True)
        shop.publish("orders.new", {"count": 11}, guaranteed=True)
        place(shop, 12)
        assert counts(sub, 2) == [9, 12]

    def test_several_consumers_and_several_publishers(self, shop: Bus, join: Join) -> None:
        subs = [join().subscribe("orders.>", durable=name) for name in ("billing", "stock")]
        shops = [shop, join(), join("shop")]
        for number, one in enumerate(shops):
            place(one, *range(10 * number, 10 * number + 5))
        for sub in subs:
            found = counts(sub, 15)
            assert sorted(found) == [10 * a + b for a in range(3) for b in range(5)]
            for tens in range(3):
                own = [count for count in found if count // 10 == tens]
                assert own == sorted(own)

    def test_a_program_without_the_class_reads_them(self, shop: Bus, office: Bus) -> None:
        made = infobus.define_type("guaranteed.Unseen", [], {"n": int})
        sub = office.subscribe("x", durable="reader")
        shop.publish("x", made(n=7), guaranteed=True)
        event = sub.receive(20)
        assert (event.data.n, event.type) == (7, "guaranteed.Unseen")

    def test_test_events_come_only_to_those_who_ask(self, shop: Bus, office: Bus) -> None:
        regular = office.subscribe("orders.>", durable="billing")
        testing = office.subscribe("orders.>", durable="trial", test=True)
        place(shop, 1, test=True)
        place(shop, 2)
        assert counts(regular, 1) == [2]
        events = [testing.receive(20) for _ in range(2)]
        assert [(e.data.count, e.test) for e in events] == [(1, True), (2, False)]

    def test_a_transaction_is_kept_and_settled_as_one(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing", where="count > 1")
        plain = office.subscribe(">")
        order = Order(item="pipe", count=2)
        with shop.transaction(guaranteed=True) as tx:
            tx.publish("stock.out", Order(item="valve", count=9))
            tx.publish("orders.new", Order(item="valve", count=1))
            tx.publish("orders.new", order)
            tx.publish("orders.paid", Order(item="pipe", count=3))
        place(shop, 4)
        kept = sub.receive(20)
        assert [(one.subject, one.data.count) for one in kept.data] == [
            ("orders.new", 2),
            ("orders.paid", 3),
        ]
        assert infobus.id_of(kept.data.events[0].data) == infobus.id_of(order)
        assert len(plain.receive(20).data) == 4
        kept.nack()
        again = sub.receive(20)
        assert (len(again.data), again.deliveries) == (2, 2)
        assert counts(sub, 1) == [4]

    @pytest.mark.parametrize("way", ["one", "many", "group"])
    def test_what_is_kept_is_not_refused_because_a_listener_has_no_room(
        self, shop: Bus, office: Bus, caplog: pytest.LogCaptureFixture, way: str
    ) -> None:
        """Whoever tried again would have the durable consumers get it twice."""
        sub = office.subscribe("orders.>", durable="billing")
        shop.subscribe("orders.>", when_full="block", queue_count_max=1)
        shop.send_timeout_s = 0.05
        with pytest.raises(Backpressure):
            for _ in range(100):
                shop.publish("orders.new", {})
        event = ("orders.new", Order(item="valve", count=1))
        if way == "one":
            shop.publish(*event, guaranteed=True)
        elif way == "many":
            shop.publish_many([event], guaranteed=True)
        else:
            with shop.transaction(guaranteed=True) as tx:
                tx.publish(*event)
        kept = sub.receive(20).data
        order = kept.events[0].data if way == "group" else kept
        assert order.count == 1
        assert "are kept, but not sent to others: receivers did not keep up" in caplog.text


class TestSettling:
    def test_asking_for_the_next_settles_the_one_before(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        place(shop, 1, 2, 3)
        assert [sub.receive(20).data.count for _ in range(2)] == [1, 2]
        sub.close()
        with office.subscribe("orders.>", durable="billing") as sub:
            assert counts(sub, 2) == [2, 3]

    def test_explicitly_nothing_else_does(self, shop: Bus, office: Bus) -> None:
        options = {"durable": "billing", "acknowledge": "explicit", "ordered": False}
        sub = office.subscribe("orders.>", **options)
        place(shop, 1, 2, 3)
        events = [sub.receive(20) for _ in range(3)]
        events[1].ack()
        events[1].ack()
        sub.close()
        with office.subscribe("orders.>", **options) as sub:
            assert counts(sub, 2) == [1, 3]

    def test_a_nack_brings_it_again_and_holds_the_others(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing", acknowledge="explicit")
        place(shop, 1, 2)
        first = sub.receive(20)
        first.nack()
        again = sub.receive(20)
        assert (again.data.count, again.id, again.deliveries) == (1, first.id, 2)
        again.ack()
        assert counts(sub, 1) == [2]

    def test_unordered_the_others_go_on(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing", ordered=False)
        place(shop, 1, 2)
        sub.receive(20).nack()
        assert counts(sub, 2) == [2, 1]

    def test_a_callback_settles_by_returning_and_not_by_raising(
        self, shop: Bus, office: Bus
    ) -> None:
        seen: list[tuple[int, int]] = []

        def handle(event: DurableEvent) -> None:
            seen.append((event.data.count, event.deliveries))
            if event.deliveries == 1 and event.data.count == 1:
                raise ValueError("not now")

        office.subscribe("orders.>", handle, durable="billing")
        place(shop, 1, 2)
        wait_until(lambda: seen == [(1, 1), (1, 2), (2, 1)])

    def test_in_an_event_loop(self, shop: Bus, office: Bus) -> None:
        async def consume() -> list[int]:
            sub = await office.aio.subscribe("orders.>", durable="billing")
            place(shop, 1, 2, 3)
            found = []
            async for event in sub:
                found.append(event.data.count)
                if len(found) == 3:
                    return found
            return found

        assert asyncio.run(consume()) == [1, 2, 3]

    def test_tasks_that_publish_at_once_share_a_commit(
        self, shop: Bus, office: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        commits: list[int] = []
        publish_many = shop.publish_many

        def counted(events: list[Any], **options: Any) -> None:
            commits.append(len(events))
            publish_many(events, **options)

        monkeypatch.setattr(shop, "publish_many", counted)

        async def publish(count: int) -> None:
            order = Order(item="valve", count=count)
            await shop.aio.publish("orders.new", order, guaranteed=True)

        async def publish_all() -> None:
            await asyncio.gather(*(publish(count) for count in range(20)))

        asyncio.run(publish_all())
        assert counts(sub, 20) == list(range(20))
        assert commits == [20]

    def test_a_task_that_publishes_nonsense_does_not_trouble_the_others(
        self, shop: Bus, office: Bus
    ) -> None:
        sub = office.subscribe(">", durable="billing")

        async def publish() -> list[BaseException | None]:
            tasks = [
                asyncio.create_task(shop.aio.publish(subject, {}, guaranteed=True))
                for subject in ("one", "no..subject", "two", "three")
            ]
            await asyncio.sleep(0)  # all of them have begun
            tasks[2].cancel()  # too late: it is kept all the same
            return await asyncio.gather(*tasks, return_exceptions=True)

        one, nonsense, two, three = asyncio.run(publish())
        assert isinstance(nonsense, BadSubject) and isinstance(two, asyncio.CancelledError)
        assert one is three is None
        assert [sub.receive(20).subject for _ in range(3)] == ["one", "two", "three"]

    def test_tasks_of_several_event_loops_publish_at_once_and_again_after_a_rest(
        self, shop: Bus, office: Bus
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")

        async def publish_each(numbers: range) -> None:
            for count in numbers:
                order = Order(item="valve", count=count)
                await shop.aio.publish("orders.new", order, guaranteed=True)

        def publish(start: int) -> None:
            asyncio.run(publish_each(range(start, start + 10)))

        with ThreadPoolExecutor(3) as threads:
            [*threads.map(publish, (0, 10, 20))]
        name = f"infobus-commits-the bus {shop.name!r}"
        wait_until(lambda: name not in [thread.name for thread in threading.enumerate()])
        publish(30)
        assert sorted(counts(sub, 40)) == list(range(40))

    def test_what_cannot_be_used_becomes_a_dead_letter(self, shop: Bus, office: Bus) -> None:
        dead = office.subscribe("dead_letters.>", durable="undertaker")
        sub = office.subscribe("orders.>", durable="billing", deliveries_max=2)
        place(shop, 1, 2)
        for _ in range(2):
            sub.receive(20).nack()
        assert counts(sub, 1) == [2]
        letter = dead.receive(20)
        assert letter.subject == "dead_letters.billing"
        assert letter.data.object == Order(item="valve", count=1)
        assert (letter.data.reason, letter.data.deliveries) == ("delivered too often", 2)
        assert letter.data.subject == "orders.new"

    @pytest.mark.parametrize("is_gone", [False, True])
    def test_they_keep_their_class(self, join: Join, is_gone: bool) -> None:
        shop, office = join("shop"), join("office")
        sub = office.subscribe("orders.>", durable="billing")
        if is_gone:
            sub.close()
        place(shop, 1)
        place(shop, 2, priority="emergency")
        shop.publish_many(
            [("orders.new", Order(item="pipe"))], guaranteed=True, priority="business"
        )
        with shop.transaction(guaranteed=True, priority="emergency") as tx:
            tx.publish("orders.new", Order(item="valve"))
        if is_gone:
            shop.close()
            join("shop")  # takes the ledger over
            sub = office.subscribe("orders.>", durable="billing")
        events = [sub.receive(20) for _ in range(4)]
        found = [event.priority for event in events]
        assert found == ["regular", "emergency", "business", "emergency"]
        assert [one.priority for one in events[-1].data] == ["emergency"]

    def test_without_a_class_they_are_of_the_default_class(self, join: Join) -> None:
        shop = join("shop", classes=("high", "low"))
        sub = shop.subscribe("orders.>", durable="billing")
        place(shop, 1)
        assert sub.receive(20).priority == "low"

    def test_what_comes_too_late_becomes_a_dead_letter(self, shop: Bus, office: Bus) -> None:
        dead = office.subscribe("dead_letters.>", durable="undertaker")
        office.subscribe("orders.>", durable="billing").close()
        place(shop, 1, max_age=0.05)
        place(shop, 2)
        late_s = time.time() + 0.05
        wait_until(lambda: time.time() > late_s)
        assert counts(office.subscribe("orders.>", durable="billing"), 1) == [2]
        letter = dead.receive(20).data
        assert (letter.reason, letter.deliveries, letter.object.count) == ("expired", 0, 1)

    def test_a_dead_transaction_keeps_its_events(self, shop: Bus, office: Bus) -> None:
        dead = office.subscribe("dead_letters.>", durable="undertaker")
        sub = office.subscribe("orders.>", durable="billing", deliveries_max=1)
        with shop.transaction(guaranteed=True) as tx:
            tx.publish("orders.new", Order(item="valve"))
            tx.publish("stock.out", {"count": 2})
        sub.receive(20).nack()
        assert dead.receive(20).data.object == [
            {"subject": "orders.new", "object": Order(item="valve")},
            {"subject": "stock.out", "object": {"count": 2}},
        ]

    def test_a_pause_and_a_restart_of_everything_repeat_nothing_settled(self, join: Join) -> None:
        found: list[int] = []
        for start in range(0, 12, 4):
            with join("shop") as shop, join("office") as office:
                sub = office.subscribe("orders.>", durable="billing")
                place(shop, *range(start, start + 4))
                found += counts(sub, 4)
        assert found == list(range(12))


class TestBadInput:
    def test_a_name_is_used_by_one_at_a_time(self, office: Bus, join: Join) -> None:
        office.subscribe("orders.>", durable="billing")
        for bus in (office, join("office")):
            with pytest.raises(DurableInUse, match="'billing'"):
                bus.subscribe("orders.>", durable="billing")

    def test_an_older_copy_of_a_ledger_is_not_taken_for_it(
        self, join: Join, office: Bus, tmp_path: Path
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        with join("other") as other:
            place(other, 1)
            assert counts(sub, 1) == [1]
        (ledger,) = (tmp_path / "other").glob("buses/*/ledgers/*.db")
        copy = ledger.read_bytes()
        with join("other") as other:
            place(other, 2, 3)
            assert counts(sub, 2) == [2, 3]
        ledger.write_bytes(copy)
        with join("other"), pytest.raises(StoreError, match="has settled 3 there") as error:
            sub.receive(20)
        assert f"infobus ledger seal {ledger.stem}" in str(error.value)

    def test_bad_arguments_are_refused(self, office: Bus) -> None:
        with pytest.raises(BadSubject):
            office.subscribe("orders..x", durable="billing")
        with pytest.raises(UsageError):
            office.subscribe("orders.x", durable="")
        with pytest.raises(UsageError, match="deliveries_max"):
            office.subscribe("orders.x", durable="billing", deliveries_max=0)
        with pytest.raises(UsageError, match="acknowledge"):
            office.subscribe("orders.x", durable="billing", acknowledge="never")  # type: ignore

    def test_patterns_come_as_a_list_that_is_not_empty(self, office: Bus) -> None:
        with pytest.raises(UsageError, match="subscribe_durable takes a list of patterns"):
            office.subscribe_durable("orders.>", None, "billing")
        with pytest.raises(UsageError, match="subscribe_durable was given no pattern"):
            office.subscribe_durable(iter([]), None, "billing")
        twice = (pattern for pattern in ["orders.>", "stock.*", "orders.>"])
        assert office.subscribe_durable(twice, None, "all").patterns == ("orders.>", "stock.*")

    def test_nothing_is_kept_of_what_cannot_be_sent(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe(">", durable="all")
        with pytest.raises(infobus.BadValue):
            shop.publish_many([("x", {"n": 1}), ("x", object())], guaranteed=True)
        with pytest.raises(BadSubject):
            shop.publish("x.*", {"n": 1}, guaranteed=True)
        shop.publish("x", {"n": 2}, guaranteed=True)
        assert sub.receive(20).data == {"n": 2}

    def test_a_full_disk_raises_and_service_resumes(
        self, shop: Bus, office: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        place(shop, 1)
        guarantees = shop._guaranteed.driver
        assert guarantees is not None and guarantees._own is not None

        def full(*_: object) -> int:
            raise StoreFull("no room", path="ledger")

        with monkeypatch.context() as patch:
            patch.setattr(guarantees._own, "append_made", full)
            with pytest.raises(StoreFull):
                place(shop, 2)
        place(shop, 3)
        assert counts(sub, 2) == [1, 3]

    def test_a_consumer_whose_disk_is_full_goes_on_when_there_is_room(
        self, shop: Bus, office: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        for number in range(1, 6):
            place(shop, number)
        assert sub.receive(20).data.count == 1
        with monkeypatch.context() as patch:
            patch.setattr(ConsumerStore, "flush", no_room)
            with pytest.raises(TimeoutError):
                sub.receive(0.5)  # settles the first, which cannot be saved: nothing comes after it
            name = "durable consumer billing"
            wait_until(lambda: "no room" in office.stats().complaints.get(name, ""))
        assert counts(sub, 4) == [2, 3, 4, 5]

    def test_a_bus_whose_disk_is_full_closes_and_lets_others_have_its_name(
        self, shop: Bus, office: Bus, join: Join, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        place(shop, 1)
        event = sub.receive(20)
        with monkeypatch.context() as patch:
            patch.setattr(Facts, "put", no_room)
            event.ack()
            office.close()
        with pytest.raises(BusClosed):
            sub.receive(20)
        again = join("office").subscribe("orders.>", durable="billing")
        assert counts(again, 1) == [1]  # it was settled, but that could not be saved

    def test_hostile_frames_about_ledgers_do_no_harm(
        self, shop: Bus, office: Bus, caplog: pytest.LogCaptureFixture
    ) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        place(shop, 1)
        assert counts(sub, 1) == [1]
        assert shop._guaranteed.driver is not None and shop._guaranteed.driver._own is not None
        ledger = shop._guaranteed.driver._own.id
        frames: list[wire.Message] = [
            guaranteed_wire.Durable("stranger", "billing", 1, ["orders.>"]),
            guaranteed_wire.Durable("stranger", "other", 1, [">"] * 1000, "n >", -1.0),
            guaranteed_wire.Durable("stranger", "third", 1, ["a..b"]),
            guaranteed_wire.Ledgers("stranger", [ledger, "made up"]),
            guaranteed_wire.Fetch("stranger", "billing", 9, ledger, 2**60, 2**60, 2**60, 2**60),
            guaranteed_wire.Fetch("stranger", "other", 1, ledger, -1, -1, 2**60, 2**60),
            guaranteed_wire.Kept("stranger", "billing", 1, ledger, 1, 2**60),
            guaranteed_wire.NameRefused("stranger", "billing", 1, "", "nonsense"),
        ]
        draw = random.Random(7)
        for frame in map(wire.encode, frames * 40):
            mangled = bytearray(frame)
            for _ in range(draw.randrange(3)):
                mangled[draw.randrange(len(mangled))] = draw.randrange(256)
            for bus in (shop, office):
                bus._runtime.on_frame(bytes(mangled))
        place(shop, 2)
        assert counts(sub, 1) == [2]
        assert "error of its own" not in caplog.text

    def test_a_closed_bus_keeps_nothing(self, shop: Bus, office: Bus) -> None:
        sub = office.subscribe("orders.>", durable="billing")
        office.close()
        assert sub.is_closed
        with pytest.raises(BusClosed):
            sub.receive(20)
        shop.close()
        with pytest.raises(BusClosed):
            place(shop, 1)


class TestClosingMeanwhile:
    """Whatever a thread does while another one closes the node, no ledger stays open."""

    def close_during(self, bus: Bus, reached: threading.Event, go_on: threading.Event) -> None:
        """Publish and close at once; both are under way when `reached` was."""
        with ThreadPoolExecutor(2) as pool:
            publishing = pool.submit(place, bus, 1)
            assert reached.wait(PATIENCE_S)
            closing = pool.submit(bus.close)
            wait_until(lambda: "closed" in repr(bus))
            time.sleep(0.1)  # it may be waited for, or not
            go_on.set()
            closing.result(PATIENCE_S)
            error = publishing.exception(PATIENCE_S)
            assert error is None or isinstance(error, BusClosed)

    def check_ledgers(self, home: Path, bus_name: str) -> None:
        folder = ledgers_folder(home, bus_name)
        for id in ledger_ids(folder):
            Ledger.open(folder, id).close()  # it is whole, and nobody has it

    @pytest.mark.parametrize("where", ["opens its ledger", "begins"])
    def test_a_ledger_that_is_being_opened_is_closed_with_the_node(
        self, shop: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        owner: Any = Homes if where == "opens its ledger" else Guarantees
        name = "open_free" if where == "opens its ledger" else "start"
        reached, go_on = threading.Event(), threading.Event()
        before = getattr(owner, name)

        def slow(self: Any) -> Any:
            reached.set()
            assert go_on.wait(PATIENCE_S)
            return before(self)

        monkeypatch.setattr(owner, name, slow)
        self.close_during(shop, reached, go_on)
        self.check_ledgers(tmp_path / "shop", shop.name)
        with pytest.raises(BusClosed):
            place(shop, 2)

    def test_time_that_passes_while_a_node_ends_opens_nothing(
        self, shop: Bus, office: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lacking = office.subscribe("orders.>", durable="billing")
        place(shop, 1)
        assert lacking.receive(PATIENCE_S)  # and it does not settle it
        driver = shop._guaranteed.driver
        assert driver is not None
        strand = driver._strand
        stop = strand.stop

        def late(timeout_s: float) -> None:
            driver.look_for_ledgers()
            strand.on_tick()
            stop(timeout_s)

        monkeypatch.setattr(strand, "stop", late)
        shop.close()
        self.check_ledgers(tmp_path / "shop", shop.name)
        with pytest.raises(BusClosed):
            driver.append(lambda: ((), {}))
