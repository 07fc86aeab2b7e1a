"""The daemon tells a death from everything else that makes a node invisible."""

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from infobus.daemon.programs import LocalPrograms

ME = f"oak-{os.getpid()}-00"

Deaths = queue.SimpleQueue[str]


@pytest.fixture
def deaths() -> Deaths:
    return queue.SimpleQueue()


@pytest.fixture
def local(deaths: Deaths) -> Iterator[LocalPrograms]:
    local = LocalPrograms(ME, deaths.put)
    yield local
    local.close()


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def node_of(process: "subprocess.Popen[bytes]") -> str:
    return f"oak-{process.pid}-9f3a"


def test_a_program_that_was_killed_has_died(
    local: LocalPrograms, deaths: Deaths, process: "subprocess.Popen[bytes]"
) -> None:
    local.came(node_of(process))
    assert local.names() == (node_of(process),)
    process.kill()  # and nobody waits for it, so it is still in the list of processes
    local.went(node_of(process))
    assert deaths.get(timeout=10) == node_of(process)
    assert local.names() == ()


def test_one_that_only_left_or_changed_its_way_has_not(
    deaths: Deaths, process: "subprocess.Popen[bytes]"
) -> None:
    with closing(LocalPrograms(ME, deaths.put, death_s=0.05)) as local:
        local.came(node_of(process))
        local.went(node_of(process))
        with pytest.raises(queue.Empty):
            deaths.get(timeout=0.3)
        local.came(node_of(process))
        assert local.names() == (node_of(process),)


@pytest.mark.parametrize("node", ["elm-{}-9f3a", "oak-x-9f3a", "oak-4", "{}", "oak-99999999-00"])
def test_nothing_is_said_of_what_is_no_program_of_this_host(
    local: LocalPrograms, deaths: Deaths, process: "subprocess.Popen[bytes]", node: str
) -> None:
    local.came(node.format(process.pid))
    assert local.names() == ()
    local.went(node.format(process.pid))
    assert deaths.empty()


def test_so_many_are_looked_at(deaths: Deaths) -> None:
    with closing(LocalPrograms(ME, deaths.put, count_max=2)) as local:
        for number in range(3):
            local.came(f"oak-{os.getpid()}-{number}")
        assert len(local.names()) == 2
