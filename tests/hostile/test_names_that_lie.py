"""Frames in another node's name, through the real engine: no stream ends without a word."""

import time
from typing import Any

from infobus.protocols.frames import wire
from tests.hostile.conftest import Scene
from tests.patience import PATIENCE_S

WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)


def test_a_goodbye_in_anothers_name_ends_nothing(scene: Scene) -> None:
    scene.publish(1, 3)
    assert scene.account(3) == [1, 2, 3]
    for _ in range(3):
        scene.enemy.put("all", wire.Bye(scene.publisher.name, {"x": 2**40}))
        scene.enemy.put("all", wire.Bye(scene.subscriber.name))
    heard_by = "answer = bus._runtime.node.peers[%r].bye is not None"
    until(lambda: scene.subscriber("exec", heard_by % scene.publisher.name))
    until(lambda: scene.publisher("exec", heard_by % scene.subscriber.name))
    scene.publish(4, 6)
    assert scene.account(3) == [4, 5, 6]


def test_an_event_under_anothers_next_number_is_reported(scene: Scene) -> None:
    scene.publish(1, 3)
    assert scene.account(3) == [1, 2, 3]
    scene.enemy.put("c/x", scene.enemy.data(scene.publisher.name, "x", 4, 999))
    assert scene.account(1) == [999]
    scene.publish(4, 6)
    entries = scene.account(2)
    while entries[-1:] != [6]:
        entries += scene.account(1)
    assert "lost" in entries


def test_rows_in_anothers_name_end_nothing_for_good(scene: Scene) -> None:
    scene.publish(1, 3)
    assert scene.account(3) == [1, 2, 3]
    told = wire.Interest(scene.subscriber.name, WIRE, 1, 0, 2**40, [], welcome=1)
    scene.enemy.put(f"n/{scene.publisher.name}", told)
    complaints = "answer = sorted(bus.stats().complaints)"
    until(lambda: scene.subscriber.name in scene.publisher("exec", complaints))
    entries: list[Any] = []
    deadline_s, number = time.monotonic() + PATIENCE_S, 3
    while not entries or entries[-1] == "lost":
        assert time.monotonic() < deadline_s, "nothing came any more"
        number += 1
        scene.publish(number, number)
        entries += scene.account(1, timeout_s=0.2)
    assert entries[0] == "lost"


def test_a_node_that_confirms_nothing_stops_no_publisher(scene: Scene) -> None:
    enemy, publisher = scene.enemy, scene.publisher
    enemy.show_token()
    told = wire.Interest(enemy.name, WIRE, 1, 0, 1, [">"], window=1)
    enemy.put(f"n/{publisher.name}", told)
    until(lambda: publisher("exec", f"answer = {enemy.name!r} in bus._runtime.node.rows.records"))
    publisher.begin("publish", "x.y", 1, 300)  # a window of 1 would let 1 of them go
    got: list[Any] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(got) < 300:
        assert time.monotonic() < deadline_s, f"only {len(got)} came"
        enemy.put(f"n/{publisher.name}", wire.Ack(enemy.name, {"x": 1}, True))
        got += scene.account(1, timeout_s=0.2)
    publisher.answer()
    assert got == [*range(1, 301)]


def until(is_so: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)
