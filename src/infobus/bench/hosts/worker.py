"""A program on one of the hosts that does what the benchmark says, line by line.

Run as `python -m infobus.bench.hosts.worker BUS`. An order is a JSON line, and so is its answer;
it ends with its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import infobus

EVENT = {"symbol": "ACME", "price": 181.5, "amount": 100, "venue": "a market of some size"}
"""What is published: four attributes."""
PATIENCE_S = 30.0


class HostWorker:
    """The orders, by name."""

    def __init__(self, bus: infobus.Bus) -> None:
        self._bus = bus
        self._count = 0
        self._last_s = time.monotonic()
        self._pause_s = 0.0
        self._views: list[tuple[float, tuple[str, ...]]] = []

    def subscribe(self, subject: str) -> None:
        """Count what comes."""

        def note(_: infobus.Event) -> None:
            self._count += 1
            now_s = time.monotonic()
            self._pause_s = max(self._pause_s, now_s - self._last_s)
            self._last_s = now_s

        self._bus.subscribe(subject, callback=note)

    def wait(self, count: int) -> float:
        """When the event of that number came, on a clock that all hosts share."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._count < count and time.monotonic() < deadline_s:
            time.sleep(0.005)
        if self._count < count:
            raise TimeoutError(f"{self._count} of {count} events in {PATIENCE_S:g} s")
        self._count = 0
        return self._last_s

    def flood(self, subject: str, count: int) -> float:
        """Publish as fast as it goes; when it began."""
        begun_s = time.monotonic()
        for _ in range(count):
            self._bus.publish(subject, EVENT)
        return begun_s

    def flood_many(self, subject: str, count: int, batch: int) -> float:
        """The same, handed over so many at a time."""
        begun_s = time.monotonic()
        for _ in range(count // batch):
            self._bus.publish_many([(subject, EVENT)] * batch)
        return begun_s

    def trickle(self, subject: str, for_s: float) -> None:
        """Publish some 500 a second for so long."""
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            self._bus.publish(subject, EVENT)
            time.sleep(0.002)

    def longest_pause(self) -> float:
        """How long nothing came at most, since it was asked the last time."""
        pause_s, self._pause_s = self._pause_s, 0.0
        return pause_s

    def wanted(self, subject: str) -> float:
        """Wait until somebody wants that; when it was known here."""
        deadline_s = time.monotonic() + PATIENCE_S
        with self._bus.quench(subject) as quench:
            while quench.wants(EVENT) is False:
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"nobody has wanted {subject} in {PATIENCE_S:g} s")
                time.sleep(0.001)
            return time.monotonic()

    def echo(self) -> None:
        """Answer every ping with a pong."""
        self._bus.subscribe("ping", callback=lambda event: self._bus.publish("pong", event.data))

    def round_trips(self, count: int) -> list[float]:
        """How long each of so many pings took there and back."""
        came = threading.Event()
        times = []
        with self._bus.subscribe("pong", callback=lambda _: came.set()):
            for _ in range(count):
                came.clear()
                begun_s = time.perf_counter()
                self._bus.publish("ping", EVENT)
                if not came.wait(PATIENCE_S):
                    raise TimeoutError(f"no answer in {PATIENCE_S:g} s")
                times.append(time.perf_counter() - begun_s)
                time.sleep(0.002)
        return times

    def follow(self) -> None:
        """Note the views of members that this program is told, and when."""
        self._bus.on_members(self._note_view)

    def views(self) -> list[tuple[float, tuple[str, ...]]]:
        """Those that it was told so far."""
        return list(self._views)

    def _note_view(self, view: infobus.MembersView | infobus.ExcludedView) -> None:
        if isinstance(view, infobus.MembersView):
            self._views.append((time.monotonic(), view.members))

    def peers(self, count: int) -> int:
        """Wait until it sees so many others; how many it sees."""
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self._bus.stats().peers) < count and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return len(self._bus.stats().peers)


def main() -> None:
    """Carry out orders until the input ends."""
    with infobus.connect(sys.argv[1]) as bus:
        worker = HostWorker(bus)
        print(json.dumps(bus.node), flush=True)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            order: Callable[..., Any] = getattr(worker, name)
            print(json.dumps(order(*arguments)), flush=True)


if __name__ == "__main__":
    main()
