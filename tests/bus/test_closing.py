"""Leaving the bus: what was published arrives, and whoever waits is let go."""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import infobus
from infobus import Batch, Bus, BusClosed
from tests.bus.conftest import Connect
from tests.bus.helpers import numbers_of, send, take, wait_until
from tests.patience import PATIENCE_S, PATIENT


def test_what_was_gathered_is_sent_and_confirmed(connect: Connect) -> None:
    bus, other = connect(batch=Batch(bytes=1 << 20, ms=60_000)), connect()
    sub = other.subscribe("x")
    for number in range(100):
        bus.publish("x", {"n": number})
    bus.close()
    assert bus.stats().unconfirmed == 0
    assert numbers_of(take(sub, 100)) == list(range(100))
    assert sub.lost == 0


def test_a_burst_right_before_closing_arrives(bus: Bus, other: Bus) -> None:
    sub = other.subscribe("x")
    for number in range(5000):
        bus.publish("x", {"n": number})
    bus.close()
    assert numbers_of(take(sub, 5000)) == list(range(5000))


def test_it_is_idempotent_and_quick_when_nothing_waits(bus: Bus, other: Bus) -> None:
    started_s = time.monotonic()
    for _ in range(3):
        bus.close(60)
    assert time.monotonic() - started_s < 30
    wait_until(lambda: other.stats().peers == ())


def test_every_call_after_it_says_so(bus: Bus) -> None:
    sub = bus.subscribe("x")
    bus.publish("x", {})
    bus.close()
    calls = [
        lambda: bus.publish("x", {}),
        lambda: bus.publish("never.seen", {}),
        lambda: bus.publish_many([("x", {})]),
        lambda: bus.publish_nowait("x", {}),
        lambda: bus.subscribe("x"),
        lambda: bus.subscribe_many(["x"]),
        lambda: bus.initial_state("x", list),
        lambda: bus.types(0.1),
        bus.flush,
    ]
    for call in calls:
        with pytest.raises(BusClosed):
            call()
    assert sub.receive(20).data == {}  # what was in the queue can still be taken
    with pytest.raises(BusClosed):
        sub.receive(20)
    assert bus.stats().subscriptions == 0
    assert "closed" in repr(bus)


