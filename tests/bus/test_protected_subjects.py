"""Protected subjects: what a policy asks of events is raised, refused, or left out on arrival."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import infobus
from infobus import Bus, QosRefused
from infobus.bus.bus import interior
from infobus.bus.deliver.protection import Protections
from infobus.security.policy import read_policy
from infobus.stores.event_keys import EventKeyFolder
from tests.patience import PATIENCE_S

POLICY = """
bus = "plant"
version = 1
[protect]
"bank.>" = "signed"
"named.>" = {level = "signed", keys = ["desk"]}
"secret.>" = {level = "signed and sealed", keys = ["audit"]}
"""


class Scene:
    """A node with keys, one that knows them, and a stranger that has none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, theirs = EventKeyFolder(folder / "ours"), EventKeyFolder(folder / "theirs")
        theirs.add(ours.make("desk").public.to_text())
        theirs.make("audit")
        ours.add(theirs.public("audit").to_text())
        self.name = f"protect-{folder.name}"
        self.ours, self.theirs = self.join("ours"), self.join("theirs")
        self.stranger = self.join("stranger")
        self.open = self.join("open", is_bound=False)

    def join(self, home: str, is_bound: bool = True) -> Bus:
        bus = infobus.connect(self.name, engine="memory", home=self.folder / home)
        if is_bound:
            asked = read_policy(POLICY).protection
            interior(bus).runtime.protect(Protections(asked, bus.name, bus.home))
        return bus


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    with scene.ours, scene.theirs, scene.stranger, scene.open:
        yield scene


@pytest.mark.parametrize("options", [{}, {"test": True}, {"quality": "best_effort"}])
def test_who_has_the_key_publishes_as_ever_and_others_get_it_signed(scene: Scene, options: dict):
    sub = scene.theirs.subscribe("bank.>", signed_by="desk", test=True)
    here = scene.ours.subscribe("bank.>", signed_by="desk", test=True)
    scene.ours.publish("bank.pay", {"amount": 7}, **options)
    scene.ours.publish_many([("bank.pay", {"amount": 8}, {"trace": "t"})], **options)
    for one in (sub, here):
        events = [one.receive(PATIENCE_S) for _ in range(2)]
        assert [event.data["amount"] for event in events] == [7, 8]
        assert {event.signed_by for event in events} == {"desk"}
        assert events[1].headers["trace"] == "t"


def test_who_has_no_key_is_refused_whoever_listens(scene: Scene):
    for subject in ("bank.pay", "named.x", "secret.x"):
        with pytest.raises(QosRefused, match="the policy asks"):
            scene.stranger.publish(subject, {"amount": 7})
        with pytest.raises(QosRefused):
            scene.stranger.publish(subject, {"amount": 7}, guaranteed=True)
        with pytest.raises(QosRefused):
            scene.stranger.publish_many([(subject, {"amount": 7})])
    scene.stranger.publish("free.x", {"amount": 7})


def test_another_signature_than_the_one_asked_for_is_refused(scene: Scene):
    scene.theirs.subscribe("named.>")
    with pytest.raises(QosRefused, match="signed"):
        scene.theirs.publish("named.x", {"n": 1})  # it has other pairs
    EventKeyFolder(scene.ours.home).make("another")
    with pytest.raises(QosRefused, match="another signature; known here: desk"):
        scene.ours.publish("named.x", {"n": 1}, sign="another")


def test_receivers_leave_out_and_count_what_is_below_the_level(scene: Scene):
    sub = scene.theirs.subscribe("bank.>")
    free = scene.theirs.subscribe("free.>")
    scene.open.publish("bank.pay", {"amount": 666})
    scene.ours.publish("bank.pay", {"amount": 7})
    scene.open.publish("free.x", {"n": 1})
    assert sub.receive(PATIENCE_S).data == {"amount": 7}
    assert free.receive(PATIENCE_S).data == {"n": 1}
    assert scene.theirs.stats().unprotected == 1
    assert scene.open.node in scene.theirs.stats().complaints


def test_what_a_stranger_has_signed_counts_for_nothing(scene: Scene):
    EventKeyFolder(scene.open.home).make("desk")  # of the same name
    sub = scene.theirs.subscribe("bank.>")
    scene.open.publish("bank.pay", {"amount": 666}, sign="desk")
    scene.ours.publish("bank.pay", {"amount": 7})
    assert sub.receive(PATIENCE_S).data == {"amount": 7}
    assert scene.theirs.stats().unprotected == 1


def test_a_subject_can_ask_for_a_seal_too(scene: Scene):
    sub = scene.theirs.subscribe("secret.>", signed_by="desk", holds=["audit"])
    scene.open.publish("secret.x", {"n": 1}, sign=EventKeyFolder(scene.ours.home).pair("desk"))
    scene.ours.publish("secret.x", {"n": 2})
    event = sub.receive(PATIENCE_S)
    assert (event.data, event.signed_by) == ({"n": 2}, "desk")


def test_guaranteed_events_are_kept_as_the_policy_asks(scene: Scene):
    with scene.theirs.subscribe("bank.>", durable="audit", signed_by="desk") as sub:
        scene.open.publish("bank.pay", {"amount": 666}, guaranteed=True)
        scene.ours.publish("bank.pay", {"amount": 7}, guaranteed=True)
        scene.ours.publish_many([("bank.pay", {"amount": 8})], guaranteed=True)
        got = [sub.receive(PATIENCE_S) for _ in range(2)]
    assert [one.data["amount"] for one in got] == [7, 8]
    with scene.theirs.subscribe("bank.>", durable="plain") as sub:
        scene.open.publish("bank.pay", {"amount": 666}, guaranteed=True)
        scene.ours.publish("bank.pay", {"amount": 9}, guaranteed=True)
        assert sub.receive(PATIENCE_S).data == {"amount": 9}


def test_transactions_cannot_enter_a_protected_subject(scene: Scene):
    sub = scene.theirs.subscribe("bank.>")
    with pytest.raises(QosRefused, match="no transaction"), scene.ours.transaction() as tx:
        tx.publish("bank.pay", {"amount": 7})
    with scene.open.transaction() as tx:
        tx.publish("bank.pay", {"amount": 666})
        tx.publish("bank.pay", {"amount": 667})
    scene.ours.publish("bank.pay", {"amount": 7})
    assert sub.receive(PATIENCE_S).data == {"amount": 7}


def test_another_policy_counts_from_then_on(scene: Scene):
    sub = scene.theirs.subscribe("bank.>")
    for bus in (scene.stranger, scene.theirs):
        interior(bus).runtime.protect(None)
    scene.stranger.publish("bank.pay", {"amount": 5})
    assert sub.receive(PATIENCE_S).data == {"amount": 5}
