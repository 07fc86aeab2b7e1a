"""Where operations run: threads that come and go, and one event loop."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

log = logging.getLogger("infobus")

_IDLE_S = 10.0


class OperationThreads:
    """Threads that grow while work waits, up to what the offers allow, and end when idle.

    A thread that has done its job takes the next one that waits, without a pause. Of those that
    sleep, one is woken at a time, and before it begins a job it wakes another one if more wait. A
    queue that all of them wait for would wake a second thread with each job, for nothing.

    There is no lock: the interpreter does not interrupt any of the steps. A thread that adds a job
    either wakes another one, or sees that one has been woken and has not looked yet.
    """

    def __init__(self, name: str, *, idle_s: float = _IDLE_S) -> None:
        self._name = f"{name}-operation"
        self._idle_s = idle_s
        self._jobs: deque[Callable[[], None]] = deque()
        self._idle: list[threading.Lock] = []  # of threads that sleep
        self._is_waking = False  # somebody was woken, and has not looked yet

    def do(self, job: Callable[[], None]) -> None:
        """Have something done by a thread."""
        self._jobs.append(job)
        if not self._is_waking:
            self._wake()

    def _wake(self) -> None:
        self._is_waking = True
        try:
            wake = self._idle.pop()  # of the last one that worked: its caches are warm
        except IndexError:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there are as many as the system allows
                self._is_waking = False
                log.error("an operation waits until another one ends: %s", error)
        else:
            wake.release()

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            self._is_waking = False
            self._do_what_waits()
            self._idle.append(wake)
            if not wake.acquire(timeout=self._idle_s):
                try:
                    self._idle.remove(wake)
                except ValueError:  # somebody is just waking this thread
                    wake.acquire()
                else:
                    return

    def _do_what_waits(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:  # somebody else has taken it
                return
            if self._jobs and not self._is_waking:
                self._wake()
            try:
                job()
            except BaseException:  # it would end the thread
                log.exception("a service goes on after an error of its own")


class Loop:
    """One event loop on a thread of its own, begun when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def get(self) -> AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            if self._loop is None:
                import asyncio

                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run, args=(self._loop,), name=f"{self._name}-async", daemon=True
                ).start()
            return self._loop

    def stop(self) -> None:
        """End it, if it was begun, with everything that still runs on it."""
        with self._lock:
            if self._loop is not None:
                with suppress(RuntimeError):  # it has ended before
                    self._loop.call_soon_threadsafe(self._cancel_all, self._loop)

    def _cancel_all(self, loop: AbstractEventLoop) -> None:
        import asyncio

        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.call_soon, loop.stop)  # once they have noticed


def _run(loop: AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and let go what it holds."""
    loop.run_forever()
    loop.close()
