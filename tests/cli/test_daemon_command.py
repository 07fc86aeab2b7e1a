"""`infobus daemon`, in this process: what it says of a daemon that is embedded, mute or foreign."""

import json
import os
from collections.abc import Iterator

import pytest

from infobus.daemon import HostDaemon
from infobus.engines.zenoh.rendezvous import DaemonFile, ShownDaemon

SHOWN = ShownDaemon(
    node="oak-1-ab",
    pid=os.getpid(),
    bus="",
    version="9.0",
    wire=(2, 0),
    since=0.0,
    attach=("unixsock-stream//nowhere",),
    is_program=True,
)


@pytest.fixture
def mute(bus) -> Iterator[DaemonFile]:
    """A daemon that holds its place, and answers nobody here."""
    place = DaemonFile(bus.name)
    assert place.claim()
    place.show(SHOWN)
    yield place
    place.leave()


def test_one_that_is_embedded_is_shown_and_not_stopped(bus, run, tmp_path) -> None:
    with HostDaemon(bus.name, homes=[tmp_path / "daemon"]) as daemon:
        code, out, _ = run("daemon", "status")
        assert code == 0
        assert daemon.bus.node in out and str(tmp_path / "daemon") in out
        assert bus.node in out  # a program of this host
        code, _, err = run("daemon", "stop")
        assert code == 2
        assert f"is part of the program with process id {os.getpid()}" in err
        assert run("daemon", "status", "--json")[0] == 0
    assert run("daemon", "status")[0] == 1


def test_one_that_does_not_answer_is_told_with_its_version(run, mute) -> None:
    code, out, err = run("daemon", "status")
    assert code == 1
    assert "9.0, wire 2.0" in out
    assert "does not answer" in err


def test_one_that_does_not_end_is_told(run, mute, monkeypatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: asked.append(what))
    code, out, _ = run("daemon", "stop", "--seconds", "0.2")
    assert (code, len(asked)) == (1, 1)
    assert "has not done so in 0.2 s" in out


def test_nobody_is_shown_as_such(run, bus) -> None:
    assert run("daemon", "status") == (1, f"no daemon of bus {bus.name} runs on this host\n", "")
    code, out, _ = run("daemon", "status", "--json")
    assert (code, json.loads(out)) == (1, {"bus": bus.name, "running": False})
    assert run("daemon", "stop")[0] == 0


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--join", "nowhere", "not HOST:PORT"),
        ("--listen", "tcp/0.0.0.0:7447", "--insecure"),
        ("--heartbeat", "0", "heartbeat_s is 0"),
        ("--founder", "a/b", "founder"),
        ("--membership", "some", "expected 'majority' or 'any'"),
    ],
)
def test_wrong_options_are_refused_before_anything_begins(run, option, value, why) -> None:
    for command in ("run", "unit"):
        code, _, err = run("daemon", command, option, value)
        assert code == 2
        assert why in err
