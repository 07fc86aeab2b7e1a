"""Waiting for a change, so that an interrupt does no harm wherever it strikes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Changed:
    """Wakes those who wait for something that a lock guards.

    What `threading.Condition` is for, which is written in Python: a KeyboardInterrupt that
    strikes inside it can leave the lock held for ever, or have it released once too often. Here
    nothing is held while anybody waits, and locks are taken by `with` alone.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiters: list[threading.Lock] = []

    def notify_all(self) -> None:
        """Let everyone who waits look again. The caller holds the lock."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.release()

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
