"""What a worker of the system promises about its jobs."""

import threading

from infobus.bus.threads import SYSTEM_THREADS


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
