"""A region's control room: it receives every event of its region, and is far too slow."""

from __future__ import annotations

import sys
import time
from collections import Counter

import infobus
from infobus.demo.city.model import CLASSES, SERVICE_S, Arrival, CityLimits, CityReport
from infobus.demo.city.supplier import REPORT_S
from infobus.demo.programs import on_the_floor


def main() -> None:
    """Serve a region's events until the demo ends, and report how long they took."""
    region, limits = sys.argv[3], CityLimits(float(sys.argv[4]))
    names = {class_: name for name, class_ in CLASSES.items()}
    expired: Counter[str] = Counter()
    arrivals: list[Arrival] = []
    starving_since: float | None = None

    def serve(event: infobus.Event) -> None:
        now_s = time.time()
        name = names[event.priority]
        arrivals.append(Arrival(name=name, at=now_s, took=now_s - event.time))
        time.sleep(SERVICE_S)

    def report() -> None:
        nonlocal arrivals, starving_since
        if (
            starving_since is None
            and events.waiting_in(CLASSES["library"]) > events.queue.high_count
        ):
            starving_since = time.time()
        told, arrivals = arrivals, []
        report = CityReport(
            sent={}, expired=dict(expired), arrivals=told, starving_since=starving_since
        )
        bus.publish(f"reports.room.{region}", report)

    with on_the_floor() as (bus, over):
        bus.on_expired(lambda event: expired.update([names[event.priority]]))
        queue_count_max = limits.queue_count_max
        events = bus.subscribe(
            f"{region}.>", serve, when_full="block", queue_count_max=queue_count_max
        )
        while not over.wait(REPORT_S):
            report()
        # The last events are still on their way; wait for the emergencies among them.
        deadline_s = time.monotonic() + limits.emergency_s
        time.sleep(REPORT_S)
        while events.waiting_in("emergency") and time.monotonic() < deadline_s:
            time.sleep(SERVICE_S)
        events.close()
        report()


if __name__ == "__main__":
    main()
