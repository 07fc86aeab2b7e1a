"""Types that this process has never seen: waited for a stated time, then done without."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import infobus
from infobus import Bus, DataObject
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.objects import codec, define_type, registry
from infobus.patience import Patience
from infobus.protocols.frames import wire
from tests.bus.helpers import take, wait_until
from tests.objects import worlds

UNKNOWN = 0xDEAD_BEEF_DEAD_BEEF
BODY = b"\x81\xa1n\x07"  # {"n": 7}


@pytest.fixture
def stranger(bus: Bus) -> Iterator[MemoryEngine]:
    """A node that publishes objects of a type whose descriptor it does not give away."""
    engine = MemoryEngine(live_network(bus.name))
    engine.open("stranger")
    yield engine
    engine.close()


def put(engine: MemoryEngine, number: int, fingerprint: int = UNKNOWN) -> None:
    item = wire.Item("x.y", number, 0.0, fingerprint, BODY)
    data = wire.Data("stranger", "x", 0, wire.Items.of([item]))
    engine.put("c/x", wire.encode(data))


def test_an_unknown_type_yields_a_generic_object_within_the_stated_time(
    bus: Bus, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=0.2))
    sub = bus.subscribe("x.y")
    asked: list[bytes] = []
    stranger.declare("all", asked.append)
    started_s = time.monotonic()
    put(stranger, 0)
    event = sub.receive(20)  # so it is not waited for much longer
    assert time.monotonic() - started_s > 0.1
    assert isinstance(event.data, DataObject)
    assert event.data.n == 7

    def wants() -> list[list[int]]:
        messages = [wire.decode(frame) for frame in asked]
        return [one.types for one in messages if isinstance(one, wire.WantTypes)]

    wait_until(lambda: bool(wants()))
    assert wants() == [[UNKNOWN]]


def test_only_the_first_event_of_an_unknown_type_is_held_up(
    bus: Bus, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=0.2))
    sub = bus.subscribe("x.y")
    put(stranger, 0)
    take(sub, 1)
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=30.0))
    started_s = time.monotonic()
    for number in range(1, 21):
        put(stranger, number)
        sub.receive(60)
    assert time.monotonic() - started_s < 30, "another one was waited for"


def test_a_known_type_in_the_same_stream_is_delivered_after_it(
    bus: Bus, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=0.1))
    sub = bus.subscribe("x.y")
    put(stranger, 0)
    put(stranger, 1, fingerprint=0)
    events = take(sub, 2)
    assert [type(event.data) is dict for event in events] == [False, True]


def test_an_event_loop_is_not_held_up_by_an_unknown_type(
    bus: Bus, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=30.0))
    sub = bus.subscribe("x.y")
    put(stranger, 0)
    wait_until(lambda: sub.waiting_count == 1)

    async def main() -> None:
        waiting = asyncio.ensure_future(anext(sub))
        for _ in range(5):
            await asyncio.sleep(0.01)
            assert not waiting.done()
        bus._runtime.unknown_types.clear()  # as when nobody has told the type in time
        bus._runtime.wake()
        assert (await waiting).data.n == 7

    asyncio.run(main())


def test_an_object_that_cannot_be_read_is_counted_and_left_out(
    bus: Bus, stranger: MemoryEngine
) -> None:
    sub = bus.subscribe("x.y")
    for number, body in enumerate((b"\xc1", b"", b"\x81\xa1n", b"\x07", BODY)):
        item = wire.Item("x.y", number, 0.0, 0, body)
        data = wire.Data("stranger", "x", 0, wire.Items.of([item]))
        stranger.put("c/x", wire.encode(data))
    assert sub.receive(20).data == {"n": 7}
    assert bus.stats().bad_objects == 4
    assert list(bus.stats().complaints) == ["stranger"]


def test_a_node_answers_for_types_it_knows(bus: Bus, stranger: MemoryEngine) -> None:
    class Gauge(DataObject):
        level: float = 0.0

    answers: list[bytes] = []
    stranger.declare("n/stranger", answers.append)
    fingerprint = infobus.type_of(Gauge).fingerprint
    want = wire.encode(wire.WantTypes("stranger", [fingerprint]))
    stranger.put(f"n/{bus.node}", want)
    wait_until(lambda: bool(answers))
    answer = wire.decode(answers[0])
    assert isinstance(answer, wire.Types)
    assert codec.learn(answer.descriptors[-1]) == fingerprint


def test_the_first_frame_of_a_type_carries_its_descriptor(bus: Bus, stranger: MemoryEngine) -> None:
    class Meter(DataObject):
        level: float = 0.0

    seen: list[bytes] = []
    stranger.declare("c/x", seen.append)
    stranger.announce("l/stranger")
    told = wire.Interest("stranger", (1, 0), 1, 0, 2, ["x.y"])
    stranger.put(f"n/{bus.node}", wire.encode(told))
    wait_until(lambda: bus._runtime.node.rows.wanted("x.y"))
    for _ in range(2):
        bus.publish("x.y", Meter(level=1.0))
        bus.flush()
    wait_until(lambda: len(seen) == 2)
    first, second = (wire.decode(frame) for frame in seen)
    assert isinstance(first, wire.Data)
    assert isinstance(second, wire.Data)
    fingerprint = infobus.type_of(Meter).fingerprint
    assert fingerprint in {codec.learn(descriptor) for descriptor in first.descriptors}
    assert second.descriptors == []


def test_events_are_delivered_while_a_long_descriptor_is_read(
    bus: Bus, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worlds.another_process():
        attributes = {f"attribute_{number}": (int, number) for number in range(200)}
        long = define_type("types.Long", [], attributes).__bus_type__
    learn, begun, release = codec.learn, threading.Event(), threading.Event()

    def learn_slowly(descriptor: bytes, teacher: str = "") -> int:
        begun.set()
        assert release.wait(20)
        return learn(descriptor, teacher)

    monkeypatch.setattr(codec, "learn", learn_slowly)
    sub = bus.subscribe("x.y")
    stranger.put(f"n/{bus.node}", wire.encode(wire.Types("stranger", [long.descriptor])))
    assert begun.wait(20)
    bus.publish("x.y", {"n": 1})
    assert sub.receive(20).data == {"n": 1}
    release.set()
    wait_until(lambda: codec.known(long.fingerprint) and not bus._runtime._unread_bytes)


def test_a_type_that_was_forgotten_is_asked_for_again(bus: Bus, stranger: MemoryEngine) -> None:
    with worlds.another_process():
        known = define_type("types.Forgotten", [], {"n": int}).__bus_type__
    answers: list[bytes] = []
    stranger.declare("all", answers.append)
    described = wire.encode(wire.Types("stranger", [known.descriptor]))
    stranger.put(f"n/{bus.node}", described)
    wait_until(lambda: codec.known(known.fingerprint))
    registry.forget_learned(known.fingerprint)
    stranger.put(f"n/{bus.node}", wire.encode(wire.Types("stranger", [])))  # any news will do
    sub = bus.subscribe("x.y")
    item = wire.Item("x.y", 1, 0.0, known.fingerprint, b"\x81\xa1n\x07")
    stranger.put("c/x", wire.encode(wire.Data("stranger", "x", 0, wire.Items.of([item]))))
    wait_until(lambda: any(isinstance(wire.decode(one), wire.WantTypes) for one in answers))
    stranger.put(f"n/{bus.node}", described)
    event = sub.receive(20)
    assert (event.type, event.data.n) == ("types.Forgotten", 7)


def test_types_lists_what_is_known(bus: Bus, other: Bus) -> None:
    class Thermometer(DataObject):
        celsius: float = 0.0

    assert "Thermometer" in {kind.name for kind in bus.types(0.5)}


def test_many_unknown_types_do_not_add_up_to_a_long_wait(
    bus: Bus, bus_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus._runtime, "patience", Patience(type_s=0.4))
    sub = bus.subscribe("x")
    engine = MemoryEngine(live_network(bus_name))
    engine.open("stranger")
    for number in range(50):
        item = wire.Item("x", number, 0.0, 10**9 + number, b"\x80")
        engine.put("c/x", wire.encode(wire.Data("stranger", "x", 0, wire.Items.of([item]))))
    started_s = time.monotonic()
    take(sub, 50)
    assert time.monotonic() - started_s < 15, "one wait serves all"  # 20 s one by one
    engine.close()
