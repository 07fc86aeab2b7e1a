"""Real processes on one host: each event once and in order, whoever starts, dies or freezes."""

import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.processes.conftest import Start
from tests.processes.programs.node import Node


def numbers(entries: list[Any]) -> list[int]:
    """The numbers received, of an account without losses."""
    assert not [entry for entry in entries if entry[0] == "lost"], entries
    return [entry[0] for entry in entries]


def received(node: Node, pattern: str, count: int, timeout_s: float = 60.0) -> dict[str, list[Any]]:
    return dict(node("account", pattern, count, timeout_s))


def test_two_programs_started_in_any_order(start: Start) -> None:
    publisher, subscriber = start(wait=False), start(wait=False)
    for node in (publisher, subscriber):
        node.wait_open()
    assert publisher("peers", 1, 60) == 1
    subscriber("subscribe", "x.>", {})
    publisher("publish", "x.y", 1, 100)
    account = received(subscriber, "x.>", 100)
    assert numbers(account[publisher.name]) == list(range(1, 101))
    # The other way round, and to a node that comes later.
    late = start()
    late("subscribe", "y.>", {})
    subscriber("publish", "y.z", 1, 10)
    assert numbers(received(late, "y.>", 10)[subscriber.name]) == list(range(1, 11))


def test_a_killed_subscriber_and_its_successor(start: Start) -> None:
    publisher, other, victim = start(), start(), start()
    for node in (other, victim):
        node("subscribe", "x.>", {})
    publisher("publish", "x.y", 1, 10)
    assert numbers(received(victim, "x.>", 10)[publisher.name]) == list(range(1, 11))
    victim.kill()
    publisher("publish", "x.y", 11, 20)
    successor = start()
    successor("subscribe", "x.>", {})
    publisher("publish", "x.y", 21, 30)
    assert numbers(received(successor, "x.>", 10)[publisher.name]) == list(range(21, 31))
    assert numbers(received(other, "x.>", 30)[publisher.name]) == list(range(1, 31))


def test_a_killed_publisher_and_its_successor(start: Start) -> None:
    subscriber, victim, other = start(), start(), start()
    subscriber("subscribe", "x.>", {})
    victim("publish", "x.y", 1, 50)
    first = received(subscriber, "x.>", 50)
    assert numbers(first[victim.name]) == list(range(1, 51))
    victim.kill()
    other("publish", "x.y", 1, 10)
    successor = start()
    successor("publish", "x.y", 51, 60)
    account = received(subscriber, "x.>", 20)
    assert numbers(account[other.name]) == list(range(1, 11))
    assert numbers(account[successor.name]) == list(range(51, 61))


def test_a_publisher_that_dies_in_mid_stream_leaves_no_false_loss(start: Start) -> None:
    subscriber, victim, other = start(), start(), start()
    subscriber("subscribe", "x.>", {})
    victim.begin("publish", "x.y", 1, 10**9)
    some = received(subscriber, "x.>", 1000)[victim.name]
    victim.kill()
    other("publish", "x.y", 1, 20)
    rest: list[Any] = []
    others: list[int] = []
    while len(others) < 20:
        account = received(subscriber, "x.>", 1)
        rest += account.get(victim.name, [])
        others += numbers(account.get(other.name, []))
    assert others == list(range(1, 21))
    # What arrived is the unbroken beginning of what it had published.
    seen = numbers(some + rest)
    assert seen == list(range(1, len(seen) + 1))


def test_five_processes_all_publishing_and_subscribing(start: Start) -> None:
    nodes = [start(wait=False) for _ in range(5)]
    for node in nodes:
        node.wait_open()
    for node in nodes:
        assert node("peers", 4, 60) == 4
        node("subscribe", "x.>", {})
    for node in nodes:
        node.begin("publish", "x.y", 1, 400)
    for node in nodes:
        node.answer()
    for node in nodes:
        account = received(node, "x.>", 5 * 400)
        assert sorted(account) == sorted(other.name for other in nodes)
        for entries in account.values():
            assert numbers(entries) == list(range(1, 401))


