"""A world in which the shipped runtime lives: a network's virtual clock, and jobs in its time.

Everything runs on one thread. What a node does by threads is done at virtual times that the
network's seed draws; a node that stands still does nothing meanwhile, and one that has crashed
does nothing any more. What goes wrong in a callback or a job is told, because the runtime's own
threads and engines would only log it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from infobus.bus.clock import Clock
from infobus.bus.threads import Job, Worker
from infobus.engines.memory.engine import Declared, MemoryEngine, Network, TokenWatch
from infobus.services.threads import OperationThreads

WALL_AHEAD_S = 1_000.0
"""How far the wall clock is ahead of the network's: nobody may take one for the other."""

OnError = Callable[[Exception], None]


def clock_of(network: Network) -> Clock:
    """The clock of all nodes of a network."""
    return Clock(lambda: network.now_s, lambda: network.now_s + WALL_AHEAD_S)


@contextmanager
def quiet() -> Iterator[None]:
    """Let the nodes' warnings be: a simulation harms them on purpose, thousands of times."""
    log = logging.getLogger("infobus")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


class VirtualWorker:
    """Does jobs in order, each at most `delay_max_s` after the one before."""

    def __init__(self, network: Network, node: str, delay_max_s: float, on_error: OnError) -> None:
        self._network = network
        self._node = node
        self._delay_max_s = delay_max_s
        self._on_error = on_error
        self._jobs: deque[Job] = deque()
        self._is_asked = False  # to do the next one
        self._is_working = False
        self._is_over = False

    def do(self, job: Job, after_s: float = 0.0) -> None:
        if after_s > 0:
            self._network.call_later(after_s, lambda: self.do(job), node=self._node)
        elif not self._is_over:
            self._jobs.append(job)
            self._ask()

    def call(self, job: Job, timeout_s: float) -> None:
        while self._jobs and not self._is_working:  # those that were handed over come first
            self._jobs.popleft()()
        job()

    def stop(self, timeout_s: float = 0.0) -> None:
        if timeout_s:
            self.call(lambda: None, timeout_s)
        self._is_over = True

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            most_s = self._delay_max_s
            delay_s = self._network.random.uniform(0, most_s) if most_s else 0.0
            self._network.call_later(delay_s, self._next, node=self._node)

    def _next(self) -> None:
        self._is_asked = False
        if not self._jobs:
            return  # `call` has done them
        self._is_working = True
        try:
            self._jobs.popleft()()
        except Exception as error:
            self._on_error(error)
        self._is_working = False
        if self._jobs:
            self._ask()


DELAYS_MAX_S = {"reduce": 0.5, "flush": 0.01, "state": 0.05}
"""Of workers, by the last word of their names; for others it is 0."""


class VirtualThreads:
    """Starts what a node would start threads for."""

    def __init__(self, network: Network, node: str, on_error: OnError) -> None:
        self._network = network
        self._node = node
        self._on_error = on_error

    def worker(self, name: str) -> Worker:
        delay_max_s = DELAYS_MAX_S.get(name.rpartition("-")[2], 0.0)
        return VirtualWorker(self._network, self._node, delay_max_s, self._on_error)

    def every(self, period_s: float, job: Job, name: str) -> Callable[[], None]:
        is_over = False

        def tick() -> None:
            if not is_over:
                self._network.call_later(period_s, tick, node=self._node)
                try:
                    job()
                except Exception as error:
                    self._on_error(error)

        def end() -> None:
            nonlocal is_over
            is_over = True

        # Nodes do not tick in step.
        first_s = self._network.random.uniform(0, period_s)
        self._network.call_later(first_s, tick, node=self._node)
        return end


OPERATION_DELAY_MAX_S = 0.01


class VirtualOperations(OperationThreads):
    """Threads of operations, none of which waits for another: each job has its own time."""

    def __init__(self, network: Network, node: str, on_error: OnError) -> None:
        super().__init__(node)
        self._network = network
        self._node = node
        self._on_error = on_error

    def do(self, job: Job) -> None:
        """Have something done a little later."""
        self.do_after(self._network.random.uniform(0, OPERATION_DELAY_MAX_S), job)

    def do_after(self, delay_s: float, job: Job) -> None:
        """Have something done at a certain time."""

        def work() -> None:
            try:
                job()
            except Exception as error:
                self._on_error(error)

        self._network.call_later(delay_s, work, node=self._node)


def watched(function: Callable[..., None], on_error: OnError) -> Callable[..., None]:
    """The same callback of an engine, which tells what goes wrong in it."""

    def call(*arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            on_error(error)

    return call


class WatchedEngine(MemoryEngine):
    """An engine whose callbacks tell what goes wrong in them."""

    def __init__(self, network: Network, on_error: OnError) -> None:
        super().__init__(network)
        self._on_error = on_error

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declared:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        return super().declare(key, watched(on_frame, self._on_error))

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> TokenWatch:
        """Report tokens of other nodes on `key`."""
        return super().watch(key, watched(on_change, self._on_error))
