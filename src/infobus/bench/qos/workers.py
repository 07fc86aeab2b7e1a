"""The processes of `infobus bench qos`: suppliers of emergencies and of a flood, and a consumer.

Events carry the time of their publication, taken with `time.monotonic_ns`, which is one clock for
all processes of a machine. The order None ends a process.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import msgspec

import infobus
from infobus.bench.common.processes import Connected

PAUSE_S = 0.01  # between two emergencies
SLOW_S = 0.001  # what a slow handler takes for each event
SLOW_QUEUE_COUNT = 1_024
SAMPLED_EACH = 64  # of regular events, one in so many is timed
FILL = "x" * 100

SUBJECT = "city.events"


class FloodLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Who supplies the flood, and who consumes everything."""

    together: bool
    """One process floods and publishes the emergencies from another thread; else two do."""
    slow: bool
    """The consumer's handler is slow, so its queue is full of regular events."""

    @property
    def name(self) -> str:
        """A name for tables and plots."""
        suppliers = "one supplier" if self.together else "two suppliers"
        return f"{suppliers}, {'slow' if self.slow else 'quick'} consumer"


class Times(msgspec.Struct):
    """From `publish` to the handler, in seconds."""

    emergency_s: list[float]
    regular_s: list[float]
    regular_count: int


def supply(pipe: Connection, load: FloodLoad, bus_name: str) -> None:
    """Begins to flood, or publishes emergencies for so many seconds, as ordered."""
    with infobus.connect(bus_name) as bus:
        pipe.send(Connected())
        while order := pipe.recv():
            match order:
                case ("flood",):
                    threading.Thread(target=_flood, args=(bus,), daemon=True).start()
                    pipe.send("flooding")
                case ("emergencies", seconds):
                    pipe.send(_publish_emergencies(bus, seconds))


def _flood(bus: infobus.Bus) -> None:
    with suppress(infobus.BusClosed):
        while True:
            with suppress(infobus.Backpressure):  # the consumer is slow; that is the point
                bus.publish(SUBJECT, {"sent_ns": time.monotonic_ns(), "fill": FILL})


def spin(pipe: Connection, load: FloodLoad, bus_name: str) -> None:
    """Keeps a core busy from one order to the next, without a bus."""
    pipe.send(Connected())
    while pipe.recv():
        pipe.send("spinning")
        while not pipe.poll():
            sum(range(10_000))
        pipe.recv()
        pipe.send("resting")


def _publish_emergencies(bus: infobus.Bus, seconds: float) -> int:
    """Publish at a steady pace; returns how many."""
    count = int(seconds / PAUSE_S)
    began_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began_s + number * PAUSE_S - time.monotonic()))
        event = {"sent_ns": time.monotonic_ns(), "fill": FILL}
        bus.publish(SUBJECT, event, priority="emergency")
    return count


def consume(pipe: Connection, load: FloodLoad, bus_name: str) -> None:
    """Notes when events arrive; answers each order with what has arrived since the last order."""
    times = Times([], [], 0)
    queue_count_max = SLOW_QUEUE_COUNT if load.slow else 65_536

    def handle(event: infobus.Event) -> None:
        took_s = (time.monotonic_ns() - event.data["sent_ns"]) / 1e9
        if event.priority == "emergency":
            times.emergency_s.append(took_s)
            return
        if times.regular_count % SAMPLED_EACH == 0:
            times.regular_s.append(took_s)
        times.regular_count += 1
        if load.slow:
            time.sleep(SLOW_S)

    with infobus.connect(bus_name) as bus:
        bus.subscribe(SUBJECT, handle, when_full="block", queue_count_max=queue_count_max)
        pipe.send(Connected())
        while pipe.recv():
            found, times = times, Times([], [], 0)
            pipe.send(found)
