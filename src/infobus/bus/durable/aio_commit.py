"""Guaranteed events of event loops: tasks that await at the same time share one commit.

What the tasks of a loop bring in one turn of it is handed over to one thread, which has it kept
and tells the loop, once for all. A thread for each event would cost more than the disk does.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from infobus.errors import UsageError

if TYPE_CHECKING:
    from infobus.bus.bus import Bus

_IDLE_S = 1.0  # how long the thread stays when there is nothing to do


_Awaited = tuple[tuple[str, Any], dict[str, Any], Future[None]]
"""An event, the options it is published with, and what is done when it is on disk."""


class AioKeeping:
    """Has the events kept that tasks await. Each event loop comes by a thread of its own."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._gathered: dict[AbstractEventLoop, list[_Awaited]] = {}
        self._batches: SimpleQueue[list[_Awaited]] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def publish(self, subject: str, obj: Any, options: dict[str, Any]) -> Future[None]:
        """Return what is done when the event is on disk."""
        loop = get_running_loop()
        future: Future[None] = loop.create_future()
        gathered = self._gathered.get(loop)
        if gathered is None:
            gathered = self._gather(loop)
        gathered.append(((subject, obj), options, future))
        return future

    def _gather(self, loop: AbstractEventLoop) -> list[_Awaited]:
        """Begin a batch, which is handed over when all have run that the loop lets run now."""
        gathered = self._gathered[loop] = []
        loop.call_soon(self._hand_over, loop)
        return gathered

    def _hand_over(self, loop: AbstractEventLoop) -> None:
        batch = self._gathered.pop(loop)
        if not batch:
            return
        with self._guard:
            self._batches.put(batch)
            if self._thread is None or not self._thread.is_alive():  # as in a forked child
                self._thread = threading.Thread(
                    target=self._work, name=f"infobus-{self._bus.node}-aio", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                batch = self._batches.get(timeout=_IDLE_S)
            except Empty:
                with self._guard:
                    if self._batches.empty():
                        self._thread = None
                        return
            else:
                for options, alike in groupby(batch, itemgetter(1)):
                    self._keep([*alike], options)

    def _keep(self, batch: Sequence[_Awaited], options: dict[str, Any]) -> None:
        failure: Exception | None = None
        events, _, futures = zip(*batch, strict=True)
        try:
            self._bus.publish_many(events, guaranteed=True, **options)
        except Exception as error:
            if isinstance(error, UsageError) and len(batch) > 1:
                for one in batch:  # nothing was kept, so each is told apart
                    self._keep([one], options)
                return
            failure = error
        with suppress(RuntimeError):  # the event loop is closed
            futures[0].get_loop().call_soon_threadsafe(self._tell, futures, failure)

    def _tell(self, futures: Sequence[Future[None]], error: Exception | None) -> None:
        for future in futures:
            if not future.done():  # else its task was cancelled
                future.set_result(None) if error is None else future.set_exception(error)
        # Most tasks go on with another event. A batch that ends after them, in the same turn of
        # the loop, saves another turn.
        loop = futures[0].get_loop()
        if loop not in self._gathered:
            self._gather(loop)
