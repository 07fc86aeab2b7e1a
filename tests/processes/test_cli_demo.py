"""`infobus demo` as a user runs it: five real processes, and none of them left behind."""

import os
import re
import signal
import time

import pexpect
import psutil
import pyte
import pytest

from tests.cli.running import Shell


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def lines_until(process, wanted):
    """What the process prints, up to a line that `wanted` is found in."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if re.search(wanted, line):
            return lines
    raise AssertionError(f"{wanted!r} did not come; got {lines}, {process.stderr.read()}")


def assert_all_end(children):
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def child_of(process, module):
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if f"infobus.demo.floor.{module}" in child.cmdline())


def test_it_runs_by_itself_until_control_c_ends_all_of_it(shell):
    demo = shell.start("demo", start_new_session=True)
    lines = lines_until(demo, "HarborStory: ") + lines_until(demo, "MeridianStory: ")
    lines += lines_until(demo, "^-- A program has come on-line: 4 on the bus")
    children = psutil.Process(demo.pid).children(recursive=True)
    before = {line.partition("Story: ")[2] for line in lines if "Story: " in line}
    lines = lines_until(demo, "^keywords for ")
    # It was published before the generator came, and is annotated nevertheless.
    assert re.match("keywords for (.*): ", lines[-1])[1] in before
    os.killpg(demo.pid, signal.SIGINT)
    assert demo.communicate(timeout=60)[1] == ""
    assert demo.returncode == 0
    assert len(children) == 4
    assert_all_end(children)


def test_it_ends_when_it_should(shell):
    demo = shell.start("demo", "--seconds", "3")
    shown, errors = demo.communicate(timeout=90)
    assert shown.endswith("The trading floor is closed; all of its programs have ended.\n")
    assert (demo.returncode, errors) == (0, "")


def test_its_programs_end_even_if_it_is_killed(shell):
    demo = shell.start("demo")
    lines_until(demo, "Story: ")
    children = psutil.Process(demo.pid).children(recursive=True)
    demo.kill()
    assert_all_end(children)


def test_it_ends_when_nobody_reads_any_more(shell):
    demo = shell.start("demo")
    lines_until(demo, "Story: ")
    children = psutil.Process(demo.pid).children(recursive=True)
    demo.stdout.close()
    demo.wait(60)
    assert demo.stderr.read() == ""
    assert_all_end(children)


def test_a_program_that_dies_is_named(shell):
    demo = shell.start("demo")
    lines_until(demo, "Story: ")
    children = psutil.Process(demo.pid).children(recursive=True)
    child_of(demo, "harbor").kill()
    _, errors = demo.communicate(timeout=60)
    assert errors == "The Harbor News adapter ended with code -9, so the trading floor is closed.\n"
    assert demo.returncode == 1
    assert_all_end(children)


def test_on_a_terminal_it_is_a_live_screen_with_keys(shell):
    screen = pyte.Screen(80, 24)
    stream = pyte.Stream(screen)
    child = shell.terminal("demo", columns=80, TERM="xterm-256color", LINES="24")

    def wait_for(pattern):
        deadline_s = time.monotonic() + 60
        while not re.search(pattern, "\n".join(screen.display)):
            assert time.monotonic() < deadline_s, "\n".join(screen.display)
            stream.feed(child.read_nonblocking(4096, timeout=60))

    wait_for("The trading floor")
    wait_for("2 types")
    wait_for("HarborStory < Story|MeridianStory < Story")
    wait_for(r"keywords .*\(property\)")
    wait_for(r"published +\d{4}-")
    child.send("q")
    child.expect("The trading floor is closed", timeout=60)
    child.expect(pexpect.EOF, timeout=60)
    child.wait()
    assert child.exitstatus == 0
