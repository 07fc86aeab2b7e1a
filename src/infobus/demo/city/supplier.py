"""A region's supplier: emergencies, business orders, and too many library updates."""

from __future__ import annotations

import sys
import time
from collections import Counter
from threading import Event, Thread

import infobus
from infobus.demo.city.model import CLASSES, RATES, CityLimits, CityReport
from infobus.demo.programs import on_the_floor

REPORT_S = 0.25


def main() -> None:
    """Supply a region's events until the demo ends, and report how many there were."""
    region, limits = sys.argv[3], CityLimits(float(sys.argv[4]))
    sent: Counter[str] = Counter()
    expired: Counter[str] = Counter()
    names = {class_: name for name, class_ in CLASSES.items()}
    with on_the_floor() as (bus, over):
        bus.on_expired(lambda event: expired.update([names[event.priority]]))
        while bus.quench(f"{region}.>").wants({}) is False and not over.wait(0.02):
            pass  # nobody is there yet
        # One thread per class, so that backpressure on one class does not stop the others.
        threads = [
            Thread(target=_supply, args=(bus, over, region, name, limits, sent), daemon=True)
            for name in CLASSES
        ]
        for thread in threads:
            thread.start()
        while not over.wait(REPORT_S):
            _report(bus, region, sent, expired)
        for thread in threads:
            thread.join(1)
        _report(bus, region, sent, expired)


def _supply(
    bus: infobus.Bus, over: Event, region: str, name: str, limits: CityLimits, sent: Counter[str]
) -> None:
    began_s, number = time.monotonic(), 0
    max_age = limits.business_s if name == "business" else None
    while not over.wait(max(0.0, began_s + number / RATES[name] - time.monotonic())):
        number += 1
        sent[name] += 1  # counted first, so that arrivals never exceed it
        try:
            event = {"number": number}
            bus.publish(f"{region}.{name}", event, priority=CLASSES[name], max_age=max_age)
        except infobus.Backpressure:  # nothing was sent
            sent[name] -= 1
        except infobus.BusClosed:
            return


def _report(bus: infobus.Bus, region: str, sent: Counter[str], expired: Counter[str]) -> None:
    report = CityReport(sent=dict(sent), expired=dict(expired), arrivals=[])
    bus.publish(f"reports.supplier.{region}", report)


if __name__ == "__main__":
    main()
