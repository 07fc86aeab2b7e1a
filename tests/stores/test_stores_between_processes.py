"""Ledgers among processes that share a folder: one owner each, and heirs of those that died."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from infobus.errors import DurableInUse, LedgerInUse
from infobus.stores.ledger import folder, inspection
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.sqlite import database
from infobus.testing.conformance.stores import PLENTY, records

WRITER = """
import sys, threading
from pathlib import Path
from infobus.stores.ledger.folder import open_free
from infobus.testing.conformance.stores import record

ledger = open_free(Path(sys.argv[1]))
print("open", ledger.id, flush=True)

def publish(thread):
    turn = 0
    while True:
        first = ledger.append([record(thread * 1_000_000 + turn), record(turn)])
        sys.stdout.write(f"kept {first} {thread * 1_000_000 + turn}\\n")
        sys.stdout.flush()
        turn += 1

for thread in range(4):
    threading.Thread(target=publish, args=(thread,)).start()
"""

HOLDER = """
import sys
from pathlib import Path
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.ledger import Ledger

ledger = Ledger.open(Path(sys.argv[1]))
store = ConsumerStore.open(Path(sys.argv[2]), "billing", [">"], now_s=5.0)
print("open", ledger.id, flush=True)
sys.stdin.readline()
"""

LOCKER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    try:
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
    except BlockingIOError:
        print("held")
"""


@pytest.fixture
def start():
    """Start Python programs; those that are left are killed after the test."""
    running = []

    def start(code, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        word, id = process.stdout.readline().split()
        assert word == "open"
        return process, id

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kept_before", [1, 40, 300])
def test_a_killed_writer_loses_nothing_that_append_had_returned(start, tmp_path, kept_before):
    process, id = start(WRITER, tmp_path)
    printed = [process.stdout.readline() for _ in range(kept_before)]
    process.send_signal(signal.SIGKILL)
    printed += process.stdout.readlines()
    process.wait()
    # The last line may be cut short, and was then not promised.
    promised = [re.fullmatch(r"kept (\d+) (\d+)\n", line) for line in printed]
    with Ledger.open(tmp_path, id) as ledger:
        kept = dict(ledger.read(0, 1_000_000, PLENTY))
        assert ledger.verify() == []
        for first, wanted in (map(int, one.groups()) for one in promised if one):
            assert kept[first].subject == f"orders.{wanted}"
            assert kept[first + 1].subject == f"orders.{wanted % 1_000_000}"
        assert len(kept) % 2 == 0, "half of an append was kept"


def test_two_processes_cannot_own_one_ledger_or_name(start, tmp_path):
    process, id = start(HOLDER, tmp_path / "ledgers", tmp_path / "consumers")
    with pytest.raises(LedgerInUse, match="in use by another live process"):
        Ledger.open(tmp_path / "ledgers", id)
    with pytest.raises(DurableInUse, match="'billing' is in use"):
        ConsumerStore.open(tmp_path / "consumers", "billing", [">"], now_s=5.0)
    with folder.open_free(tmp_path / "ledgers") as other:
        assert other.id != id
    assert folder.glance(tmp_path / "ledgers", id).is_owned
    process.communicate("\n")
    Ledger.open(tmp_path / "ledgers", id).close()
    assert not folder.glance(tmp_path / "ledgers", id).is_owned


def test_a_live_process_takes_over_what_a_killed_one_left(start, tmp_path):
    process, id = start(WRITER, tmp_path)
    process.stdout.readline()
    assert not folder.orphans(tmp_path)
    process.kill()
    process.communicate()
    assert list(folder.orphans(tmp_path)) == [id]
    with Ledger.open(tmp_path, id) as ledger:
        last = ledger.next
        assert ledger.append(records(1, 1)) == last
        assert not folder.orphans(tmp_path)


def test_a_large_ledger_is_left_to_those_who_serve_it(tmp_path):
    with Ledger.open(tmp_path) as large:
        large.append(records(1, 1_000))
    size = 64 * 1024
    with folder.open_free(tmp_path, take_bytes_max=size) as small:
        assert small.id != large.id
        assert list(folder.orphans(tmp_path)) == [large.id]
    with Ledger.open(tmp_path, large.id) as pruned:
        pruned.prune(9_999.0, keep_s=0.0, keep_bytes=0)
    with (
        folder.open_free(tmp_path, take_bytes_max=size) as one,
        folder.open_free(tmp_path, take_bytes_max=size) as other,
    ):
        assert {one.id, other.id} == {small.id, large.id}


def test_a_ledger_is_not_read_again_before_it_has_changed(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.append(records(1, 2))
    seen: folder.Seen = {}
    before = folder.orphans(tmp_path, seen)[ledger.id]
    assert folder.orphans(tmp_path, seen)[ledger.id] is before
    with Ledger.open(tmp_path, ledger.id) as again:
        again.settle("billing", 1)
    after = folder.orphans(tmp_path, seen)[ledger.id]
    assert (before.positions, after.positions) == ({}, {"billing": 1})
    with Ledger.open(tmp_path, ledger.id) as again:
        again.append(records(3, 3))
    assert folder.orphans(tmp_path, seen)[ledger.id].last == 3


def test_a_forked_child_does_not_keep_a_ledger_from_heirs(tmp_path):
    ledger = Ledger.open(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)  # lives on until told
        os._exit(0)
    try:
        ledger.close()
        deadline_s = time.monotonic() + 60.0
        while True:  # the child lets go as soon as it runs
            try:
                Ledger.open(tmp_path, ledger.id).close()
                break
            except LedgerInUse:
                assert time.monotonic() < deadline_s
    finally:
        os.write(writing, b".")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_a_glance_at_a_ledger_in_use_sees_what_is_in_it(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.append(records(1, 5))
        seen = folder.glance(tmp_path, ledger.id)
        assert (seen.is_owned, seen.extent.count, seen.extent.next) == (True, 5, 6)
        assert folder.ledger_ids(tmp_path) == [ledger.id]


def test_a_publisher_survives_that_others_look_at_its_ledger(start, tmp_path):
    process, id = start(WRITER, tmp_path)
    # It must never wait for somebody to read what it prints: it is to write during every look.
    draining = threading.Thread(target=process.stdout.read)
    draining.start()
    first = folder.glance(tmp_path, id).extent.next
    for _ in range(100):
        last = folder.glance(tmp_path, id).extent.next
        assert process.poll() is None
    assert last > first
    process.kill()
    draining.join()


def is_index_locked(path):
    """Whether other processes see that this one uses the index of a file's log.

    SQLite truncates the index if nobody holds this lock.
    """
    _, index = database.companions(path)
    command = [sys.executable, "-c", LOCKER, str(index)]
    return subprocess.run(command, capture_output=True, check=True).stdout == b"held\n"


def test_an_open_ledger_is_seen_to_be_in_use_whatever_its_own_process_does(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.append(records(1, 5))
        assert is_index_locked(ledger.path)
        folder.glance(tmp_path, ledger.id)
        folder.orphans(tmp_path)
        inspection.check_ledger(tmp_path, ledger.id)
        assert ledger.verify() == []
        assert is_index_locked(ledger.path)


def test_an_open_consumer_is_seen_to_be_in_use_whatever_its_own_process_does(tmp_path):
    with ConsumerStore.open(tmp_path, "billing", [">"], now_s=5.0) as store:
        store.note("l1", 3)
        store.flush()
        inspection.glance_consumer(tmp_path, "billing")
        inspection.check_consumer(tmp_path, "billing")
        assert is_index_locked(store.path)
