"""Attacks by a raw program in a process of its own, on an open bus and on a secured one.

Each attack works on the open bus: otherwise it would attack nothing. INFOBUS_ATTACKS=100 tries each
so often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import infobus
from infobus.bus.bus import Bus, interior
from infobus.errors import BusError
from infobus.security.event_keys import EventKey
from tests.hostile.test_names_that_lie import until
from tests.patience import PATIENCE_S, PATIENT
from tests.processes.test_secured import Plant

TRIES = int(os.environ.get("INFOBUS_ATTACKS", "1"))
DESK = EventKey("desk", b"d" * 32)


class Enemy:
    """The test's end of the raw program."""

    def __init__(self, bus: str, endpoint: str) -> None:
        program = Path(__file__).parent / "programs" / "enemy.py"
        self._process = subprocess.Popen(
            [sys.executable, str(program), bus, endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = self._answer()

    def __call__(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        line = json.dumps(command, default=lambda data: {"$hex": data.hex()})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def put(self, key: str, frame: list[Any]) -> None:
        self("put", key, frame)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Pay(infobus.Service):
    """Pays whoever is named."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def transfer(self, to: str, amount: int) -> str:
        self.paid.append(to)
        self.may_answer.wait(PATIENCE_S)
        return f"paid {amount} to {to}"


class Scene:
    """Alice publishes and calls, bob subscribes and serves; the enemy has their socket."""

    def __init__(self, posture: str, folder: Path) -> None:
        self.is_secured = posture == "secured"
        plant = Plant(folder)
        self.bus = plant.bus if self.is_secured else uuid.uuid4().hex

        def join(name: str) -> Bus:
            if self.is_secured:
                return plant.connect(name, patience=PATIENT)
            home = folder / name
            return infobus.connect(self.bus, home=home, attach="never", patience=PATIENT)

        self.alice, self.bob = join("alice"), join("bob")
        engine: Any = interior(self.alice).runtime.engine
        below = engine.below if self.is_secured else engine
        self.enemy = Enemy(self.bus, below.own_endpoint)
        self.enemy("hear", "all")
        until(lambda: self.enemy("holds", "") > 0)  # it is linked, and knows who listens

    def data(self, first: int, subject: str, data: Any, **headers: Any) -> list[Any]:
        """A frame with an event in alice's name."""
        body, told = msgspec.msgpack.encode(data), msgspec.msgpack.encode(headers)
        lane = subject.split(".")[0]
        numbers = [10**6 + time.monotonic_ns() % 10**9]
        items = [[subject], numbers, [time.time()], [0], [body], {}, [], [told]]
        return [1, self.alice.node, lane, first, items, []]

    def settle(self, subscription: infobus.Subscription) -> list[Any]:
        """What came until an honest event that is published now; of those, the first may be lost.

        On a secured bus, it may not.
        """
        mark = uuid.uuid4().hex
        found: list[Any] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            self.alice.publish("q.x", {"mark": mark})
            try:
                while (event := subscription.receive(PATIENCE_S if self.is_secured else 0.5)).data:
                    if event.data.get("mark") == mark:
                        return found
                    if "mark" not in event.data:  # of an earlier time
                        found.append(event.data)
            except infobus.LossError:
                found.append("lost")
            except TimeoutError:
                assert not self.is_secured
        raise AssertionError("nothing came any more")

    def close(self) -> None:
        self.enemy.close()
        self.alice.close(1.0)
        self.bob.close(1.0)


@pytest.fixture(params=["open", "secured"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(request.param, tmp_path)
    yield scene
    scene.close()


def repeated(attack: Callable[[], None]) -> None:
    for _ in range(TRIES):
        attack()


def test_an_event_in_anothers_name(scene: Scene) -> None:
    """Finding 2: delivered as hers, and her own event of that number is dropped as a repeat."""
    sub = scene.bob.subscribe("q.>")
    scene.settle(sub)

    def attack() -> None:
        route = interior(scene.alice).runtime.node.routes["q"]
        for key in ("c/q", f"n/{scene.bob.node}"):
            scene.enemy.put(key, scene.data(route.next, "q.x", {"price": 0.01}))
            scene.enemy.put(key, scene.data(0, "q.x", {"price": 0.02}))
        time.sleep(0.05)  # the attack may come late; it must fail then, too
        found = scene.settle(sub)
        if scene.is_secured:
            assert found == []
        else:
            assert {"price": 0.01} in found or {"price": 0.02} in found

    repeated(attack)
    if scene.is_secured:
        assert scene.bob.stats().lost == 0


def test_a_signed_event_that_was_changed(scene: Scene) -> None:
    """On both buses: whoever asks for the signature is safe, also from members."""
    sub = scene.bob.subscribe("s.>")
    asked = scene.bob.subscribe("s.>", signed_by=DESK.public)
    scene.alice.publish("s.x", {"price": 41.5}, sign=DESK)
    genuine = sub.receive(PATIENCE_S)
    assert asked.receive(PATIENCE_S).signed_by == "desk"

    def attack() -> None:
        forged = scene.data(0, "s.x", {"price": 0.01}, **genuine.headers)
        scene.enemy.put("c/s", forged)
        if not scene.is_secured:
            assert sub.receive(PATIENCE_S).data == {"price": 0.01}
        scene.alice.publish("s.x", {"price": 42.5}, sign=DESK)
        assert asked.receive(PATIENCE_S).data == {"price": 42.5}
        assert sub.receive(PATIENCE_S).data == {"price": 42.5}

    repeated(attack)
    assert scene.bob.stats().forged == (0 if scene.is_secured else TRIES)


def test_reading_everything(scene: Scene) -> None:
    """Finding 8: one line, and no trace anywhere. What is sealed is not read on either bus."""
    scene.enemy("hear", "**")
    sub, pay = scene.bob.subscribe("q.>"), Pay()
    scene.bob.serve("svc.pay", pay)

    def attack() -> None:
        words = [uuid.uuid4().hex for _ in range(3)]
        scene.alice.publish("q.x", {"word": words[0]})
        scene.alice.publish("q.x", {"word": words[1]}, seal_to=[DESK.public])
        scene.alice.service("svc.pay").transfer(words[2], 1)
        while sub.receive(PATIENCE_S).data.get("word") is not None:
            pass  # until the sealed one has come
        if not scene.is_secured:
            until(lambda: scene.enemy("holds", words[0]) and scene.enemy("holds", words[2]))
        assert scene.enemy("holds", words[1]) == 0
        if scene.is_secured:
            assert scene.enemy("holds", words[0]) == scene.enemy("holds", words[2]) == 0

    repeated(attack)
    until(lambda: scene.enemy("hear", "nothing") > 0)  # it has heard something, at least


def test_playing_again_what_was_heard(scene: Scene) -> None:
    """On no bus is anything delivered twice, and on a secured one nothing is lost either."""
    scene.enemy("hear", "**")
    scene.enemy("hear", "c/**")
    sub = scene.bob.subscribe("q.>")
    scene.settle(sub)

    def attack() -> None:
        scene.alice.publish("q.x", {"n": 1})
        scene.enemy("replay")
        assert [one for one in scene.settle(sub) if one != "lost"] == [{"n": 1}]

    repeated(attack)
    if scene.is_secured:
        assert scene.bob.stats().lost == 0


def test_rows_in_a_subscribers_name(scene: Scene) -> None:
    """Finding 3: the publisher forgets whom it sends to, until the peer is met anew."""
    sub = scene.bob.subscribe("q.>")
    scene.settle(sub)

    def attack() -> None:
        told = [6, scene.bob.node, [1, 0], 1, 0, 2**40, [], [], 1]
        scene.enemy.put(f"n/{scene.alice.node}", told)
        if scene.is_secured:
            assert scene.settle(sub) == []
        else:
            until(lambda: scene.bob.node in scene.alice.stats().complaints)

    repeated(attack)


def test_a_call_in_anothers_name(scene: Scene) -> None:
    """Finding 5."""
    pay = Pay()
    scene.bob.serve("svc.pay", pay)
    client = scene.alice.service("svc.pay")
    assert client.transfer("bob", 1) == "paid 1 to bob"

    last = 100

    def attack() -> None:
        nonlocal last
        victim = f"mallory-{uuid.uuid4().hex}"
        arguments = msgspec.msgpack.encode({"to": victim, "amount": 999})
        for _ in range(6):
            last += 1  # a number that she has not used
            call = [32, scene.alice.node, last, 1, "transfer", arguments, 5.0]
            scene.enemy.put(f"n/{scene.bob.node}", call)
        if scene.is_secured:
            assert client.transfer("bob", 2) == "paid 2 to bob"
            assert victim not in pay.paid
        else:
            until(lambda: victim in pay.paid)

    repeated(attack)


def test_a_reply_in_the_servers_name(scene: Scene) -> None:
    """Finding 6: the caller gets what the enemy says."""
    pay = Pay()
    scene.bob.serve("svc.pay", pay)
    client = scene.alice.service("svc.pay")
    client.transfer("warm up", 1)
    number = 1

    def attack() -> None:
        nonlocal number
        pay.may_answer.clear()
        answers: list[Any] = []
        caller = threading.Thread(target=lambda: answers.append(client.transfer("bob", 3)))
        count = len(pay.paid)
        caller.start()
        until(lambda: len(pay.paid) > count)
        forged = msgspec.msgpack.encode({"value": "forged!"})
        for guess in range(1, number + 4):
            scene.enemy.put(f"n/{scene.alice.node}", [33, scene.bob.node, guess, forged, 0, 0, []])
        number += 1
        if scene.is_secured:
            time.sleep(0.05)  # as above
            assert not answers
        else:
            until(lambda: answers)
        pay.may_answer.set()
        caller.join(PATIENCE_S)
        assert answers == (["paid 3 to bob"] if scene.is_secured else ["forged!"])

    repeated(attack)


def test_a_token_that_never_answers(scene: Scene) -> None:
    """Finding 17: nobody waits for it again and again."""
    scene.enemy("token")
    until(lambda: scene.is_secured or scene.enemy.name in scene.alice.stats().peers)
    sub = scene.bob.subscribe("q.>", timeout_s=1.0)
    begun_s = time.monotonic()
    for n in range(5):
        scene.bob.subscribe(f"q.y{n}", timeout_s=PATIENCE_S if scene.is_secured else 1.0).close()
    assert time.monotonic() - begun_s < PATIENCE_S
    assert scene.settle(sub) == []
    if scene.is_secured:
        assert scene.enemy.name not in scene.alice.stats().peers


def test_a_flood_of_frames_that_nobody_can_open(scene: Scene) -> None:
    """Honest events arrive all the same."""
    sub = scene.bob.subscribe("q.>")
    scene.settle(sub)
    flood = threading.Thread(
        target=lambda: scene.enemy(
            "flood", f"n/{scene.bob.node}", [91, "evil-1-x", 1, {}, b""], 0.5
        )
    )
    flood.start()
    for _ in range(10):
        try:
            assert scene.settle(sub) == []
        except BusError as error:
            pytest.fail(f"an honest event was refused: {error}")
    flood.join()
