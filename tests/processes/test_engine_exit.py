"""A process that forgets to close its engine still ends, and a fork harms nobody."""

import os
import platform
import signal
import subprocess
import sys
import textwrap
import time
import uuid

import pytest

from tests.processes.programs.node import SOURCE

TWO_ENGINES = """
import multiprocessing, os, sys, threading, time
from infobus.bus.settings import load_settings
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.errors import BusClosed

def connected(node):
    patience = load_settings().patience
    is_memory = kind == "memory"
    engine = MemoryEngine(live_network("bus")) if is_memory else ZenohEngine(bus, patience=patience)
    engine.open(node)
    return engine

def wait_until(condition):
    deadline = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)

bus, kind, ending = sys.argv[1:]
one, other = connected("one"), connected("other")
got = []

def on_frame(payload):
    got.append(payload)
    busy_until = time.monotonic() + (0.3 if ending == "within a callback" else 0)
    while time.monotonic() < busy_until:
        pass

other.declare("c/x", on_frame)
other.answer("q/x", lambda payload: payload + b"!")
other.announce("l/other")
one.watch("l/*", lambda key, alive: None)
wait_until(lambda: one.put("c/x", b"probe") or got)
"""

BACKGROUND = """
def work():
    time.sleep(0.1)  # Until the main thread has ended.
    one.put("c/x", b"late")
    wait_until(lambda: b"late" in got)
    print("still connected")
threading.Thread(target=work).start()
"""

# In the child, output is flushed by hand: `os._exit` skips it.
FORK = """
child = os.fork()
if child == 0:
    calls = [
        lambda: one.put("c/x", b""),
        lambda: one.put("c/new", b"", control=True),
        lambda: one.declare("c/x", print),
        lambda: one.answer("q/x", lambda payload: payload),
        lambda: one.query("q/x", b"", 1.0),
        lambda: one.announce("l/one"),
        lambda: one.watch("l/*", print),
    ]
    for call in calls:
        try:
            call()
        except BusClosed as error:
            assert "fork" in str(error) and "spawn" in str(error)
        else:
            raise AssertionError("used the session of the parent")
    one.close()
    print("refused", flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
one.put("c/x", b"parent")
wait_until(lambda: b"parent" in got)
assert set(got) == {b"probe", b"parent"}
print("parent goes on")
"""

CONNECT_IN_CHILD = """
def talk(depth):
    mine = connected(f"child {depth}")
    wait_until(lambda: mine.query("q/x", b"child", 1.0) == [b"child!"])
    mine.put("c/x", b"child %d" % depth)
    if depth < 2:
        grandchild = multiprocessing.get_context("fork").Process(target=talk, args=(depth + 1,))
        grandchild.start()
        grandchild.join()
        assert grandchild.exitcode == 0
    if depth == 1:
        mine.close()  # The other one forgets to.

child = os.fork()
if child == 0:
    talk(1)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
wait_until(lambda: b"child 1" in got and b"child 2" in got)
print("child and grandchild were heard")
"""


def run(program: str, kind: str, ending: str = "") -> subprocess.CompletedProcess[str]:
    bus = uuid.uuid4().hex
    return subprocess.run(
        [sys.executable, "-c", TWO_ENGINES + textwrap.dedent(program), bus, kind, ending],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
    )


kinds = pytest.mark.parametrize("kind", ["zenoh", "memory"])


@kinds
@pytest.mark.parametrize(
    ("program", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise LookupError", 1), ("os._exit(4)", 4)],
    ids=["return", "sys.exit", "exception", "os._exit"],
)
def test_a_process_that_forgets_to_close_still_exits(kind: str, program: str, code: int) -> None:
    assert run(program, kind).returncode == code


@kinds
def test_a_process_may_exit_while_a_callback_runs(kind: str) -> None:
    done = run('one.put("c/x", b"one more")', kind, "within a callback")
    assert (done.returncode, done.stderr) == (0, "")


@kinds
def test_a_thread_that_outlives_the_main_thread_stays_connected(kind: str) -> None:
    done = run(BACKGROUND, kind)
    assert (done.returncode, done.stdout) == (0, "still connected\n")


@kinds
def test_a_forked_child_cannot_use_the_session_of_its_parent(kind: str) -> None:
    done = run(FORK, kind)
    assert (done.returncode, done.stdout) == (0, "refused\nparent goes on\n"), done.stderr


def test_a_forked_child_may_connect_by_itself_and_so_may_its_own_child() -> None:
    done = run(CONNECT_IN_CHILD, "zenoh")
    assert (done.returncode, done.stdout) == (0, "child and grandchild were heard\n"), done.stderr


def test_what_was_put_before_a_forgetful_process_returned_arrives() -> None:
    program = """
        with_receiver = os.fork()
        if with_receiver == 0:
            receiver = connected("receiver")
            numbers = []
            receiver.declare("c/n", numbers.append)
            receiver.put("c/x", b"ready")
            wait_until(lambda: len(numbers) == 5000)
            print("all came", flush=True)
            os._exit(0)
        wait_until(lambda: b"ready" in got)
        for number in range(5000):
            one.put("c/n", b"%d" % number)
    """
    done = run(program + "\n        os.waitpid(with_receiver, os.WNOHANG)", "zenoh")
    assert (done.returncode, done.stdout) == (0, "all came\n"), done.stderr


def test_importing_the_engine_does_not_import_zenoh() -> None:
    program = "import sys, infobus.engines.zenoh; sys.exit('zenoh' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert done.returncode == 0


# Names of threads are told by Linux; elsewhere there is nothing to look at.
THREADS = """
names = {
    Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    for thread in os.listdir("/proc/self/task")
}
print(sorted({name.split("-")[0] for name in names} & {"rx", "acc", "net"}))
print(os.environ.get("ZENOH_RUNTIME"))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc to see threads in")
@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, ["['rx']", "None"]), ("(tx: (worker_threads: 2))", ["['acc', 'net', 'rx']"])],
    ids=["ours", "the user's"],
)
def test_links_are_watched_by_the_threads_that_read_them_unless_the_user_chose(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: list[str]
) -> None:
    monkeypatch.delenv("ZENOH_RUNTIME", raising=False)
    if chosen is not None:
        monkeypatch.setenv("ZENOH_RUNTIME", chosen)
        expected = [*expected, chosen]
    ended = run("from pathlib import Path\n" + THREADS, "zenoh")
    assert ended.stdout.splitlines() == expected, ended.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")
def test_the_memory_of_large_frames_serves_for_the_next_ones() -> None:
    program = """
import resource
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    [bytearray(100_000) for _ in range(20)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""
    ended = run(program, "zenoh")
    assert int(ended.stdout) < 5_000, ended.stderr  # pages; 49,000 if each was handed out anew


LEAVING = """
import sys, threading, time
from infobus.engines.zenoh.library import wait_for_library_threads

def run():
    time.sleep(0.3)
    ended.append(True)

ended = []
threading.Thread(target=run, name="Thread-1 (pyo3-closure)", daemon=True).start()
print("leaving", flush=True)
wait_for_library_threads(1.0)
print(bool(ended))
"""


def test_a_process_that_is_stopped_while_it_ends_gives_its_threads_their_turn_after_that() -> None:
    """Otherwise one comes back from the library while Python shuts down, which aborts."""
    program = subprocess.Popen([sys.executable, "-c", LEAVING], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "leaving\n"
    program.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # longer than it waits
    program.send_signal(signal.SIGCONT)
    assert program.communicate(timeout=60)[0] == "True\n"
