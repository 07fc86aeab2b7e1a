"""One policy binds all routers of a group, also those that were away when it changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from infobus import QosRefused
from infobus.protocols.qos.policy import Policy
from infobus.router.quality.policy import QualitySettings
from tests.router.sites import Sites, eventually, is_quiet

CITY = {"inside": "city", "outside": "town"}
POLICY = Policy(
    deny={"town.secret.>": "it is secret"}, raise_to={"town.bank.>": "business"}, bytes_per_s=8_000
)


def start(world: Sites, name: str, policy: Policy | None = None, **more: object) -> None:
    world.start(name, CITY, quality=QualitySettings("town", policy), **more)


def policy_of(world: Sites, name: str) -> Policy:
    quality = world.routers[name].status().quality
    assert quality is not None
    return quality.policy


def test_a_policy_holds_at_every_router_also_at_one_that_was_away(sites):
    world = sites(["am", "bm"])
    start(world, "m", POLICY)
    start(world, "a")
    start(world, "b")
    world.until_linked()
    eventually(lambda: policy_of(world, "a") == policy_of(world, "b") == POLICY)
    events = world.buses["b"].subscribe("city.>")
    world.until_wanted("a", "city.bank.orders", "b")
    bus = world.buses["a"]
    bus.publish("city.secret.plan", {"n": 0})
    bus.publish("city.bank.orders", {"n": 1})
    event = events.receive(timeout_s=60)
    assert (event.data, event.priority) == ({"n": 1}, "business")
    assert is_quiet(events)
    with bus.reserve(10, 6_000, subject="city.bank.>"):
        with pytest.raises(QosRefused, match="only 2000 of 8000 are free") as refused:
            world.buses["b"].reserve(10, 6_000, subject="city.bank.>")
        assert refused.value.hop == world.called("b")
    world.routers.pop("b").close()
    open_now = Policy(raise_to={"town.secret.>": "emergency"})
    manager = world.routers["m"]
    manager.change(replace(manager.settings, quality=QualitySettings("town", open_now)))
    start(world, "b")
    eventually(lambda: policy_of(world, "a") == policy_of(world, "b") == open_now)


def test_a_router_that_cannot_keep_a_policy_refuses_aloud(sites, caplog):
    world = sites(["am"])
    start(world, "m", POLICY)
    start(world, "a")
    world.until_linked()
    eventually(lambda: policy_of(world, "a") == POLICY)
    golden, manager = Policy(raise_to={"town.bank.>": "gold"}), world.routers["m"]
    manager.change(replace(manager.settings, quality=QualitySettings("town", golden)))
    eventually(lambda: "classes gold" in world.routers["a"].status().quality.refused)
    eventually(lambda: len(manager.status().quality.refusals) == 2)
    assert policy_of(world, "a") == POLICY
    assert "does not keep to it: it names the classes gold" in caplog.text
