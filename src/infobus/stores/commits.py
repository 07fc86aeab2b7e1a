"""Group commit: threads that wait at the same time share one transaction, and so one sync.

Those who come while a commit is under way make up the next round, and one of them commits for
all. A thread that is alone does so at once, without waiting and without waking anybody.

Threads that publish one event after the other would fall into two rounds, of which one always
waits for the other's sync. So a round waits for as many as the last one had: the last of them to
come leads it. If nobody comes within half the time that a commit takes, it goes without them.

A round sleeps at one pipe, and is woken by one write to it. Locks would cost twice as much:
whoever is woken by a lock finds the interpreter's lock still held, and has to be woken again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from infobus.errors import BusClosed, StoreError

T = TypeVar("T")
_HOST, _DONE, _LAST = b"h", b"d", b"l"  # see to it that the round is led; it is done
_PATIENCE_S_MAX = 0.002  # one commit may have taken long


class _Gate:
    """A pipe at which threads sleep; each byte lets one of them go on."""

    def __init__(self, exit: int, entry: int) -> None:
        self._exit, self._entry = exit, entry

    def wait(self) -> bytes:
        return os.read(self._exit, 1)

    def let_go(self, signals: bytes) -> None:
        os.write(self._entry, signals)

    def __del__(self) -> None:
        os.close(self._exit)
        os.close(self._entry)


class _Round(Generic[T]):
    """Those who share a commit."""

    __slots__ = ("error", "gate", "is_hosted", "works")

    def __init__(self) -> None:
        self.works: list[T] = []
        self.gate: _Gate | None = None  # for all but the one that leads
        self.is_hosted = False  # somebody sees to it that it is led
        self.error: BaseException | None = None


class GroupCommit(Generic[T]):
    """Gathers work for `commit`, which makes all of it durable or raises."""

    def __init__(self, path: str, commit: Callable[[Sequence[T]], None]) -> None:
        self._path = path
        self._commit = commit
        self._guard = threading.Lock()
        self._gathering: _Round[T] = _Round()
        self._gates: list[_Gate] = []  # that are free
        self._is_led = False  # a commit is under way
        self._is_over = False
        self._last_count = 1
        self._last_s = 0.0

    def run(self, work: T, *, is_last: bool = False) -> None:
        """Return when `work` is durable; raise what the commit raised.

        After the last one, everybody is turned away with `BusClosed`.
        """
        with self._guard:
            if self._is_over:
                raise BusClosed(f"{self._path} is closed")
            mine = self._gathering
            leads = not self._is_led and len(mine.works) + 1 >= self._last_count
            if leads:
                self._close_round()
            else:
                gate = mine.gate = mine.gate or self._free_gate()
                hosts = not (self._is_led or mine.is_hosted)
                mine.is_hosted |= hosts
            mine.works.append(work)
            self._is_over = is_last
        if leads or self._wait(mine, work, gate, hosts):
            self._lead(mine)
        if mine.error is not None:
            raise mine.error

    def _close_round(self) -> None:
        self._is_led = True
        self._gathering = _Round()

    def _free_gate(self) -> _Gate:
        try:
            return self._gates.pop() if self._gates else _Gate(*os.pipe())
        except OSError as error:
            raise StoreError(
                f"{self._path}: cannot wait for others, nothing was accepted now: {error}",
                path=self._path,
            ) from error

    def _wait(self, mine: _Round[T], work: T, gate: _Gate, hosts: bool) -> bool:
        """Return when the round is done, or (True) when it is to be led by this thread."""
        try:
            while not (hosts and self._host(mine)):
                signal = gate.wait()
                hosts = signal == _HOST
                if signal == _LAST:
                    self._gates.append(gate)
                if not hosts:
                    return False
            return True
        except BaseException:  # such as Ctrl-C
            self._give_up(mine, work)
            raise

    def _host(self, mine: _Round[T]) -> bool:
        """Wait for others, and return whether to lead the round: somebody else may do so."""
        seen_count = 0
        while True:
            with self._guard:
                if mine is not self._gathering:
                    return False
                count = len(mine.works)
                if count >= self._last_count or count == seen_count:
                    self._close_round()
                    return True
            seen_count = count
            time.sleep(min(self._last_s / 2, _PATIENCE_S_MAX))

    def _lead(self, mine: _Round[T]) -> None:
        try:
            start_s = time.perf_counter()
            self._commit(mine.works)
            self._last_count, self._last_s = len(mine.works), time.perf_counter() - start_s
        except BaseException as error:
            mine.error = self._told(error)
            raise
        finally:
            with self._guard:
                self._is_led = False
                heirs = self._gathering
                heirs.is_hosted = bool(heirs.works)
            if heirs.is_hosted and heirs.gate is not None:
                heirs.gate.let_go(_HOST)  # first, for the sake of the disk
            if len(mine.works) > 1 and mine.gate is not None:
                mine.gate.let_go(_DONE * (len(mine.works) - 2) + _LAST)

    def _told(self, error: BaseException) -> BaseException:
        if isinstance(error, Exception):
            return error
        # Ctrl-C hit the leader. It may have been just before or after the sync.
        told = StoreError(
            f"{self._path}: the commit was interrupted, and may have happened or not",
            path=self._path,
        )
        told.retry_is_safe = False
        return told

    def _give_up(self, mine: _Round[T], work: T) -> None:
        with self._guard:
            if mine is self._gathering:
                mine.works.remove(work)
                if mine.is_hosted and mine.gate is not None:  # perhaps by this thread
                    mine.gate.let_go(_HOST)
