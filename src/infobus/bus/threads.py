"""The two kinds of threads that a node starts: workers, and clocks that tick.

A node is given a way to start them. A simulation gives it one that runs every job on a virtual
clock, in one thread, so that what it proves is the node that ships.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from typing import Protocol

from msgspec import Struct

from infobus.bus.clock import SYSTEM_CLOCK

log = logging.getLogger("infobus")

Job = Callable[[], None]


class Worker(Protocol):
    """Does jobs one after the other, in the order in which they were handed over."""

    def do(self, job: Job, after_s: float = 0.0) -> None:
        """Hand a job over, to be done in turn, or `after_s` from now; returns at once."""

    def call(self, job: Job, timeout_s: float) -> None:
        """Have a job done and wait for it; at once, if a job of this worker asks for it."""

    def stop(self, timeout_s: float = 0.0) -> None:
        """Take no more jobs; those in turn are done, waited for up to `timeout_s`.

        Jobs that were to be done later are not.
        """


class Threads(Protocol):
    """A way to start threads."""

    def worker(self, name: str) -> Worker:
        """Start a worker."""

    def every(self, period_s: float, job: Job, name: str) -> Callable[[], None]:
        """Do `job` again and again, with `period_s` in between; the result ends that."""


class _Later(Struct, frozen=True, order=True):
    due_s: float
    number: int  # so that jobs are never compared
    job: Job


class SystemWorker:
    """A worker with a thread of its own; a job that raises is logged, and the next one runs."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | _Later | None] = SimpleQueue()
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Job, after_s: float = 0.0) -> None:
        if after_s > 0:
            due_s = SYSTEM_CLOCK.now_s() + after_s
            self._jobs.put(_Later(due_s, next(self._numbers), job))
        else:
            self._jobs.put(job)

    def call(self, job: Job, timeout_s: float) -> None:
        if threading.current_thread() is self._thread:
            job()
            return
        is_done = threading.Event()

        def do() -> None:
            try:
                job()
            finally:
                is_done.set()

        self._jobs.put(do)
        is_done.wait(timeout_s)

    def stop(self, timeout_s: float = 0.0) -> None:
        self._jobs.put(None)
        if timeout_s and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        later: list[_Later] = []  # a heap
        while True:
            try:
                left_s = max(0.0, later[0].due_s - SYSTEM_CLOCK.now_s()) if later else None
                job = self._jobs.get(timeout=left_s)
            except Empty:
                job = heappop(later).job
            if job is None:
                return
            if isinstance(job, _Later):
                heappush(later, job)
                continue
            try:
                job()
            except Exception:
                log.exception("%s goes on after an error of its own", self._thread.name)


class SystemThreads:
    """Real threads; daemons all, so that none of them keeps a program from ending."""

    def worker(self, name: str) -> Worker:
        return SystemWorker(name)

    def every(self, period_s: float, job: Job, name: str) -> Callable[[], None]:
        is_over = threading.Event()

        def tick() -> None:
            while not is_over.wait(period_s):
                try:
                    job()
                except Exception:
                    log.exception("%s goes on after an error of its own", name)

        threading.Thread(target=tick, name=name, daemon=True).start()
        return is_over.set


SYSTEM_THREADS = SystemThreads()
