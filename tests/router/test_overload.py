"""More is sent through a router in the middle than its links carry."""

from __future__ import annotations

import threading
import time

import infobus

BYTES_PER_S = 50_000.0
MAX_AGE_S = 3.0
SECONDS = 6.0
CLASSES = {"emergency": 5.0, "business": 70.0, "regular": 70.0}  # events a second, of 1 kB


def test_emergencies_overtake_business_grows_old_and_what_starves_moves(sites):
    world = sites(["at", "tb"], BYTES_PER_S)
    for name in "atb":  # patient: this machine may be busy
        world.start(name, {"inside": "city", "outside": "city"}, link="wan")
    world.until_linked()
    took = {class_: [] for class_ in CLASSES}
    numbers = {class_: [] for class_ in CLASSES}

    def serve(event: infobus.Event) -> None:
        took[event.priority].append(time.time() - event.time)
        numbers[event.priority].append(event.data["n"])

    world.buses["b"].subscribe("city.>", serve, on_loss="ignore")
    world.until_wanted("a", "city.x", "b")
    over = threading.Event()
    sent = dict.fromkeys(CLASSES, 0)

    def supply(class_: str, per_s: float) -> None:
        max_age = MAX_AGE_S if class_ == "business" else None
        while not over.wait(max(0.0, began_s + sent[class_] / per_s - time.monotonic())):
            sent[class_] += 1
            event = {"n": sent[class_], "text": "x" * 1_000}
            world.buses["a"].publish("city.x", event, priority=class_, max_age=max_age)

    suppliers = [threading.Thread(target=supply, args=one, daemon=True) for one in CLASSES.items()]
    began_s = time.monotonic()
    for supplier in suppliers:
        supplier.start()
    time.sleep(SECONDS)
    over.set()
    for supplier in suppliers:
        supplier.join()
    until_s = time.monotonic() + 10
    while len(took["emergency"]) < sent["emergency"] and time.monotonic() < until_s:
        time.sleep(0.01)
    assert len(took["emergency"]) == sent["emergency"]
    assert max(took["emergency"]) < 3.0
    assert 0 < len(took["business"]) < sent["business"]
    assert max(took["business"]) < MAX_AGE_S + 0.5
    assert 0 < len(took["regular"]) < sent["regular"]
    assert all(found == sorted(set(found)) for found in numbers.values())
    assert sum(r.inside.stats().expired for r in world.routers.values()) > 0
    through = next(n for n in world.routers["t"].status().neighbours if n.name[0] == "b")
    assert through.sent_bytes < BYTES_PER_S * (time.monotonic() - began_s + 0.5)
