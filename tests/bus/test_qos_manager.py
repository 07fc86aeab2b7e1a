"""A group of nodes under a manager: its policy, their reservations, and how they do without it."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from infobus import BadSubject, Bus, UsageError
from infobus.bus.qos_group import QosAnswer, QosAsk, QosHeld, QosPolicy
from infobus.qos import (
    DEFAULT_CLASSES,
    Admission,
    Load,
    Policy,
    QosManager,
    QosMember,
    QosRefused,
)
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until

GROUP = "floor"


def member_on(bus: Bus, given: float | None = None, timeout_s: float = 20.0) -> QosMember:
    return QosMember(bus, GROUP, Admission(given), DEFAULT_CLASSES, timeout_s=timeout_s)


@pytest.fixture
def manager(bus: Bus) -> Iterator[QosManager]:
    policy = Policy(
        events_per_s=100,
        deny={"secret.>": "it is secret"},
        only_on={"emergency": ("city.911.>",)},
        raise_to={"bank.>": "business"},
    )
    with QosManager(bus, GROUP, policy, beat_s=0.05) as manager:
        yield manager


class TestReservations:
    def test_the_sum_over_the_nodes_is_bounded(self, manager, connect: Connect):
        one, two = member_on(connect()), member_on(connect())
        one.reserve("prices", 60)
        with pytest.raises(QosRefused, match=r"group 'floor': 'news' asks for 50 .* only 40 of 100"
                           ) as refused:  # fmt: skip
            two.reserve("news", 50)
        assert (refused.value.asked, refused.value.free) == (50, 40)
        two.reserve("news", 40)

    def test_a_refused_reservation_leaves_nothing_behind(self, manager, connect: Connect):
        one, two = member_on(connect()), member_on(connect(), given=50)
        one.reserve("prices", 60)
        with pytest.raises(QosRefused):
            two.reserve("news", 50)
        two.reserve("news", 40)
        wait_until(lambda: sum(map(len, manager.held().values())) == 2)

    def test_a_node_refuses_what_it_cannot_bear_itself(self, manager, connect: Connect):
        member = member_on(connect(), given=10)
        with pytest.raises(QosRefused, match="only 10 of 10 are free"):
            member.reserve("prices", 20)

    def test_what_is_released_can_be_had_by_another_node(self, manager, connect: Connect):
        one, two = member_on(connect()), member_on(connect())
        one.reserve("prices", 100)
        one.release("prices")
        wait_until(lambda: not manager.held())
        two.reserve("prices", 100)

    def test_of_many_that_ask_at_once_as_many_get_it_as_fit(self, manager, connect: Connect):
        members = [member_on(connect()) for _ in range(4)]
        granted, refused = [], []

        def ask(member: QosMember, name: str) -> None:
            try:
                member.reserve(name, 30)
                granted.append(name)
            except QosRefused:
                refused.append(name)

        threads = [
            threading.Thread(target=ask, args=(member, f"{number}"))
            for number, member in enumerate(members * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(granted), len(refused)) == (3, 5)
        wait_until(lambda: sum(map(len, manager.held().values())) == 3)
        assert manager.excess() == Load()

    def test_the_share_of_a_node_that_is_gone_is_free(self, manager, connect: Connect):
        lost = connect()
        member_on(lost).reserve("prices", 100)
        lost.close()
        wait_until(lambda: not manager.held())
        member_on(connect()).reserve("prices", 100)

    def test_the_share_of_a_member_that_leaves_is_free(self, manager, connect: Connect):
        member = member_on(connect())
        member.reserve("prices", 100)
        member.close()
        member.close()
        wait_until(lambda: not manager.held())

    def test_a_policy_that_was_on_its_way_does_not_bring_it_back(self, manager, connect: Connect):
        member = member_on(connect())
        member.reserve("prices", 100)
        with member._lock:  # a policy that has come waits to be taken in
            wait_until(lambda: member._subscription.waiting_count > 0)
        member.close()
        wait_until(lambda: member._subscription.waiting_count == 0)
        wait_until(lambda: not manager.held())
        other = member_on(connect())
        other.reserve("prices", 100)

    def test_a_name_is_used_once(self, manager, connect: Connect):
        member = member_on(connect())
        member.reserve("prices", 10)
        with pytest.raises(UsageError, match="a reservation 'prices' already"):
            member.reserve("prices", 10)

    def test_a_reservation_can_be_given_back_after_the_bus_was_closed(self, connect: Connect):
        node = connect()
        member = member_on(node)
        member.reserve("prices", 10)
        node.close()
        member.release("prices")
        member.close()


class TestPolicies:
    def test_requests_are_granted_raised_or_denied(self, manager, connect: Connect):
        member = member_on(connect())
        assert member.judge("news.>", "regular") == "regular"
        assert member.judge("city.911.fire", "emergency") == "emergency"
        assert member.judge("bank.orders", "regular") == "business"
        with pytest.raises(QosRefused, match=r"group 'floor': 'secret.plan' .* it is secret"):
            member.judge("secret.plan", "regular")
        with pytest.raises(QosRefused, match=r"class 'emergency' is only for city.911.>"):
            member.judge("city.library", "emergency")

    def test_without_a_policy_everything_is_granted(self, bus: Bus):
        assert member_on(bus).judge("news.>", "emergency") == "emergency"

    def test_a_changed_policy_reaches_all_members(self, manager, connect: Connect):
        members = [member_on(connect()) for _ in range(3)]
        manager.change(Policy(deny={"news.>": "no news"}))
        wait_until(lambda: all(member.policy == manager.policy for member in members))
        with pytest.raises(QosRefused, match="no news"):
            members[2].judge("news.equity", "regular")

    def test_a_narrower_policy_leaves_what_was_granted_and_tells_the_excess(
        self, manager, connect: Connect
    ):
        member = member_on(connect())
        member.reserve("prices", 80)
        manager.change(Policy(events_per_s=50))
        assert manager.excess() == Load(events_per_s=30)
        wait_until(lambda: member.excess() == Load(events_per_s=30))
        with pytest.raises(QosRefused, match="only 0 of 50 are free"):
            member_on(connect()).reserve("news", 1)

    def test_members_come_before_their_manager(self, bus: Bus, connect: Connect):
        member = member_on(connect())
        with QosManager(bus, GROUP, Policy(events_per_s=7)) as manager:
            wait_until(lambda: member.policy == manager.policy)

    @pytest.mark.parametrize("group", ["", "a..b", "a.*"])
    def test_a_group_has_a_name(self, bus: Bus, group):
        with pytest.raises(BadSubject):
            QosManager(bus, group, Policy())
        with pytest.raises(BadSubject):
            QosMember(bus, group, Admission(None), DEFAULT_CLASSES)


class TestWithoutManager:
    def test_the_node_decides_alone_and_at_once(self, bus: Bus):
        started_s = time.monotonic()
        member = member_on(bus, given=100, timeout_s=60.0)
        member.reserve("prices", 80)
        with pytest.raises(QosRefused, match="only 20 of 100"):
            member.reserve("news", 30)
        assert time.monotonic() - started_s < 30.0

    def test_the_node_decides_alone_when_no_answer_comes(self, bus: Bus, connect: Connect, caplog):
        connect().subscribe("qos.>")  # it listens, but it is no manager
        member = member_on(bus, given=100, timeout_s=0.05)
        with caplog.at_level(logging.WARNING, "infobus"):
            member.reserve("prices", 80)
        assert "no manager answered in 0.05 s; 'prices' is reserved by this node" in caplog.text
        with pytest.raises(QosRefused, match="only 20 of 100"):
            member.reserve("news", 30)

    def test_a_new_manager_hears_what_is_held(self, bus: Bus, connect: Connect):
        one, two = connect(), connect()
        member_on(one).reserve("prices", 60)
        member_on(two).reserve("news", 30)
        held = {one.node: {"prices": Load(60)}, two.node: {"news": Load(30)}}
        with QosManager(bus, GROUP, Policy(events_per_s=100)) as manager:
            wait_until(lambda: manager.held() == held)
            with pytest.raises(QosRefused, match="only 10 of 100 are free"):
                member_on(connect()).reserve("weather", 20)

    def test_the_last_policy_holds_when_its_manager_is_gone(self, bus: Bus, connect: Connect):
        node = connect()
        manager = QosManager(node, GROUP, Policy(events_per_s=50, deny={"news.>": "no news"}))
        member = member_on(bus)
        node.close()
        manager.close()
        wait_until(lambda: not bus.stats().peers)
        with pytest.raises(QosRefused, match="no news"):
            member.judge("news.equity", "regular")
        member.reserve("prices", 40)
        with pytest.raises(QosRefused, match="only 10 of 50 are free"):
            member.reserve("weather", 20)


class TestNonsense:
    @pytest.mark.parametrize(
        "subject, thing",
        [
            ("ask", {"number": "x"}),
            ("ask", QosHeld(held={}, asking=["x"])),
            ("ask", QosAsk(number=1, reservation="x", events_per_s=-5.0, bytes_per_s=0.0)),
            ("ask", QosAsk(number=1, reservation="x", events_per_s=float("nan"), bytes_per_s=0.0)),
            ("held", QosHeld(held={"x": [float("inf"), 0.0]}, asking=[])),
            ("held", QosHeld(held={"x": [1.0, 2.0, 3.0]}, asking=[])),
            ("policy", QosPolicy(rules=None)),
            ("policy", QosPolicy(rules={"events_per_s": -1})),
            ("policy", QosPolicy(rules={"deny": {"a..b": "bad"}})),
            ("policy", QosPolicy(rules={"deny": [1]})),
            ("policy", {"rules": {"events_per_s": 1}}),
        ],
    )
    def test_nonsense_changes_nothing(self, bus: Bus, connect: Connect, subject, thing):
        # A manager that repeats its policy would soon undo that of the stranger.
        with QosManager(bus, GROUP, Policy(events_per_s=100), beat_s=60.0) as manager:
            member, stranger = member_on(connect()), connect()
            stranger.publish(f"qos.{GROUP}.{subject}", thing)
            stranger.publish(f"qos.{GROUP}.answer.{member._bus.node}", QosAnswer(number=77))
            # What makes sense comes after it on the same way, so by then the nonsense has come.
            other = member_on(stranger)
            stranger.publish(f"qos.{GROUP}.policy", QosPolicy(rules={"events_per_s": 99.0}))
            wait_until(lambda: member.policy == Policy(events_per_s=99.0))
            other.reserve("news", 30)
            assert manager.held() == {stranger.node: {"news": Load(30)}}
            with pytest.raises(QosRefused, match="only 70 of 100"):
                member.reserve("prices", 80)
