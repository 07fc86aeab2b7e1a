"""How much Python code runs for one event: calls on the way out and in, and memory that stays.

Time on a shared machine is noise, but the number of function calls per event is nearly exact. So
a change that makes the hot path longer shows here first. Publisher and consumer are two nodes of
a bus in this one process.
"""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from uuid import uuid4

import msgspec
from rich.console import Console

import infobus
from infobus.bench.common.tables import table_of
from infobus.bench.pubsub.payload import FIRST_NUMBER, make_quote, venue_for
from infobus.bench.pubsub.peers.infobus_bus import BusQuote
from infobus.errors import EngineError

WAIT_S = 30.0

Hook = Callable[[FrameType, str, Any], None]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one event costs, each number per event, by function or by line of code."""

    making: dict[str, float]
    """Calls for constructing the object."""
    publishing: dict[str, float]
    """Calls on the publisher's thread."""
    receiving: dict[str, float]
    """Calls on all threads of the consumer's node, its callback included."""
    kept_blocks: dict[str, float]
    """Blocks of memory that both sides allocated and still held after the last event."""


def profile(events: int = 5_000) -> Profile:
    """Publish `events` objects from one node to another and count what that takes."""
    arrivals = _Arrivals()
    made: list[Any] = []
    received: Counter[str] = Counter()
    bus_name = f"profile-{uuid4().hex}"

    def make() -> None:
        venue = venue_for(16)
        made[:] = [make_quote(BusQuote, venue, FIRST_NUMBER + index) for index in range(events)]

    # Threads take the hook over when they start: of the two nodes, only the consumer's do.
    with (
        infobus.connect(bus=bus_name) as publisher,
        _profiled_threads(received),
        infobus.connect(bus=bus_name) as consumer,
    ):
        consumer.subscribe("bench.>", arrivals.take)

        def publish() -> None:
            for quote in made:
                publisher.publish("bench.s0", quote)

        making = _calls_of(make)
        received.clear()
        publishing = _calls_of(publish)
        arrivals.wait_for(events)
        receiving = Counter(received)
        make()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        publish()
        arrivals.wait_for(2 * events)
        after = tracemalloc.take_snapshot()
        tracemalloc.stop()
    kept = Counter[str]()
    for line in after.compare_to(before, "lineno"):
        frame = line.traceback[0]
        kept[f"{_short(frame.filename)}:{frame.lineno}"] += line.count_diff
    return Profile(
        making=_each(making, events),
        publishing=_each(publishing, events),
        receiving=_each(receiving, events),
        kept_blocks=_each(kept, events),
    )


def print_profile(profile: Profile, console: Console) -> None:
    """One table for each part, the heaviest lines first."""
    for title, costs in (
        ("calls to make an object", profile.making),
        ("calls to publish it", profile.publishing),
        ("calls to receive it", profile.receiving),
        ("blocks of memory kept", profile.kept_blocks),
    ):
        rows = [(where, f"{count:.2f}") for where, count in costs.items()]
        title = f"{title}: {sum(costs.values()):.1f} per event"
        console.print(table_of(title, ["where"], ["per event"], rows))


class _Arrivals:
    """The least that a consumer does: look at an attribute, and count."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, event: infobus.Event) -> None:
        _ = event.data.bid
        self.count += 1

    def wait_for(self, count: int) -> None:
        # Polled, so that the callback under the profile need not wake anyone.
        deadline_s = time.monotonic() + WAIT_S
        while self.count < count:
            if time.monotonic() > deadline_s:
                raise EngineError(f"{self.count} of {count} events arrived in {WAIT_S:.0f} s")
            time.sleep(0.01)


def _calls_of(action: Callable[[], None]) -> Counter[str]:
    """The calls that `action` makes on this thread."""
    calls: Counter[str] = Counter()
    sys.setprofile(_hook(calls))
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


@contextmanager
def _profiled_threads(calls: Counter[str]) -> Iterator[None]:
    threading.setprofile(_hook(calls))
    try:
        yield
    finally:
        threading.setprofile(None)


def _hook(calls: Counter[str]) -> Hook:
    names: dict[CodeType, str] = {}

    def hook(frame: FrameType, what: str, argument: Any) -> None:
        if what == "call":
            code = frame.f_code
            if code not in names:
                names[code] = f"{_short(code.co_filename)} {code.co_qualname}"
            calls[names[code]] += 1
        elif what == "c_call":
            calls[argument.__qualname__] += 1

    return hook


def _short(filename: str) -> str:
    """The last two parts of a path tell a reader where to look."""
    return "/".join(Path(filename).parts[-2:])


def _each(counts: Counter[str], events: int) -> dict[str, float]:
    """Counts per event, largest first, without what happens less than once in 20 events."""
    return {where: count / events for where, count in counts.most_common() if count * 20 >= events}
