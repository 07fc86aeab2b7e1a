"""Programs that forget to close, fork, or know other types: each ends, and says what it had to."""

import io
import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import infobus
from infobus import Bus, DataObject, LossError
from tests.bus.helpers import wait_until
from tests.processes.programs.node import SOURCE

FILL = "x" * 50


@pytest.fixture
def bus() -> Iterator[Bus]:
    with infobus.connect(f"test-{uuid.uuid4().hex}") as bus:
        yield bus


def run(bus: Bus, code: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a program on the same bus to its end; `bus` is its own connection."""
    opening = "import infobus, os, sys, threading, time\nbus = infobus.connect()\n"
    return subprocess.run(
        [sys.executable, "-c", opening + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "INFOBUS_BUS": bus.name},
    )


class TestForgettingToClose:
    PUBLISH = 'for n in range(3000): bus.publish("x.y", {"n": n})\n'

    @pytest.mark.parametrize(
        ("ending", "code"),
        [
            ("", 0),
            ("sys.exit(3)", 3),
            ("raise RuntimeError('on purpose')", 1),
            ("threading.Thread(target=time.sleep, args=(0.1,)).start()", 0),
            ("sub = bus.subscribe('a'); threading.Thread(target=lambda: list(sub), "
             "daemon=True).start()", 0),
            ("bus.subscribe('x.y', lambda event: None); bus.publish('x.y', {'n': 3000})", 0),
        ],
        ids=["returns", "exits", "raises", "other thread", "waiting consumer", "callback"],
    )  # fmt: skip
    def test_it_ends_and_its_last_events_arrive(self, bus: Bus, ending: str, code: int) -> None:
        sub = bus.subscribe("x.y")
        program = run(bus, self.PUBLISH + ending)
        assert program.returncode == code, program.stderr
        for n in range(3000):
            assert sub.receive(30).data["n"] == n
        if code != 1:
            assert program.stderr == ""

    def test_a_child_of_multiprocessing(self, bus: Bus, tmp_path: Path) -> None:
        script = tmp_path / "parent.py"
        script.write_text(
            textwrap.dedent(
                """
                import multiprocessing, sys, infobus

                def work():
                    bus = infobus.connect()
                    for n in range(3000):
                        bus.publish("x.y", {"n": n})

                if __name__ == "__main__":
                    for method in ("spawn", "fork"):
                        child = multiprocessing.get_context(method).Process(target=work)
                        child.start()
                        child.join(50)
                        if child.exitcode != 0:
                            sys.exit(f"{method}: {child.exitcode}")
                """
            )
        )
        sub = bus.subscribe("x.y")
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "INFOBUS_BUS": bus.name}
        subprocess.run([sys.executable, script], check=True, timeout=110, env=environment)
        for _ in ("spawn", "fork"):
            assert [sub.receive(30).data["n"] for _ in range(3000)] == list(range(3000))


class TestForking:
    def test_every_call_in_the_child_raises_quickly_and_the_parent_goes_on(self, bus: Bus) -> None:
        sub = bus.subscribe("x.y")
        program = run(
            bus,
            """
            sub, waited_for = bus.subscribe("x.y"), bus.subscribe("x.z")
            threading.Thread(target=lambda: list(waited_for), daemon=True).start()
            bus.publish("x.y", {"n": 1})
            sub.receive(30)
            time.sleep(0.05)  # until the thread waits, with the subscription's lock in its hand
            pid = os.fork()
            if pid == 0:
                started = time.monotonic()
                calls = [
                    lambda: bus.publish("x.y", {}), lambda: bus.publish("new.one", {}),
                    lambda: bus.publish_many([("x.y", {})]),
                    lambda: bus.subscribe("x.y", timeout_s=50), lambda: bus.types(50), bus.flush,
                    lambda: next(sub), lambda: next(waited_for),
                    lambda: sub.receive(50), lambda: waited_for.receive(50),
                    lambda: bus.initial_state("x", list),
                ]
                for number, call in enumerate(calls):
                    try:
                        call()
                    except infobus.BusClosed:
                        continue
                    except BaseException as error:
                        print("call", number, "raised", repr(error), flush=True)
                    else:
                        print("call", number, "did not raise", flush=True)
                bus.stats(); repr(bus); sub.close(); bus.close(50)
                # Less than any of these would have waited for the parent's locks or for others.
                print("child done" if time.monotonic() - started < 40 else "slow", flush=True)
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            bus.publish("x.y", {"n": 2})
            assert sub.receive(30).data == {"n": 2}
            """,
        )
        assert program.stdout == "child done\n"
        assert (program.returncode, program.stderr) == (0, "")
        assert [sub.receive(30).data["n"] for _ in range(2)] == [1, 2]

    def test_a_child_connects_anew_and_talks(self, bus: Bus) -> None:
        sub = bus.subscribe("x.>")
        program = run(
            bus,
            """
            back = bus.subscribe("y")
            pid = os.fork()
            if pid == 0:
                bus = infobus.connect()
                bus.publish("x.child", {"n": 1})
                bus.publish("y", {"n": 2})
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert back.receive(30).data == {"n": 2}
            bus.publish("x.parent", {"n": 3})
            """,
        )
        assert (program.returncode, program.stderr) == (0, "")
        assert [sub.receive(30).subject for _ in range(2)] == ["x.child", "x.parent"]

    def test_while_other_threads_publish(self, bus: Bus) -> None:
        """Their locks may be held at the moment of the fork."""
        bus.subscribe("x.>", on_loss="ignore", when_full="drop_oldest")
        program = run(
            bus,
            """
            bus.subscribe("x.y", lambda event: None, when_full="drop_oldest", on_loss="ignore")
            def publish():
                while True:
                    bus.publish("x.y", {"n": 1})
            for _ in range(3):
                threading.Thread(target=publish, daemon=True).start()
            for _ in range(10):
                pid = os.fork()
                if pid == 0:
                    try:
                        bus.publish("x.y", {})
                    except infobus.BusClosed:
                        bus.close()
                        os._exit(0)
                    os._exit(1)
                assert os.waitpid(pid, 0)[1] == 0
            """,
        )
        assert program.returncode == 0, program.stderr


class TestTypesOfOthers:
    def test_an_object_of_a_type_that_only_the_sender_knows(self, bus: Bus) -> None:
        sub = bus.subscribe("x.y")
        program = run(
            bus,
            """
            class Vehicle(infobus.DataObject):
                wheels: int
            class OnlyThereTruck(Vehicle):
                "A truck."
                load: float = 0.5
                stops: list[str] = []
            bus.publish("x.y", OnlyThereTruck(wheels=6, stops=["A"]))
            """,
        )
        assert program.returncode == 0, program.stderr
        event = sub.receive(30)
        assert event.type == "OnlyThereTruck"
        assert (event.data.wheels, event.data.load, event.data.stops) == (6, 0.5, ["A"])
        kind = infobus.type_of(event.data)
        assert [supertype.name for supertype in kind.supertypes] == ["Vehicle"]
        text = io.StringIO()
        infobus.describe(event.data, text)
        assert "wheels" in text.getvalue()

    def test_a_class_that_is_declared_later_is_used_from_then_on(self, bus: Bus) -> None:
        publish = """
            class LateShip(infobus.DataObject):
                knots: float
            bus.publish("x.y", LateShip(knots=12.5))
            """
        sub = bus.subscribe("x.y")
        assert run(bus, publish).returncode == 0
        first = sub.receive(30)

        class LateShip(DataObject):
            knots: float

        assert run(bus, publish).returncode == 0
        second = sub.receive(30)
        assert type(second.data) is LateShip
        assert (first.data.knots, second.data.knots) == (12.5, 12.5)
        assert first.type == second.type == "LateShip"

    def test_types_are_learnt_from_anyone_on_the_bus(self, bus: Bus) -> None:
        sub = bus.subscribe("ready")
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import infobus\n"
                "class SomewhereElse(infobus.DataObject):\n    n: int = 0\n"
                "bus = infobus.connect()\n"
                "bus.publish('ready', {})\n"
                "input()\n",
            ],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "INFOBUS_BUS": bus.name},
        )
        try:
            sub.receive(30)
            assert "SomewhereElse" in {kind.name for kind in bus.types(30)}
        finally:
            child.communicate(b"\n")


def test_a_consumer_that_is_much_too_slow_is_told_what_it_missed(bus: Bus) -> None:
    sub = bus.subscribe("x.y", when_full="drop_oldest", queue_count_max=100)
    program = run(bus, 'for n in range(20_000): bus.publish("x.y", {"n": n})')
    assert program.returncode == 0, program.stderr
    # Before the last one has come, more of them may go between the loss and what follows it.
    wait_until(lambda: bus.stats().received_events == 20_000, 60)
    with pytest.raises(LossError) as caught:
        sub.receive(30)
    assert caught.value.first == 1
    assert caught.value.last is not None
    assert sub.receive(30).data["n"] == caught.value.last
