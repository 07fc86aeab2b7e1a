"""`infobus demo city` as a user runs it: four real programs under overload."""

import os
import re
import signal

import psutil
import pytest

from tests.cli.running import Shell


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def wait_for_arrivals(city):
    """Read lines until emergencies arrive; returns the city's programs."""
    for line in city.stdout:
        if line.startswith("emergency") and not line.startswith("emergency 0"):
            return psutil.Process(city.pid).children(recursive=True)
    raise AssertionError(city.stderr.read())


def assert_all_end(programs):
    _, alive = psutil.wait_procs(programs, timeout=60)
    assert not alive


def test_it_judges_its_promises_and_draws_what_happened(shell):
    """What it promises in seconds may be broken by a machine that stands still as long."""
    city = shell.start("demo", "city", "--seconds", "4", "--out", "pictures")
    told, errors = city.communicate(timeout=90)
    assert errors == ""
    verdicts = re.findall("^(held|BROKEN) +(.*): (.*)$", told, re.MULTILINE)
    emergencies, business, library = (why for _, _, why in verdicts)
    assert re.match(r"([1-9]\d*) of \1,", emergencies), told
    assert re.match(r"[1-9]\d* were, the oldest delivered after [\d.]+ s", business), told
    assert re.match(r"[1-9]\d* delivered, the longest pause [\d.]+ s", library), told
    assert city.returncode == any(verdict == "BROKEN" for verdict, _, _ in verdicts)
    assert {path.name for path in (shell.folder / "pictures").iterdir()} == {
        "city-latency.png",
        "city-latency.svg",
    }


def test_control_c_ends_all_of_it_with_a_summary(shell):
    city = shell.start("demo", "city", start_new_session=True)
    programs = wait_for_arrivals(city)
    os.killpg(city.pid, signal.SIGINT)
    told, errors = city.communicate(timeout=60)
    assert "all regions" in told
    assert errors == ""
    assert_all_end(programs)


def test_a_program_that_dies_is_named_and_ends_the_others(shell):
    city = shell.start("demo", "city")
    programs = wait_for_arrivals(city)
    next(one for one in programs if "infobus.demo.city.room" in one.cmdline()).kill()
    _, errors = city.communicate(timeout=60)
    assert "The room of the north ended with code -9, so the city is closed.\n" in errors
    assert city.returncode == 1
    assert_all_end(programs)
