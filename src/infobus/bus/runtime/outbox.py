"""Sending protocol frames without making anyone wait who must not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from infobus.bus.threads import Threads, Worker
from infobus.engines.base import Engine
from infobus.errors import BusError

Mail = list[tuple[str, bytes, bool, int]]  # key, frame, may wait for a slow link, urgency


class Post:
    """Small frames leave at once; those that may meet a full link, by a worker for each urgency."""

    def __init__(
        self, name: str, engine: Engine, threads: Threads, on_error: Callable[[BusError], None]
    ) -> None:
        self._engine = engine
        self._on_error = on_error
        self._lock = threading.Lock()
        self._name, self._threads = f"{name}-post", threads
        self._workers = {0: threads.worker(self._name)}

    def stop(self) -> None:
        """End, once what was sent before is on its way."""
        for worker in list(self._workers.values()):
            worker.stop()

    def send(self, mail: Mail) -> None:
        """Send frames, in order among those of a kind."""
        for key, frame, bulk, urgency in mail:
            if bulk:
                worker = self._workers.get(urgency) or self._new_worker(urgency)
                worker.do(partial(self.put, key, frame, control=False, urgency=urgency))
            else:
                self.put(key, frame, control=True)

    def _new_worker(self, urgency: int) -> Worker:
        with self._lock:
            if urgency not in self._workers:
                self._workers[urgency] = self._threads.worker(f"{self._name}{urgency:+}")
            return self._workers[urgency]

    def put(self, key: str, frame: bytes, control: bool, urgency: int = 0) -> None:
        """Send one frame from the calling thread; what goes wrong is reported, not raised."""
        try:
            self._engine.put(key, frame, control=control, urgency=urgency)
        except BusError as error:
            self._on_error(error)
