"""What the tests of the bus share: waiting for things, and an engine that loses what it is told."""

import time
from collections.abc import Callable
from typing import Any

from infobus import Bus, Event, LossError, Subscription
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.protocols.frames import wire
from tests.patience import PATIENCE_S


def wait_until(is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as it is so; fail if that takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.001)


def send(bus: Bus, subject: str, *numbers: int) -> None:
    """Publish {"n": number} for each, each in a frame of its own."""
    for number in numbers:
        bus.publish(subject, {"n": number})
        bus.flush()


def take(subscription: Subscription, count: int) -> list[Event]:
    return [subscription.receive(PATIENCE_S) for _ in range(count)]


def numbers_of(events: list[Event]) -> list[int]:
    return [event.data["n"] for event in events]


def account(subscription: Subscription, until: int) -> tuple[list[int], list[tuple[int, Any]]]:
    """Take events up to the one with {"n": until}: their n, and the losses reported."""
    received: list[int] = []
    losses: list[tuple[int, Any]] = []
    while not received or received[-1] != until:
        try:
            received.append(subscription.receive(PATIENCE_S).data["n"])
        except LossError as loss:
            losses.append((loss.first, loss.last))
    return received, losses


class LossyEngine:
    """The memory engine of a node whose data frames get lost as the test says.

    Frames with a number in `drop` are lost once, and can be had again. Those with a number in
    `lose` are lost for good: whoever asks for them is told that they are no longer kept.
    """

    def __init__(self, bus_name: str) -> None:
        self.drop: set[int] = set()
        self.lose: set[int] = set()
        self.put_keys: list[str] = []  # of data frames
        self._engine = MemoryEngine(live_network(bus_name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        message = wire.decode(payload)
        if isinstance(message, wire.Data):
            self.put_keys.append(key)
            last = message.first + len(message.items) - 1
            numbers = set(range(message.first, last + 1))
            if numbers & self.drop:
                self.drop -= numbers
                return
            if numbers & self.lose:
                if not key.startswith(("c/", "q/")):
                    gone = wire.Gone(message.sender, message.lane, message.first, last)
                    self._engine.put(key, wire.encode(gone), control=control)
                return
        self._engine.put(key, payload, control=control, urgency=urgency)
