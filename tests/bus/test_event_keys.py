"""Events that are signed or sealed, over a bus in memory: who gets them, and as what."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import infobus
from infobus.bus.bus import interior
from infobus.errors import BadValue, UsageError
from infobus.objects.sealed import SEALED
from infobus.protocols.frames import wire
from infobus.security.event_keys import EventKey
from infobus.security.event_seal import open_sealed
from infobus.stores.event_keys import EventKeyFolder
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S

pytest.importorskip("cryptography")


class Quote(infobus.DataObject, name="keys.Quote"):
    symbol: str
    price: float
    size: int = 3


class Scene:
    """Two nodes; the publisher's home has the pairs, the other one what was given to it."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = EventKeyFolder(folder / "a"), EventKeyFolder(folder / "b")
        for name in ("desk", "mallory"):
            self.theirs.add(self.ours.make(name).public.to_text())
        self.ours.add(self.theirs.make("auditors").public.to_text())
        name, self.number = f"keys-{folder.name}", 10**6
        self.a = infobus.connect(name, engine="memory", home=folder / "a")
        self.b = infobus.connect(name, engine="memory", home=folder / "b")

    def forge(self, event: infobus.Event, **changes: object) -> None:
        """Let the publisher's node send an event again, changed as an enemy would do it."""
        subject = str(changes.pop("subject", event.subject))
        body = msgspec.msgpack.encode(infobus.objects.sent_values(event.data) | changes)
        type_ = infobus.type_of(event.data).fingerprint
        headers = msgspec.msgpack.encode(dict(event.headers))
        time = float(str(changes.pop("time", event.time)))
        self.number += 1
        item = wire.Item(subject, self.number, time, type_, body, headers=headers)
        frame = wire.encode(wire.Data(self.a.node, subject.split(".")[0], 0, wire.Items.of([item])))
        interior(self.a).runtime.engine.put(f"c/{subject.split('.')[0]}", frame)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    with scene.a, scene.b:
        yield scene


def test_a_signed_event_reaches_those_who_ask_for_the_signature_and_all_others(scene: Scene):
    asked = scene.b.subscribe("q.>", signed_by="desk")
    any_ = scene.b.subscribe("q.>")
    for signer in (None, "mallory", "desk"):
        scene.a.publish("q.gmc", Quote(symbol=str(signer), price=1.0), sign=signer)
    event = asked.receive(PATIENCE_S)
    assert (event.data.symbol, event.signed_by) == ("desk", "desk")
    assert asked.is_empty() or asked.waiting_count == 0
    got = [any_.receive(PATIENCE_S) for _ in range(3)]
    assert [one.data.symbol for one in got] == ["None", "mallory", "desk"]
    assert [one.signed_by for one in got] == ["", "", ""]  # nobody has checked
    assert scene.b.stats().forged == 0


@pytest.mark.parametrize("changes", [{"price": 0.5}, {"subject": "q.ibm"}, {"symbol": "IBM"}])
def test_what_was_changed_is_counted_and_never_delivered(scene: Scene, changes: dict):
    asked = scene.b.subscribe("q.>", signed_by="desk")
    any_ = scene.b.subscribe("q.>")
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=41.0), sign="desk")
    genuine = any_.receive(PATIENCE_S)
    assert asked.receive(PATIENCE_S).signed_by == "desk"
    scene.forge(genuine, **changes)
    assert any_.receive(PATIENCE_S)  # the attack works on whoever does not ask
    with pytest.raises(TimeoutError):
        asked.receive(0.2)
    assert scene.b.stats().forged == 1
    assert scene.a.node in scene.b.stats().complaints


def test_a_signed_event_on_another_bus_or_much_later_does_not_count(scene: Scene):
    asked, any_ = scene.b.subscribe("q.>", signed_by="desk"), scene.b.subscribe("q.>")
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=41.0), sign="desk")
    genuine = any_.receive(PATIENCE_S)
    assert asked.receive(PATIENCE_S)
    late = msgspec.structs.replace(genuine, time=genuine.time + 3600)
    scene.forge(late)
    assert any_.receive(PATIENCE_S).time == late.time
    with infobus.connect("another", engine="memory", home=scene.ours.path.parent) as there:
        heard = there.subscribe("q.>")
        there.publish("q.gmc", Quote(symbol="GMC", price=41.0), sign="desk")
        elsewhere = heard.receive(PATIENCE_S)
    scene.forge(elsewhere)
    any_.receive(PATIENCE_S)
    with pytest.raises(TimeoutError):
        asked.receive(0.2)
    assert scene.b.stats().forged == 2


