"""The processes of a measurement, and the pipes over which they take orders.

Processes are spawned, never forked: engines with native threads do not survive a fork. The order
None ends a process.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import msgspec

from infobus.errors import EngineError

ANSWER_S_MAX = 120.0
"""Longer than any round takes, even on a machine that swaps."""

What = TypeVar("What")
"""What is measured: whatever the roles of a benchmark need to know."""

Role = Callable[[Connection, What, str], None]
"""What a process does, given its pipe, what is measured, and an address."""


class Connected(msgspec.Struct):
    """The first answer of every process."""

    took_s: float = 0.0
    threads: int = 0


class Broken(msgspec.Struct):
    """The last answer of a process that cannot go on."""

    reason: str


class WorkerProcess:
    """A spawned process and our end of its pipe."""

    def __init__(self, role: Role[What], what: What, address: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.role = role.__name__
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=work, args=(role, theirs, what, address), daemon=True
        )
        self.process.start()
        # Only the child may hold this end, or we would not see the end of file when it dies.
        theirs.close()

    def order(self, what: tuple[object, ...] | str | int | None) -> None:
        """Give an order, the word to begin, or None to end."""
        try:
            self.pipe.send(what)
        except OSError:
            # The process has ended early. Its last answer says why, and raises.
            while True:
                self.answer()

    def answer(self) -> Any:
        """Wait for the next answer."""
        if not self.pipe.poll(ANSWER_S_MAX):
            raise EngineError(f"{self.role}: no answer in {ANSWER_S_MAX:.0f} s")
        try:
            said = self.pipe.recv()
        except EOFError:
            raise EngineError(f"{self.role}: the process died") from None
        if isinstance(said, Broken):
            raise EngineError(said.reason)
        return said

    def ask(self, *order: object) -> Any:
        """Give an order and wait for the answer."""
        self.order(order)
        return self.answer()


@contextmanager
def company_of(
    roles: Sequence[Role[What]], what: What, address: str
) -> Iterator[list[WorkerProcess]]:
    """All processes of a measurement, started together; none is left behind."""
    company: list[WorkerProcess] = []
    try:
        for role in roles:
            company.append(WorkerProcess(role, what, address))
        yield company
        for worker in company:
            worker.order(None)
        for worker in company:
            worker.process.join(10)
    finally:
        for worker in company:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def work(role: Role[What], pipe: Connection, what: What, address: str) -> None:
    """Play `role` in a process of its own, and send back why if it breaks."""
    try:
        role(pipe, what, address)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{role.__name__}: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
        pipe.send(Broken(reason))