def test_a_late_joiner_gets_only_what_comes_later(start: Start) -> None:
    publisher, early = start(), start()
    early("subscribe", "x.>", {})
    publisher.begin("publish", "x.y", 1, 20_000)
    late = start()
    late("subscribe", "x.>", {})
    publisher.answer()
    publisher("publish", "x.y", 20_001, 20_010)
    assert numbers(received(early, "x.>", 20_010)[publisher.name]) == list(range(1, 20_011))
    seen: list[int] = []
    while not seen or seen[-1] != 20_010:
        seen += numbers(received(late, "x.>", 1)[publisher.name])
    assert seen == list(range(seen[0], 20_011))


def test_buses_of_different_names_do_not_hear_each_other(start: Start) -> None:
    here, there = start(), start(on_bus=f"other-{uuid.uuid4().hex}")
    there("subscribe", ">", {})
    here("publish", "x.y", 1, 10)
    assert here("stats", "quenched") == 10
    assert there("stats", "peers") == []
    assert received(there, ">", 1, timeout_s=0.2) == {}


class TestFrozen:
    """A process stopped by SIGSTOP while another one floods."""

    def test_costs_others_a_bounded_time_and_never_has_a_silent_hole(self, start: Start) -> None:
        # Links of patient nodes would take long to be whole again.
        publisher, other, frozen = (start(patient=False) for _ in range(3))
        for node in (other, frozen):
            node("subscribe", "x.>", {})
        publisher("publish", "x.warm", 0, 0)
        for node in (other, frozen):
            received(node, "x.>", 1)
        frozen.freeze()
        started_s = time.monotonic()
        stall_s = publisher("flood", "x.y", 60_000, 200)
        flood_s = time.monotonic() - started_s
        seen = numbers(received(other, "x.>", 60_000)[publisher.name])
        assert seen == list(range(60_000))
        print(f"flood of 60000 took {flood_s:.2f} s, longest publish {stall_s:.2f} s")
        assert stall_s < 10
        frozen.thaw()
        assert publisher("peers", 2, 60) == 2
        account: list[Any] = []
        deadline_s = time.monotonic() + 60
        marker = 1_000_000
        while not any(entry[0] == marker - 1 for entry in account):
            assert time.monotonic() < deadline_s, account[-3:]
            publisher("publish", "x.y", marker, marker)
            marker += 1
            account += received(frozen, "x.>", 1, 1.0).get(publisher.name, [])
        self.check_for_holes(account)

    def check_for_holes(self, account: list[Any]) -> None:
        """Each number comes next, or a loss was reported right before the jump."""
        expected, may_jump, missing = 2, False, 0
        for entry in account:
            if entry[0] == "lost":
                _, first, last = entry
                may_jump = True
                if last is not None:
                    assert first >= expected, (entry, expected)
            else:
                seq = entry[1]
                assert seq == expected or (may_jump and seq > expected), (entry, expected)
                missing += seq - expected
                expected, may_jump = seq + 1, False
        print(f"{missing} events were reported as lost")

    def test_before_anything_was_published(self, start: Start) -> None:
        publisher, frozen = start(), start(patient=False)
        frozen("subscribe", "x.>", {})
        frozen.freeze()
        assert publisher("peers", 0, 60) == 0  # taken for dead
        publisher("publish", "x.y", 1, 5)
        frozen.thaw()
        assert publisher("peers", 1, 60) == 1
        account: list[Any] = []
        number = 6
        while not any(entry[0] == number - 1 for entry in account):
            publisher("publish", "x.y", number, number)
            number += 1
            account += received(frozen, "x.>", 1, 1.0).get(publisher.name, [])
        first = account[0]
        assert first[0] == "lost" or first[0] == 1, account

    @pytest.mark.parametrize("end", ["close", "kill"])
    def test_while_a_publisher_goes_on_and_leaves(self, start: Start, end: str) -> None:
        publisher, frozen, other = start(), start(patient=False), start()
        frozen("subscribe", "x.>", {})
        publisher("publish", "x.y", 1, 50)
        assert numbers(received(frozen, "x.>", 50)[publisher.name]) == list(range(1, 51))
        frozen.freeze()
        assert publisher("peers", 1, 60) == 1  # taken for dead
        publisher("publish", "x.y", 51, 150)
        if end == "close":
            publisher("close")
        publisher.kill()
        assert other("peers", 0, 60) == 0
        frozen.thaw()
        account = received(frozen, "x.>", 1)
        assert account == {publisher.name: [["lost", 0, None]]}
        # It is told once, and hears others as before.
        assert frozen("peers", 1, 60) == 1
        other("publish", "x.y", 1, 5)
        assert [entry[0] for entry in received(frozen, "x.>", 5)[other.name]] == [1, 2, 3, 4, 5]

    def test_while_a_publisher_begins(self, start: Start) -> None:
        frozen = start(patient=False)
        frozen("subscribe", "x.>", {})
        frozen.freeze()
        publisher = start(patient=False)
        publisher("publish", "x.y", 1, 5)
        frozen.thaw()
        assert publisher("peers", 1, 60) == 1
        account: list[Any] = []
        number = 6
        while not any(entry[0] == number - 1 for entry in account):
            publisher("publish", "x.y", number, number)
            number += 1
            account += received(frozen, "x.>", 1, 1.0).get(publisher.name, [])
        assert account[0] == ["lost", 0, None]
        assert [entry[0] for entry in account].count("lost") == 1


