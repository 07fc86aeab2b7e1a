"""Services in real processes: found, called, killed, and replaced while calls are made."""

import os
import random
import subprocess
import sys
import threading
import time
import uuid

import pytest

import infobus
from infobus.errors import BadValue
from tests.processes.programs.node import SOURCE

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "20")) // 4

SERVER = """
import infobus, os, sys, time

class Counter(infobus.Service):
    def __init__(self, version):
        self.version = version

    def who(self) -> str:
        return self.version

    def work(self, seconds: float) -> str:
        time.sleep(seconds)
        return self.version

    def reverse(self, data: bytes) -> bytes:
        return data[::-1]

    def pid(self) -> int:
        return os.getpid()

    def note(self, line: str) -> str:
        with open(sys.argv[3], "a") as file:
            file.write(line + "\\n")
        return line

with infobus.connect() as bus:
    version, how = sys.argv[1], sys.argv[2]
    offered = getattr(bus, how)("svc.counter", Counter(version), version=version)
    print("ready", flush=True)
    offered.wait_retired()
"""


@pytest.fixture
def bus_name():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def serve(bus_name, tmp_path):
    """Start a server of this version; all are killed after the test."""
    started = []

    def serve(version, how="serve"):
        environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "INFOBUS_BUS": bus_name,
            "INFOBUS_HOME": str(tmp_path / "home"),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, version, how, str(tmp_path / "notes")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield serve
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def bus(bus_name, tmp_path):
    with infobus.connect(bus_name, home=tmp_path / "home") as bus:
        yield bus


def test_calls_between_processes(serve, bus):
    process = serve("1")
    client = bus.service("svc.counter")
    assert (client.who(), client.pid()) == ("1", process.pid)
    assert [one.version for one in bus.who_is_out_there("svc.>", 60)] == ["1"]


def test_ten_mebibytes_go_there_and_back(serve, bus):
    serve("1")
    reverse = bus.service("svc.counter", timeout_s=60).reverse
    large = random.Random(1).randbytes(10 * 1024 * 1024)
    assert reverse(large) == large[::-1]
    with pytest.raises(BadValue, match=r"16777216|16 MiB"):
        reverse(large + large)
    assert reverse(b"ab") == b"ba"


def test_ten_thousand_calls_are_outstanding_and_none_is_lost(serve, bus):
    serve("1")
    client = bus.service("svc.counter", timeout_s=100)
    calls = [client.who.start() for _ in range(10_000)]
    assert sum(call.result() == "1" for call in calls) == 10_000


def test_a_killed_server_is_noticed_at_once(serve, bus):
    process = serve("1")
    call = bus.service("svc.counter", timeout_s=60).work.start(60.0)
    bus.service("svc.counter", timeout_s=60).who()
    start_s = time.monotonic()
    process.kill()
    with pytest.raises(infobus.CallMayHaveRun, match="has died"):
        call.result()
    assert time.monotonic() - start_s < 30  # and not only when the call's own time is up


def test_calls_go_on_with_another_server_when_one_is_killed(serve, bus):
    processes = {process.pid: process for process in (serve("1"), serve("2"))}
    client = bus.service("svc.counter", idempotent=True, timeout_s=60)
    processes.pop(client.pid()).kill()
    assert {client.pid() for _ in range(20)} == set(processes)


class Load:
    """Calls made by several threads without a pause; what they returned, and what they raised."""

    def __init__(self, bus, seconds):
        self.returned = []
        self.raised = []
        self._client = bus.service("svc.counter", timeout_s=60)
        self._seconds = seconds
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def _run(self):
        while not self._is_over.is_set():
            try:
                self.returned.append(self._client.work(self._seconds))
            except Exception as error:
                self.raised.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def test_a_new_version_takes_over_and_not_one_call_fails(serve, bus):
    with Load(bus, 0.005) as load:
        current = serve("0")
        for version in range(1, 4):
            _wait_for(lambda v=version: load.returned[-4:] == [str(v - 1)] * 4)
            following = serve(str(version), "replace")
            assert current.wait(60) == 0, "it has nothing more to do, and ends"
            current = following
        _wait_for(lambda: load.returned[-4:] == ["3"] * 4)
    assert load.raised == []
    assert set(load.returned) == {"0", "1", "2", "3"}


def test_a_server_that_is_told_to_stop_finishes_what_it_has(serve, bus):
    """Start the new one, then retire the old one by ending its program."""
    with Load(bus, 0.005) as load:
        serve("0")
        _wait_for(lambda: load.returned)
        with infobus.connect(bus.name, home=bus.home) as second:
            local = _Version("1")
            offered = second.serve("svc.counter", local)
            before_count = len(load.returned)
            _wait_for(lambda: len(load.returned) > before_count + 20)
            assert offered.load == 0, "the first one that answered has all calls"
            second.replace("svc.counter", local)
            _wait_for(lambda: load.returned[-4:] == ["1"] * 4)
            with infobus.connect(bus.name, home=bus.home) as third:
                third.serve("svc.counter", _Version("2"))
                second.close()  # what still runs there is finished
                _wait_for(lambda: load.returned[-4:] == ["2"] * 4)
                load._is_over.set()
                for thread in load._threads:
                    thread.join()
    assert load.raised == []


class _Version(infobus.Service):
    def __init__(self, version):
        self.version = version

    def work(self, seconds: float) -> str:
        time.sleep(seconds)
        return self.version


@pytest.mark.slow
def test_calls_run_exactly_once_although_servers_are_killed(serve, bus, tmp_path):
    """Each line is noted once, or its caller was told that the call was interrupted."""
    notes, unsure = tmp_path / "notes", set()
    serve_again = serve("0")
    client = bus.service("svc.counter", exactly_once=True, timeout_s=60)
    for round_ in range(ROUNDS):
        victim = serve_again
        names = [f"{round_}-{n}" for n in range(20)]
        calls = {name: client.note.start(name) for name in names}
        threading.Timer(0.02 * round_, victim.kill).start()
        victim.wait()
        serve_again = serve(str(round_ + 1))
        for name, call in calls.items():
            try:
                assert call.result() == name
            except infobus.CallMayHaveRun as error:
                assert "interrupted" in str(error)
                unsure.add(name)
    noted = notes.read_text().splitlines()
    assert len(noted) == len(set(noted)), "something ran twice"
    everything = {f"{round_}-{n}" for round_ in range(ROUNDS) for n in range(20)}
    assert everything - unsure <= set(noted)
    assert len(unsure) < len(everything) / 2


def _wait_for(is_so):
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.005)
