"""Nodes of a group keep to the policy that its manager publishes."""

import pytest

from infobus import QosRefused
from infobus.qos import Policy, QosManager
from tests.bus.helpers import wait_until

POLICY = Policy(
    events_per_s=100,
    only_on={"emergency": ("city.911.>",)},
    raise_to={"bank.>": "business"},
    deny={"city.secret.>": "it is secret"},
)


@pytest.fixture
def manager(bus):
    with QosManager(bus, "city", POLICY) as manager:
        yield manager


@pytest.fixture
def members(manager, connect):
    return connect(group="city"), connect(group="city")


def test_the_sum_of_the_groups_reservations_is_bounded(manager, members):
    library, bank = members
    with library.reserve(80):
        with pytest.raises(QosRefused, match="only 20 of 100 are free"):
            bank.reserve(30)
        bank.reserve(20)
    wait_until(lambda: sum(map(len, manager.held().values())) == 1)
    bank.reserve(30)


def test_what_is_denied_is_neither_published_nor_subscribed_to(members):
    one, other = members
    with pytest.raises(QosRefused, match="it is secret"):
        one.publish("city.secret.plan", {})
    with pytest.raises(QosRefused, match=r"only for city\.911"):
        one.publish("city.library", {}, priority="emergency")
    with pytest.raises(QosRefused, match="it is secret"):
        other.subscribe("city.>")
    one.publish("city.911.fire", {}, priority="emergency")


def test_a_request_may_be_raised(members):
    one, other = members
    sub = other.subscribe("bank.>")
    one.publish("bank.order", {"n": 1})
    wait_until(lambda: sub.waiting_in("business") == 1)  # the consumer's part was raised, too
    assert "bank\x1fbusiness" in one._routing.outlets
    assert sub.receive(20).priority == "regular"  # as its supplier said


def test_another_policy_is_kept_to_from_then_on(manager, members):
    one, _ = members
    manager.change(Policy(deny={"noise.>": "quiet, please"}))

    def is_refused():
        try:
            one.publish("noise.loud", {})
        except QosRefused:
            return True
        return False

    wait_until(is_refused)
    one.publish("city.secret.plan", {})


def test_a_node_outside_the_group_is_not_bound(manager, connect):
    connect().publish("city.secret.plan", {}, priority="emergency")
