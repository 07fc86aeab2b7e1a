"""Two buses that a router joins: what crosses stays what it was, and nothing else crosses."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import infobus
from infobus import Bounds, Bus, DataObject, LossError, Patience
from infobus.bus.border.border import Border
from infobus.bus.deliver.event import Run
from infobus.errors import UsageError
from infobus.protocols.frames import wire
from infobus.protocols.frames.wire import Item, Items, Origin, Qos
from infobus.testing.tags import table_of_its_own
from tests.bus.borders import Router, Sites, sites
from tests.bus.helpers import LossyEngine, account, numbers_of, send, take, wait_until
from tests.patience import PATIENCE_S


class Part(DataObject, name="border.Part"):
    """Inside others."""

    name: str


class Oven(DataObject, name="border.Oven"):
    """Holds an object."""

    celsius: float
    part: Part | None = None


@pytest.fixture
def two() -> Iterator[Sites]:
    with sites() as made:
        yield made


@pytest.fixture
def router(two: Sites) -> Router:
    return two.join_sites()


def publisher_and(two: Sites, pattern: str, **options: Any) -> tuple[Bus, infobus.Subscription]:
    """A publisher at `a`, and a subscription at `b` of which it knows."""
    a, b = two.join("a"), two.join("b")
    subscription = b.subscribe(pattern, **options)
    two.wait_until_wanted(a, pattern.replace(">", "x").replace("*", "x"))
    return a, subscription


def test_an_event_that_crosses_stays_what_it_was(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.>", test=True)
    near = two.join("a").subscribe("q.>", test=True)
    a.publish("q.x", Oven(celsius=5.0, part=Part(name="door")), headers={"trace": "7"})
    a.publish("q.x", {"n": 2}, priority="emergency", max_age=60.0)
    a.publish("q.y", {"n": 3}, test=True)
    a.publish_many([("q.x", Oven(celsius=float(n))) for n in range(100)])
    found = sorted(take(far, 103), key=lambda event: event.number)
    there = sorted(take(near, 103), key=lambda event: event.number)
    for here, event in zip(there, found, strict=True):
        for name in ("subject", "sender", "number", "id", "time", "priority", "test", "headers"):
            assert getattr(event, name) == getattr(here, name)
        assert event.sender == a.node
        assert (here.via, event.via) == ("", router.b.bus.node)
        if isinstance(event.data, DataObject):
            assert infobus.id_of(event.data) == infobus.id_of(here.data)
        assert event.data == here.data
    assert isinstance(found[0].data, Oven)
    assert [event.seq for event in found if event.priority == "regular" and not event.test]


def test_an_id_that_an_object_has_already_crosses_with_it(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.>")
    oven = Oven(celsius=1.0)
    a.publish("q.x", oven)
    a.publish("q.y", oven)
    first, second = take(far, 2)
    assert infobus.id_of(first.data) == infobus.id_of(second.data) == first.id != second.id


def test_the_age_that_is_left_crosses_with_an_event(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.>")
    a.publish("q.x", {"n": 1}, max_age=60.0)
    [event] = take(far, 1)
    [run] = router.taken
    assert [qos.max_age for qos in run.items.qos if qos is not None] == [60.0]
    assert run.items.times == [event.time]


def test_an_event_that_is_raised_stays_raised_across(two: Sites, router: Router) -> None:
    taken: list[Run] = []
    seen = Border(two.join("b"), take=taken.append, on_loss=print, on_wanted=list)
    seen.want([("q.>", "")])
    two.wait_until_wanted(router.b.bus, "q.x")
    qos = Qos(60.0, "regular", time.time() + 60.0, True)
    item = Item("q.x", 5, time.time(), 0, b"\x80", qos=qos, origin=Origin("p", "a"))
    router.b.send(Items.of([item]), "business")
    wait_until(lambda: bool(taken))
    assert (list(taken[0].items), taken[0].class_) == ([item], "business")
    seen.close()


def test_types_that_only_the_other_side_has_are_learnt_across(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.>")
    a.publish("q.x", Oven(celsius=5.0, part=Part(name="door")))
    take(far, 1)
    route = next(iter(router.b._runtime.node.routes.values()))
    names = {infobus.objects.find_type(one).name for one in route.types}  # type: ignore[union-attr]
    assert {"border.Oven", "border.Part"} <= names


def test_a_transaction_crosses_as_one(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.*")
    others = two.join("b").subscribe("r.x")
    two.wait_until_wanted(a, "r.x")
    with a.transaction(priority="business") as tx:
        tx.publish("q.x", Oven(celsius=1.0), headers={"trace": "1"})
        tx.publish("r.x", {"n": 2})
        tx.publish("q.y", {"n": 3})
    [event] = take(far, 1)
    assert [one.subject for one in event.data] == ["q.x", "q.y"]
    assert {one.sender for one in event.data} == {event.sender} == {a.node}
    assert (event.priority, event.via) == ("business", router.b.bus.node)
    assert event.data.events[0].headers == {"trace": "1"}
    assert infobus.id_of(event.data.events[0].data) == event.data.events[0].id
    [other] = take(others, 1)
    assert [one.subject for one in other.data] == ["r.x"]
    assert (other.id, other.time) == (event.id, event.time)


def test_transactions_of_two_publishers_with_equal_numbers_are_told_apart(
    two: Sites, router: Router
) -> None:
    a, far = publisher_and(two, "q.*")
    other = two.join("a")
    two.join("b").subscribe("r.x")
    two.wait_until_wanted(a, "r.x")
    two.wait_until_wanted(other, "r.x")
    two.wait_until_wanted(other, "q.x")
    for bus in (a, other):
        with bus.transaction() as tx:
            tx.publish("q.x", {"n": 1})
            tx.publish("r.x", {"n": 1})
    assert {event.sender for event in take(far, 2)} == {a.node, other.node}


def test_what_nobody_wants_stays_at_its_publisher(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.x", where="n > 5")
    for n in range(10):
        a.publish("q.x", {"n": n})
        a.publish("q.other", {"n": n})
        a.publish("elsewhere", {"n": n})
    assert numbers_of(take(far, 4)) == [6, 7, 8, 9]
    assert a.stats().quenched == 26
    assert sum(len(run.items) for run in router.taken) == 4
    far.close()
    wait_until(lambda: a.quench("q.x").wants({"n": 7}) is False)
    a.publish("q.x", {"n": 7})
    assert a.stats().quenched == 27


def test_what_is_wanted_here_alone_is_not_taken_across(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.x", where="n > 5")
    near = two.join("a").subscribe("q.>")
    send(a, "q.x", *range(10))
    assert numbers_of(take(near, 10)) == [*range(10)]
    assert numbers_of(take(far, 4)) == [6, 7, 8, 9]
    assert sum(len(run.items) for run in router.taken) == 4


def test_an_event_that_several_rows_ask_for_is_taken_once(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.*", where="n > 5")
    b = two.join("b")
    more = [b.subscribe("*.x", where="n > 3"), b.subscribe("q.>"), b.subscribe("q.x")]
    two.wait_until_wanted(a, "q.x.y")
    send(a, "q.x", *range(10))
    assert numbers_of(take(far, 4)) == [6, 7, 8, 9]
    assert numbers_of(take(more[0], 6)) == [*range(4, 10)]
    assert all(numbers_of(take(one, 10)) == [*range(10)] for one in more[1:])
    assert sum(len(run.items) for run in router.taken) == 10


def test_only_part_of_a_run_is_sent_where_only_that_is_wanted(two: Sites) -> None:
    b = two.join("b")
    border = Border(b, take=print, on_loss=print, on_wanted=list)
    some = two.join("b").subscribe("q.x", where="n > 5")
    here = b.subscribe("q.y", where="n > 7")
    two.wait_until_wanted(b, "q.x")
    bodies = [b"\x81\xa1n" + bytes([n]) for n in range(20)]
    names = ["q.x", "q.y", "r.z", "q.x"] * 5
    border.send(Items(names, [7], [1.5], [0], bodies, origins=[Origin("p", "a")]), "")
    assert numbers_of(take(some, 7)) == [7, 8, 11, 12, 15, 16, 19]
    events = take(here, 3)
    assert numbers_of(events) == [9, 13, 17]
    assert [event.number for event in events] == [16, 20, 24]
    assert {(event.sender, event.via) for event in events} == {("p", b.node)}
    border.close()


def test_events_of_the_bus_itself_are_not_taken_and_test_events_are(
    two: Sites, router: Router
) -> None:
    a = two.join("a")
    far = two.join("b").subscribe("q.x", test=True)
    two.join("b").subscribe("~stats.>")
    wait_until(lambda: ("~test.q.x", "") in router.b.wanted())
    assert not [row for row in router.b.wanted() if row[0].startswith("~stats")]
    router.a.want([*router.b.wanted(), ("~stats.>", "")])
    two.wait_until_wanted(a, "q.x")
    told = a._runtime.node.rows.records[router.a.bus.node].rows
    assert set(told) == {"q.x", "~test.q.x"}
    a.publish("q.x", {"n": 1}, test=True)
    assert take(far, 1)[0].test


def test_rows_of_nodes_that_are_ignored_do_not_count(two: Sites) -> None:
    a, twin = two.join("a"), two.join("a")
    border = Border(a, take=print, on_loss=print, on_wanted=list, ignore=[twin.node])
    twin.subscribe("q.x")
    other = two.join("a")
    other.subscribe("r.x", where="n > 1")
    assert border.wanted() == [("r.x", "n > 1")]
    border.close()


def test_a_consumers_wish_for_a_higher_class_is_kept_across(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.x", priority="business")
    other = two.join("b").subscribe("q.x")
    a.publish("q.x", {"n": 1})
    assert [take(one, 1)[0].priority for one in (far, other)] == ["regular"] * 2
    [run] = router.taken
    assert run.class_ == ""
    assert any(lane.endswith("business") for lane in router.b._runtime.node.routes)


def test_the_tags_of_a_bus_hold_for_what_comes_from_another(two: Sites) -> None:
    with table_of_its_own(two.join("b")):
        router = two.join_sites()
        two.join("b").tags.create("q.x", type=Oven)
        a, far = publisher_and(two, "q.*")
        here = router.b.bus.subscribe("q.*")
        for subject in ("q.x", "q.y"):
            a.publish(subject, {"n": 1})
            a.publish(subject, Oven(celsius=1.0))
        for subject in ("q.x", "q.y"):
            with a.transaction() as tx:
                tx.publish(subject, {"n": 2})
        expected = [("q.x", "border.Oven"), ("q.y", None), ("q.y", "border.Oven"), ("q.y", None)]
        for one in (far, here):
            assert [(event.subject, event.type) for event in take(one, 4)] == expected
        assert "border" in router.b.bus.stats().complaints


def test_a_durable_consumer_of_plain_events_gets_those_from_across(
    two: Sites, router: Router, tmp_path: Path
) -> None:
    a, b = two.join("a"), two.join("b", home=tmp_path)
    durable = b.subscribe("q.x", durable="all", live=True)
    two.wait_until_wanted(a, "q.x")
    a.publish("q.x", Oven(celsius=5.0))
    event = durable.receive(PATIENCE_S)
    assert (event.sender, event.via) == (a.node, router.b.bus.node)
    assert infobus.id_of(event.data) == event.id
    assert not event.guaranteed


def test_best_effort_stays_best_effort(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.>")
    other = two.join("a")
    two.wait_until_wanted(other, "q.x")
    for n in range(3):
        a.publish("q.x", {"n": n}, quality="best_effort")
        other.publish("q.x", {"n": n}, quality="best_effort")
    events = take(far, 6)
    assert {event.seq for event in events} == {0}
    for bus in (a, other):
        mine = [event for event in events if event.sender == bus.node]
        assert numbers_of(mine) == [0, 1, 2]


def test_a_loss_on_the_way_is_told_across(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.x")
    here = router.b.bus.subscribe("q.x")
    send(a, "q.x", 1)
    assert numbers_of(take(far, 1) + take(here, 1)) == [1, 1]
    router.b.lose("q.x", "", 3)
    for one in (far, here):
        with pytest.raises(LossError) as loss:
            one.receive(PATIENCE_S)
        assert loss.value.last is not None
        assert loss.value.last - loss.value.first + 1 == 3
    send(a, "q.x", 2)
    assert numbers_of(take(far, 1) + take(here, 1)) == [2, 2]
    assert router.lost == []


def test_what_is_lost_on_one_bus_is_told_on_the_other(two: Sites, router: Router) -> None:
    engine = LossyEngine(two.names["a"])
    a = two.join("a", engine=engine)
    far = two.join("b").subscribe("q.x")
    two.wait_until_wanted(a, "q.x")
    engine.lose |= {2, 3}
    for n in range(1, 5):
        a.publish("q.x", {"n": n})
        a.flush()
    assert account(far, 4) == ([1, 4], [(2, 3)])
    assert {lost.sender for lost in router.lost} == {a.node}


def test_a_loss_before_later_events_is_told_at_its_place(two: Sites, router: Router) -> None:
    a, far = publisher_and(two, "q.x", on_loss="warn")
    send(a, "q.x", 1)
    assert numbers_of(take(far, 1)) == [1]
    router.b.lose("q.x", "", 2)
    send(a, "q.x", 2, 3)
    assert numbers_of(take(far, 2)) == [2, 3]
    assert far.lost == 1


def test_full_queues_let_the_oldest_go_and_report_them(two: Sites) -> None:
    go_on = threading.Event()
    router = two.join_sites(when_full="drop_oldest", queue_count_max=10)
    plain = router.b.send

    def held(*given: Any, **options: Any) -> None:
        assert go_on.wait(PATIENCE_S)
        plain(*given, **options)

    router.b.send = held  # type: ignore[method-assign]
    a, far = publisher_and(two, "q.x", on_loss="ignore")
    for n in range(100):
        a.publish("q.x", {"n": n})
    wait_until(lambda: router.a.bus.stats().dropped_by_queue > 0)
    a.flush()
    wait_until(lambda: router.a.bus.stats().received_events >= 100)
    go_on.set()
    found = []
    while not found or found[-1] != 99:
        found += numbers_of(take(far, 1))
    gone = sum(one.last - one.first + 1 for one in router.lost if one.last is not None)
    assert found == sorted(found)
    assert len(found) + gone == 100
    assert far.lost >= 1


def test_a_class_that_is_held_up_does_not_delay_a_higher_one(two: Sites) -> None:
    go_on, held = threading.Event(), threading.Event()
    router = two.join_sites(queue_count_max=20)
    plain = router.b.send

    def send_on(items: Items, class_: str, **options: Any) -> None:
        if not class_:
            held.set()
            assert go_on.wait(PATIENCE_S)
        plain(items, class_, **options)

    router.b.send = send_on  # type: ignore[method-assign]
    a, far = publisher_and(two, "q.x", on_loss="ignore")
    send(a, "q.x", *range(15))
    assert held.wait(PATIENCE_S)
    a.publish("q.x", {"n": 911}, priority="emergency")
    assert numbers_of(take(far, 1)) == [911]
    go_on.set()
    assert numbers_of(take(far, 15)) == [*range(15)]


def test_a_slow_subscriber_holds_the_publisher_on_the_other_bus() -> None:
    small = Bounds(window_count_max=64, queue_count_max=64, gather_bytes=512)
    with sites(bounds=small, send_timeout_s=PATIENCE_S) as two:
        router = two.join_sites(when_full="block", queue_count_max=64)
        a, far = publisher_and(two, "q.x", when_full="block")
        done = []

        def publish() -> None:
            for n in range(2000):
                a.publish("q.x", {"n": n})
                done.append(n)
            a.flush()

        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(lambda: far.waiting_count >= 32)
        threading.Event().wait(0.3)
        assert len(done) < 1000  # what the windows and queues on the way can hold
        assert numbers_of(take(far, 2000)) == [*range(2000)]
        thread.join(PATIENCE_S)
        assert (router.lost, far.lost) == ([], 0)


def test_what_others_want_is_told_when_it_changes_and_only_then(two: Sites) -> None:
    a, told = two.join("a"), []
    border = Border(a, take=print, on_loss=print, on_wanted=lambda: told.append(border.wanted()))
    with two.join("a").subscribe("q.x"):
        wait_until(lambda: told == [[("q.x", "")]])
        a.subscribe("here.>")
        border.want([("r.x", "")])
    wait_until(lambda: told == [[("q.x", "")], []])
    border.close()


def test_what_was_taken_in_is_handed_over_before_a_border_closes(two: Sites) -> None:
    router = two.join_sites()
    plain, begun = router.b.send, threading.Event()

    def slowly(*given: Any, **options: Any) -> None:
        begun.set()
        time.sleep(0.2)
        plain(*given, **options)

    router.b.send = slowly  # type: ignore[method-assign]
    a, far = publisher_and(two, "q.x")
    send(a, "q.x", 1)
    assert begun.wait(PATIENCE_S)
    send(a, "q.x", 2)
    wait_until(lambda: router.a.bus.stats().received_events == 2)
    router.close()
    assert numbers_of(take(far, 2)) == [1, 2]


def test_a_run_that_cannot_be_handed_over_is_a_loss(two: Sites, router: Router) -> None:
    plain = router.b.send

    def refuse(*given: Any, **options: Any) -> None:
        router.b.send = plain  # type: ignore[method-assign]
        raise ValueError("on purpose")

    router.b.send = refuse  # type: ignore[method-assign]
    a, far = publisher_and(two, "q.x")
    send(a, "q.x", 1)
    with pytest.raises(LossError):
        far.receive(PATIENCE_S)
    send(a, "q.x", 2)
    assert numbers_of(take(far, 1)) == [2]


def test_over_zenoh_events_and_interest_cross() -> None:
    with sites("zenoh", patience=Patience()) as two:
        router = two.join_sites()
        a, far = publisher_and(two, "q.x", where="n > 5")
        a.publish_many([("q.x", {"n": n}) for n in range(10)])
        events = take(far, 4)
        assert numbers_of(events) == [6, 7, 8, 9]
        assert {(event.sender, event.via) for event in events} == {(a.node, router.b.bus.node)}
        assert a.stats().quenched == 6


def test_closing_ends_what_was_wanted(two: Sites, router: Router) -> None:
    a, _ = publisher_and(two, "q.x")
    router.close()
    router.close()
    wait_until(lambda: a.quench("q.x").wants({}) is False)
    send(a, "q.x", 1)
    assert a.stats().quenched == 1


def test_events_without_an_origin_do_not_cross(router: Router) -> None:
    with pytest.raises(UsageError, match="origin"):
        router.b.send(Items.of([Item("q.x", 1, 1.0, 0, b"\x80")]), "")
    with pytest.raises(UsageError, match="disconnect"):
        Border(router.a.bus, take=print, on_loss=print, on_wanted=list, when_full="disconnect")


@pytest.mark.parametrize(
    "origins",
    [
        [["p", "b"]] * 3,
        [["p\n", "b"]],
        [["p" * 200, "b"]],
        [["p", ""]],
        [["p", "b\x1b[2J"]],
        [["p", "b" * 100]],
        ["p"],
        [[1, 2]],
        {"a": 1},
    ],
    ids=["too many", "newline", "long", "empty", "escape", "long bus", "text", "ints", "a map"],
)
def test_absurd_origins_are_refused_as_bad_frames(origins: Any) -> None:
    items = [["q.x"], [1], [1.0], [0], [b"\x80", b"\x80"], {}, [], [], origins]
    with pytest.raises(infobus.errors.BadFrame):
        wire.decode(msgspec.msgpack.encode([1, "node", "q", 1, items]))
