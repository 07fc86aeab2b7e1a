"""Tags on a bus: creating, rights, types, defaults, lists; without daemons, by one decider."""

import asyncio
import threading

import pytest

import infobus
from infobus import BadValue, DataObject, NoRight, NoTags, NotCreator, TagExists, UsageError
from infobus.testing.tags import table_of_its_own
from tests.bus.helpers import wait_until


class Temperature(DataObject):
    celsius: float


class Warning_(DataObject, name="Warning"):
    text: str


@pytest.fixture
def join(request):
    """Join one bus, under a name."""
    buses = []

    def connect(name=None, **options):
        bus = infobus.connect(
            f"tags-{request.node.name}"[:60], engine="memory", name=name, **options
        )
        buses.append(bus)
        return bus

    yield connect
    for bus in buses:
        bus.close()


@pytest.fixture
def table(join):
    """A node that holds the table."""
    with table_of_its_own(join("daemon")) as roles:
        yield roles[0].table.table


class TestCreating:
    def test_one_of_two_creators_succeeds(self, join, table):
        oven, press = join("oven-1"), join("press")
        tag = oven.tags.create("plant.oven.>", type=Temperature)
        assert (tag.creator, tag.type, tag.publish) == ("oven-1", "Temperature", ("*",))
        with pytest.raises(TagExists, match="was created by oven-1") as caught:
            press.tags.create("plant.oven.>")
        assert (caught.value.tag, caught.value.creator) == ("plant.oven.>", "oven-1")
        with pytest.raises(TagExists, match=r"lies within 'plant\.oven\.>' of oven-1"):
            press.tags.create("plant.oven.3")
        assert [one.name for one in press.tags] == ["plant.oven.>"]

    def test_creators_that_race_agree_on_one(self, join, table):
        outcomes = {}

        def create(number):
            bus = join(f"app-{number}")
            for tag in range(5):
                try:
                    bus.tags.create(f"race.t{tag}")
                    outcomes.setdefault(tag, []).append(bus.application)
                except TagExists as error:
                    outcomes.setdefault(f"told {tag}", set()).add(error.creator)

        threads = [threading.Thread(target=create, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for tag in range(5):
            (creator,) = outcomes[tag]
            assert outcomes[f"told {tag}"] == {creator}

    def test_a_program_that_starts_again_finds_its_tag(self, join, table):
        first = join("oven-1")
        first.tags.create("plant.oven", publish=["oven-*"])
        first.close()
        again = join("oven-1")
        again.tags.create("plant.oven", publish=["oven-*"])
        with pytest.raises(TagExists, match="this application, with other words: change it"):
            again.tags.create("plant.oven")
        assert again.tags.change("plant.oven", max_age=3.0).max_age == 3.0
        assert again.tags.get("plant.oven").publish == ("*",)

    def test_only_the_creator_deletes_unless_by_force(self, join, table):
        oven, operator = join("oven-1"), join("operator")
        oven.tags.create("plant.oven")
        with pytest.raises(NotCreator, match="created by oven-1, who alone"):
            operator.tags.delete("plant.oven")
        with pytest.raises(NotCreator):
            operator.tags.change("plant.oven")
        operator.tags.delete("plant.oven", force=True)
        with pytest.raises(UsageError, match=r"there is no tag 'plant\.oven'"):
            oven.tags.delete("plant.oven")
        assert oven.tags.get("plant.oven") is None

    def test_without_a_name_the_node_is_the_creator(self, join, table):
        bus = join()
        assert bus.tags.create("plant.oven").creator == bus.node
        assert table.get("plant.oven").host == "member-0#1"

    @pytest.mark.parametrize(
        "options",
        [
            {"publish": "oven-*"},
            {"publish": ["two words"]},
            {"subscribe": [3]},
            {"publish": ["x"] * 65},
            {"priority": "nonsense"},
            {"max_age": -1.0},
            {"type": dict},
        ],
    )
    def test_nonsense_is_refused_at_once(self, join, options):
        with pytest.raises(UsageError):
            join().tags.create("plant.oven", **options)

    @pytest.mark.parametrize("name", ["", ">", "a.*", "a.*.b.>", "~own.x", 3])
    def test_so_are_names_that_no_tag_may_have(self, join, name):
        with pytest.raises((UsageError, AttributeError)):
            join().tags.create(name)


class TestWithoutATable:
    def test_it_is_said_what_to_do(self, join):
        bus = join("oven-1")
        for ask in (
            lambda: bus.tags.create("a", timeout_s=0.05),
            lambda: bus.tags.delete("a", timeout_s=0.05),
            lambda: bus.tags.get("a", timeout_s=0.05),
            lambda: bus.tags.publishers("a", timeout_s=0.05),
            lambda: bus.tags.subscribers("a", timeout_s=0.05),
        ):
            with pytest.raises(NoTags, match="start `infobus daemon run`"):
                ask()

    def test_publishing_and_subscribing_go_on(self, join):
        bus, other = join("oven-1"), join("press")
        sub = other.subscribe("plant.>")
        bus.publish("plant.oven", {"celsius": 1})
        assert sub.receive(timeout_s=5).data == {"celsius": 1}

    def test_what_was_held_last_counts(self, join):
        bus = join("oven-1")
        with table_of_its_own(join("daemon")):
            bus.tags.create("plant.oven", type=Temperature)
        with pytest.raises(BadValue):
            bus.publish("plant.oven", {"celsius": 1})
        with pytest.raises(NoTags):
            bus.tags.delete("plant.oven", timeout_s=0.05)

    def test_whoever_waits_is_told_that_the_bus_was_closed(self, join):
        bus = join("oven-1")
        threading.Timer(0.1, bus.close).start()
        with pytest.raises(infobus.BusClosed):
            bus.tags.create("a", timeout_s=30)


class TestPublishing:
    def test_another_type_is_refused_in_every_way_to_publish(self, join, table, tmp_path):
        bus, other = join("oven-1", home=tmp_path), join("press")
        bus.tags.create("plant.oven.>", type=Temperature)
        sub = other.subscribe("plant.>")
        wrong = Warning_(text="hot")
        for publish in (
            lambda: bus.publish("plant.oven.3", wrong),
            lambda: bus.publish("plant.oven.3", {"celsius": 1.0}),
            lambda: bus.publish("plant.oven.3", wrong, quench=False),
            lambda: bus.publish("plant.oven.3", wrong, quality="best_effort"),
            lambda: bus.publish("plant.oven.3", wrong, test=True),
            lambda: bus.publish("plant.oven.3", wrong, guaranteed=True),
            lambda: bus.publish("plant.oven.3", wrong, priority="emergency"),
            lambda: bus.publish_many([("plant.oven.3", wrong)] * 3),
            lambda: bus.publish_many([("plant.oven.3", wrong)], guaranteed=True),
            lambda: bus.publish_nowait("plant.oven.3", wrong),
            lambda: asyncio.run(bus.aio.publish("plant.oven.3", wrong)),
            lambda: in_a_transaction(bus, "plant.oven.3", wrong),
        ):
            with pytest.raises(
                BadValue, match=r"tag 'plant\.oven\.>' carries Temperature, got .*oven-1"
            ):
                publish()
        right = Temperature(celsius=1.0)
        bus.publish("plant.oven.3", right)
        bus.publish_many([("plant.oven.3", right), ("plant.door", wrong)])
        in_a_transaction(bus, "plant.oven.3", right)
        asyncio.run(bus.aio.publish("plant.oven.3", right))
        got = [sub.receive(timeout_s=5).subject for _ in range(4)]
        assert got == ["plant.oven.3", "plant.oven.3", "plant.door", "plant.oven.3"]

    def test_it_is_refused_although_nobody_wants_it(self, join, table):
        bus = join("oven-1")
        bus.tags.create("plant.oven", type=Temperature)
        for _ in range(2):
            with pytest.raises(BadValue):
                bus.publish("plant.oven", {"celsius": 1.0})
        bus.publish("plant.oven", Temperature(celsius=1.0))
        assert bus.publish_nowait("plant.oven", Temperature(celsius=1.0))
        assert (bus.stats().published, bus.stats().quenched) == (2, 2)

    def test_only_those_with_the_right_publish(self, join, table):
        oven, press = join("oven-1"), join("press")
        oven.tags.create("plant.oven", publish=["oven-*"])
        oven.publish("plant.oven", {})
        wait_until(lambda: press.tags.get("plant.oven"))
        for _ in range(2):
            with pytest.raises(NoRight, match=r"press may not publish .* oven-1 allows oven-\*"):
                press.publish("plant.oven", {})
        with pytest.raises(NoRight):
            press.publish("plant.oven", {}, guaranteed=True)
        press.publish("plant.ovens", {})

    def test_a_program_that_has_just_joined_is_refused_too(self, join, table):
        oven = join("oven-1")
        oven.tags.create("plant.oven", publish=["oven-*"])
        with pytest.raises(NoRight):
            join("press").publish("plant.oven", {})

    def test_freedom_comes_back_with_the_end_of_a_tag(self, join, table):
        oven, press = join("oven-1"), join("press")
        oven.tags.create("plant.oven", publish=["oven-*"], type=Temperature)
        oven.tags.delete("plant.oven")
        oven.publish("plant.oven", {})
        wait_until(lambda: press.tags.get("plant.oven") is None)
        press.publish("plant.oven", {})

    def test_the_tag_says_what_publishers_leave_out(self, join, table):
        oven, press = join("oven-1"), join("press")
        oven.tags.create("plant.oven", priority="business", max_age=60.0)
        sub = press.subscribe("plant.>")
        oven.publish("plant.oven", {})
        oven.publish("plant.oven", {}, priority="emergency", max_age=5.0)
        oven.publish_many([("plant.oven", {})])
        oven.publish("plant.door", {})
        got = [sub.receive(timeout_s=5) for _ in range(4)]
        assert sorted((e.subject, e.priority) for e in got) == [
            ("plant.door", "regular"),
            ("plant.oven", "business"),
            ("plant.oven", "business"),
            ("plant.oven", "emergency"),
        ]


def in_a_transaction(bus, subject, obj):
    with bus.transaction() as tx:
        tx.publish(subject, obj)


class TestSubscribing:
    def test_only_those_with_the_right_subscribe(self, join, table, tmp_path):
        oven, press = join("oven-1"), join("press", home=tmp_path)
        oven.tags.create("plant.oven.>", subscribe=["oven-*", "board"])
        for subscribe in (
            lambda: press.subscribe("plant.oven.3"),
            lambda: press.subscribe("plant.oven.*"),
            lambda: press.subscribe_many(["plant.door", "plant.oven.>"]),
            lambda: press.subscribe("plant.oven.>", durable="billing"),
        ):
            with pytest.raises(NoRight, match=r"press may not subscribe .* allows board, oven-\*"):
                subscribe()
        join("board").subscribe("plant.oven.3")

    def test_a_wider_pattern_gets_the_rest(self, join, table):
        oven, press = join("oven-1"), join("press")
        oven.tags.create("plant.oven.>", subscribe=["oven-*"])
        sub, own = press.subscribe("plant.>"), oven.subscribe("plant.>")
        oven.publish("plant.oven.3", {})
        oven.publish("plant.door", {})
        assert sub.receive(timeout_s=5).subject == "plant.door"
        assert [own.receive(timeout_s=5).subject for _ in range(2)] == [
            "plant.oven.3",
            "plant.door",
        ]

    def test_a_subscription_that_was_there_before_ends_aloud(self, join, table):
        oven, press = join("oven-1"), join("press")
        sub = press.subscribe("plant.oven")
        oven.publish("plant.oven", {"number": 1})
        assert sub.receive(timeout_s=5).data["number"] == 1
        oven.tags.create("plant.oven", subscribe=["oven-*"])
        wait_until(lambda: "tag plant.oven" in press.stats().complaints)
        oven.publish("plant.oven", {"number": 2})
        oven.tags.delete("plant.oven")
        wait_until(lambda: press.tags.get("plant.oven") is None)
        oven.publish("plant.oven", {"number": 3})
        assert sub.receive(timeout_s=5).data["number"] == 3

    def test_a_receiver_leaves_out_what_a_publisher_should_not_have_sent(self, join, table):
        oven, press = join("oven-1"), join("press")
        sub = press.subscribe("plant.>")
        oven.tags.create("plant.oven", type=Temperature)
        wait_until(lambda: press.tags.get("plant.oven"))
        oven._routing.rules.replace({})  # it does not know (yet)
        oven.publish_many([("plant.oven", {}), ("plant.oven", Temperature(celsius=1.0))])
        oven.publish_many([("plant.oven", {}), ("plant.door", {})])
        assert [sub.receive(timeout_s=5).subject for _ in range(2)] == ["plant.oven", "plant.door"]
        assert press.stats().against_tags == 2
        assert "left out" in press.stats().complaints[oven.node]


class TestUsers:
    def test_publishers_and_subscribers_are_known(self, join, table):
        oven, other, press = join("oven-1"), join("oven-2"), join("press")
        oven.tags.create("plant.oven.>")
        press.subscribe("plant.*.3")
        for bus in (oven, other):
            wait_until(lambda bus=bus: bus.tags.of("plant.oven.3"))
            bus.publish("plant.oven.3", {})
        wait_until(lambda: len(press.tags.publishers("plant.oven.>")) == 2)
        assert {u.application for u in press.tags.publishers("plant.oven.>")} == {
            "oven-1",
            "oven-2",
        }
        wait_until(lambda: press.tags.subscribers("plant.oven.>"))
        (subscriber,) = press.tags.subscribers("plant.oven.>")
        assert (subscriber.node, subscriber.application) == (press.node, "press")
        with pytest.raises(UsageError, match="there is no tag"):
            press.tags.publishers("plant.door")

    def test_all_that_hold_the_table_know_all_publishers(self, join):
        daemons = [join(f"daemon-{n}") for n in range(3)]
        with table_of_its_own(*daemons) as roles:
            buses = [join(f"oven-{n}") for n in range(3)]
            buses[0].tags.create("plant.oven")
            for bus in buses:
                wait_until(lambda bus=bus: bus.tags.get("plant.oven"))
                bus.publish("plant.oven", {})
            for role in roles:
                wait_until(lambda role=role: len(role.server.publishers("plant.oven")) == 3)
            one = roles[0]
            kept = [row.member for row in one.server.rows.values()]
            one.table.view(9, tuple(set(one.table.table.members) - {kept[0]}))
            assert len(one.server.publishers("plant.oven")) == 3 - kept.count(kept[0])


class TestServers:
    def test_another_node_with_the_table_takes_over(self, join):
        daemons = [join("daemon-1"), join("daemon-2")]
        bus = join("oven-1")
        with table_of_its_own(*daemons) as roles:
            bus.tags.create("a")
            roles[daemons.index(next(d for d in daemons if d.node == server_of(bus)))].close()
            bus.tags.create("b")
            assert [tag.name for tag in bus.tags] == ["a", "b"]

    def test_of_a_large_table_a_node_holds_what_concerns_it(self, join, monkeypatch):
        monkeypatch.setattr("infobus.protocols.tags.server.WHOLE_COUNT_MAX", 3)
        daemon = join("daemon")
        with table_of_its_own(daemon) as (role,):
            creator = join("creator")
            for number in range(6):
                creator.tags.create(f"t{number}.x", type=Temperature)
            bus = join("oven-1")
            assert not bus.tags._driver.holder.tags
            assert bus.tags.of("t2.x").type == "Temperature"
            assert sorted(bus.tags._driver.holder.tags) == ["t2.x"]
            bus.publish("t3.x", Temperature(celsius=1.0))
            wait_until(lambda: sorted(bus.tags._driver.holder.tags) == ["t2.x", "t3.x"])
            creator.tags.delete("t3.x")
            creator.tags.delete("t4.x")
            wait_until(lambda: sorted(bus.tags._driver.holder.tags) == ["t2.x"])
            assert len(list(bus.tags)) == 4
            assert role.table.table.get("t5.x")


def server_of(bus):
    return bus.tags._driver.holder.server


def test_awaitable_twins(join, table):
    async def main():
        aio = join("oven-1").aio
        await aio.tags.create("plant.oven", type=Temperature)
        assert (await aio.tags.get("plant.oven")).creator == "oven-1"
        assert (await aio.tags.of("plant.oven")).creator == "oven-1"
        assert (await aio.tags.change("plant.oven")).type == ""
        assert [tag.name async for tag in aio.tags] == ["plant.oven"]
        assert await aio.tags.publishers("plant.oven") == []
        assert await aio.tags.subscribers("plant.oven") == []
        await aio.tags.delete("plant.oven")

    asyncio.run(main())
