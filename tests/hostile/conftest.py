"""Programs on a bus of the test's own, and an enemy that can reach them."""

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from infobus.engines.zenoh.engine import ZenohEngine
from infobus.protocols.frames import wire
from tests.patience import PATIENT_PROGRAM, make_programs_patient
from tests.processes.programs.node import Node


class Enemy:
    """Sends whatever frames it likes, under any name; it is no node."""

    def __init__(self, bus: str) -> None:
        self.name = f"evil-{uuid.uuid4().hex}"
        self.engine = ZenohEngine(bus, patience=PATIENT_PROGRAM)
        self.engine.open(self.name)

    def show_token(self) -> None:
        self.engine.announce(f"l/{self.name}")

    def put(self, key: str, frame: Any) -> None:
        self.engine.put(key, wire.encode(frame))

    def data(self, sender: str, lane: str, first: int, n: int) -> wire.Data:
        """An event {"n": n} in the name of `sender`."""
        body = msgspec.msgpack.encode({"n": n})
        items = wire.Items.of([wire.Item(f"{lane}.y", 10**6, 1.0, 0, body)])
        return wire.Data(sender, lane, first, items)


class Scene:
    """A publisher, a subscriber of `x.>` and an enemy, each in a process of its own."""

    def __init__(self) -> None:
        self.bus = f"test-{uuid.uuid4().hex}"
        self.publisher, self.subscriber = Node(self.bus), Node(self.bus)
        self.publisher.wait_open()
        self.subscriber.wait_open()
        self.subscriber("subscribe", "x.>", {})
        self.enemy = Enemy(self.bus)

    def publish(self, first: int, last: int) -> None:
        self.publisher("publish", "x.y", first, last)

    def account(self, count: int, timeout_s: float = 20.0) -> list[Any]:
        """What the subscriber got of the publisher: numbers, and `lost`."""
        entries = self.subscriber("account", "x.>", count, timeout_s)
        return [entry[0] for entry in entries.get(self.publisher.name, [])]

    def close(self) -> None:
        self.enemy.engine.close()
        self.publisher.kill()
        self.subscriber.kill()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    make_programs_patient(monkeypatch)
    scene = Scene()
    yield scene
    scene.close()
