"""What a policy asks of types and events counts as soon as the policy does, and ends with it."""

from pathlib import Path

import pytest

from infobus import QosRefused
from infobus.objects import classes, descriptors, registry
from infobus.objects.descriptors import Description
from infobus.objects.members import Attribute
from infobus.objects.spelling import parse_kind
from infobus.security.signatures import sign
from infobus.stores.event_keys import EventKeyFolder
from tests.bus.helpers import wait_until
from tests.bus.members import Plant
from tests.patience import PATIENCE_S
from tests.security.plants import key
from tests.tdl.programs import fresh

ROLE = '[roles.admin]\npublish = [">"]\nsubscribe = [">"]\ndefine = [">"]'


def test_types_are_believed_by_the_policy_while_a_node_of_the_bus_is_open(tmp_path: Path) -> None:
    plant = Plant(tmp_path, ROLE, '[types]\n"tdl_test.>" = ["admin"]')
    name = fresh("Item")
    told = Description(name, (), (Attribute("price", parse_kind("int")),), (), "")
    with plant.node("root", "admin") as root:
        classes.learn(told.write())
        assert registry.find_type(name) is None
        author = plant.certificates[root.node].der
        signature = sign(key("root"), descriptors.authored_bytes(told.write(), author))
        classes.learn(descriptors.with_author(told.write(), author, signature))
        assert registry.find_type(name) is not None
        plant.give(root, plant.published(ROLE))  # without [types]
        wait_until(lambda: registry.believes is None)
        plant.give(root, plant.published(ROLE, '[types]\n"tdl_test.>" = ["admin"]'))
        wait_until(lambda: registry.believes is not None)
    assert registry.believes is None


def test_events_are_protected_from_the_policy_on_that_says_so(tmp_path: Path) -> None:
    plant = Plant(tmp_path, ROLE)
    with plant.node("root", "admin") as root, plant.node("bob", "admin") as bob:
        sub = bob.subscribe("bank.>")
        root.publish("bank.pay", {"amount": 1})
        assert sub.receive(PATIENCE_S).data == {"amount": 1}
        newer = plant.published(ROLE, '[protect]\n"bank.>" = "signed"')
        plant.give(root, newer)

        def is_refused() -> bool:
            try:
                root.publish("bank.pay", {"amount": 666})
            except QosRefused:
                return True
            return False

        wait_until(is_refused)
        keys = EventKeyFolder(root.home)
        EventKeyFolder(bob.home).add(keys.make("desk").public.to_text())
        plant.give(root, plant.published(ROLE, '[protect]\n"bank.>" = "signed"'))
        wait_until(lambda: not is_refused())
        asked = bob.subscribe("bank.>", signed_by="desk")
        root.publish("bank.pay", {"amount": 2})
        event = asked.receive(PATIENCE_S)
        assert (event.data, event.signed_by) == ({"amount": 2}, "desk")


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    assert registry.believes is None
