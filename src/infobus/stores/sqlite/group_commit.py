"""Group commit: threads and tasks that wait at the same time share one transaction and one sync.

A thread that is alone commits at once, without waiting and without waking anybody. Those who come
meanwhile make up a round, and a thread of the group's own commits for all of them. It stays on one
processor, with what it needs in the caches; publishers that took turns at it would not.

Threads that publish one event after the other would fall into two rounds, of which one always
waits for the other's sync. So a round waits for all that were there in the last one, or waited
behind it. If nobody comes within the time that a commit takes, it goes without them.

The threads of a round sleep at one pipe, and are woken by one write to it. Locks would cost twice
as much: a thread that is woken by a lock finds the interpreter's lock still held, and has to be
woken again. The tasks of a round hear of it by one call of their event loop.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from infobus.errors import BusClosed, StoreError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

T = TypeVar("T")
_DONE, _LAST = b"d", b"l"
_PATIENCE_S_MAX = 0.002  # one commit may have taken long
_IDLE_S = 1.0  # how long the thread stays when there is nothing to do


class _Gate:
    """A pipe at which threads sleep; each byte lets one of them go on."""

    def __init__(self, exit: int, entry: int) -> None:
        self._exit, self._entry = exit, entry

    def wait(self) -> bytes:
        return os.read(self._exit, 1)

    def let_go(self, count: int) -> None:
        os.write(self._entry, _DONE * (count - 1) + _LAST)

    def __del__(self) -> None:
        os.close(self._exit)
        os.close(self._entry)


class _Round(Generic[T]):
    """Those who share a commit."""

    __slots__ = ("error", "futures", "gate", "thread_count", "works")

    def __init__(self) -> None:
        self.works: list[T] = []
        self.gate: _Gate | None = None  # at which the threads sleep
        self.thread_count = 0
        self.futures: dict[AbstractEventLoop, list[Future[None]]] = {}  # of the tasks
        self.error: BaseException | None = None

    def tell(self) -> None:
        """Let everybody go on."""
        for loop, futures in self.futures.items():
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_complete, futures, self.error)
        if self.gate is not None and self.thread_count:
            self.gate.let_go(self.thread_count)


def _complete(futures: Sequence[Future[None]], error: BaseException | None) -> None:
    for future in futures:
        if not future.done():  # else its task was cancelled
            future.set_result(None) if error is None else future.set_exception(error)


class GroupCommit(Generic[T]):
    """Gathers work for `commit`, which makes all of it durable or raises."""

    def __init__(
        self,
        path: str,
        commit: Callable[[Sequence[T]], None],
        *,
        patience_s_max: float = _PATIENCE_S_MAX,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._path = path
        self._patience_s_max = patience_s_max
        self._idle_s = idle_s
        self._commit = commit
        self._guard = threading.Lock()
        self._gathering: _Round[T] = _Round()
        self._gates: list[_Gate] = []  # that are free
        self._is_led = False  # a commit is under way
        self._is_attended = False  # the thread sees to those who gather
        self._is_over = False
        self._expected_count = 0
        self._last_s = 0.0
        self._bell: SimpleQueue[None] = SimpleQueue()  # for the thread
        self._thread: threading.Thread | None = None

    def run(self, work: T, *, is_last: bool = False) -> None:
        """Return when `work` is durable; raise what the commit raised.

        After the last one, everybody is turned away with `BusClosed`.
        """
        with self._guard:
            if self._is_over:
                raise BusClosed(f"{self._path} is closed")
            mine = self._gathering
            is_alone = not (self._is_led or self._is_attended)
            if is_alone:
                self._close_round()
            else:
                if mine.gate is None or not mine.works:  # all who came gave up: the thread may end
                    self._prepare(mine, for_thread=True)
                mine.thread_count += 1
            mine.works.append(work)
            is_complete = not self._is_led and len(mine.works) == self._expected_count
            self._is_over = is_last
        if is_alone:
            try:
                self._commit(mine.works)
            finally:
                self._pass_on()
        else:
            self._wait(mine, work, is_complete)

    def submit(self, work: T) -> Future[None]:
        """As `run`, for a task: the future is done when `work` is durable.

        The commit is never made by the event loop's thread. What all tasks bring in one turn of
        the loop goes together. A task that is cancelled does not take its work back.
        """
        import asyncio  # takes half as long as the rest of the package

        loop = asyncio.get_running_loop()
        future: Future[None] = loop.create_future()
        with self._guard:
            if self._is_over:
                raise BusClosed(f"{self._path} is closed")
            mine = self._gathering
            if not mine.works:
                self._prepare(mine, for_thread=False)
            mine.works.append(work)
            mine.futures.setdefault(loop, []).append(future)
            is_complete = not self._is_led and len(mine.works) == self._expected_count
            is_alone = not (self._is_led or self._is_attended)
            if is_alone:
                self._is_attended, self._expected_count = True, 0
        if is_alone:
            loop.call_soon(self._bell.put, None)  # when all have run that the loop lets run now
        elif is_complete:
            self._bell.put(None)
        return future

    def _close_round(self) -> None:
        self._is_led = True
        self._gathering = _Round()

    def _prepare(self, mine: _Round[T], for_thread: bool) -> None:
        """Make sure that the round can wait, and that somebody will lead it."""
        try:
            if self._thread is None or not self._thread.is_alive():  # as in a forked child
                name = f"infobus-commits-{self._path}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            if for_thread and mine.gate is None:
                mine.gate = self._gates.pop() if self._gates else _Gate(*os.pipe())
        except (OSError, RuntimeError) as error:
            raise StoreError(
                f"{self._path}: cannot wait for others, nothing was accepted now: {error}",
                path=self._path,
            ) from error

    def _pass_on(self) -> None:
        """After a commit of one alone, have those served that came meanwhile."""
        with self._guard:
            self._is_led = False
            self._expected_count = len(self._gathering.works)
            self._is_attended = self._expected_count > 0
        if self._is_attended:
            self._bell.put(None)

    def _wait(self, mine: _Round[T], work: T, is_complete: bool) -> None:
        gate = mine.gate
        assert gate is not None
        try:
            if is_complete:
                self._bell.put(None)
            if gate.wait() == _LAST:
                self._gates.append(gate)
        except BaseException:  # such as Ctrl-C
            with self._guard:
                if mine is self._gathering:
                    mine.works.remove(work)
                    mine.thread_count -= 1
            raise
        if mine.error is not None:
            raise mine.error

    # What follows is done by the thread.

    def _work(self) -> None:
        while True:
            try:
                self._bell.get(timeout=self._idle_s)
            except Empty:
                with self._guard:
                    if not (self._is_attended or self._gathering.works):
                        self._thread = None
                        return
            self._attend()

    def _attend(self) -> None:
        """Lead one round after the other, until nobody comes any more."""
        seen_count = -1
        while self._is_attended:
            with self._guard:
                mine, count = self._gathering, len(self._gathering.works)
                is_due = count >= self._expected_count or count == seen_count > 0
                if is_due:
                    self._close_round()
                else:
                    self._is_attended = count != seen_count
            seen_count = -1
            if is_due:
                self._lead(mine)
                continue
            try:
                self._bell.get(timeout=min(self._last_s, self._patience_s_max))
            except Empty:
                seen_count = count

    def _lead(self, mine: _Round[T]) -> None:
        count, start_s = len(mine.works), time.perf_counter()
        try:
            self._commit(mine.works)
        except BaseException as error:
            mine.error = error
        with self._guard:
            self._is_led = False
            self._last_s = time.perf_counter() - start_s
            self._expected_count = count + len(self._gathering.works)
            self._is_attended = self._expected_count > 1
        mine.tell()