HOLDS_THE_GIL = """
import ctypes, os
gate = os.open(GATE, os.O_RDONLY)
ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)  # PyDLL keeps the GIL meanwhile
"""
PURE_PYTHON = """
import os
gate = os.open(GATE, os.O_RDONLY)
os.set_blocking(gate, False)
while True:
    try:
        os.read(gate, 1)
        break
    except BlockingIOError:
        sum(range(1000))
"""


@pytest.mark.parametrize("code", [HOLDS_THE_GIL, PURE_PYTHON], ids=["C", "Python"])
def test_a_consumer_stuck_in_a_long_call_delays_nobody(
    start: Start, code: str, tmp_path: Path
) -> None:
    publisher, other, stuck = start(), start(), start()
    for node in (other, stuck):
        node("subscribe", "x.>", {})
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    stuck.begin("exec", code.replace("GATE", repr(str(gate))))
    with gate.open("wb"):  # it has begun its call, which ends when this is closed
        publisher("flood", "x.y", 5000, 100)
        assert numbers(received(other, "x.>", 5000)[publisher.name]) == list(range(5000))
    stuck.answer()
    assert numbers(received(stuck, "x.>", 5000)[publisher.name]) == list(range(5000))


def test_closing_right_after_a_burst_delivers_all_of_it(start: Start) -> None:
    publisher, subscriber = start(), start()
    subscriber("subscribe", "x.>", {})
    publisher("publish", "x.y", 1, 20_000)
    publisher("close")
    assert numbers(received(subscriber, "x.>", 20_000)[publisher.name]) == list(range(1, 20_001))


def test_ten_thousand_subscriptions_need_few_threads(start: Start) -> None:
    publisher, subscriber = start(), start()
    before, after, took_s = subscriber(
        "exec",
        """
import threading, time, os
def threads(): return len(os.listdir("/proc/self/task"))
before, started = threads(), time.monotonic()
sub = bus.subscribe_many([f"c{n % 100}.s{n}" for n in range(10_000)])
answer = [before, threads(), time.monotonic() - started]
infobus.sub = sub
""",
    )
    print(f"{took_s:.2f} s, {after - before} more threads")
    assert after - before <= 20
    assert took_s < 60
    for number in (0, 4999, 9999):
        publisher("publish", f"c{number % 100}.s{number}", number, number)
    seen = subscriber("exec", "answer = [infobus.sub.receive(60).data['n'] for _ in range(3)]")
    assert sorted(seen) == [0, 4999, 9999]