def test_who_holds_the_key_gets_the_object_and_others_what_is_clear(scene: Scene):
    auditor = scene.b.subscribe("q.>", holds=["auditors"], where="price > 40")
    clear = scene.b.subscribe("q.>", where='symbol == "GMC"')
    looking = scene.b.subscribe("q.>", where="price > 40")
    quote = Quote(symbol="GMC", price=41.0)
    scene.a.publish("q.gmc", quote, seal_to=["auditors"], clear=["symbol"])
    opened, shown = auditor.receive(PATIENCE_S), clear.receive(PATIENCE_S)
    assert opened.data == quote
    assert not opened.is_sealed
    assert shown.is_sealed
    assert isinstance(shown.data, Quote)
    assert shown.data.symbol == "GMC"
    assert shown.data.price is shown.data.size is SEALED
    assert repr(shown.data.price) == "sealed"
    with pytest.raises(TypeError, match="holds"):
        bool(shown.data.price)
    with pytest.raises(TimeoutError):
        looking.receive(0.1)  # to it, there is no price
    assert infobus.id_of(opened.data) == infobus.id_of(shown.data) == infobus.id_of(quote)
    assert copy.deepcopy(shown.data) == pickle.loads(pickle.dumps(shown.data)) == shown.data


def test_the_filter_of_a_holder_is_exact_once_the_event_is_opened(scene: Scene):
    auditor = scene.b.subscribe("q.>", holds=["auditors"], where="price > 40", tell_filter=True)
    for price in (39.0, 41.0):
        scene.a.publish("q.gmc", Quote(symbol="GMC", price=price), seal_to=["auditors"])
        scene.a.publish("q.gmc", {"price": price}, seal_to=["auditors"])
        scene.a.publish("q.gmc", {"price": price})
    got = [auditor.receive(PATIENCE_S).data for _ in range(3)]
    assert [one.price if isinstance(one, Quote) else one["price"] for one in got] == [41.0] * 3
    with pytest.raises(TimeoutError):
        auditor.receive(0.1)


def test_dual_what_is_sealed_cannot_be_signed_anew_by_somebody_else(scene: Scene):
    dual = scene.b.subscribe("q.>", holds=["auditors"], signed_by=["desk", "mallory"])
    quote = Quote(symbol="GMC", price=41.0)
    scene.a.publish("q.gmc", quote, sign="desk", seal_to=["auditors"])
    event = dual.receive(PATIENCE_S)
    assert (event.data, event.signed_by) == (quote, "desk")
    any_ = scene.b.subscribe("q.>")
    scene.a.publish("q.gmc", quote, seal_to=["auditors"], sign="desk")
    stolen = any_.receive(PATIENCE_S).data
    assert dual.receive(PATIENCE_S).data == quote
    scene.a.publish("q.gmc", stolen, sign="mallory")  # the envelope goes along
    claimed = dual.receive(PATIENCE_S)
    assert claimed.signed_by == "mallory"
    assert claimed.is_sealed


def test_plain_events_are_not_for_those_who_ask_for_a_signature(scene: Scene):
    scene.b.subscribe("q.>", signed_by="desk")
    before = scene.a.stats()
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=1.0))
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=1.0), sign="mallory")
    after = scene.a.stats()
    assert after.quenched - before.quenched == 2
    assert after.sent_events == before.sent_events


def test_others_are_not_told_what_the_holder_of_a_key_looks_for(scene: Scene):
    """Rule 3; the row is told with its filter if the subscriber says so."""
    rows = interior(scene.a).runtime.node.rows
    quiet = scene.b.subscribe("q.>", holds=["auditors"], where='symbol == "SECRET"')
    assert [where for _, where in rows.overlapping("q.>")] == [f"@opens:{auditors(scene)}"]
    quiet.close()
    scene.b.subscribe("q.>", holds=["auditors"], where='symbol == "TOLD"', tell_filter=True)
    wanted = [f'@opens:{auditors(scene)} symbol == "TOLD"']
    wait_until(lambda: [where for _, where in rows.overlapping("q.>")] == wanted)


def auditors(scene: Scene) -> str:
    return scene.theirs.pair("auditors").id.hex()


def test_quench_shows_a_producer_only_what_its_keys_satisfy(scene: Scene):
    """Rule 5."""
    scene.theirs.make("strangers")
    scene.b.subscribe("q.>", signed_by="strangers", where="price > 1", tell_filter=True)
    assert str(scene.a.quench("q.>").expression()) == "nothing"
    scene.b.subscribe("q.>", signed_by="desk", where="price > 40", tell_filter=True)
    scene.b.subscribe("q.>", holds=["auditors"], where="price > 50", tell_filter=True)
    wanted = scene.a.quench("q.>")
    wait_until(lambda: str(wanted.expression()) == "price > 40")


def test_a_filter_can_be_changed_and_keys_stay(scene: Scene):
    asked = scene.b.subscribe("q.>", signed_by="desk", where="price > 40")
    asked.change_filter("price < 10")
    scene.a.publish("q.gmc", Quote(symbol="LOW", price=1.0))
    for price in (41.0, 1.0):
        scene.a.publish("q.gmc", Quote(symbol="GMC", price=price), sign="desk")
    assert asked.receive(PATIENCE_S).data.price == 1.0
    asked.close()
    assert not interior(scene.b).runtime.node.own.added


