"""Where operations run: threads that come and go, and one event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

log = logging.getLogger("infobus")

_IDLE_S = 10.0


class Threads:
    """Threads that grow while work waits, up to what the offers allow, and end when idle.

    Each waits for a lock of its own. A queue that several wait for would wake another one for
    nothing with each job, which then contends for the interpreter.
    """

    def __init__(self, name: str) -> None:
        self._name = f"{name}-operation"
        self._idle: list[_Worker] = []

    def do(self, job: Callable[[], None]) -> None:
        """Have something done by a thread."""
        try:
            worker = self._idle.pop()  # the last one that worked: its caches are warm
        except IndexError:
            worker = _Worker(self._idle)
            threading.Thread(target=worker.work, name=self._name, daemon=True).start()
        worker.job = job
        worker.wake.release()


class _Worker:
    """One thread. It is in `idle`, or somebody has taken it from there to give it a job."""

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self.job: Callable[[], None] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()

    def work(self) -> None:
        while True:
            if not self.wake.acquire(timeout=_IDLE_S):
                try:
                    self._idle.remove(self)
                except ValueError:  # somebody is about to give it a job
                    self.wake.acquire()
                else:
                    return
            job, self.job = self.job, None
            assert job is not None
            try:
                job()
            except BaseException:  # it would end the thread
                log.exception("a service goes on after an error of its own")
            del job
            self._idle.append(self)


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
                run = self._loop.run_forever
                threading.Thread(target=run, name=f"{self._name}-async", daemon=True).start()
            return self._loop

    def stop(self) -> None:
        """End it, if it was begun, with everything that still runs on it."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel_all, self._loop)

    def _cancel_all(self, loop: AbstractEventLoop) -> None:
        import asyncio

        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.call_soon, loop.stop)  # once they have noticed
