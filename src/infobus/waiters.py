"""Waiting for something, as a thread or as a task, so that an interrupt does no harm.

A `Mailbox` is for entries that somebody takes out, a `Changed` for conditions over state that a
lock guards. Threads wait for both, and tasks await both. Nobody polls, and no wait needs a thread
of its own. A task that is cancelled while it waits has taken nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

T = TypeVar("T")

_put = SimpleQueue.put  # `super()` would take as long as the rest

_TURN_COUNT = 64
"""Entries that tasks take before they let others run: a full mailbox must not starve the loop."""


_Sleepers = list[tuple["AbstractEventLoop", "Future[None]"]]
"""Tasks, of any event loops, that sleep until they are woken to look again.

The list is never replaced, so that a task that is just joining it cannot be missed.
"""


def _wake(sleepers: _Sleepers) -> None:
    with suppress(IndexError):
        while True:
            loop, future = sleepers.pop()
            with suppress(RuntimeError):  # that event loop has been closed meanwhile
                loop.call_soon_threadsafe(_set_done, future)


async def let_others_run() -> None:
    """Give the other tasks of the event loop a turn."""
    from asyncio import sleep

    await sleep(0)


def _set_done(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _sleep_unless(is_so: Callable[[], object], sleepers: _Sleepers) -> None:
    import asyncio  # takes half as long to import as the rest of the package

    loop = asyncio.get_running_loop()
    sleeper = (loop, loop.create_future())
    sleepers.append(sleeper)
    try:
        if not is_so():  # asked after joining: nothing can come between the two
            await sleeper[1]
    finally:  # also when this was cancelled
        with suppress(ValueError):
            sleepers.remove(sleeper)


class Mailbox(SimpleQueue[T]):
    """A queue that threads wait for (`get`) and tasks await (`take`); first in, first out.

    Threads and tasks may share it. Each entry goes to one of them.
    """

    bell: Callable[[], None] | None = None
    """Called after each `put`, for somebody who takes from several mailboxes."""
    _taken_count = 0

    def __init__(self) -> None:
        self.sleepers: _Sleepers = []

    def put(self, entry: T, block: bool = True, timeout: float | None = None) -> None:
        """Put an entry in, and wake those who wait. Never waits."""
        _put(self, entry)
        if self.sleepers or self.bell is not None:
            self.wake()

    post = SimpleQueue.put
    """As `put`, in one step, but only threads are woken: `wake` is for the others."""

    def wake(self) -> None:
        """Wake the tasks that wait, and ring the bell."""
        _wake(self.sleepers)
        if self.bell is not None:
            self.bell()

    async def ready(self) -> None:
        """Return when there is something to take, as it seems: somebody else may be quicker."""
        await _sleep_unless(lambda: not self.empty(), self.sleepers)

    def is_turn_over(self) -> bool:
        """Whether a task that is about to take an entry should let others run before."""
        self._taken_count += 1
        return self._taken_count % _TURN_COUNT == 0

    async def take(self) -> T:
        """Wait for the next entry."""
        if self.is_turn_over():
            await let_others_run()
        while True:
            try:
                return self.get_nowait()
            except Empty:
                await self.ready()


class Changed:
    """Wakes those who wait for something that a lock guards.

    What `threading.Condition` is for, which is written in Python: a KeyboardInterrupt that
    strikes inside it can leave the lock held for ever, or have it released once too often. Here
    nothing is held while anybody waits, and locks are taken by `with` alone.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiters: list[threading.Lock] = []
        self._sleepers: _Sleepers = []

    def notify_all(self) -> None:
        """Let everyone who waits look again. The caller holds the lock."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.release()
        if self._sleepers:
            _wake(self._sleepers)

    def wait_for(self, is_so: Callable[[], object], timeout_s: float | None) -> bool:
        """Wait until `is_so`, which is asked under the lock; False if it was not in time."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            with self._lock:
                if is_so():
                    return True
                left_s = -1.0 if until_s is None else until_s - time.monotonic()
                if until_s is not None and left_s <= 0:
                    return False
                self._waiters.append(waiter)
            if not waiter.acquire(timeout=left_s):
                with self._lock:
                    if waiter in self._waiters:  # else somebody has just notified
                        self._waiters.remove(waiter)

    async def until(self, is_so: Callable[[], object]) -> None:
        """As `wait_for`, for a task, which can limit the time itself (`asyncio.timeout`)."""

        def is_so_now() -> bool:
            with self._lock:
                return bool(is_so())

        while not is_so_now():
            await _sleep_unless(is_so_now, self._sleepers)
