"""Group commit: threads that wait at the same time share one transaction, and so one sync.

Whoever comes first leads: it commits what everybody brought meanwhile in one transaction. The
others sleep until theirs is done, or until one of them is woken to lead the next round. A thread
that is alone leads at once, without waiting and without waking anybody.

Threads that publish one event after the other would fall into two groups, of which one always
waits for the other's sync. So a leader waits for those of the last round to come back, as long
as somebody does within half the time that a commit takes.

A leader wakes one of the others, and each that wakes wakes two more. If it woke them all, they
would wake only to wait for the interpreter's lock, and be woken by that a second time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from infobus.errors import BusClosed, StoreError

T = TypeVar("T")
_WAKES_COUNT = 2


class _Waiting(Generic[T]):
    __slots__ = ("error", "gate", "is_gone", "leads", "line", "work")

    def __init__(self, work: T) -> None:
        self.work = work
        self.gate: threading.Lock | None = None
        self.leads = False
        self.is_gone = False
        self.error: BaseException | None = None
        self.line: deque[_Waiting[T]] = deque()  # those of its round that are still asleep


class GroupCommit(Generic[T]):
    """Gathers work for `commit`, which makes all of it durable or raises."""

    def __init__(self, path: str, commit: Callable[[Sequence[T]], None]) -> None:
        self._path = path
        self._commit = commit
        self._guard = threading.Lock()
        self._waiting: list[_Waiting[T]] = []
        self._is_led = False
        self._is_over = False
        self._last_count = 1
        self._last_s = 0.0
        self._expected_count = 0
        self._all_are_back = threading.Lock()
        self._all_are_back.acquire()

    def run(self, work: T, *, is_last: bool = False) -> None:
        """Return when `work` is durable; raise what the commit raised.

        After the last one, everybody is turned away with `BusClosed`.
        """
        mine = _Waiting(work)
        with self._guard:
            if self._is_over:
                raise BusClosed(f"{self._path} is closed")
            self._is_over = is_last
            self._waiting.append(mine)
            if self._is_led:
                mine.gate = threading.Lock()
                mine.gate.acquire()
            else:
                self._is_led = mine.leads = True
            if len(self._waiting) == self._expected_count:
                self._all_are_back.release()
        if mine.gate is not None:
            try:
                mine.gate.acquire()
                _wake(mine.line, _WAKES_COUNT)
            except BaseException:  # such as Ctrl-C
                self._give_up(mine)
                raise
        if mine.leads:
            self._lead(mine)
        if mine.error is not None:
            raise mine.error

    def _lead(self, mine: _Waiting[T]) -> None:
        error: BaseException | None = None
        batch = [mine]
        try:
            batch = self._gather()
            start_s = time.perf_counter()
            self._commit([one.work for one in batch])
            self._last_count, self._last_s = len(batch), time.perf_counter() - start_s
        except BaseException as raised:
            error = raised
        mine.error = error
        with self._guard:
            if len(batch) > 1:
                line = deque(one for one in batch if one is not mine and not one.is_gone)
                for one in line:
                    one.error, one.line = self._told(error), line
                _wake(line, 1)
            if mine in self._waiting:  # interrupted before it came to gathering
                self._waiting.remove(mine)
            self._appoint()

    def _gather(self) -> list[_Waiting[T]]:
        with self._guard:
            is_short = len(self._waiting) < self._last_count
            if is_short:
                self._expected_count = self._last_count
        while is_short:
            count = len(self._waiting)
            if self._all_are_back.acquire(timeout=self._last_s / 2) or len(self._waiting) == count:
                break
        with self._guard:
            self._expected_count = 0
            self._all_are_back.acquire(blocking=False)  # it may have come too late
            batch, self._waiting = self._waiting, []
        return batch

    def _told(self, error: BaseException | None) -> BaseException | None:
        if error is None or isinstance(error, Exception):
            return error
        # Ctrl-C hit the leader. It may have been just before or after the sync.
        told = StoreError(
            f"{self._path}: the commit was interrupted, and may have happened or not",
            path=self._path,
        )
        told.retry_is_safe = False
        return told

    def _appoint(self) -> None:
        self._is_led = bool(self._waiting)
        if self._waiting:
            heir = self._waiting[0]
            assert heir.gate is not None, "only a leader does not wait"
            heir.leads = True
            heir.gate.release()

    def _give_up(self, mine: _Waiting[T]) -> None:
        with self._guard:
            mine.is_gone = True
            if mine in self._waiting:
                self._waiting.remove(mine)
                if mine.leads:
                    self._appoint()
            elif mine in mine.line:
                mine.line.remove(mine)
            else:
                _wake(mine.line, _WAKES_COUNT)


def _wake(line: deque[_Waiting[T]], count: int) -> None:
    """Let the first ones of a line go on; others may take from it at the same time."""
    try:
        for _ in range(count):
            one = line.popleft()
            assert one.gate is not None, "only a leader does not wait"
            one.gate.release()
    except IndexError:
        pass  # all are awake
