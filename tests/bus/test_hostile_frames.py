"""Whatever comes from the network: counted, complained about once, and the node keeps working."""

import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infobus import Bus, Patience
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.protocols.frames import wire
from tests.bus.conftest import Connect
from tests.bus.helpers import account, numbers_of, send, take, wait_until
from tests.patience import PATIENCE_S

LANES = ["news\x1femergency", "news\x1fnope", "news\x1f", "\x1f", "news\x1fa\x1fb"]
NAMES = st.sampled_from(
    ["stranger", "", "x" * 500, "a.b", "*", "news", "\ud7ff", "n" * 200, *LANES]
)
COUNTS = st.sampled_from([-1, 0, 1, 2, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
LEAVES = st.none() | st.booleans() | COUNTS | st.floats() | NAMES | st.binary(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | COUNTS, inner, max_size=3),
    max_leaves=12,
)
KINDS_COUNT = 15  # of `real_frames`
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
    asked = msgspec.structs.replace(items, qos=[wire.Qos(1.0, "business", 0.5, True)])
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
        wire.Data(me, "news\x1femergency", 1, asked),
        wire.Interest(me, (1, 0), 1, 0, 3, [], classes=["high"], requests=[wire.Request("x")]),
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
        bus._runtime.on_frame(frame)


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
    st.integers(0, KINDS_COUNT - 1),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
def test_real_frames_with_some_bytes_changed(
    bus: Bus, kind: int, changes: list[tuple[int, int]]
) -> None:
    payload = bytearray(wire.encode(real_frames(bus)[kind]))
    for position, value in changes:
        payload[position % len(payload)] = value
    feed(bus, bytes(payload))


@SLOWLY
@given(st.lists(st.integers(0, KINDS_COUNT - 1), max_size=8))
def test_real_frames_in_any_order(bus: Bus, kinds: list[int]) -> None:
    sub = bus.subscribe("news.>", on_loss="ignore")
    feed(bus, *(wire.encode(real_frames(bus)[kind]) for kind in kinds))
    sub.close()


def event(lane: str, first: int, number: int, time_s: float, qos: wire.Qos | None = None) -> bytes:
    """The frame of a stranger's event {"n": number}."""
    body = msgspec.msgpack.encode({"n": number})
    items = wire.Items.of([wire.Item("news.y", number, time_s, 0, body, None, qos)])
    return wire.encode(wire.Data("stranger", lane, first, items))


@pytest.mark.parametrize("lane", ["news", *LANES[:3]])
@pytest.mark.parametrize("class_", ["", "nope", "regular", "emergency", "\x1f"])
@pytest.mark.parametrize("demand", [{}, {"max_age": 60.0}, {"priority": "business"}], ids=str)
def test_an_event_of_any_class_arrives(bus: Bus, lane: str, class_: str, demand: dict) -> None:
    sub = bus.subscribe("news.>", **demand)
    now_s = time.time()
    for seq, until_s in enumerate([0.0, 1e300, -1.0, float("inf"), float("nan")], 1):
        feed(bus, event(lane, 0, seq, now_s, wire.Qos(60.0, class_, until_s)))
    assert numbers_of(take(sub, 5)) == [1, 2, 3, 4, 5]
    assert sub.waiting_count == 0


@pytest.mark.parametrize("lane", ["news", *LANES[:3]])
@pytest.mark.parametrize("demand", [{}, {"max_age": 60.0}, {"priority": "business"}], ids=str)
def test_on_any_lane_nothing_is_lost_in_silence(bus: Bus, lane: str, demand: dict) -> None:
    sub, now_s = bus.subscribe("news.>", **demand), time.time()
    version = bus._runtime.node.own.version
    feed(bus, wire.encode(wire.Known("stranger", version, 1, {lane: 1})))
    feed(bus, event(lane, 1, 1, now_s), event(lane, 5, 5, now_s))
    feed(bus, wire.encode(wire.Gone("stranger", lane, 2, 4)))
    assert account(sub, until=5) == ([1, 5], [(2, 4)])


NO_TIMES = [float("nan"), float("inf"), -float("inf"), 1e300, -1e300]


@pytest.mark.parametrize("time_s", NO_TIMES)
def test_an_event_of_no_time_is_no_event(bus: Bus, other: Bus, time_s: float) -> None:
    sub = bus.subscribe("news.>")
    feed(bus, event("news", 0, 1, time_s))
    assert bus.stats().bad_frames == 1
    assert sub.waiting_count == 0
    still_works(bus, other)


@pytest.mark.parametrize("age_s", [float("nan"), -1.0, -float("inf")])
def test_an_age_limit_that_is_none_makes_a_bad_frame(bus: Bus, age_s: float) -> None:
    feed(bus, event("news", 0, 1, 0.5, wire.Qos(age_s)))
    assert bus.stats().bad_frames == 1


def test_times_far_away_make_no_event_live_longer_or_for_ever(bus: Bus) -> None:
    sub, now_s = bus.subscribe("news.>", max_age=60.0), time.time()
    feed(bus, event("news", 0, 1, -1e9), event("news", 0, 2, 1e11), event("news", 0, 3, now_s))
    feed(bus, event("news", 0, 4, now_s, wire.Qos(float("inf"))))
    assert numbers_of(take(sub, 3)) == [2, 3, 4]
    aged = bus.subscribe("news.>", max_age=0.05)
    feed(bus, event("news", 0, 5, 1e11), event("news", 0, 6, 1e11, wire.Qos(float("inf"))))
    wait_until(lambda: bus.stats().expired == 3)
    assert aged.waiting_count == 0


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
    newer = [5, "newer", [wire.WIRE_MAJOR, minor], 1, {}, 0, 0, "a field of the future"]
    feed(bus, msgspec.msgpack.encode(newer), msgspec.msgpack.encode([99, "newer", "a new kind"]))
    assert bus.stats().bad_frames == 2
    still_works(bus, other)


def test_a_filter_that_is_not_understood_is_counted_and_holds_nothing_back(bus: Bus) -> None:
    told = wire.Interest("newer", (1, 0), 1, 0, 2, ["news.a"], filters=["newer-function(n)"])
    bus._runtime._on_token("l/newer", True)
    feed(bus, wire.encode(told))
    bus.publish("news.a", {"n": 1})
    stats = bus.stats()
    assert (stats.quenched, stats.unreadable_filters) == (0, 1)


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
    assert len(bus._runtime.types._sought) <= 10_000
    assert len(bus._runtime.types.unknown) <= 10_000
    still_works(bus, other)


def test_a_node_that_never_answers_is_waited_for_once(
    connect: Connect, stranger: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token that answers nobody made every `subscribe` wait."""
    stranger.announce("l/stranger")
    bus = connect(patience=Patience(sync_s=0.2, handshake_s=0.2))
    assert "has not answered" in bus.stats().complaints["stranger"]
    answered: list[bool] = []
    wait_until_so = bus._runtime.wait_until

    def watched(is_so: Callable[[], object], timeout_s: float | None) -> bool:
        answered.append(wait_until_so(is_so, timeout_s))
        return answered[-1]

    monkeypatch.setattr(bus._runtime, "wait_until", watched)
    bus.subscribe("a", timeout_s=PATIENCE_S)
    assert answered == [True], "all that are waited for have answered"
    known = wire.Known("stranger", bus._runtime.node.own.version, 1)
    feed(bus, wire.encode(known))
    bus.subscribe("b", timeout_s=0.2)
    assert answered == [True, False], "it answers, so it is waited for again"


def test_frames_of_invented_names_leave_little_behind(bus: Bus, other: Bus) -> None:
    for number in range(20_000):
        feed(bus, wire.encode(wire.WantRows(f"ghost-{number}")))
    assert len(bus._runtime.node.peers) <= 101
    still_works(bus, other)


def test_frames_through_the_engine(bus: Bus, other: Bus, stranger: MemoryEngine) -> None:
    bus.subscribe("news.>", on_loss="ignore")
    for key in ("all", f"n/{bus.node}", "c/news"):
        for payload in (b"\xc1", b"", wire.encode(wire.Ask("stranger", "nothing", 1, 2**62))):
            stranger.put(key, payload)
    wait_until(lambda: bus.stats().bad_frames == 6)
    still_works(bus, other)


def test_a_name_that_would_write_on_the_terminal_is_dropped_and_counted(
    bus: Bus, other: Bus, stranger: MemoryEngine, caplog: pytest.LogCaptureFixture
) -> None:
    name = "h\x1b]0;owned\x07\x1b[31mx\nINJECTED"
    before = bus.stats().bad_frames
    stranger.announce(f"l/{name}")
    stranger.put("all", wire.encode(wire.WantRows(name)))
    wait_until(lambda: bus.stats().bad_frames == before + 2)
    assert bus.stats().peers == (other.node,)
    shown = [*caplog.messages, *bus.stats().complaints, *bus.stats().complaints.values()]
    assert any("owned" in line for line in shown)
    assert all(line.isprintable() for line in shown)
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
    wait_until(lambda: bus._runtime.node.peers["stranger"].refused)
    assert bus._runtime.node.is_synced(), "it would be waited for"
