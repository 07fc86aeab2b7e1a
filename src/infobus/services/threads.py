"""Where operations run: threads that come and go, and one event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

log = logging.getLogger("infobus")

_IDLE_S = 10.0


class Threads:
    """Threads that grow while work waits, up to what the offers allow, and end when idle."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def do(self, job: Callable[[], None]) -> None:
        """Have something done by a thread."""
        with self._lock:
            must_grow = self._idle <= 0
            self._idle -= not must_grow
        self._jobs.put(job)
        if must_grow:
            name = f"{self._name}-operation"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle <= 0:  # counted on by somebody who is about to put a job
                        continue
                    self._idle -= 1
                return
            try:
                job()
            except BaseException:  # it would end the thread
                log.exception("a service goes on after an error of its own")
            with self._lock:
                self._idle += 1


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
