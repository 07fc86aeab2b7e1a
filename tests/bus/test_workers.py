"""What a worker of the system promises about its jobs."""

import threading
from queue import Empty, SimpleQueue
from typing import Any

import pytest

import infobus
from infobus.bus.deliver.callbacks import Workers
from infobus.bus.threads import SYSTEM_THREADS
from tests.bus.conftest import Connect


def test_jobs_are_done_in_turn_and_a_later_one_holds_up_nobody() -> None:
    worker, done, is_over = SYSTEM_THREADS.worker("test-later"), [], threading.Event()
    worker.do(lambda: (done.append("later"), is_over.set()), after_s=0.05)
    worker.do(lambda: done.append("now"))
    worker.do(lambda: done.append("next"))
    assert is_over.wait(20)
    worker.stop(20)
    assert done == ["now", "next", "later"]


def test_later_jobs_are_done_in_the_order_in_which_they_are_due() -> None:
    worker, done, is_over = SYSTEM_THREADS.worker("test-due"), [], threading.Event()
    worker.do(lambda: (done.append("last"), is_over.set()), after_s=0.06)
    worker.do(lambda: done.append("first"), after_s=0.01)
    assert is_over.wait(20)
    worker.stop(20)
    assert done == ["first", "last"]


def test_a_job_that_fails_does_not_end_the_worker() -> None:
    worker, is_over = SYSTEM_THREADS.worker("test-failing"), threading.Event()
    worker.do(lambda: 1 / 0)
    worker.do(is_over.set, after_s=0.01)
    assert is_over.wait(20)
    worker.stop(20)


def test_a_worker_that_stops_does_what_is_in_turn_and_nothing_that_was_for_later() -> None:
    worker, done = SYSTEM_THREADS.worker("test-stopping"), []
    worker.do(lambda: done.append("later"), after_s=1000)
    worker.do(lambda: done.append("now"))
    worker.stop(20)
    assert done == ["now"]


class NoThreads:
    """While it is set, the system starts no more threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_set = True
        start = threading.Thread.start

        def try_to_start(thread: threading.Thread) -> None:
            if self.is_set:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", try_to_start)


class Letters:
    """Something to deliver."""

    on_error = None
    is_scheduled = False

    def __init__(self) -> None:
        self.waiting: SimpleQueue[Any] = SimpleQueue()
        self.delivered: SimpleQueue[Any] = SimpleQueue()
        self.callback = self.delivered.put
        self.take_nowait = self.waiting.get_nowait
        self.is_empty = self.waiting.empty


def test_events_wait_for_a_thread_that_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, letters, no_threads = Workers("test"), Letters(), NoThreads(monkeypatch)
    for number in range(3):
        letters.waiting.put(number)
        workers.schedule(letters)
    with pytest.raises(Empty):
        letters.delivered.get_nowait()
    no_threads.is_set = False
    letters.waiting.put(3)
    workers.schedule(letters)
    assert [letters.delivered.get(timeout=20) for _ in range(4)] == [0, 1, 2, 3]
    workers.stop()


def test_guaranteed_events_are_refused_if_nobody_can_serve_them(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = connect()
    NoThreads(monkeypatch)
    with pytest.raises(infobus.StoreError, match="nothing was accepted"):
        bus.publish("orders.new", {}, guaranteed=True)
    bus.close()


def test_a_bus_without_threads_can_be_closed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = connect(engine="zenoh")
    NoThreads(monkeypatch)
    bus.close()
    with pytest.raises(infobus.BusClosed):
        bus.publish("orders.new", {})
