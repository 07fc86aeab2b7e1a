"""Whatever comes from the network: counted, complained about once, and the node keeps working."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infobus import Bus
from infobus.engines.memory import MemoryEngine, live_network
from infobus.protocols import wire
from tests.bus.helpers import numbers_of, send, take, wait_until

NAMES = st.sampled_from(["stranger", "", "x" * 500, "a.b", "*", "news", "\ud7ff", "n" * 200])
COUNTS = st.sampled_from([-1, 0, 1, 2, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
LEAVES = st.none() | st.booleans() | COUNTS | st.floats() | NAMES | st.binary(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | COUNTS, inner, max_size=3),
    max_leaves=12,
)
FRAMES = st.tuples(st.integers(0, 15), NAMES).flatmap(
    lambda head: st.lists(VALUES, max_size=7).map(lambda rest: [*head, *rest])
)


@pytest.fixture
def stranger(bus: Bus) -> Iterator[MemoryEngine]:
    engine = MemoryEngine(live_network(bus.name))
    engine.open("stranger")
    yield engine
    engine.close()


def real_frames(bus: Bus) -> list[wire.Message]:
    """One of each kind, as a node called stranger would send it."""
    me, items = "stranger", wire.Items.of([wire.Item("news.y", 3, 0.5, 0, b"\x80")])
    return [
        wire.Data(me, "news", 1, items),
        wire.Data(me, "news", 0, items, [b"\x80"]),
        wire.Ack(me, {"news": 2}),
        wire.Ask(me, "news", 1, 9),
        wire.Gone(me, "news", 1, 9),
        wire.Beat(me, (1, 0), 3, {"news": 9}),
        wire.Interest(me, (1, 0), 1, 0, 2, ["news.>"]),
        wire.Known(me, 2, 1, {"news": 1}, [b"\x80"]),
        wire.WantTypes(me, [7]),
        wire.Types(me, [b"\x80"]),
        wire.Bye(me, {"news": 12}),
        wire.WantState(me, 1, ["news.>"]),
        wire.State(me, 1, {"news": 1}, items),
    ]


def still_works(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("check.*")
    back = bus.subscribe("check.*")
    send(bus, "check.y", 1, 2)
    send(other, "check.y", 3)
    assert sorted(numbers_of(take(sub, 3))) == [1, 2, 3]
    assert sorted(numbers_of(take(back, 3))) == [1, 2, 3]
    sub.close()
    back.close()


def feed(bus: Bus, *frames: bytes) -> None:
    """Hand frames to the node as its engine does; nothing but a counted drop may happen."""
    for frame in frames:
        bus._hub.on_frame(frame)


SLOWLY = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@SLOWLY
@given(st.binary(max_size=200))
def test_random_bytes(bus: Bus, payload: bytes) -> None:
    before = bus.stats().bad_frames + bus.stats().received_frames
    feed(bus, payload)
    # Either unreadable, or a kind of frame of a newer version, which is skipped.
    assert bus.stats().bad_frames + bus.stats().received_frames - before <= 1


def test_random_bytes_harm_nobody(bus: Bus, other: Bus) -> None:
    bus.subscribe(">")
    feed(bus, b"", b"\xc1", b"\x00", b"\x91\x01", b"\xff" * 100, b"\xdd\xff\xff\xff\xff", b"\x90")
    assert bus.stats().bad_frames >= 6
    assert len(bus.stats().complaints) == 1
    still_works(bus, other)


@SLOWLY
@given(FRAMES)
def test_arrays_that_look_like_frames(bus: Bus, frame: list[object]) -> None:
    bus.subscribe("news.>").close()
    try:
        payload = msgspec.msgpack.encode(frame)
    except (OverflowError, UnicodeEncodeError, ValueError):
        return
    feed(bus, payload)


@SLOWLY
@given(
    st.integers(0, 12), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
)
def test_real_frames_with_some_bytes_changed(
    bus: Bus, kind: int, changes: list[tuple[int, int]]
) -> None:
    payload = bytearray(wire.encode(real_frames(bus)[kind]))
    for position, value in changes:
        payload[position % len(payload)] = value
    feed(bus, bytes(payload))


@SLOWLY
@given(st.lists(st.integers(0, 12), max_size=8))
def test_real_frames_in_any_order(bus: Bus, kinds: list[int]) -> None:
    sub = bus.subscribe("news.>", on_loss="ignore")
    feed(bus, *(wire.encode(real_frames(bus)[kind]) for kind in kinds))
    sub.close()


def test_after_all_that_the_node_works(bus: Bus, other: Bus) -> None:
    sub = bus.subscribe("news.>", on_loss="ignore")
    for message in real_frames(bus):
        payload = wire.encode(message)
        feed(bus, payload, payload)
        for position in range(len(payload)):
            for value in (0, 0xC1, 0xFF, payload[position] ^ 1):
                feed(bus, payload[:position] + bytes([value]) + payload[position + 1 :])
            feed(bus, payload[:position])
    sub.close()
    still_works(bus, other)


def test_another_major_version_is_refused_aloud_and_another_minor_one_is_not(
    bus: Bus, other: Bus
) -> None:
    major, minor = wire.WIRE_MAJOR + 1, wire.WIRE_MINOR + 1
    feed(bus, wire.encode(wire.Beat("future", (major, 0), 1)))
    feed(bus, msgspec.msgpack.encode([6, "future", [major, 0], "another", "layout"]))
    assert bus.stats().bad_frames == 2
    assert f"speaks wire version {major}" in str(bus.stats().complaints)
    newer = [5, "newer", [wire.WIRE_MAJOR, minor], 1, {}, "a field of the future"]
    feed(bus, msgspec.msgpack.encode(newer), msgspec.msgpack.encode([99, "newer", "a new kind"]))
    assert bus.stats().bad_frames == 2
    still_works(bus, other)


def test_another_depth_is_refused_aloud(bus: Bus, other: Bus) -> None:
    told = wire.Interest("deep", (1, 0), 3, 0, 2, ["news.>"])
    feed(bus, wire.encode(told))
    assert "depth 3" in bus.stats().complaints["deep"]
    bus.publish("news.x", {})
    assert bus.stats().quenched == 1
    still_works(bus, other)


def test_many_strangers_do_not_fill_the_memory(bus: Bus, other: Bus) -> None:
    for number in range(3000):
        feed(bus, wire.encode(wire.Interest(f"deep-{number}", (1, 0), 3, 0, 2, [])))
    assert len(bus.stats().complaints) <= 1000
    types = [wire.Item("check.y", n, 0.0, 10**9 + n, b"\x80") for n in range(20_000)]
    bus.subscribe("check.y", when_full="drop_oldest", queue_count_max=10, on_loss="ignore")
    feed(bus, wire.encode(wire.Data("stranger", "check", 0, wire.Items.of(types))))
    assert len(bus._hub.types._sought) <= 10_000
    assert len(bus._hub.types.unknown) <= 10_000
    still_works(bus, other)


def test_frames_through_the_engine(bus: Bus, other: Bus, stranger: MemoryEngine) -> None:
    bus.subscribe("news.>", on_loss="ignore")
    for key in ("all", f"n/{bus.node}", "c/news"):
        for payload in (b"\xc1", b"", wire.encode(wire.Ask("stranger", "nothing", 1, 2**62))):
            stranger.put(key, payload)
    wait_until(lambda: bus.stats().bad_frames == 6)
    still_works(bus, other)


@pytest.mark.parametrize(
    "hello",
    [
        wire.encode((5, "stranger", (2, 0), "a layout of another time")),
        wire.encode(wire.Interest("stranger", (1, 0), 3, 0, 2, [])),
    ],
    ids=["another major version", "another depth"],
)
def test_nobody_waits_for_a_peer_that_cannot_be_understood(
    bus: Bus, stranger: MemoryEngine, hello: bytes
) -> None:
    stranger.announce("l/stranger")
    stranger.put("all", hello)
    wait_until(lambda: "stranger" in bus.stats().complaints)
    wait_until(lambda: bus.stats().peers == ("stranger",))
    assert bus._hub.node.is_synced(), "it would be waited for"