def test_many_events_and_test_events_have_keys_too(scene: Scene):
    asked = scene.b.subscribe("q.>", signed_by="desk", test=True)
    quotes = [Quote(symbol=f"S{n}", price=1.0) for n in range(200)]
    scene.a.publish_many([("q.gmc", quote) for quote in quotes], sign="desk")
    scene.a.publish("q.gmc", quotes[0], sign="desk", test=True)
    got = [asked.receive(PATIENCE_S) for _ in range(201)]
    assert [one.data.symbol for one in got] == [f"S{n}" for n in range(200)] + ["S0"]
    assert got[-1].test
    assert {one.signed_by for one in got} == {"desk"}


def test_the_publishers_own_consumers_have_keys_too(scene: Scene):
    asked = scene.a.subscribe("q.>", signed_by="desk", where="price > 40")
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=41.0))
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=42.0), sign="mallory")
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=43.0), sign="desk")
    assert asked.receive(PATIENCE_S).data.price == 43.0


def test_a_durable_consumer_gets_what_is_signed_and_opens_what_is_sealed(scene: Scene):
    """Signature and envelope lie in the ledger as they were sent."""
    options = {"durable": "audit", "signed_by": "desk", "holds": ["auditors"]}
    with scene.b.subscribe("q.>", where="price > 40", **options) as sub:
        scene.a.publish("q.gmc", Quote(symbol="NO", price=50.0), guaranteed=True)
        for price in (39.0, 41.0):
            quote = Quote(symbol="GMC", price=price)
            keys = {"sign": "desk", "seal_to": ["auditors"], "clear": ["symbol"]}
            scene.a.publish("q.gmc", quote, guaranteed=True, **keys)
        event = sub.receive(PATIENCE_S)
        assert (event.data.price, event.signed_by) == (41.0, "desk")
        assert event.guaranteed
        event.ack()
    for ledger in (scene.ours.path.parent / "buses").rglob("*.db*"):
        assert b"price" not in ledger.read_bytes() or b"NO" in ledger.read_bytes()
    with scene.b.subscribe("q.>", durable="plain") as sub:
        scene.a.publish("q.gmc", quote, guaranteed=True, seal_to=["auditors"], clear=["symbol"])
        event = sub.receive(PATIENCE_S)
        assert event.is_sealed
        assert event.data.symbol == "GMC"


def test_whoever_keeps_a_sealed_event_can_open_it_later(scene: Scene):
    any_ = scene.b.subscribe("q.>")
    scene.a.publish("q.gmc", Quote(symbol="GMC", price=41.0), seal_to=["auditors"])
    kept = any_.receive(PATIENCE_S).data
    scene.b.publish("archive.q", kept)
    fingerprint, body, _ = infobus.objects.codec.encode(kept)
    opened = open_sealed(body, fingerprint, [scene.theirs.pair("auditors")], b"")
    assert opened is not None
    assert msgspec.msgpack.decode(opened)["price"] == 41.0


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"sign": "nobody"}, UsageError, "infobus keys event nobody"),
        ({"sign": "auditors"}, UsageError, "only the public half"),
        ({"sign": "../etc"}, UsageError, "cannot be called"),
        ({"seal_to": []}, BadValue, "0 keys"),
        ({"seal_to": "auditors"}, UsageError, "take lists"),
        ({"seal_to": ["auditors"], "clear": ["simbol"]}, BadValue, "'simbol'"),
        ({"clear": ["symbol"]}, UsageError, "give seal_to"),
    ],
)
def test_a_mistake_with_keys_is_told_before_anything_is_sent(scene: Scene, keys, error, said):
    any_ = scene.b.subscribe("q.>")
    with pytest.raises(error, match=said):
        scene.a.publish("q.gmc", Quote(symbol="GMC", price=41.0), **keys)
    with pytest.raises(TimeoutError):
        any_.receive(0.1)


def test_a_subscriber_without_the_key_is_told_so(scene: Scene):
    with pytest.raises(UsageError, match="only the public half"):
        scene.a.subscribe("q.>", holds=["auditors"])
    with pytest.raises(UsageError, match="infobus keys event"):
        scene.b.subscribe("q.>", signed_by="nobody")


def test_keys_themselves_can_be_given_in_place_of_names(scene: Scene):
    key = EventKey("mine", bytes(range(32)))
    asked = scene.b.subscribe("q.>", signed_by=key.public, holds=[key])
    scene.a.publish("q.gmc", {"n": 1}, sign=key, seal_to=[key.public])
    event = asked.receive(PATIENCE_S)
    assert (event.data, event.signed_by) == ({"n": 1}, "mine")
