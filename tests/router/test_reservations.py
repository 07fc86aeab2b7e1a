"""Programs reserve on the way to other sites: all links keep it, or they learn which does not."""

from __future__ import annotations

import threading
import time
from statistics import median

import pytest

import infobus
from infobus import QosRefused, UsageError
from tests.router.sites import Sites, eventually

CITY = {"inside": "city", "outside": "city"}
RATE = 40_000.0


def start(world: Sites) -> None:
    for name in world.names():
        world.start(name, CITY)
    world.until_linked()


def reserved(world: Sites, at: str, to: str) -> float:
    links = world.routers[at].status().neighbours
    [link] = [one for one in links if one.name == world.called(to)]
    return sum(link.reserved.values())


def test_all_links_keep_a_reservation_until_it_is_given_back(sites):
    world = sites(["at", "tb"], RATE)
    start(world)
    room = world.buses["b"].subscribe("city.>")
    world.until_wanted("a", "city.911", "b")
    with world.buses["a"].reserve(10, 5_000, subject="city.911", name="calls") as calls:
        assert reserved(world, "a", "t") == reserved(world, "t", "b") > 5_000
        calls.publish("city.911", {"where": "Main St"}, priority="business")
        event = room.receive(timeout_s=60)
        assert event.data == {"where": "Main St"}
        assert event.priority == "business"
        assert not calls.lost
        with pytest.raises(UsageError, match=r"for city.911, not for city.x"):
            calls.publish("city.x", {})
    eventually(lambda: reserved(world, "a", "t") == reserved(world, "t", "b") == 0)


def test_a_hop_that_has_no_room_says_how_much_it_could_keep(sites):
    world = sites(["at", "tb"])
    world.bytes_per_s = 1_000_000
    world.start("a", CITY)
    world.bytes_per_s = RATE
    world.start("t", CITY)
    world.start("b", CITY)
    world.until_linked()
    world.buses["b"].subscribe("city.>")
    world.until_wanted("a", "city.911", "b")
    bus = world.buses["a"]
    with bus.reserve(10, 20_000, subject="city.911", name="calls"):
        with pytest.raises(QosRefused, match="library") as refused:
            bus.reserve(10, 20_000, subject="city.911", name="library")
        error = refused.value
        assert (error.hop, error.toward) == (world.called("t"), world.called("b"))
        assert 0 < error.offer["bytes_per_s"] < 20_000
        eventually(lambda: reserved(world, "a", "t") == reserved(world, "t", "b"))
        with bus.reserve(**error.offer, subject="city.911", name="library"):
            assert reserved(world, "t", "b") == pytest.approx(0.75 * RATE)


def test_what_is_reserved_passes_a_flood_of_the_same_class(sites):
    world = sites(["at", "tb"], RATE)
    start(world)
    took: dict[str, list[float]] = {"city.orders": [], "city.library": []}

    def take(event: infobus.Event) -> None:
        took[event.subject].append(time.time() - event.time)

    world.buses["b"].subscribe("city.>", take, on_loss="ignore")
    over, flooding = threading.Event(), world.bus("a")
    world.until_wanted("a", "city.orders", "b")

    def flood() -> None:  # five times what the links carry
        while not over.wait(0.005):
            flooding.publish("city.library", {"text": "x" * 1_000})

    flooder = threading.Thread(target=flood, daemon=True)
    with world.buses["a"].reserve(20, 4_000, subject="city.orders") as orders:
        flooder.start()
        eventually(lambda: took["city.library"] and took["city.library"][-1] > 1.5)
        for number in range(60):
            orders.publish("city.orders", {"n": number, "text": "x" * 100})
        eventually(lambda: len(took["city.orders"]) == 60, "what was reserved did not come")
        over.set()
        assert not orders.lost
    flooder.join()
    assert median(took["city.orders"]) < median(took["city.library"]) / 2


def test_on_another_path_it_is_admitted_again_or_its_program_is_told(sites):
    world = sites(["ax", "xb", "ay", "yb"], RATE)
    start(world)
    world.buses["b"].subscribe("city.>")
    world.until_wanted("a", "city.911", "b")
    told: list[str] = []
    with world.buses["a"].reserve(10, 5_000, subject="city.911", on_change=told.append) as calls:
        [first] = [one for one in "xy" if reserved(world, "a", one)]
        [other] = {"x", "y"} - {first}
        world.routers.pop(first).close()
        eventually(lambda: reserved(world, "a", other) == reserved(world, other, "b") > 0)
        assert not calls.lost
        world.routers[other].close()
        eventually(lambda: "no path" in calls.lost)
        assert told[-1] == calls.lost
        calls.publish("city.911", {})  # goes on nevertheless


def test_who_dies_gives_back_what_he_had_reserved(sites):
    world = sites(["at", "tb"], RATE)
    start(world)
    world.buses["b"].subscribe("city.>")
    world.until_wanted("a", "city.911", "b")
    program = world.bus("a")
    program.reserve(10, 5_000, subject="city.911")
    assert reserved(world, "t", "b")
    program.close()
    eventually(lambda: reserved(world, "a", "t") == reserved(world, "t", "b") == 0)
    with world.buses["a"].reserve(10, 5_000, subject="city.911") as calls:
        world.routers.pop("a").close()
        eventually(lambda: calls.lost)
        eventually(lambda: reserved(world, "t", "b") == 0)
        world.start("a", CITY)
        eventually(lambda: not calls.lost)
        eventually(lambda: reserved(world, "t", "b") > 0)
