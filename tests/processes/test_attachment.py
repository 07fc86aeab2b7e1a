"""Programs attached to a daemon that is killed under them go on, and return when it is back."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from infobus.testing.hosts import LoopbackHost, LoopbackHosts
from tests.patience import PATIENT_PROGRAM, make_programs_patient

pytestmark = pytest.mark.timeout(90)

Program = subprocess.Popen[str]

PATIENCE = json.dumps(asdict(replace(PATIENT_PROGRAM, move_s=0.5)))
PROGRAM = """
import json, sys, threading, time, infobus

_, name, attach, patience = sys.argv
bus = infobus.connect(attach=json.loads(attach), patience=infobus.Patience(**json.loads(patience)))
got = {}

def note(event):
    got.setdefault(event.subject, []).append(event.data["n"])

bus.subscribe("x.*", note, on_loss="warn")

def tell(**more):
    stats = bus.stats()
    endpoints = [one for one, state in stats.endpoints.items() if state == "linked"]
    print(json.dumps({"linked": endpoints, "peers": len(stats.peers), **more}), flush=True)

ended = threading.Event()

def publish():
    n = 0
    while not ended.is_set():
        bus.publish(f"x.{name}", {"n": n})
        n += 1
        time.sleep(0.002)
    tell(sent=n)

worker = threading.Thread(target=publish)
tell()
for line in sys.stdin:
    match line.strip():
        case "begin":
            worker.start()
        case "end":
            ended.set()
            worker.join()
        case "state":
            tell()
        case "told":
            tell(got=got, lost=bus.stats().lost)
bus.close()
"""


class App:
    """One of the programs that publish to each other all the time."""

    def __init__(self, host: LoopbackHost, name: str, attach: Any = "auto") -> None:
        command = [sys.executable, "-c", PROGRAM, name, json.dumps(attach), PATIENCE]
        pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
        self.name = name
        self.process = host.popen(command, text=True, **pipes)

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def ask(self, word: str) -> dict[str, Any]:
        self.say(word)
        return self.hear()


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHosts]:
    monkeypatch.setenv("INFOBUS_BUS", f"test-{uuid.uuid4().hex}")
    make_programs_patient(monkeypatch)
    with LoopbackHosts(2) as hosts:
        yield hosts


def start_daemon(host: LoopbackHost, *options: str) -> Program:
    command = (sys.executable, "-m", "infobus.cli", "daemon", "run", *options)
    daemon = host.popen(command, stderr=subprocess.PIPE, text=True)
    assert daemon.stderr is not None
    for line in daemon.stderr:
        if line.startswith("daemon "):
            return daemon
    raise AssertionError(f"the daemon ended with {daemon.wait()}")


def wait_until_linked(apps: list[App], is_so: Any) -> None:
    while not all(is_so(app.ask("state")["linked"]) for app in apps):
        pass


def check(apps: list[App]) -> None:
    """End publishing: everyone has had everything once and in order, and nothing was lost."""
    sent = {f"x.{app.name}": app.ask("end")["sent"] for app in apps}
    for app in apps:
        while {subject: len(all_n) for subject, all_n in app.ask("told")["got"].items()} != sent:
            told = app.ask("told")
            assert told["lost"] == 0, f"{app.name} was told of losses"
        got = app.ask("told")["got"]
        assert all(numbers == list(range(sent[subject])) for subject, numbers in got.items())
    for app in apps:
        app.process.communicate()
        assert app.process.returncode == 0


def kill(daemon: Program) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.communicate()


def test_who_is_left_by_its_daemon_goes_on_and_returns(hosts: LoopbackHosts) -> None:
    host = hosts[0]
    daemon = start_daemon(host)
    apps = [App(host, name) for name in "abc"]
    assert all(app.hear()["linked"] for app in apps)
    for app in apps:
        app.say("begin")
    kill(daemon)
    wait_until_linked(apps, lambda linked: not linked)  # each by itself
    daemon = start_daemon(host)
    wait_until_linked(apps, lambda linked: linked)
    check(apps)
    kill(daemon)


def test_another_daemon_that_was_named_takes_over(hosts: LoopbackHosts) -> None:
    host, other = hosts
    daemon = start_daemon(host, "--listen", host.endpoint)
    spare = start_daemon(other, "--listen", other.endpoint, "--join", host.endpoint)
    named = [host.endpoint, other.endpoint]
    apps = [App(host, name, named) for name in "abc"]
    assert all(app.hear()["linked"] == named[:1] for app in apps)
    for app in apps:
        app.say("begin")
    kill(daemon)
    wait_until_linked(apps, lambda linked: linked == named[1:])
    check(apps)
    kill(spare)
