"""More is sent through a router in the middle than its links carry."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import infobus
from tests.router.sites import Sites, eventually

CITY = {"inside": "city", "outside": "city"}
MAX_AGE_S = 3.0
EMERGENCY_S = 3.0
CLASSES = ("emergency", "business", "regular")


class Overload:
    """What suppliers at some sites send, and what rooms at some sites get of it."""

    def __init__(self, world: Sites) -> None:
        self.world = world
        self.sent = defaultdict[tuple[str, str], int](int)
        self.took: dict[str, list[float]] = {class_: [] for class_ in CLASSES}
        self.numbers = defaultdict[tuple[str, str, str], list[int]](list)
        self._over = threading.Event()
        self._suppliers: list[threading.Thread] = []

    def serve(self, name: str) -> None:
        """Take all that comes from other sites."""

        def take(event: infobus.Event) -> None:
            origin = event.subject.split(".")[1]
            if origin != name:
                self.took[event.priority].append(time.time() - event.time)
                self.numbers[name, origin, event.priority].append(event.data["n"])

        self.world.buses[name].subscribe("city.>", take, on_loss="ignore")

    def supply(self, name: str, per_s: float) -> None:
        """Send emergencies, and so many events of 1 kB in each of the other classes."""
        for class_ in CLASSES:
            rate = 4.0 if class_ == "emergency" else per_s
            supplier = threading.Thread(target=self._supply, args=(name, class_, rate), daemon=True)
            self._suppliers.append(supplier)
            supplier.start()

    def _supply(self, name: str, class_: str, per_s: float) -> None:
        bus, began_s = self.world.buses[name], time.monotonic()
        max_age = MAX_AGE_S if class_ == "business" else None
        sent = 0
        while not self._over.wait(max(0.0, began_s + sent / per_s - time.monotonic())):
            sent += 1
            event = {"n": sent, "text": "x" * (100 if class_ == "emergency" else 1_000)}
            bus.publish(f"city.{name}", event, priority=class_, max_age=max_age)
            self.sent[name, class_] = sent

    def end(self) -> None:
        self._over.set()
        for supplier in self._suppliers:
            supplier.join()

    def check(self, rooms: str, suppliers: str) -> None:
        """The promises of paper 002, section 10."""
        pairs = [(room, origin) for room in rooms for origin in suppliers if room != origin]
        owed = sum(self.sent[origin, "emergency"] for _, origin in pairs)
        eventually(lambda: len(self.took["emergency"]) == owed, "emergencies are missing")
        assert max(self.took["emergency"]) < EMERGENCY_S
        assert max(self.took["business"]) < MAX_AGE_S + 0.5
        for class_ in ("business", "regular"):
            found = len(self.took[class_])
            assert 0 < found < sum(self.sent[origin, class_] for _, origin in pairs)
        assert all(found == sorted(set(found)) for found in self.numbers.values())
        routers = self.world.routers.values()
        assert sum(router.inside.stats().expired for router in routers) > 0


def start(world: Sites) -> None:
    for name in world.names():
        world.start(name, CITY)
    world.until_linked()


def test_emergencies_overtake_business_grows_old_and_what_starves_moves(sites):
    bytes_per_s = 50_000.0
    world = sites(["at", "tb"], bytes_per_s)
    start(world)
    overload = Overload(world)
    overload.serve("b")
    world.until_wanted("a", "city.a", "b")
    began_s = time.monotonic()
    overload.supply("a", 70.0)
    time.sleep(6)
    overload.end()
    overload.check("b", "a")
    through = next(n for n in world.routers["t"].status().neighbours if n.name[0] == "b")
    assert through.sent_bytes < bytes_per_s * (time.monotonic() - began_s + 0.5)


def test_a_router_closes_soon_although_far_more_waits_than_its_link_carries(sites):
    world = sites(["ab"], 2_000.0)
    start(world)
    overload = Overload(world)
    overload.serve("b")
    world.until_wanted("a", "city.a", "b")
    overload.supply("a", 70.0)
    time.sleep(2)
    router = world.routers["a"]
    patience_s, began_s = router.inside.patience.close_s, time.monotonic()
    router.close()
    took_s = time.monotonic() - began_s
    overload.end()
    assert took_s < patience_s + 2.0, took_s
