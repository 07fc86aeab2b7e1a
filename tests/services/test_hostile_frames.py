"""Whatever strangers send about services: counted, complained about, and the node keeps working."""

import threading

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infobus import Service, UsageError
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence

NAMES = st.sampled_from(["stranger", "", "x" * 500, "svc.echo", "a..b", "*", "server", "busy"])
COUNTS = st.sampled_from([-1, 0, 1, 2, 7, 2**31, 2**63 - 1, 2**64 - 1])
LEAVES = st.none() | st.booleans() | COUNTS | st.floats() | NAMES | st.binary(max_size=20)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
FRAMES = st.tuples(st.integers(30, 49), NAMES).flatmap(
    lambda head: st.lists(VALUES, max_size=8).map(lambda rest: [*head, *rest])
)
ME = "stranger"
REAL = [
    wire.Who(ME, 1, "svc.>", "", "load < 3"),
    wire.Who(ME, 1, ">", where="this is ( no filter"),
    wire.IAm(ME, 0, 9, [Presence(1, 0, "svc.echo", "server", 0.0, b"junk", b"junk")]),
    wire.Call(ME, 1, 1, "echo", b"junk"),
    wire.Call(ME, 2, 1, "nothing", b"\x80", 1.0, [1, 7], 5, "id", 3, 99, [b"junk"]),
    wire.Call(ME, 2**62, 1, "echo", b"\x80"),
    wire.Call(ME, 3, 1, "echo", b"\x81\xa4text\xa1x", float("nan")),
    wire.Call(ME, 4, 1, "echo", b"\x81\xa4text\xcf" + b"\xff" * 8, float("-inf")),
    wire.IAm(ME, 0, 9, [Presence(2, 0, "svc.echo", "server", float("nan"), rule="primary")]),
    wire.Reply(ME, 1, b"junk"),
    wire.Failed(ME, 1, b"junk"),
    wire.Refused(ME, 1, "who knows", "", (ME, 1)),
    wire.Underway(ME, 5),
    wire.Streamed(ME, 1, 1, [b"junk"] * 3),
    wire.Credit(ME, 1, 2**60, 2**61, True),
    wire.Settled(ME, [1, 2, 2**62], ["id"]),
    wire.Retire(ME, "svc.other"),
    wire.CallGone(ME, 1),
]


class Echo(Service):
    def echo(self, text: str) -> str:
        return text


@pytest.fixture
def stranger(bus, other):
    # After the nodes have met: those who come later would wait for the stranger to say hello.
    engine = MemoryEngine(live_network(bus.name))
    engine.open(ME)
    engine.announce(f"l/{ME}")
    yield engine
    engine.close()


@pytest.fixture
def client(bus, other, stranger):
    bus.serve("svc.echo", Echo())
    client = other.service("svc.echo", timeout_s=20)
    assert client.echo("x") == "x"
    return client


def send(stranger, bus, frame):
    stranger.put(f"n/{bus.stats().node}", frame)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(frames=st.lists(FRAMES, min_size=1, max_size=8))
def test_frames_that_make_no_sense_do_no_harm(bus, other, stranger, client, frames):
    for frame in frames:
        send(stranger, bus, msgspec.msgpack.encode(frame))
        send(stranger, other, msgspec.msgpack.encode(frame))
    assert client.echo("still here") == "still here"


@pytest.mark.parametrize("frame", REAL, ids=lambda frame: type(frame).__name__)
def test_frames_that_lie_do_no_harm(bus, other, stranger, client, frame):
    for node in (bus, other):
        send(stranger, node, msgspec.msgpack.encode(frame))
    assert client.echo("still here") == "still here"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(frame=st.sampled_from(REAL).map(msgspec.msgpack.encode), chance=st.randoms())
def test_frames_that_were_cut_or_damaged_do_no_harm(bus, other, stranger, client, frame, chance):
    damaged = bytearray(frame[: chance.randint(0, len(frame))] + chance.randbytes(3))
    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    for node in (bus, other):
        send(stranger, node, bytes(damaged))
        stranger.put("all", bytes(damaged))
    assert client.echo("still here") == "still here"


def test_an_answer_to_a_call_that_was_not_made_is_complained_about(other, stranger, client):
    send(stranger, other, msgspec.msgpack.encode(wire.Reply(ME, 7, b"\x81\xa5value\xa4evil")))
    assert client.echo("x") == "x"
    assert other.stats().complaints[ME] == "answers call 7, which was not made"


def test_an_answer_of_somebody_else_answers_no_call(bus, other, stranger):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Service):
        def wait(self) -> str:
            begun.set()
            go_on.wait(20)
            return "mine"

    bus.serve("svc.slow", Slow())
    call = other.service("svc.slow").wait.start()
    assert begun.wait(20)
    evil = wire.Reply(ME, 1, msgspec.msgpack.encode({"value": "evil"}))
    send(stranger, other, msgspec.msgpack.encode(evil))
    go_on.set()
    assert call.result() == "mine"


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_time_that_cannot_be_waited_for_is_refused(other, timeout_s):
    with pytest.raises(UsageError, match="timeout_s must be 0 to"):
        other.service("svc.echo", timeout_s=timeout_s)


def test_calls_that_cannot_be_read_are_counted(bus, stranger, client):
    send(stranger, bus, msgspec.msgpack.encode([32, "stranger", "not a number"]))
    assert client.echo("x") == "x"
    assert bus.stats().bad_frames == 1


def test_bad_frames_are_counted_and_named(bus, stranger, client):
    send(stranger, bus, msgspec.msgpack.encode([33, "stranger", "not a number"]))
    assert client.echo("x") == "x"
    stats = bus.stats()
    assert stats.bad_frames == 1
    assert "malformed frame (tag 33)" in stats.complaints["BadFrame"]
