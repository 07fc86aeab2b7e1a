"""The runtime: machines by tag, effects in order, and no effect lost in silence."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.bus.clock import SYSTEM_CLOCK
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.deliver.type_requests import TypeRequests
from infobus.bus.runtime.peer_limits import Clients
from infobus.bus.runtime.registration import Background, Locked, Part
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.threads import SYSTEM_THREADS
from infobus.engines.memory.engine import MemoryEngine, Network
from infobus.errors import StoreError
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.qos.classes import Limits
from infobus.protocols.reliable.peer import Terms

NewRuntime = Callable[..., Runtime]


class Parrot:
    """A machine that answers everything with the same effects."""

    def __init__(self, *effects: Any) -> None:
        self.effects = effects
        self.told: list[tuple[Any, ...]] = []

    def take(self, message: Any, now_s: float) -> list[Any]:
        self.told.append(("take", message))
        return [*self.effects]

    def peer_up(self, name: str, now_s: float) -> list[Any]:
        self.told.append(("up", name))
        return []

    def peer_down(self, name: str, now_s: float) -> list[Any]:
        self.told.append(("down", name))
        return []

    def tick(self, now_s: float) -> list[Any]:
        self.told.append(("tick",))
        return []


@pytest.fixture
def new_runtime() -> NewRuntime:
    def new(patience: Patience = DEFAULT_PATIENCE, bounds: Bounds = DEFAULT_BOUNDS) -> Runtime:
        engine = MemoryEngine(Network())
        runtime = Runtime("me", Terms(), engine, SYSTEM_CLOCK, SYSTEM_THREADS, patience, bounds)
        engine.open("me")
        return runtime

    return new


@pytest.fixture
def runtime(new_runtime: NewRuntime) -> Runtime:
    return new_runtime()


def refuse(one: Any) -> None:
    raise AssertionError(f"nobody does {one!r}")


def want(sender: str) -> bytes:
    return wire.encode(wire.WantState(sender, 1, ["a"]))


def test_frames_go_to_the_machine_that_is_registered_for_their_tag(runtime: Runtime) -> None:
    parrot = Parrot()
    runtime.register(Locked(runtime, parrot, refuse, wire.decode), [11])
    runtime.on_frame(want("p"))
    runtime.on_frame(wire.encode(wire.WantRows("p")))
    assert parrot.told == [("take", wire.WantState("p", 1, ["a"]))]


def test_what_nobody_is_registered_for_is_left_alone(runtime: Runtime) -> None:
    runtime.on_frame(want("p"))
    assert not runtime.counters.complaints


def test_a_machine_may_begin_with_the_first_frame_for_it(runtime: Runtime) -> None:
    parrot = Parrot()
    strand = Locked(runtime, parrot, refuse, wire.decode)
    runtime.register_late(lambda: runtime.register(strand, [11]), [11])
    runtime.on_frame(want("p"))
    runtime.on_frame(want("q"))
    assert [message.sender for _, message in parrot.told] == ["p", "q"]


def test_a_frame_for_a_machine_that_does_not_begin_is_left_alone(runtime: Runtime) -> None:
    runtime.register_late(lambda: None, [11])
    runtime.on_frame(want("p"))


def test_every_machine_hears_of_peers_and_of_time(runtime: Runtime) -> None:
    parrot = Parrot()
    runtime.register(Locked(runtime, parrot, refuse, wire.decode), [11])
    runtime._on_token("l/p", True)
    runtime._on_token("l/p", False)
    runtime._tick()
    assert parrot.told == [("up", "p"), ("down", "p"), ("tick",)]


def test_time_passes_for_full_queues_too(new_runtime: NewRuntime) -> None:
    runtime = new_runtime(patience=Patience(pace_s=0.0))
    subscription = Subscription(
        runtime,
        ["x"],
        terms=runtime.node.terms,
        where=None,
        test=False,
        demand=Demand(),
        callback=None,
        on_error=None,
        on_loss="raise",
        when_full="pace",
        queue_count_max=4,
        clock=SYSTEM_CLOCK,
    )
    runtime.subscribe(subscription, timeout_s=0.0)
    runtime._on_token("l/p", True)
    version = runtime.node.own.version
    runtime.on_frame(wire.encode(wire.Known("p", version, 1, {"x": 1}, to="me")))
    item = wire.Item("x", 1, 0.0, 0, b"\x80", None, None)
    runtime.on_frame(wire.encode(wire.Data("p", "x", 1, wire.Items.of([item] * 3))))
    assert runtime.crowd.holds, "its senders wait"
    runtime._tick()
    assert not runtime.crowd.holds, "they have waited as long as they must"


def test_long_descriptors_wait_to_be_read_up_to_a_bound(new_runtime: NewRuntime) -> None:
    runtime = new_runtime(bounds=Bounds(unread_bytes_max=5_000))
    runtime.on_frame(wire.encode(wire.Types("p", [b"x" * 5_001])))
    assert "more long descriptors" in runtime.counters.complaints["p"]


def test_an_effect_that_nobody_knows_is_a_failure(runtime: Runtime) -> None:
    with pytest.raises(AssertionError):
        runtime.carry_out(runtime._do, ["dance"], [])


def test_effects_are_carried_out_in_order_and_their_own_effects_after_them(
    runtime: Runtime,
) -> None:
    done: list[Any] = []

    def do(one: Any) -> list[Any]:
        done.append(one)
        return [f"{one} again"] if len(one) == 1 else []

    mail: list[Any] = []
    everyone = ToAll(wire.WantRows("me"))
    runtime.carry_out(do, ["a", Complain("p", "is loud"), everyone, "b"], mail)
    assert done == ["a", "b", "a again", "b again"]
    assert [key for key, *_ in mail] == ["all"]
    assert runtime.counters.complaints == {"p": "is loud"}


def test_what_a_node_says_to_itself_is_heard_and_not_sent(runtime: Runtime) -> None:
    mail: list[Any] = []
    heard: list[Any] = []
    effects = [ToPeer("me", "to me"), ToPeer("p", wire.WantRows("me")), ToAll(wire.WantRows("me"))]
    runtime.carry_out(refuse, effects, mail, heard=heard)
    assert heard == ["to me"]
    assert [key for key, *_ in mail] == ["n/p", "all"]


class TestAStrandInTheBackground:
    @pytest.fixture
    def strand(self, runtime: Runtime) -> Background:
        return Background(runtime, "test", lambda payload: payload, after=lambda: None)

    def settle(self, strand: Background) -> None:
        strand.call(lambda: None, 20.0)

    def test_all_of_its_machines_hear_what_one_of_them_says_to_all(
        self, strand: Background
    ) -> None:
        one, other = Parrot(ToAll(wire.WantRows("me"))), Parrot()
        parts = [Part("one", one, refuse), Part("other", other, refuse)]
        strand.parts |= dict.fromkeys(parts)
        strand.step(parts[0], lambda now_s: [ToAll("listen")])
        one.effects = ()
        self.settle(strand)
        assert one.told == other.told == [("take", "listen")]

    def test_what_cannot_be_saved_waits_with_all_that_follows_it(
        self, strand: Background, runtime: Runtime
    ) -> None:
        is_full = True
        done: list[Any] = []

        def do(one: Any) -> None:
            if is_full and one == "save":
                raise StoreError("the disk is full", path="consumers")
            done.append(one)

        parrot = Parrot()
        part = Part("a consumer", parrot, do)
        strand.parts[part] = None
        strand.step(part, lambda now_s: ["deliver", "save", "ask"])
        strand.on_frame(b"lost meanwhile")
        strand.on_tick()
        self.settle(strand)
        assert done == ["deliver"]
        assert parrot.told == []
        assert runtime.counters.complaints == {"a consumer": "the disk is full"}
        is_full = False
        strand.step(part, lambda now_s: ["settle"])
        self.settle(strand)
        assert done == ["deliver", "save", "ask", "settle"]
        assert part.waiting == deque()


class TestPeerLimits:
    def test_a_peer_above_its_rate_is_throttled_until_it_is_within_it_again(self) -> None:
        clients = Clients(Limits(events_per_s=10))
        assert not clients.is_throttled("p", 0.0)
        clients.note("p", 50, 100, 0.0)
        assert clients.is_throttled("p", 0.1)
        assert not clients.is_throttled("q", 0.1)
        assert not clients.is_throttled("p", 60.0)

    def test_without_limits_nobody_is(self) -> None:
        assert not Clients(Limits()).has_limits


class TestTypeRequests:
    def test_an_unknown_type_is_asked_for_once(self) -> None:
        types = TypeRequests()
        assert [types.must_ask_for(12345, 1.0), types.must_ask_for(12345, 2.0)] == [True, False]
        assert types.unknown == {12345}

    def test_waiting_ends_a_while_after_the_last_question(self) -> None:
        types = TypeRequests()
        types.must_ask_for(12345, 10.0)
        assert types.wait_s(1.0, 10.25) == 0.75
        assert types.wait_s(1.0, 12.0) == 0.0
        types.give_up({12345})
        assert types.unknown == set()
        assert not types.must_ask_for(12345, 13.0), "only the first event is held up"
