"""The threads that run operations: each job is done once, by a thread that waits or a new one."""

import logging
import threading
import time
import uuid

import pytest

from infobus.services.threads import OperationThreads
from tests.bus.helpers import wait_until


@pytest.fixture
def name():
    return f"test-{uuid.uuid4().hex}"


def count_of(name):
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def test_jobs_that_wait_for_each_other_all_run(name):
    threads, all_here = OperationThreads(name), threading.Barrier(21)
    for _ in range(20):
        threads.do(all_here.wait)
    all_here.wait(20)


def test_one_job_after_the_other_needs_one_thread(name):
    threads, idents = OperationThreads(name), []
    for count in range(1, 21):
        threads.do(lambda: idents.append(threading.get_ident()))
        wait_until(lambda count=count: len(idents) == count and threads._idle)
    assert len(set(idents)) == 1


def test_a_job_for_which_no_thread_can_be_started_is_done_later(name, monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    threads, done = OperationThreads(name), []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        threads.do(lambda: done.append(1))
    assert "an operation waits until another one ends" in caplog.text
    threads.do(lambda: done.append(2))
    wait_until(lambda: sorted(done) == [1, 2])


def test_an_error_does_not_end_the_thread(name, caplog):
    threads, done = OperationThreads(name), threading.Event()
    with caplog.at_level(logging.ERROR, "infobus"):
        threads.do(lambda: 1 // 0)
        wait_until(lambda: threads._idle)
        threads.do(done.set)
        assert done.wait(20)
    assert "goes on after an error of its own" in caplog.text
    assert count_of(name) == 1


def test_threads_end_when_they_are_idle_and_no_job_is_lost_thereby(name):
    threads, done = OperationThreads(name, idle_s=0.0005), []

    def give(first):
        for number in range(first, first + 100):
            threads.do(lambda number=number: done.append(number))
            time.sleep(0.0005)  # about as long as a thread waits for the next one

    givers = [threading.Thread(target=give, args=(first,)) for first in range(0, 400, 100)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join(20)
    wait_until(lambda: len(done) == 400)
    assert sorted(done) == list(range(400))
    wait_until(lambda: count_of(name) == 0)