def test_it_ends_iterations_of_other_threads(bus: Bus, other: Bus) -> None:
    subs = [bus.subscribe("x"), bus.subscribe("x")]
    seen: list[list[int]] = [[], [], []]

    def consume(index: int) -> None:
        seen[index] = [event.data["n"] for event in subs[index % 2]]

    threads = [threading.Thread(target=consume, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    send(other, "x", 1, 2, 3)
    wait_until(lambda: bus.stats().waiting == 0 and bus.stats().received_events == 3)
    bus.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert seen[1] == [1, 2, 3]
    assert sorted(seen[0] + seen[2]) == [1, 2, 3]


def test_what_others_publish_meanwhile_arrives_or_is_refused(connect: Connect) -> None:
    bus, other = connect(), connect()
    sub = other.subscribe("x.*")
    accepted: list[list[int]] = [[], [], []]

    def publish(thread: int) -> None:
        # Not for ever: what is published until the bus is closed must fit into the queue.
        with contextlib.suppress(BusClosed):
            for number in range(10_000):
                bus.publish(f"x.t{thread}", {"n": number})
                accepted[thread].append(number)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    first = take(sub, 100)
    closing = threading.Thread(target=bus.close)
    closing.start()
    received: dict[str, list[int]] = {f"x.t{number}": [] for number in range(3)}
    for event in first:
        received[event.subject].append(event.data["n"])
    for thread in (*threads, closing):
        thread.join(20)
        assert not thread.is_alive()
    for event in take(sub, sum(map(len, accepted)) - len(first)):
        received[event.subject].append(event.data["n"])
    for number in range(3):
        assert received[f"x.t{number}"] == accepted[number]
    assert sub.waiting_count == 0


def test_subscribing_while_it_closes_never_yields_a_dead_subscription(connect: Connect) -> None:
    for _ in range(20):
        bus = connect()
        made: list[infobus.Subscription] = []
        start = threading.Barrier(2)

        def subscribe(bus: Bus = bus, start: threading.Barrier = start) -> None:
            start.wait()
            with contextlib.suppress(BusClosed):
                made.append(bus.subscribe("x"))  # noqa: B023 - joined in this turn

        thread = threading.Thread(target=subscribe)
        thread.start()
        start.wait()
        bus.close()
        thread.join(20)
        assert all(sub.is_closed for sub in made)


def test_two_threads_may_close_at_once(bus: Bus, other: Bus) -> None:
    other.subscribe("x")
    send(bus, "x", 1)
    threads = [threading.Thread(target=bus.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_callback_may_close_the_bus(bus: Bus, other: Bus) -> None:
    bus.subscribe("x", lambda event: bus.close())
    send(other, "x", 1)
    wait_until(lambda: other.stats().peers == ())


def test_leaving_the_with_block_closes(bus_name: str) -> None:
    with infobus.connect(bus_name, engine="memory", patience=PATIENT) as bus:
        with bus.subscribe("x") as sub:
            pass
        assert sub.is_closed
    with pytest.raises(BusClosed):
        bus.publish("x", {})


class TestCallbacksThatRun:
    """Closing waits for them, for a while; it begins no others meanwhile."""

    def begin(self, bus: Bus, **options: Any) -> tuple[threading.Event, list[str]]:
        """Have a callback run that ends when the event is set; what it did is listed."""
        release, done, begun = threading.Event(), [], threading.Event()

        def handle(event: infobus.Event) -> None:
            done.append(f"begun {event.data['n']}")
            begun.set()
            release.wait(PATIENCE_S)
            bus.publish("done", {"n": event.data["n"]})
            done.append(f"ended {event.data['n']}")

        bus.subscribe("jobs.x", handle, **options)
        bus.publish_many([("jobs.x", {"n": n}) for n in range(3)], guaranteed="durable" in options)
        assert begun.wait(PATIENCE_S)
        return release, done

    def test_the_one_that_runs_ends_and_can_still_publish(
        self, connect: Connect, other: Bus
    ) -> None:
        bus, heard = connect(), other.subscribe("done")
        release, done = self.begin(bus)
        closing = threading.Thread(target=bus.close, args=[PATIENCE_S])
        closing.start()
        wait_until(lambda: bool(bus._runtime.workers._waits))
        release.set()
        closing.join(PATIENCE_S)
        assert done[:2] == ["begun 0", "ended 0"]
        assert heard.receive(PATIENCE_S).data == {"n": 0}

    @pytest.mark.parametrize("closes", ["bus", "subscription"])
    def test_a_durable_one_still_settles_its_event(
        self, connect: Connect, tmp_path: Path, closes: str
    ) -> None:
        bus = connect(home=tmp_path, patience=replace(PATIENT, handlers_s=PATIENCE_S))
        release, done = self.begin(bus, durable="w")
        (use,) = bus._guaranteed.driver._uses  # type: ignore[union-attr]
        close = bus.close if closes == "bus" else use.close  # type: ignore[attr-defined]
        closing = threading.Thread(target=close)
        closing.start()
        wait_until(lambda: bool(bus._runtime.workers._waits))
        release.set()
        closing.join(PATIENCE_S)
        assert done == ["begun 0", "ended 0"]  # others wait for the next use of the name
        bus.close()
        sub = connect(home=tmp_path).subscribe("jobs.x", durable="w")
        assert [sub.receive(PATIENCE_S).data["n"] for _ in range(2)] == [1, 2]

    def test_one_that_takes_too_long_is_named(
        self, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        bus = connect(patience=replace(PATIENT, handlers_s=0.01))
        release, _ = self.begin(bus)
        bus.close()
        (told,) = [one.getMessage() for one in caplog.records if "still runs" in one.message]
        assert "begin.<locals>.handle of" in told and "called for jobs.x" in told
        release.set()

    def test_the_end_of_a_program_waits_for_one_that_began_after_the_bus_was_closed(self) -> None:
        program = """if True:
            import infobus, threading
            go = threading.Event()
            def handle(event):
                print("begun", event.data["n"], flush=True)
                if event.data["n"]:
                    bus_closed.wait(20)
                    go.set()
                    for _ in range(100_000):
                        pass
                print("ended", event.data["n"], flush=True)
            bus_closed = threading.Event()
            bus = infobus.connect("end-of-program", engine="memory")
            bus.subscribe("x", handle)
            bus.publish("x", {"n": 0})
            bus.publish("x", {"n": 1})
            bus.close(0)
            bus_closed.set()
            go.wait(20)
        """
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        lines = out.stdout.splitlines()
        assert lines == ["begun 0", "ended 0", "begun 1", "ended 1"], out.stderr
