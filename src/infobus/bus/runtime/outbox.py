"""Sending protocol frames without making anyone wait who must not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from infobus.bus.threads import Threads
from infobus.engines.base import Engine
from infobus.errors import BusError

Mail = list[tuple[str, bytes, bool]]  # key, frame, may wait for a slow link


class Post:
    """Small frames leave at once; those that may meet a full link, by a worker of their own."""

    def __init__(
        self, name: str, engine: Engine, threads: Threads, on_error: Callable[[BusError], None]
    ) -> None:
        self._engine = engine
        self._on_error = on_error
        self._worker = threads.worker(f"{name}-post")

    def stop(self) -> None:
        """End, once what was sent before is on its way."""
        self._worker.stop()

    def send(self, mail: Mail) -> None:
        """Send frames, in order among those of a kind."""
        for key, frame, bulk in mail:
            if bulk:
                self._worker.do(partial(self.put, key, frame, control=False))
            else:
                self.put(key, frame, control=True)

    def put(self, key: str, frame: bytes, control: bool) -> None:
        """Send one frame from the calling thread; what goes wrong is reported, not raised."""
        try:
            self._engine.put(key, frame, control=control)
        except BusError as error:
            self._on_error(error)
