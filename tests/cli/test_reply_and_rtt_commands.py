"""`infobus rtt` against services in this process, and `infobus reply` as a process of its own."""

import json
import signal
import sys

import pytest

import infobus
from infobus import Service
from tests.cli.running import Shell


class Frail(Service):
    def add(self, a: int, b: int = 1) -> int:
        if a == 13:
            raise ValueError("\x1bunlucky")
        return a + b


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def caller(shell):
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        yield bus


def replying(shell, *arguments):
    process = shell.start("reply", *arguments)
    assert process.stderr.readline().startswith("serving svc.try")
    return process


def ended(process, told=""):
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, told)
    return out


def test_rtt_calls_an_operation_so_many_times(run, bus):
    bus.serve("svc.frail", Frail())
    code, out, _ = run("rtt", "svc.frail", "add", "a=2", "--count", "5", "--json")
    row = json.loads(out)
    assert (code, row["calls"], row["failed"], row["node"]) == (0, 5, 0, bus.node)
    assert 0 < row["min_ms"] <= row["median_ms"] <= row["p95_ms"] <= row["max_ms"]
    code, out, _ = run("rtt", "svc.frail", "add", "a=2", "--count", "5")
    assert (code, out.count(" ms")) == (0, 4)


def test_rtt_counts_calls_that_fail(run, bus):
    bus.serve("svc.frail", Frail())
    code, out, err = run("rtt", "svc.frail", "add", "a=13", "--count", "3", "--json")
    assert (code, json.loads(out)["failed"], json.loads(out)["min_ms"]) == (1, 3, None)
    assert err.count("\n") == 1
    assert "\\x1bunlucky" in err
    assert run("rtt", "svc.frail")[0] == 2


def test_reply_answers_the_text_of_the_call_or_its_own(shell, caller):
    echo = replying(shell, "svc.try")
    assert caller.service("svc.try", timeout_s=60).reply("a\x1bb") == "a\x1bb"
    assert ended(echo) == f"{caller.node}: a\\x1bb\n"
    fixed = replying(shell, "svc.try", "always")
    assert caller.service("svc.try", timeout_s=60).reply() == "always"
    ended(fixed)


def test_reply_answers_what_a_command_prints(shell, caller):
    program = (
        "import sys; text = sys.stdin.read(); print(text[::-1], end=''); sys.exit(text == 'x')"
    )
    served = replying(shell, "svc.try", "--command", f'{sys.executable} -c "{program}"')
    service = caller.service("svc.try", timeout_s=60)
    assert service.reply("abc; $(id)") == ")di($ ;cba"
    with pytest.raises(ChildProcessError, match="exit code 1"):
        service.reply("x")
    assert ended(served, f"{sys.executable} ended with exit code 1\n").count("\n") == 2


def test_a_command_that_nobody_waits_for_is_killed(shell, caller):
    mark = shell.folder / "pid"
    program = f"import os, time; open('{mark}', 'w').write(str(os.getpid())); time.sleep(600)"
    served = replying(shell, "svc.try", "--command", f'{sys.executable} -c "{program}"')
    with pytest.raises(infobus.BusError):
        caller.service("svc.try", timeout_s=3).reply()
    assert mark.read_text().isdigit()
    ended(served)  # which waits for the operation, and so for the command


@pytest.mark.parametrize(
    "bad",
    [("a", "--command", "b"), ("--command", ""), ("--command", "'"), ("--command", "/no/such")],
)
def test_what_cannot_be_served_is_refused(run, bad):
    code, out, err = run("reply", "svc.try", *bad)
    assert (code, out, err.count("\n")) == (2, "", 1)
